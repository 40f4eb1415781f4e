#include "http/vercel/words.hpp"

#include "base/clock.hpp"
#include "http/json/ascii.hpp"
#include "http/vercel/ids.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

namespace insula::http::vercel {

namespace {

constexpr std::size_t longest_data = 64 * 1024;

class waited_words final : public command_words {
public:
  waited_words(command_view is, bool with_log)
      : is_(std::move(is))
      , with_log_(with_log) {}

  manner how() const override { return {.read_bytes = 256 * 1024, .reads_ahead = true}; }
  stream_head head() const override { return {lines_type, {{"Cache-Control", "no-cache"}}, true}; }

  response refusal(question_stage, const error& why) const override { return not_started(why); }
  std::optional<response> start_refusal(const error& why) const override {
    return not_started(why);
  }

  std::string become(const error& why) override {
    is_ = read_command_view(why.message);
    return key_of_command(is_.id);
  }

  void begin(std::string& to) override { append_command(to); }
  void output(std::string& to, const std::vector<output_frame>& frames) override {
    if (with_log_)
      log_.output(to, frames);
  }
  void ended(std::string& to, const process_end& how) override {
    if (with_log_)
      log_.finish(to);
    if (how.lost)
      return append_error_line(to, {errc::sandbox_not_running, "the sandbox has stopped"});
    is_.exit_code = exit_code_of(how);
    is_.duration_ms = std::max<std::int64_t>(system_clock{}.unix_ms() - is_.started_ms, 0);
    append_command(to);
  }
  void failed(std::string& to, const error& why) override {
    if (with_log_)
      log_.finish(to);
    append_error_line(to, why);
  }

private:
  void append_command(std::string& to) const {
    json::ascii_writer out;
    out.begin_object().key("command");
    write_command(out, is_);
    out.end_object();
    (to += out.view()) += '\n';
  }

  command_view is_;
  const bool with_log_;
  log_lines log_;
};

} // namespace

void log_lines::append(std::string& to, output_stream stream, std::string_view text) const {
  while (!text.empty()) {
    auto piece = text.substr(0, longest_data);
    if (piece.size() < text.size())
      piece.remove_suffix(utf8_incomplete_tail(piece));
    text.remove_prefix(piece.size());
    to += stream == output_stream::out ? R"({"stream":"stdout","data":")"
                                       : R"({"stream":"stderr","data":")";
    json::append_ascii(to, piece);
    to += "\"}\n";
  }
}

void log_lines::output(std::string& to, const std::vector<output_frame>& frames) {
  std::size_t bytes = 0;
  for (const auto& each : frames)
    bytes += each.bytes.size();
  to.reserve(to.size() + bytes + bytes / 8);
  for (const auto& each : frames) {
    auto& rest = each.stream == output_stream::out ? out_ : err_;
    if (!rest.held().empty()) {
      append(to, each.stream, rest.feed(each.bytes));
      continue;
    }
    std::string_view text = each.bytes;
    const auto tail = utf8_incomplete_tail(text);
    rest.hold(std::string{text.substr(text.size() - tail)});
    text.remove_suffix(tail);
    append(to, each.stream, text);
  }
}

void log_lines::finish(std::string& to) {
  append(to, output_stream::out, out_.flush());
  append(to, output_stream::err, err_.flush());
}

void append_error_line(std::string& to, const error& why) {
  const auto told = refusal_of(why);
  json::ascii_writer out;
  out.begin_object().member("stream", "error").key("data").begin_object();
  out.member("code", told.code).member("message", told.message).end_object().end_object();
  (to += out.view()) += '\n';
}

std::unique_ptr<command_words> waited_command_words(command_view is, bool with_log) {
  return std::make_unique<waited_words>(std::move(is), with_log);
}

namespace {

/// The program itself could not be run.
bool is_of_program(const error& why) {
  return why.code == errc::launch_failed && why.message.starts_with("running the program");
}

} // namespace

bool is_program_missing(const error& why) {
  return is_of_program(why) && why.message.ends_with(std::strerror(ENOENT));
}

response not_started(const error& why) {
  if (is_of_program(why))
    return failure(refusal{400, "executable_not_found", why.message});
  return failure(why);
}

int exit_code_of(const process_end& end) {
  return end.timed_out ? 128 + SIGKILL : end.exit_code;
}

} // namespace insula::http::vercel
