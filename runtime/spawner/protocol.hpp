#pragma once

#include "runtime/agent/protocol.hpp"
#include "runtime/agent/shell_protocol.hpp"
#include "runtime/held_label.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>

/// What the server asks of the spawner, and what it is told: one struct per packet of a
/// SOCK_SEQPACKET socket, for some followed by a text. Strings are NUL-terminated. Descriptors
/// travel beside it. What the spawner checks of each request is in request_check.hpp.
namespace insula::runtime::spawner {

/// A spawner outlives its server, and so do the agents and keepers that it has started and the
/// labels that it keeps: a server that would misunderstand any of them understands none.
inline constexpr std::uint32_t version =
  9 | agent::version << 8 | agent::shell_version << 16 | held_label_version << 24;
inline constexpr std::size_t max_tree_name = 64;
inline constexpr std::size_t max_host_name = 64;
inline constexpr std::size_t max_tag = 152;
inline constexpr std::size_t max_snapshot_name = 63; ///< Of a-z, 0-9 and -.
inline constexpr std::size_t max_label = 1024;
inline constexpr std::size_t max_held_fds = 4;  ///< Under one name.
inline constexpr std::size_t max_fds = 16;      ///< In one packet.
inline constexpr std::size_t max_text = 16'384; ///< Behind a request.
inline constexpr std::size_t max_said = 4096;   ///< Behind a notice.

enum class op : std::uint32_t {
  hello = 1, ///< The first packet of a server. Answered with hello; then for every sandbox there is
             ///< with `holds`, and `held` for each of its names; then with `all_told`.
  create,    ///< Answered with created (and the control socket) once the launch is on its way, or
             ///< create_failed.
  destroy, ///< End it and remove everything of it. Answered with destroyed when that has happened.
  hold,    ///< Keep what comes with it under `name` for as long as `slot` lives: descriptors in
           ///< place of those that were there, if any come, and the text, a label of the server's.
  release, ///< Let go of it.
  shut_down, ///< Destroy every sandbox and end. The socket closes when that has happened.
  claim, ///< `slot`, in which nothing has run yet, is somebody's now: `host_name` is its name, and
         ///< `ceilings` are its limits. Answered with claimed. Overtakes what is to be created.
  open_sockets, ///< Make `count` TCP sockets in the network of `slot`; those of IPv6 if `ipv6` is
                ///< not 0. Answered with sockets, by the same `name`.
  mount, ///< Have a FUSE program serve a directory of `slot`. Text, each with a NUL behind it: its
         ///< path there, what the kernel lists it by, its type, what the program finds in
         ///< fuse_secret_fd, what it may reach (as of gateway::op::add), and the program with its
         ///< arguments (fuse_process.hpp). Answered with mounted, by the same `name`.
  unmount, ///< Take that away. Answered with unmounted when the program has ended, or has had its
           ///< time.
  permit,  ///< Sandboxes may run until `name`, in nanoseconds of CLOCK_BOOTTIME; 0: without an end.
          ///< From then on all of them stand still until the next one; none can be made or claimed.
          ///< Of one server the latest counts, and the first one of the next server in any case. As
          ///< long as there has been none sandboxes may run.
  adopt,         ///< `slot` is from now on that of whoever has `epoch`. Not answered.
  charge_logs,   ///< The disk of `slot` is charged for `name` bytes that the server keeps of its
                 ///< output, in place of what it was charged for before. Answered with charged.
  flush_disk,    ///< What is dirty of the disk of `slot` is written, so that take_snapshot by the
                 ///< same name has little to write. Answered with disk_flushed, by the same `name`.
  take_snapshot, ///< The disk of `slot` as it is now becomes the snapshot `snapshot`. Answered with
                 ///< snapshot_taken, by the same `name`.
  drop_snapshot, ///< `snapshot` is removed; that it is not there is fine. Answered with
                 ///< snapshot_dropped, by the same `name`.
  list_snapshots, ///< Those whose names come after `snapshot`. Answered with snapshots, by the same
                  ///< `name`.
  show_snapshot,  ///< The files of `snapshot` with the owners that `slot` sees. Answered with
                  ///< snapshot_shown, by the same `name`.
  attach_drive,   ///< The directory drive_directory of the disk of slot `count`, or of `snapshot`
                  ///< where one is named, becomes a directory of `slot`. Text: its path there.
                  ///< Answered with mounted, by the same `name`. It is away when `slot` is.
  broker, ///< A new way to the broker of `slot`, which is started if there is none, in place of the
          ///< one before. With a `count` of 0 it ends. Answered with broker, by the same `name`.
};

/// What a drive is below the root of its sandbox.
inline constexpr const char* drive_directory = "drive";

// Flags of a create.
inline constexpr std::uint32_t create_with_machines_usr = 1; ///< It goes over /usr of the tree.
inline constexpr std::uint32_t create_without_filters =
  2; ///< Its processes may load no filters of system calls.
inline constexpr std::uint32_t create_may_gain_rights =
  4; ///< Programs that change the user work in it: its users may become its root.
inline constexpr std::uint32_t create_flags =
  create_with_machines_usr | create_without_filters | create_may_gain_rights;

// Flags of a mount.
inline constexpr std::uint32_t mount_read_only = 1;
inline constexpr std::uint32_t mount_is_listed = 8;  ///< It is good only if it can be listed.
inline constexpr std::uint32_t mount_over_files = 2; ///< Its directory need not be empty.
inline constexpr std::uint32_t mount_keeps_directory =
  4; ///< Also when it is away, and that is empty.

struct limits {
  std::uint64_t memory_bytes;
  std::uint64_t disk_bytes;
  std::uint64_t shm_bytes;
  std::uint32_t cpu_percent; ///< Of one CPU; 0: no limit.
  std::uint32_t processes;
  std::uint32_t open_files;
  std::uint32_t reserved;
};

/// What changes something about a sandbox is of no effect if its `epoch` is older than the newest
/// that has been seen with it: create and claim of that tag, all else of the slot. It is answered
/// as usual, with ESTALE and the step `epoch`.
struct request {
  op what;
  std::uint32_t slot;  ///< Decides the range of user ids: first_uid + slot * uids_per_slot.
  std::uint64_t name;  ///< hello: the protocol version. hold, release: the asker's name for the
                       ///< descriptors. mount, unmount: for the mount. permit: the time.
                       ///< charge_logs: the bytes.
  std::uint64_t epoch; ///< Under which the asker holds the sandbox; 0: it is nobody's yet.
  std::uint32_t count; ///< open_sockets: 1 to max_fds. mount: MiB of its cache. attach_drive: the
                       ///< slot whose drive it is.
  std::uint32_t ipv6;
  std::uint32_t flags; ///< Of a create or a mount.
  std::uint32_t owner; ///< mount, attach_drive: user and group in the sandbox whose the directory
                       ///< is if it is made.
  limits ceilings;
  char host_name[max_host_name];
  char tag[max_tag]; ///< create, claim: what the sandbox is to whoever serves next. Of no meaning
                     ///< here. attach_drive: that of the slot whose drive it is.
  char tree[max_tree_name]; ///< create: the name of a directory in the node's directory of images;
                            ///< its `root` is what the sandbox starts from.
  char snapshot[max_snapshot_name + 1]; ///< create: what its disk begins with; empty: nothing.
                                        ///< attach_drive: whose drive it is; empty: a slot's.
  char unused[896];
};
static_assert(sizeof(request) == 1320, "other versions' hello and shut_down are of this size");

enum class event : std::uint32_t {
  hello = 1,
  holds,   ///< Slot `slot` is in use, under the epoch `name`. Text: its tag. The same descriptors
           ///< come with it as with created; none, if it is on its way out, of which there will be
           ///< word.
  created, ///< The control socket comes with it, and the slot's freezer if this machine has one.
           ///< Whether it works out is said through the former.
  create_failed, ///< `step` failed with errno `error`; nothing is left of it.
  ended, ///< PID 1 of `slot` is gone without having been asked, wait status `error`; everything is
         ///< removed. Text: why the spawner has ended it; empty: it ended by itself.
  destroyed, ///< Answers destroy, also for a slot that was not there. If `step` is set, it failed
             ///< with `error`, and the sandbox goes on.
  held,      ///< What is held for `slot` under `name`: its descriptors and, as text, its label.
  all_told,  ///< The end of the answer to hello.
  claimed,   ///< Answers claim; if `error` is set, `step` failed with it.
  sockets,   ///< Answers open_sockets with as many descriptors; with none, `error` is why.
  mounts,    ///< With hello: what is mounted in `slot` under `name`. Text: its path. If `error` is
             ///< set, its program has ended.
  mounted,   ///< Answers mount. If `error` is set, mount_step `step` failed with it; text: the last
             ///< that the program has said.
  unmounted, ///< Answers unmount.
  mount_ended, ///< The program of `name` has ended without having been asked; text as of mounted.
  charged, ///< Answers charge_logs. If `error` is set, the disk has no room for that (EDQUOT), and
           ///< is charged for what it was before.
  disk_flushed,     ///< Answers flush_disk. If `error` is set: EEXIST, there is such a snapshot;
                    ///< ENOSPC; EIO; ESRCH, there is no such disk; EAGAIN, too much waits.
  snapshot_taken,   ///< Answers take_snapshot, with the same errors. Text: the bytes of the disk.
  snapshot_dropped, ///< Answers drop_snapshot. EBUSY: it is still there.
  snapshots,        ///< Answers list_snapshots. Text: names, each with a NUL behind it. `flags` 1:
                    ///< there are more.
  snapshot_shown,   ///< Answers show_snapshot: a directory, read-only and mounted nowhere, with the
                    ///< layers `u` and `uu`, comes with it. If `error` is set: ENOENT, there is no
                    ///< such snapshot; ESRCH, there is no such sandbox.
  gateway, ///< The way to the egress gateway comes with it (gateway/protocol.hpp), in place of the
           ///< one before: it is a new one that knows of no policy, or this is a new server.
  broker,  ///< Answers broker, with the way (broker/protocol.hpp). If `error` is set: ESRCH, there
          ///< is no such sandbox; EAGAIN, the broker before is on its way out; others, it could not
          ///< be started.
  broker_ended, ///< The broker of `slot` has ended without having been asked.
};

/// When what of a launch was done, in nanoseconds of CLOCK_MONOTONIC, which is the server's too.
struct launch_clock {
  std::uint64_t begun;
  std::uint64_t cgroup;
  std::uint64_t disk;
  std::uint64_t namespaces;
  std::uint64_t layers; ///< And handed over: the rest is the new process' own.
};

/// Flags of a hello: what this spawner does beyond its version. An earlier one says none.
inline constexpr std::uint32_t layers_over_images = 1; ///< Sandboxes have the files of a tree's
                                                       ///< `over`.
inline constexpr std::uint32_t gaining_rights = 2;     ///< It knows create_may_gain_rights.
inline constexpr std::uint32_t disk_snapshots = 16;    ///< It takes snapshots of disks.
inline constexpr std::uint32_t keeping_snapshots = 32; ///< They are on the machine's disk.
inline constexpr std::uint32_t showing_snapshots = 64; ///< It knows show_snapshot, and its agents
                                                       ///< compare disks.
inline constexpr std::uint32_t attaching_drives = 128; ///< It knows attach_drive.
inline constexpr std::uint32_t brokering = 256;        ///< It knows broker.
inline constexpr std::uint32_t naming_users = 8;       ///< Its agents know file_task::name_user.
inline constexpr std::uint32_t lists_of_packages = 4;  ///< Sandboxes of the machine's image whose
                                                       ///< users may become root have dpkg's lists.

struct notice {
  event what;
  std::uint32_t slot;
  std::int32_t error;
  std::uint32_t step;
  std::uint32_t version;
  std::uint32_t flags; ///< Of hello.
  std::uint64_t name;  ///< Of held. Of hello: how many servers there have been, with this one. Of
                       ///< holds: the epoch.
  launch_clock done;   ///< Of created.
};

/// The range of user ids of a slot, and how many slots fit: the last id of all means "none" to the
/// kernel, so the range that would end with it is not used.
inline constexpr std::uint32_t first_uid = 1'879'048'192;
inline constexpr std::uint32_t uids_per_slot = 65'536;
inline constexpr std::uint32_t max_slots = 36'863;

/// Whom the egress gateway runs as: neither the server's user nor anybody in a sandbox.
inline constexpr std::uint32_t gateway_uid = first_uid - 2;

/// Whom the processes run as that fetch images from registries.
inline constexpr std::uint32_t fetcher_uid = first_uid - 3;

/// Whom the programs run as that serve the mounts of a slot: nobody else.
constexpr std::uint32_t mount_user(std::uint32_t slot) {
  return first_uid - uids_per_slot + slot;
}
/// And whom its broker runs as: nobody else.
constexpr std::uint32_t broker_user(std::uint32_t slot) {
  return first_uid - 2 * uids_per_slot + slot;
}
static_assert(broker_user(max_slots) < mount_user(0) && mount_user(max_slots) < fetcher_uid &&
              fetcher_uid < gateway_uid);

/// Steps of making a sandbox, in their order; dev, proc, sys and masks are the child's, while the
/// spawner goes on to network and layers.
enum class launch_step : std::uint32_t {
  none = 0,
  request,
  cgroup,
  disk,
  socket,
  clone,
  id_maps,
  layers,
  hand_over,
  become_root,
  private_mounts,
  attach_layers,
  overlay,
  proc,
  sys,
  dev,
  pivot,
  masks,
  network,
  host_name,
  keyring,
  capabilities,
  seccomp,
  agent,
  limits,     ///< Of one that is claimed, and of what System V keeps.
  permission, ///< This node may not run sandboxes now.
  epoch,      ///< The asker does not hold it any more.
};

/// Steps of mounting and unmounting.
enum class mount_step : std::uint32_t {
  none = 0,
  request,     ///< There is no such mount, or it cannot be understood.
  cgroup,      ///< Making one for the program.
  visit,       ///< Entering the sandbox.
  device,      ///< Opening /dev/fuse.
  file_system, ///< Making it.
  directory,   ///< Making or finding the directory.
  not_empty,   ///< There is something in the directory.
  program,     ///< It has ended before it answered.
  answer,      ///< It has not answered in time.
  place,       ///< Putting the file system there.
  not_there,   ///< Nothing is mounted at the path any more.
  detach,      ///< Taking it away.
  epoch,       ///< The asker does not hold the sandbox any more.
  network,     ///< Making the program's network.
  drive,       ///< There is no such drive.
  in_use,      ///< Another sandbox writes to the drive.
};

/// What loading a filter of system calls fails with while the kernel has no room for one more,
/// which is no fault of the sandbox: ENOMEM, or a number that the C library has no word for.
constexpr bool no_room_for_filter(int error) {
  constexpr int ENOTSUPP = 524;
  return error == ENOTSUPP || error == ENOMEM;
}

const char* name_of(launch_step step);
const char* name_of(mount_step step);

/// Now, for a launch_clock.
std::uint64_t monotonic_ns();

} // namespace insula::runtime::spawner
