#include "http/vercel/file_command.hpp"

#include "http/vercel/set_up.hpp"

#include <utility>

namespace insula::http::vercel {

refusal file_error(std::string message) {
  return {400, "file_error", std::move(message)};
}

exec_request file_command(const session_call& call, std::vector<std::string> argv,
                          const request_context& context) {
  exec_request command;
  command.argv = std::move(argv);
  command.timeout_ms = std::chrono::milliseconds{file_patience - std::chrono::seconds{10}}.count();
  command.rules = {true, true};
  command.only_if_there = true;
  command.env = {{"LC_ALL", "C.UTF-8"}};
  command.context = context;
  command.context.run = call.session.run;
  return command;
}

response answer_to_files(const result<short_outcome>& outcome) {
  if (!outcome)
    return failure(outcome.reason());
  if (outcome->end.exit_code != 0)
    return failure(file_error(last_line(outcome->err)));
  return {200, "{}"};
}

} // namespace insula::http::vercel
