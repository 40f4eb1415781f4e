#include "actors/sandbox/command_records.hpp"

#include "actors/run_record.hpp"
#include "base/limits.hpp"

#include <algorithm>
#include <functional>
#include <tuple>

namespace insula::actors::inside_sandbox {

void command_records::measure(const std::shared_ptr<child_process>& process, command_status answer,
                              const reply<command_status>& to) {
  using extent = reply<std::uint64_t, std::uint64_t>;
  process->measure(
    extent::function{[answer = std::move(answer), to](const result<extent::value>& read) mutable {
      if (!read)
        return to.fail(read.reason());
      std::tie(answer.begin_offset, answer.end_offset) = *read;
      to.deliver(std::move(answer));
    }});
}

/// Another node has had the run, and what is known of its commands alone.
bool command_records::is_elsewhere(std::uint64_t run) const {
  const auto is = find_run(record().entries(), run);
  return options().ours && is &&
         (is->state == run_state::stopped || is->state == run_state::aborted) &&
         !kept_.knows_run(run);
}

/// It was there when its sandbox ended.
void command_records::end_as_lost(command_state& state) const {
  if (state.end)
    return;
  const auto run = find_run(record().entries(), state.run);
  state.end = process_end{};
  state.end->lost = true;
  state.ended_ms = run && run->ended_ms != 0 ? run->ended_ms : state.started_ms;
}

void command_records::take_end(const std::string& key, const process_status& status,
                               command_state& into) {
  if (!status.ended)
    return;
  kept_.note_end(key, status.end);
  if (const auto now = kept_.find_remembered(key))
    into = command_state_of(*now);
  if (!into.end) { // It could not be written down.
    into.end = status.end;
    into.ended_ms = options().time->unix_ms();
  }
}

void command_records::tell_of(const find_command& asked, const reply<command_status>& to) {
  const auto& key = asked.id;
  const auto remembered = kept_.find_remembered(key);
  command_status answer;
  if (!remembered) {
    answer.elsewhere = is_elsewhere(asked.run);
    return to.deliver(std::move(answer));
  }
  auto* const kept = kept_.find(key);
  if (kept != nullptr && !kept->process)
    return kept->when_known.push_back({[=, this] { tell_of(asked, to); }, to.otherwise()});
  static_cast<command_state&>(answer) = command_state_of(*remembered);
  const bool opens_log = asked.opens_log && answer.output;
  const auto run = find_run(record().entries(), answer.run);
  const bool is_kept = kept != nullptr && kept->over && options().logs != nullptr && opens_log &&
                       run && !is_alive(run->state);
  if (kept != nullptr && !is_kept)
    return tell_of_running(key, kept->process, std::move(answer), to);
  const auto running = answer;
  end_as_lost(answer);
  if (!opens_log)
    return to.deliver(std::move(answer));
  logs_.open(key, answer, to, [=, this]() mutable {
    // It may be on its way: until it is kept, its process has it.
    if (const auto* still = kept_.find(key); still != nullptr && still->process)
      return tell_of_running(key, still->process, running, to);
    answer.log_gone = true;
    to.deliver(std::move(answer));
  });
}

void command_records::tell_of_running(const std::string& key,
                                      const std::shared_ptr<child_process>& process,
                                      command_status answer, const reply<command_status>& to) {
  answer.process = process->handle();
  // Its end first: what is measured then is all of its output.
  process->status(
    reply<process_status>::function{[=, this](const result<process_status>& status) mutable {
      if (!status)
        return to.fail(status.reason());
      take_end(key, *status, answer);
      if (!answer.output)
        return to.deliver(std::move(answer));
      measure(process, std::move(answer), to);
    }});
}

void command_records::find(const find_command& asked, const reply<command_status>& to) {
  const auto tell = [this, asked](const reply<command_status>& told) {
    local().load([=, this] { tell_of(asked, told); }, told.otherwise());
  };
  if (core_.lives())
    return core_.when_running(to, asked.context, [tell, to] { tell(to); });
  core_.with_record(to, asked.context, tell);
}

/// Those that have not begun to run are no commands yet.
void command_records::list_now(std::uint64_t run, const reply<command_list>& to) {
  if (run != 0 && !find_run(record().entries(), run))
    return to.fail({errc::not_found, "there is no such run"});
  struct collecting {
    command_list list;
    std::size_t open = 1;
    reply<command_list> to;

    void one_less() {
      if (--open == 0)
        to.deliver(std::move(list));
    }
  };
  std::vector<std::pair<std::int64_t, std::string>> found;
  kept_.each_remembered([&](const std::string& key, const idempotency_record& known) {
    const auto* kept = kept_.find(key);
    const auto of = command_state_of(known).run;
    // An earlier version has not put down the run.
    if ((of == run || of == 0) && (kept == nullptr || kept->process))
      found.emplace_back(known.made_ms, key);
  });
  std::sort(found.begin(), found.end(), std::greater<>{});
  const auto all = std::make_shared<collecting>(collecting{{}, 1, to});
  auto& items = all->list.commands;
  std::size_t bytes = 0;
  for (const auto& [started_ms, key] : found) {
    auto known = kept_.find_remembered(key);
    if (!known || (bytes += known->status.size()) > limits::command_list_bytes)
      break;
    items.push_back({command_state_of(*known), key});
  }
  all->list.elsewhere = items.empty() && is_elsewhere(run);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto* kept = items[i].end ? nullptr : kept_.find(items[i].id);
    if (kept == nullptr) {
      end_as_lost(items[i]);
      continue;
    }
    ++all->open;
    kept->process->status(
      reply<process_status>::function{[this, all, i](const result<process_status>& status) {
        auto& mine = all->list.commands[i];
        if (status)
          take_end(mine.id, *status, mine);
        all->one_less();
      }});
  }
  all->one_less();
}

