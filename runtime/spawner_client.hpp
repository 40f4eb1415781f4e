#pragma once

#include "base/error.hpp"
#include "runtime/engine.hpp"
#include "runtime/packet_socket.hpp"
#include "runtime/spawner/protocol.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace insula::runtime {

struct spawner_options {
  std::string state_directory; ///< Absolute.
  std::string key;             ///< The node's, from cgroup_key().
  std::string disk = "auto";
  std::uint64_t pool_bytes = 0;
  std::uint64_t memory_reserve = 0; ///< The machine keeps so much available. 0: what is usual.
  /// A sandbox may hold so much kernel memory that it is not charged for. 0: what is usual.
  std::uint64_t most_uncharged = 0;
};

/// The name under which a node's cgroups stand, made from its state directory: nodes on one machine
/// do not meet.
std::string node_key(const std::string& state_directory);

/// What an earlier server had the spawner keep, under a name of its own.
struct held_descriptors {
  std::uint64_t name = 0;
  std::string label;
  std::vector<unique_fd> fds;
};

/// A bucket that it had mounted.
struct held_mount {
  std::uint64_t name = 0;
  std::string path;
  bool good = false; ///< Its program runs.
};

/// A sandbox of an earlier server.
struct held_sandbox {
  std::uint32_t slot = 0;
  std::string tag;
  unique_fd control; ///< None: it is on its way out.
  unique_fd freezer; ///< Of its cgroup; none: this machine has none.
  std::vector<held_descriptors> held;
  std::vector<held_mount> mounts{};
  std::uint64_t epoch = 0; ///< Under which it was commanded last.
};

/// The way to a spawner that has been greeted.
struct spawner_link {
  unique_fd socket;
  std::uint32_t version = 0;    ///< The spawner's.
  std::uint64_t generation = 1; ///< How many servers it has had, with this one.
  std::vector<held_sandbox> survivors;
  pid_t pid = 0;     ///< Of the spawner.
  unique_fd gateway; ///< The way to the egress gateway. None: it does not run just now.
  bool layers_over_images = false; ///< Its sandboxes have what is in an image's `over`.
  bool gaining_rights = false;     ///< It can make sandboxes whose users may become their root.
  bool disk_snapshots = false;     ///< It takes snapshots of disks.
  bool shows_snapshots = false;    ///< And shows them to its sandboxes.
  bool keeps_snapshots = false;    ///< They are on the machine's disk.
  bool naming_users = false;       ///< Its sandboxes' users can be given names.
  bool attaches_drives = false;    ///< It knows of drives.
  bool brokers = false;            ///< It starts brokers.
  bool lists_of_packages = false;  ///< Of the machine's image, these have dpkg's lists.
};

/// Finds the spawner of this state directory, with all that an earlier server has left, or starts
/// one; where systemd keeps the cgroups, all of version 2, in a scope of its own below insula.slice
/// (docs/decisions/0039). Needs root. A spawner of another version is ended, with its sandboxes;
/// and so is one that has no sandbox but warm ones, which nobody adopts: the next one is this
/// version's. Blocks; for the start of a node. Errors: launch_failed.
result<spawner_link> connect_to_spawner(const spawner_options& options);

/// A sandbox, and under which epoch its id is held by whoever commands it.
struct held_slot {
  std::uint32_t slot = 0;
  std::uint64_t epoch = 0;
};

/// Asking again helps: another node has the sandbox by then, or this one's next server.
extern const error spawner_gone;

/// Asks the spawner for things.
///
/// Threads: any; callbacks run on that of `io`.
/// Errors:  stale_epoch for whatever changes a sandbox that is held under a newer epoch by now;
///          hold() and release() are then of no effect, and nobody is told.
class spawner_client {
public:
  /// What the link has of survivors stays the caller's: each is adopted, or destroyed.
  /// `on_gateway` is given each way to the egress gateway, the link's first.
  spawner_client(boost::asio::io_context& io, spawner_link& link,
                 std::function<void(unique_fd)> on_gateway);
  ~spawner_client();

  /// A sandbox that is on its way.
  struct launched {
    unique_fd control;
    unique_fd freezer; ///< Of its cgroup; nothing: this machine has none.
    spawner::launch_clock done{};
  };

  using snapshot_outcome = std::function<void(result<std::uint64_t>)>;

