#pragma once

#include "actors/sandbox/core.hpp"

#include <cstdint>
#include <map>
#include <memory>

namespace insula::actors::inside_sandbox {

class persistence;

/// The sandbox as a drive: which other ones have it. Each holds a token of this node for as long as
/// it has the drive, so nothing is to be given back when a server ends; the engine knows who writes
/// until the next server has taken over both.
class drive final : public part {
public:
  drive(core& of, persistence& files)
      : part(of)
      , persistence_(files) {}

  void attach(const attach_drive& wanted, const reply<attached_drive>& to);

  void running(bool adopted) override;
  void stopped(const error& why) override;
  bool in_use() const override { return awaited_user().has_value(); }
  bool is_written() const override;
  std::optional<error> forbids_leaving() const override;
  void describe(sandbox_description& into) const override;

private:
  struct user {
    drive_use by;
    bool writes = false;
    std::function<void()> on_gone = nullptr;
  };

  void attach_now(const attach_drive& wanted, const reply<attached_drive>& to);
  void show_as_it_is(const attach_drive& wanted, const reply<attached_drive>& to);
  std::shared_ptr<void> enter(const attach_drive& wanted);
  void leave(std::uint64_t start, std::uint64_t number);
  const user* first_user() const;
  std::optional<drive_use> awaited_user() const;
  std::optional<drive_use> any_user() const;
  bool has(std::uint64_t start, std::uint64_t number) const {
    return start == core_.start() && users_.contains(number);
  }
  void note_user();

  persistence& persistence_;
  std::uint64_t last_ = 0;
  std::size_t being_shown_ = 0;
  std::map<std::uint64_t, user> users_; ///< Of this start, in the order in which they came.
};

} // namespace insula::actors::inside_sandbox