void command_records::list(const find_commands& asked, const reply<command_list>& to) {
  const auto tell = [this, run = asked.run](const reply<command_list>& told) {
    local().load([=, this] { list_now(run, told); }, told.otherwise());
  };
  if (core_.lives())
    return core_.when_running(to, asked.context, [tell, to] { tell(to); });
  core_.with_record(to, asked.context, tell);
}

void command_records::interrupt_now(const std::string& key, int signal,
                                    const reply<caf::ok_atom>& to) {
  local().load(
    [=, this] {
      if (!kept_.find_remembered(key))
        return to.fail({errc::not_found, "there is no such command"});
      const auto* kept = kept_.find(key);
      if (kept == nullptr || !kept->process)
        return to.fail({errc::invalid_request, "the command has ended"});
      if (signal == 0)
        return kept->process->interrupt(to);
      kept->process->signal(signal);
      to.deliver(caf::ok_atom::value);
    },
    to.otherwise());
}

void command_records::interrupt(const interrupt_command& asked, const reply<caf::ok_atom>& to) {
  const auto go = [this, id = asked.id, signal = asked.signal, to] {
    interrupt_now(id, signal, to);
  };
  if (core_.lives())
    return core_.when_running(to, asked.context, go);
  core_.with_record(asked.context, go, to.otherwise());
}

void command_records::write_now(const std::shared_ptr<write_command_input>& what,
                                const reply<input_progress>& to) {
  auto* const kept = kept_.find(what->key);
  if (kept == nullptr) {
    if (!kept_.find_remembered(what->key))
      return to.fail({errc::not_found, "there is no such command"});
    return to.deliver(input_progress{0, input_state::over}); // It has ended.
  }
  if (!kept->process)
    return kept->when_known.push_back({[=, this] { write_now(what, to); }, to.otherwise()});
  kept->process->write_input(std::move(what->piece), to);
}

void command_records::write_input(write_command_input what, const reply<input_progress>& to) {
  const auto context = what.context;
  const auto shared = std::make_shared<write_command_input>(std::move(what));
  const auto go = [=, this] { local().load([=, this] { write_now(shared, to); }, to.otherwise()); };
  if (core_.lives())
    return core_.when_running(to, context, go);
  core_.with_record(context, go, to.otherwise());
}

} // namespace insula::actors::inside_sandbox
