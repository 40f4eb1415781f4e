#pragma once

#include "actors/bucket_mount.hpp"
#include "actors/sandbox/core.hpp"

#include <deque>
#include <map>

namespace insula::actors::inside_sandbox {

/// Buckets as directories of the sandbox. The mounts stand in its record, and are put back
/// whenever it starts. One change is made at a time: mounts depend on those before them.
class mounts final : public part {
public:
  using part::part;

  void mount(const mount_bucket_request& wanted, const reply<caf::ok_atom>& to);
  void unmount(const unmount_bucket_request& wanted, const reply<caf::ok_atom>& to);
  void list(const list_mounts_request& wanted, const reply<std::vector<mounted_bucket>>& to);
  /// Its program has ended by itself: it gets another, a few times.
  void on_program_ended(std::uint64_t start, const std::string& path);

  /// Each recorded mount is there, or has been tried.
  bool settle(const then_function& then, const otherwise_function& failed) override;
  void stopped(const error& why) override;

private:
  using on_outcome = std::function<void(const result<void>&)>;
  /// One change. It calls what it is given when it is over.
  using turn = std::function<void(then_function over)>;
  /// Of one start: has what is recorded been mounted, or tried?
  enum class state : std::uint8_t { unknown, settling, settled };

  bool is_current(std::uint64_t start) const {
    return start == core_.start() && engine_sandbox() != nullptr;
  }
  std::vector<bucket_mount> recorded() const;
  std::vector<bucket_mount> missing() const;
  std::optional<error> something_inside(const std::string& path) const;
  std::optional<error> in_the_way(const bucket_mount& wanted) const;

  bool in_turn(turn go);
  bool in_turn_unasked(turn go);
  void next();

  void mount_now(const bucket_mount& wanted, const on_outcome& told);
  void mount_in_turn(const bucket_mount& wanted, const request_context& context,
                     const reply<caf::ok_atom>& to);
  void unmount_in_turn(const std::string& path, const request_context& context,
                       const reply<caf::ok_atom>& to);
  void take_away(const std::vector<std::string>& paths, const then_function& over);
  void put_back(const std::vector<bucket_mount>& lost, unsigned attempts,
                const then_function& over);
  void put_back_later(unsigned attempts);
  void put_back_in(unsigned attempts, std::uint64_t start, std::chrono::seconds left);

  state now_ = state::unknown;
  bool changing_ = false; ///< Something is mounted, or unmounted; others wait.
  std::deque<turn> waiting_;
  std::map<std::string, unsigned> deaths_; ///< By path, of this start.
  std::uint64_t again_ = 0; ///< The start whose lost mounts are about to be tried again.
};

} // namespace insula::actors::inside_sandbox
