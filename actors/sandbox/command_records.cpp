#include "actors/sandbox/command_records.hpp"

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

void command_records::tell_of(const std::string& key, const reply<command_status>& to) {
  const auto remembered = kept_.find_remembered(key);
  if (!remembered)
    return to.deliver(command_status{});
  auto* const kept = kept_.find(key);
  if (kept != nullptr && !kept->process)
    return kept->when_known.push_back({[=, this] { tell_of(key, to); }, to.otherwise()});
  command_status answer{command_state_of(*remembered)};
  if (kept == nullptr) {
    if (!answer.end) { // It was there when its sandbox ended.
      answer.end = process_end{};
      answer.end->lost = true;
      answer.ended_ms = answer.started_ms;
    }
    return to.deliver(std::move(answer));
  }
  answer.process = kept->process->handle();
  // Its end first: what is measured then is all of its output.
  kept->process->status(reply<process_status>::function{
    [=, this, process = kept->process](const result<process_status>& status) mutable {
      if (!status)
        return to.fail(status.reason());
      if (status->ended) {
        kept_.note_end(key, status->end);
        if (const auto now = kept_.find_remembered(key))
          static_cast<command_state&>(answer) = command_state_of(*now);
        if (!answer.end) { // It could not be written down.
          answer.end = status->end;
          answer.ended_ms = options().time->unix_ms();
        }
      }
      if (!answer.output)
        return to.deliver(std::move(answer));
      measure(process, std::move(answer), to);
    }});
}

void command_records::find(const find_command& asked, const reply<command_status>& to) {
  const auto tell = [this, id = asked.id](const reply<command_status>& told) {
    local().load([=, this] { tell_of(id, told); }, told.otherwise());
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
