#pragma once

#include "actors/sandbox/core.hpp"

#include <memory>
#include <string>
#include <vector>

namespace insula::actors::inside_sandbox {

class persistence;
class startup;
class teardown;

/// The drives that the sandbox has at each start, as its record says. A start that cannot have one
/// fails. In a sandbox that is adopted they are there already, and are asked for again, so that
/// their own sandboxes know of this one.
class drives final : public part {
public:
  drives(core& of, persistence& files, startup& starts, teardown& ends)
      : part(of)
      , persistence_(files)
      , startup_(starts)
      , teardown_(ends) {}

  /// Calls it once the files on them are kept, or it is known that they are not, and after
  /// limits::drive_patience in any case.
  void keep(then_function then);

  void starting() override;
  bool settle(const then_function& then, const otherwise_function& failed) override;
  void stopped(const error& why) override;

private:
  enum class state : std::uint8_t { unknown, settling, settled };

  void note_wanted();
  void attach_next(std::vector<drive_mount> left, const then_function& then);
  void attach(const drive_mount& wanted, bool has_it,
              std::function<void(const result<void>&)> then);
  void ask_again(const drive_mount& wanted, std::chrono::seconds pause);
  void on_gone(std::uint64_t start, const std::string& name);
  bool goes_on(std::uint64_t start) const;

  persistence& persistence_;
  startup& startup_;
  teardown& teardown_;
  state now_ = state::unknown; ///< In this start.
  std::vector<attached_drive> held_;
};

} // namespace insula::actors::inside_sandbox
