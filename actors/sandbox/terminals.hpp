#pragma once

#include "actors/sandbox/sessions.hpp"
#include "actors/sandbox/terminal_room.hpp"

namespace insula::actors::inside_sandbox {

/// The terminals of sessions, and those that no session has. A session's begins where its session
/// is. What another one is stands in the sandbox's record, so that it can be opened as long as the
/// sandbox is there; once it runs it is a terminal like any other, under a name that no session can
/// have, by which the next server finds it. A program's is for the one client that has asked for
/// it: the next server hangs it up, since that client is gone.
class terminals final : public part {
public:
  using join_reply = child_terminal::join_reply;

  terminals(core& of, sessions& shells, terminal_room& room)
      : part(of)
      , sessions_(shells)
      , room_(room) {}

  void open(const open_terminal_request& wanted, const join_reply& to);
  void define(const define_terminal& wanted, const reply<caf::ok_atom>& to);
  void find(const find_terminal& asked, const reply<terminal_status>& to);
  void forget(const forget_terminal& asked, const reply<caf::ok_atom>& to);

  /// An earlier server has left it. `name`: its session, or as one without a session is named.
  void resume(const runtime::survivor& which, const std::string& name);

private:
  /// A session that a terminal is made for. Null: it needs none.
  using session = sessions::handle;

  void open_of_session(const open_terminal_request& wanted, const join_reply& to);
  void make_and_join(const open_terminal_request& wanted, const runtime::shell_surroundings& from,
                     const session& of, const join_reply& to);
  void open_program(const open_terminal_request& wanted, const join_reply& to);
  void open_defined(const open_terminal_request& wanted, const join_reply& to);
  void join_or_make_defined(const open_terminal_request& wanted, const join_reply& to);
  void make_and_join_defined(const open_terminal_request& wanted, const join_reply& to);

  void make(const std::string& name, terminal_options made, const open_terminal_request& wanted);
  void make(const std::string& name, runtime::process_spec spec,
            const open_terminal_request& wanted, bool blank);
  runtime::process_spec spec_of(const std::string& shell,
                                const runtime::shell_surroundings& from) const;
  result<std::vector<storage::change>> room_for_definition() const;
  template <class... Ts, class Go>
  void with_terminals(const reply<Ts...>& to, const request_context& context, Go go);

  sessions& sessions_;
  terminal_room& room_;
};

} // namespace insula::actors::inside_sandbox