  /// It has ended without having been asked. If the spawner has ended it, that is why.
  using end_listener = std::function<void(const std::string& why)>;
  void create(const spawner::request& wanted, std::function<void(result<launched>)> on_created,
              end_listener on_ended);
  /// A survivor is commanded under this epoch from now on, and it is heard of its end; at once, if
  /// it has ended since.
  void adopt(held_slot which, end_listener on_ended);
  /// Not called back once the sandbox has ended.
  void claim(const spawner::request& wanted, std::function<void(result<void>)> on_claimed);
  /// At most spawner::max_fds. Errors: sandbox_not_running, io_failed.
  void open_sockets(held_slot where, const sockets_request& wanted,
                    std::function<void(result<std::vector<unique_fd>>)> on_opened);
  /// How it went, with what its program has said last. Errors: io_failed, sandbox_not_running.
  using mount_outcome = std::function<void(result<void>)>;
  /// `wanted`: an attach_drive as well; then drive_in_use, not_found (there is no such drive) or
  /// already_exists (something is mounted there), too.
  void mount(const spawner::request& wanted, std::string_view text, mount_outcome tell);
  void unmount(held_slot where, std::uint64_t name, mount_outcome tell);
  /// From now on it is heard of programs of mounts that end by themselves, by the mount's name.
  void hear_of_mounts(std::uint32_t slot, std::function<void(std::uint64_t)> on_mount_ended);
  /// A new way to the broker of a sandbox, which is started if there is none; the way before ends.
  /// Errors: sandbox_not_running, io_failed, limit_reached (the broker before is on its way out).
  void open_broker(held_slot where, std::function<void(result<unique_fd>)> on_opened);
  /// It ends. Not answered.
  void end_broker(held_slot where);
  /// From now on it is heard of a broker that ends by itself.
  void hear_of_broker(std::uint32_t slot, std::function<void()> on_broker_ended);
  /// Errors: stale_epoch alone. It goes on then, and the slot is not free.
  void destroy(held_slot which, std::function<void(result<void>)> on_gone);
  /// Without descriptors those that are held stay, under the new label.
  /// False: it may not get there if this process ends now.
  bool hold(held_slot where, std::uint64_t name, std::string_view label, std::span<const int> fds);
  void release(held_slot where, std::uint64_t name);

  /// Its disk is charged for so many bytes of logs, in place of what it was before. `tell`: is
  /// there room for them? Not called back once the sandbox has ended. One at a time for each
  /// sandbox.
  void charge_logs(held_slot where, std::uint64_t bytes, std::function<void(bool fits)> tell);

  /// Writes what is dirty of its disk, for take_snapshot() of the same name. Answers 0 bytes.
  /// Errors: already_exists, disk_full, io_failed, stale_epoch; sandbox_not_running;
  /// limit_reached, too much waits for the disk.
  void flush_disk(held_slot where, const std::string& name, snapshot_outcome tell);
  /// Its disk as it is now becomes a snapshot. Answers the bytes of the disk. Errors: the same.
  void take_snapshot(held_slot where, const std::string& name, snapshot_outcome tell);
  /// A read-only directory with its layers, as that sandbox sees owners. Errors: not_found,
  /// sandbox_not_running, io_failed.
  void show_snapshot(held_slot where, const std::string& name,
                     std::function<void(result<unique_fd>)> tell);
  /// Errors: io_failed: it is still there.
  void drop_snapshot(const std::string& name, std::function<void(result<void>)> tell);
  /// The names of all that there are, in their order. Errors: io_failed.
  void list_snapshots(std::function<void(result<std::vector<std::string>>)> tell);

  /// Sandboxes may run until then, of CLOCK_BOOTTIME; 0: without an end. Does not wait. A spawner
  /// that takes nothing misses it, and has them stand still.
  void permit(std::chrono::nanoseconds until);

  /// Everything ends: every sandbox, and the spawner. Blocks until it is so, or `patience` is over.
  void shut_down(std::chrono::milliseconds patience);

  /// Hangs up and calls nobody back any more: what waits here may hold the one who owns this.
  void let_go();

  bool connected() const;

  /// `tell` is called once when the spawner has ended and nobody here has wanted that, on the
  /// thread of `io`, or at once where it has already.
  void when_lost(std::function<void()> tell);

private:
  struct shared;
  void ask_for_snapshot(spawner::request wanted, const std::string& name,
                        std::function<void(const spawner::notice*, std::string_view)> tell);
  void ask_for_descriptors(spawner::request asked,
                           std::function<void(result<std::vector<unique_fd>>)> on_opened);
  void list_after(const std::string& name, std::vector<std::string> before,
                  std::function<void(result<std::vector<std::string>>)> tell);

  boost::asio::io_context& io_;
  std::shared_ptr<shared> shared_;
};

} // namespace insula::runtime
