#pragma once

#include "base/unique_fd.hpp"
#include "runtime/cgroup.hpp"
#include "runtime/spawner/fuse_process.hpp"
#include "runtime/spawner/gateway_link.hpp"
#include "runtime/spawner/mount_visit.hpp"
#include "runtime/spawner/protocol.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <linux/filter.h>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace insula::runtime::spawner {

/// The buckets that are mounted in sandboxes, each with its FUSE program, a child of the spawner:
/// from the asking for one until nothing of it is left. Never blocks; what does is done by
/// visitors, children that live for moments and have deadlines.
///
/// The kernel does not wait for what the last close of a file has its program do: a file system
/// that goes takes with it what the program has not heard yet, and rclone uploads then. So one of
/// rclone's is held until nothing is on its way any more.
///
/// Source: linux/Documentation/filesystems/fuse.rst: when the last holder of a connection's device
/// is gone, whoever waits for it is woken with an error; and, under "control filesystem",
/// `waiting`.
class bucket_mounts {
public:
  using clock = std::chrono::steady_clock;

  /// What is told of one; `what` is mounted, unmounted or mount_ended.
  struct outcome {
    event what;
    std::uint32_t slot;
    std::uint64_t name;
    int error = 0; ///< 0: it went well.
    mount_step failed = mount_step::none;
    std::string said = {}; ///< The last that its program has said.
  };
  struct live_mount {
    std::uint64_t name;
    std::string path;
    bool good; ///< Its program runs.
  };

  /// `watch`: from now on readable() is to be called when there is something.
  bucket_mounts(const cgroup_tree& cgroups, gateway_link& gateway,
                std::function<void(const outcome&)> tell, std::function<void(int)> watch)
      : cgroups_(cgroups)
      , gateway_(gateway)
      , tell_(std::move(tell))
      , watch_(std::move(watch)) {}

  /// What their programs may call. Before the first mount.
  void use(std::vector<sock_filter> filter) { filter_ = std::move(filter); }

  /// `text`: as of op::mount. `process`: a pidfd of the sandbox's.
  void mount(const request& wanted, std::string_view text, int process);
  void unmount(std::uint32_t slot, std::uint64_t name, int process);

  /// Whoever has asked is gone: what is not ready yet is undone.
  void forget_askers();

  /// Everything in the sandbox is being killed. Its mounts have limits::mount_end_patience.
  void sandbox_ends(std::uint32_t slot);
  /// Its first process has been reaped, and with it all the others. Programs that write behind go
  /// on for limits::late_write_patience: they are nobody's any more.
  void sandbox_ended(std::uint32_t slot);
  /// Nothing of its mounts is left, but for what is nobody's.
  bool none_of(std::uint32_t slot) const;
  /// The spawner would end, and everything with it. True: nothing is left; else that has
  /// limits::unmount_patience, counted from the first time.
  bool hurry();
  /// There is somebody again, and time.
  void calm() { hurried_.reset(); }
  std::vector<live_mount> live_of(std::uint32_t slot) const;

  /// Is it of one of them? Then that has been read.
  bool readable(int fd);
  /// Was this child, which has ended, one of theirs?
  bool ended(pid_t child);
  /// In milliseconds for epoll_wait(), until look() has something to do; -1: never.
  int until_look() const;
  void look();

private:
  enum class phase : std::uint8_t {
    making,    ///< Its visitor is on the way.
    undoing,   ///< It will not be; its children have yet to end.
    live,      ///< It is in its place, maybe with its program gone.
    detaching, ///< The same, and a visitor takes it away.
    leaving    ///< It is away; its program ends when nobody uses it any more, or is ended.
  };
  struct one {
    std::uint32_t slot;
    std::uint64_t name;
    std::uint32_t group; ///< Of its cgroups.
    mount_visit visit;
    std::vector<std::string> argv;
    std::string secret; ///< Until its program has it.
    std::string reach;  ///< What the gateway is told of it. The same.
    std::uint32_t cache_mib;
    phase now = phase::making;
    bool asked = true; ///< Somebody waits for how it goes.
    pid_t visitor = -1;
    unique_fd way{}; ///< To the visitor.
    visit_report report{mount_step::visit, ECHILD};
    pid_t program = -1;
    unique_fd out{}; ///< What the program says.
    std::string said{};
    unique_fd mounted{};      ///< The file system, as long as it is held.
    std::uint32_t device = 0; ///< Its own.
    clock::time_point count_at = clock::time_point::max();
    bool said_more = false; ///< `said` begins anywhere in a line.
    bool ending = false;    ///< Its sandbox is being killed.
    bool gone = false;      ///< Its sandbox is no more.
    bool late = false;      ///< Whoever had asked for its end has been told that it is away.
    bool nobodys = false;   ///< It writes behind, and its sandbox is no more.
    clock::time_point due = clock::time_point::max();
  };

  bool start_visitor(one& mine, int process, bool mounts);
  void heard_visitor(one& mine);
  void read_out(one& mine);
  void start_program(one& mine, unique_fd device);
  mount_step wire(one& mine, fuse_process& which);
  void visited(one& mine);
  void undo(one& mine, visit_report why);
  void let_write();
  void let_go(one& mine);
  unsigned on_the_way(const one& mine) const;
  void answer(one& mine, event what, visit_report how);
  static void kill(const one& mine);
  void drop_finished();

  const cgroup_tree& cgroups_;
  gateway_link& gateway_;
  std::vector<sock_filter> filter_;
  std::function<void(const outcome&)> tell_;
  std::function<void(int)> watch_;
  std::list<one> all_;
  unique_fd connections_; ///< fusectl, which is mounted nowhere.
  std::uint32_t last_group_ = 0;
  std::optional<clock::time_point> hurried_; ///< Since when.
};

} // namespace insula::runtime::spawner
