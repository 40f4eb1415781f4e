#pragma once

#include "actors/sandbox/commands.hpp"
#include "actors/sandbox/idempotency_record.hpp"

#include <map>
#include <set>

namespace insula::actors::inside_sandbox {

/// The sessions of the sandbox: a shell each, or none so far. Its record has what each was made
/// with.
class sessions final : public part {
public:
  using handle = std::shared_ptr<child_session>;

  sessions(core& of, std::function<void(const std::string& id)> on_deleted)
      : part(of)
      , on_deleted_(std::move(on_deleted)) {}

  /// Answers when its shell is up.
  void create(const create_session_request& wanted, const reply<caf::ok_atom>& to);
  /// Of a sandbox that does not run, only if it has such a session.
  void remove(const delete_session_request& wanted, const reply<caf::ok_atom>& to);
  void run(waiting_command what, const reply<process_actor>& to);

  /// An image without bash has no sessions.
  bool possible() const;
  /// The one of this id, which is made with defaults if it is not there. Errors: limit_reached;
  /// launch_failed, since only bash can be one.
  result<handle> find(const std::string& id);
  /// It is still the one of this id.
  bool is(const std::string& id, const handle& which) const;
  bool has(const std::string& id) const { return live_.count(id) > 0; }
  std::size_t count() const { return live_.size(); }

  /// An earlier server has left its shell, and maybe a command in it.
  void resume(const runtime::survivor& shell, const survivor_note& note,
              std::optional<runtime::survivor> command, std::shared_ptr<process_options> process,
              std::function<void(result<process_actor>)> on_resumed);

  void count(sandbox_status& into) const override;
  void stopped(const error& why) override;
  void ends(const error& why) override;

private:
  bool is_stored(const std::string& id) const;
  create_session_request definition_of(const std::string& id) const;
  std::optional<std::pair<std::string, idempotency_record>> made_by(const std::string& key) const;
  session_options options_of(create_session_request wanted) const;
  handle start(session_options wanted);
  result<handle> add(create_session_request wanted);
  void remove_now(const std::string& id, const reply<caf::ok_atom>& to);
  void await(const std::string& id, const reply<caf::ok_atom>& to);
  void forget(const std::string& id);

  const std::function<void(const std::string& id)> on_deleted_;
  std::map<std::string, handle> live_; ///< By id.
  std::set<handle> ending_;            ///< Until the last of their output has been taken.
};

} // namespace insula::actors::inside_sandbox
