#include "actors/sandbox/command_logs.hpp"

#include "actors/run_record.hpp"
#include "base/limits.hpp"

#include <utility>

namespace insula::actors::inside_sandbox {

struct command_logs::keeping {
  std::vector<std::pair<std::string, std::shared_ptr<child_process>>> logs;
  std::size_t next = 0;
  then_function then; ///< Once.

  void done() {
    if (const auto tell = std::exchange(then, nullptr))
      tell();
  }
};

void command_logs::keep(std::uint64_t run, const then_function& then) {
  const auto all = std::make_shared<keeping>();
  all->then = then;
  if (options().logs == nullptr)
    return all->done();
  local().load(
    [this, run, all] {
      kept_.when_known([this, run, all] {
        all->logs = kept_.outputs_of(run);
        keep_next(all);
      });
    },
    [all](const error&) { all->done(); });
  if (all->then) // The timer holds no actors of logs.
    core_.after(limits::kept_logs_patience, [which = std::weak_ptr<keeping>{all}] {
      if (const auto late = which.lock())
        late->done();
    });
}

/// One after the other, so that a thousand logs are not open twice at once.
void command_logs::keep_next(const std::shared_ptr<keeping>& all) {
  if (all->next == all->logs.size())
    return all->done();
  const auto& [key, process] = all->logs[all->next++];
  process->open_log(
    reply<log_file>::function{[this, all, key = key](const result<log_file>& opened) {
      if (!opened || !opened->file || core_.now() == phase::deleting)
        return keep_next(all);
      options().logs->keep(core_.id(), key, opened->file, [this, all, post = core_.post()](bool) {
        post([=, this] { keep_next(all); });
      });
    }});
}

void command_logs::end_run(std::uint64_t run) {
  if (options().logs == nullptr)
    return;
  options().logs->settle(core_.id());
  kept_.let_go_of(run);
}

void command_logs::open(const std::string& key, command_status answer,
                        const reply<command_status>& to, const then_function& not_there) {
  if (options().logs == nullptr)
    return not_there();
  const auto least_end = answer.log_end;
  const auto tell = [this, to, not_there, answer = std::move(answer)](
                      const std::shared_ptr<runtime::kept_logs::reader>& log) {
    if (log == nullptr)
      return not_there();
    auto told = answer;
    told.begin_offset = log->log.begin();
    told.end_offset = log->log.end();
    auto end = told.end.value_or(process_end{});
    end.lost = false; // Of the log nothing is.
    told.process = core_.start_log_reader({options().logs, log, end});
    to.deliver(std::move(told));
  };
  options().logs->open(
    core_.id(), key, least_end,
    [tell, post = core_.post()](const std::shared_ptr<runtime::kept_logs::reader>& log) {
      post([tell, log] { tell(log); });
    });
}

void command_logs::forget_all() {
  if (options().logs != nullptr)
    options().logs->remove(core_.id());
}

void command_logs::forget_all(then_function then) {
  if (options().logs == nullptr || !last_run(record().entries()))
    return then();
  forget_all();
  const auto once = [then = std::make_shared<then_function>(std::move(then))] {
    if (const auto tell = std::exchange(*then, nullptr))
      tell();
  };
  options().logs->when_done([post = core_.post(), once] { post(once); });
  core_.after(limits::kept_logs_patience, once);
}

} // namespace insula::actors::inside_sandbox
