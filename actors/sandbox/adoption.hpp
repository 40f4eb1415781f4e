#pragma once

#include "actors/sandbox/core.hpp"
#include "actors/survivor_note.hpp"

namespace insula::actors::inside_sandbox {

class commands;
class idempotency;
class sessions;
class terminal_room;
class terminals;

/// The survivors of an earlier server get their objects again once this server has taken the
/// sandbox over.
class adoption final : public part {
public:
  struct others {
    commands& jobs;
    idempotency& keys;
    sessions& shells;
    terminals& screens;
    terminal_room& room;
  };

  adoption(core& of, others with)
      : part(of)
      , with_(with) {}

  void running(bool adopted) override;

private:
  void disown(const runtime::survivor& which);
  void resume_command(const runtime::survivor& which, const survivor_note& note);
  std::shared_ptr<process_options>
  session_process(const runtime::survivor& which, std::function<void(result<process_actor>)>& told);

  const others with_;
};

} // namespace insula::actors::inside_sandbox
