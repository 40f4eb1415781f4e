#pragma once

#include "http/sandboxes/command_stream.hpp"
#include "http/text/utf8.hpp"
#include "http/vercel/objects_json.hpp"

#include <memory>
#include <string>
#include <vector>

namespace insula::http::vercel {

/// Lines of a command's log: one JSON text each. What is no UTF-8 is replaced, and no line ends
/// inside a character.
class log_lines {
public:
  void output(std::string& to, const std::vector<output_frame>& frames);
  /// What is left of a character that never ended.
  void finish(std::string& to);

private:
  void append(std::string& to, output_stream stream, std::string_view text) const;

  utf8_holdback out_, err_;
};

/// {"stream":"error","data":{…}}
void append_error_line(std::string& to, const error& why);

/// The stream of a command that is waited for: the command, its log if that is wanted, and the
/// command again.
std::unique_ptr<command_words> waited_command_words(command_view is, bool with_log);

/// Of a command that has not come to run.
response not_started(const error& why);

inline constexpr std::string_view lines_type = "application/x-ndjson";

/// `why`: a launch_failed. It has failed since there is no such program.
bool is_program_missing(const error& why);

/// By SIGKILL when its time is up, whatever it makes of that.
int exit_code_of(const process_end& end);

} // namespace insula::http::vercel
