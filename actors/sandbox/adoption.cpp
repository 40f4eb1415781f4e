#include "actors/sandbox/adoption.hpp"

#include "actors/sandbox/commands.hpp"
#include "actors/sandbox/idempotency.hpp"
#include "actors/sandbox/sessions.hpp"
#include "actors/sandbox/terminals.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <map>

namespace insula::actors::inside_sandbox {

using runtime::survivor;
using runtime::survivor_kind;

/// A survivor that cannot be taken over is ended: no client would ever ask for it.
void adoption::disown(const survivor& which) {
  if (which.kind == survivor_kind::command || which.kind == survivor_kind::shell_command)
    with_.keys.forget_some();
  engine_sandbox()->disown(which);
}

void adoption::resume_command(const survivor& which, const survivor_note& note) {
  if (note.key.empty())
    return with_.jobs.resume(which, note, nullptr, std::nullopt);
  const auto told = with_.keys.resume(note.key);
  if (told)
    with_.jobs.resume(which, note, with_.keys.over(note.key), told);
  else
    disown(which);
}

/// The options of its command in a session, if it has a readable label.
std::shared_ptr<process_options>
adoption::session_process(const survivor& which, std::function<void(result<process_actor>)>& told) {
  const auto note = survivor_note::read(which.label);
  if (!note)
    return nullptr;
  const auto known = note->key.empty() ? std::nullopt : with_.keys.resume(note->key);
  if (!note->key.empty() && !known)
    return nullptr;
  auto made = std::make_shared<process_options>(make_options(core_, note->timeout_ms, {}));
  made->deadline = note->deadline;
  made->on_over = [use = core_.keep_awake()] {};
  if (!known)
    return made;
  made->note = note;
  made->on_over = [use = core_.keep_awake(), over = with_.keys.over(note->key)] { over(); };
  told = [to = *known, post = core_.post()](const result<process_actor>& process) {
    post([to, process] { to.give(process); });
  };
  return made;
}

void adoption::running(bool adopted) {
  if (!adopted)
    return;
  auto left = engine_sandbox()->survivors();
  std::map<std::uint64_t, survivor> in_shells; // The one that runs, by its shell.
  for (const auto& each : left)
    if (each.kind == survivor_kind::shell_command)
      in_shells[each.shell] = each;
  std::reverse(left.begin(), left.end()); // Of two of one session the later is the one.
  for (const auto& each : left) {
    const auto note = survivor_note::read(each.label);
    switch (each.kind) {
      case survivor_kind::shell_command: continue; // With its shell, or below.
      case survivor_kind::command: note ? resume_command(each, *note) : disown(each); continue;
      case survivor_kind::terminal:
        if (!note || with_.room.has(note->session))
          disown(each);
        else
          with_.screens.resume(each, note->session);
        continue;
      case survivor_kind::shell: break;
    }
    if (!note || with_.shells.has(note->session)) {
      disown(each);
      continue;
    }
    std::optional<survivor> command;
    std::shared_ptr<process_options> process;
    std::function<void(result<process_actor>)> told;
    if (const auto at = in_shells.find(each.id); at != in_shells.end()) {
      process = session_process(at->second, told);
      if (process)
        command = at->second;
      else
        disown(at->second); // First: its shell would wait for it.
      in_shells.erase(at);
    }
    with_.shells.resume(each, *note, std::move(command), std::move(process), std::move(told));
  }
  for (const auto& [shell, each] : in_shells)
    disown(each);
  with_.keys.drop_unknown();
  options().figures->adopted();
  log::info("sandbox.adopted", {{"id", core_.id()},
                                {"commands", with_.jobs.running_count()},
                                {"sessions", with_.shells.count()},
                                {"terminals", with_.room.count()}});
}

} // namespace insula::actors::inside_sandbox
