#include "actors/sandbox/sandbox_state.hpp"
#include "actors/survivor_note.hpp"

#include "base/log.hpp"

namespace insula::actors::inside_sandbox {

bool has_survived(const sandbox_state& st) {
  return st.options->engine->survives(st.id->str());
}

void end_survivor(sandbox_pointer self) {
  auto& st = self->state;
  st.options->engine->disown(
    st.id->str(), [me = self->address(), start = st.start] { tell(me, survivor_ended{start}); });
}

void adopt(sandbox_pointer self) {
  const auto& st = self->state;
  if (st.now == phase::asleep && has_survived(st))
    begin_start(self);
}

namespace {

using runtime::survivor;
using runtime::survivor_kind;

/// What cannot be taken over is ended: nobody would ever ask for it.
void disown(sandbox_pointer self, const survivor& which) {
  auto& st = self->state;
  if (which.kind == survivor_kind::command || which.kind == survivor_kind::shell_command)
    st.knows_all = false;
  st.place->disown(which);
}

void resume_command(sandbox_pointer self, const survivor& which, const survivor_note& note) {
  if (!note.key.empty() && !resume_result(self, note.key))
    return disown(self, which);
  auto options = make_options(self, note.timeout_ms, {});
  options.rules = note.rules;
  if (!which.ended) // Else it was in time, or it is in the note that it was not.
    options.deadline = note.deadline;
  if (!note.key.empty()) {
    options.note = note;
    options.on_over = over_with_result(self, note.key, nullptr);
  }
  options.launch = [place = self->state.place, which](runtime::process_listener listener) {
    return place->take_over(which, std::move(listener));
  };
  const auto made = add_process(self, std::move(options));
  if (note.key.empty())
    return caf::anon_send(made, start_atom::value);
  self->request(made, caf::infinite, start_atom::value)
    .then([self, key = note.key](const process_actor& runs) { result_runs(self, key, runs); },
          [self, key = note.key](const caf::error& why) {
            result_does_not_run(self, key, from_caf(why));
          });
}

/// The options of its command in a session, if it has a readable label.
std::shared_ptr<process_options> session_process(sandbox_pointer self, const survivor& which,
                                                 std::function<void(result<process_actor>)>& told) {
  const auto note = survivor_note::read(which.label);
  if (!note || (!note->key.empty() && !resume_result(self, note->key)))
    return nullptr;
  auto options = std::make_shared<process_options>(make_options(self, note->timeout_ms, {}));
  options->deadline = note->deadline;
  options->on_over = [use = new_use(self)] {};
  if (note->key.empty())
    return options;
  options->note = note;
  options->on_over = over_with_result(self, note->key, std::move(options->on_over));
  told = [me = self->address(), key = note->key](result<process_actor> process) {
    tell(me, result_resumed{key, std::move(process)});
  };
  return options;
}

} // namespace

void take_over_all(sandbox_pointer self) {
  auto& st = self->state;
  st.watch.has_had_command = true;
  auto left = st.place->survivors();
  std::map<std::uint64_t, survivor> in_shells; // The one that runs, by its shell.
  for (const auto& each : left)
    if (each.kind == survivor_kind::shell_command)
      in_shells[each.shell] = each;
  std::reverse(left.begin(), left.end()); // Of two of one session the later is the one.
  for (const auto& each : left) {
    const auto note = survivor_note::read(each.label);
    switch (each.kind) {
      case survivor_kind::shell_command: continue; // With its shell, or below.
      case survivor_kind::command:
        note ? resume_command(self, each, *note) : disown(self, each);
        continue;
      case survivor_kind::terminal:
        if (!note || st.terminals.count(note->session) > 0)
          disown(self, each);
        else
          resume_terminal(self, each, note->session);
        continue;
      case survivor_kind::shell: break;
    }
    if (!note || st.sessions.count(note->session) > 0) {
      disown(self, each);
      continue;
    }
    std::optional<survivor> command;
    std::shared_ptr<process_options> process;
    std::function<void(result<process_actor>)> told;
    if (const auto at = in_shells.find(each.id); at != in_shells.end()) {
      process = session_process(self, at->second, told);
      if (process)
        command = at->second;
      else
        disown(self, at->second); // First: its shell would wait for it.
      in_shells.erase(at);
    }
    resume_session(self, each, *note, std::move(command), std::move(process), std::move(told));
  }
  for (const auto& [shell, each] : in_shells)
    disown(self, each);
  if (!st.results.empty())
    drop_unknown_results(self);
  st.options->figures->adopted();
  log::info("sandbox.adopted", {{"id", st.id->str()},
                                {"commands", st.processes.size()},
                                {"sessions", st.sessions.size()},
                                {"terminals", st.terminals.size()}});
}

} // namespace insula::actors::inside_sandbox
