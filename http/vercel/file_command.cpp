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

void answer_to_files(const session_call& call, const result<short_outcome>& outcome,
                     std::function<void(response)> then) {
  if (!outcome)
    return then(failure(outcome.reason()));
  const auto answer = outcome->end.exit_code == 0 ? response{200, "{}"}
                                                  : failure(file_error(last_line(outcome->err)));
  if (!outcome->end.lost && (outcome->end.signal == 0 || call.is_other()))
    return then(answer);
  const auto over = [then](question_stage, const error&) {
    then(failure(error{errc::run_over, {}}));
  };
  sandbox_question<find_runs, run_list> asked{
    call.with->directory, call.sandbox(), newest_run(),
    [then, answer, over, run = call.session.run](const run_list& all) {
      const bool goes_on = !all.runs.empty() && all.runs.front().number == run &&
                           all.runs.front().state == run_state::running;
      goes_on ? then(answer) : over(question_stage::ask, {errc::run_over, {}});
    },
    over};
  asked.starts_it = false;
  ask_sandbox(*call.with, std::move(asked));
}

} // namespace insula::http::vercel
