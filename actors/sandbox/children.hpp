#pragma once

#include "actors/process.hpp"
#include "actors/sandbox/reply.hpp"
#include "actors/session.hpp"
#include "actors/terminal.hpp"

#include <cstdint>
#include <vector>

/// The actors that a sandbox starts, as its parts see them. A test has its own. Each function is
/// one question of the actor's interface, or one message. A question of a sender is delegated.
namespace insula::actors::inside_sandbox {

/// As of started_process_actor.
class child_process {
public:
  virtual ~child_process() = default;
  virtual process_actor handle() const = 0; ///< For its readers.
  virtual void start(const reply<process_actor>& to) = 0;
  virtual void start() = 0; ///< Without an answer.
  virtual void probe(const reply<bool>& to) = 0;
  virtual void status(const reply<process_status>& to) = 0;
  virtual void measure(const reply<std::uint64_t, std::uint64_t>& to) = 0;
  virtual void open_log(const reply<log_file>& to) = 0;
  virtual void interrupt(const reply<caf::ok_atom>& to) = 0;
  virtual void write_input(input_piece piece, const reply<input_progress>& to) = 0;
  virtual void signal(int number) = 0;
  virtual void kill() = 0; ///< The actor ends.
};

/// As of session_actor.
class child_session {
public:
  virtual ~child_session() = default;
  virtual void open(const reply<caf::ok_atom>& to) = 0;
  virtual void run(session_command what, const reply<process_actor>& to) = 0;
  virtual void look_around(const reply<runtime::shell_surroundings>& to) = 0;
  virtual void end(error why, const reply<caf::ok_atom>& to) = 0;
  virtual void end(error why) = 0; ///< Without an answer.
  virtual void kill() = 0;         ///< The actor ends.
};

/// As of joined_terminal_actor.
class child_terminal {
public:
  using join_reply = reply<terminal_actor, std::uint64_t, std::uint64_t>;

  virtual ~child_terminal() = default;
  virtual void join(const join_reply& to) = 0;
  virtual void join(bool takes_over, const join_reply& to) = 0;
  virtual void measure(const reply<std::uint64_t, std::uint64_t>& to) = 0;
  virtual void is_quiet(const std::vector<std::int32_t>& quiet, const reply<bool>& to) = 0;
  virtual void signal(int number) = 0;
  virtual void end() = 0;  ///< As when somebody hangs up.
  virtual void kill() = 0; ///< The actor ends.
};

} // namespace insula::actors::inside_sandbox
