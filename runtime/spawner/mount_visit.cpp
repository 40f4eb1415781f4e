#include "runtime/spawner/mount_visit.hpp"

#include "base/unique_fd.hpp"
#include "runtime/descriptors.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <sched.h>
#include <string_view>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <vector>

namespace insula::runtime::spawner {

namespace {

constexpr int way_there = 3; ///< As a visitor has it.
constexpr int process_there = 4;
constexpr int files_there = 5;

[[noreturn]] void leave(mount_step failed, int error) {
  const visit_report report{failed, error};
  [[maybe_unused]] const auto sent = ::send(way_there, &report, sizeof report, MSG_NOSIGNAL);
  ::_exit(0);
}

void need(bool worked, mount_step step) {
  if (!worked)
    leave(step, errno);
}

/// Nothing of the spawner's stays open in a visitor: who waits for an end of it must not wait for
/// this one. `files`: none if it is below 0.
void keep_only(int process, int way, int files = -1) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  constexpr int above = 6;
  const int moved_process = ::fcntl(process, F_DUPFD_CLOEXEC, above);
  const int moved_way = ::fcntl(way, F_DUPFD_CLOEXEC, above);
  const int moved_files = files < 0 ? -1 : ::fcntl(files, F_DUPFD_CLOEXEC, above);
  if (moved_process < 0 || moved_way < 0 || ::dup2(moved_way, way_there) < 0 ||
      ::dup2(moved_process, process_there) < 0 || (files >= 0 && moved_files < 0))
    ::_exit(1);
  if (files < 0)
    ::close(files_there);
  else if (::dup2(moved_files, files_there) < 0)
    ::_exit(1);
  ::close_range(above, ~0u, 0);
}

/// From here on this is root of the sandbox, with its eyes.
void enter() {
  need(::setns(process_there, CLONE_NEWNS) == 0 && ::setresgid(0, 0, 0) == 0 &&
         ::setresuid(0, 0, 0) == 0 && ::chdir("/") == 0,
       mount_step::visit);
  ::umask(022);
}

int open_in(int directory, const char* path) {
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(::syscall(SYS_openat2, directory, path, &how, sizeof how));
}

/// A directory, and what had to be made for it to be there.
struct place {
  struct made_directory {
    unique_fd parent;
    std::string name;
  };

  unique_fd itself; ///< None: errno says why.
  std::vector<made_directory> made;

  void undo() {
    itself.reset();
    for (; !made.empty(); made.pop_back())
      ::unlinkat(made.back().parent.get(), made.back().name.c_str(), AT_REMOVEDIR);
  }
};

place make(const std::string& path, std::uint32_t owner) {
  const unique_fd root{::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  place found;
  found.itself.reset(open_in(root.get(), "/"));
  for (std::size_t at = 1; at < path.size() && found.itself;) {
    const auto end = std::min(path.find('/', at), path.size());
    const auto name = path.substr(at, end - at);
    auto parent = std::move(found.itself);
    found.itself.reset(open_in(parent.get(), name.c_str()));
    if (!found.itself && errno == ENOENT && ::mkdirat(parent.get(), name.c_str(), 0755) == 0) {
      // The sandbox's root has no rights beyond it, so what this name is by now does no harm.
      [[maybe_unused]] const auto given =
        ::fchownat(parent.get(), name.c_str(), owner, owner, AT_SYMLINK_NOFOLLOW);
      found.itself.reset(open_in(parent.get(), name.c_str()));
      const int why = errno;
      found.made.push_back({std::move(parent), name});
      errno = why;
    }
    at = end + 1;
  }
  return found;
}

bool is_empty(int directory) {
  const int list = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = list < 0 ? nullptr : ::fdopendir(list);
  if (entries == nullptr)
    return false;
  int count = 0;
  while (count < 3 && ::readdir(entries) != nullptr)
    ++count;
  ::closedir(entries);
  return count < 3; // Itself and its parent.
}

/// 0, or errno.
int try_to_list(int directory) {
  const int list = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* entries = list < 0 ? nullptr : ::fdopendir(list);
  if (entries == nullptr)
    return errno;
  errno = 0;
  const int why = ::readdir(entries) == nullptr ? errno : 0;
  ::closedir(entries);
  return why;
}

/// The file system, which nobody sees yet. Only who has opened the device from within the sandbox's
/// user namespace can make it there.
unique_fd make_file_system(const mount_visit& what, int device) {
  unique_fd made{static_cast<int>(::syscall(SYS_fsopen, "fuse", FSOPEN_CLOEXEC))};
  need(static_cast<bool>(made), mount_step::file_system);
  const auto set = [&](const char* key, const char* value) {
    need(::syscall(SYS_fsconfig, made.get(),
                   value == nullptr ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING, key, value, 0) == 0,
         mount_step::file_system);
  };
  constexpr std::size_t longest = 255; // The kernel takes no more; it is for show.
  set("source", what.source.substr(0, longest).c_str());
  set("subtype", what.type.c_str());
  set("fd", std::to_string(device).c_str());
  set("rootmode", "40000");
  set("user_id", "0");
  set("group_id", "0");
  set("allow_other", nullptr);
  need(::syscall(SYS_fsconfig, made.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0,
       mount_step::file_system);
  unique_fd mounted{static_cast<int>(
    ::syscall(SYS_fsmount, made.get(), FSMOUNT_CLOEXEC,
              MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (what.read_only ? MOUNT_ATTR_RDONLY : 0)))};
  need(static_cast<bool>(mounted), mount_step::file_system);
  return mounted;
}

} // namespace

void visit_to_mount(const mount_visit& what, int process, int way) {
  keep_only(process, way);
  need(::setns(process_there, CLONE_NEWUSER) == 0, mount_step::visit);
  unique_fd device{::open("/dev/fuse", O_RDWR | O_CLOEXEC)};
  need(static_cast<bool>(device), mount_step::device);
  enter();

  const auto mounted = make_file_system(what, device.get());
  auto target = make(what.path, what.owner); // From here on there is something to be undone.
  const auto fail = [&target](mount_step step, int error) {
    target.undo();
    leave(step, error);
  };
  if (!target.itself)
    fail(mount_step::directory, errno);
  if (!what.over_files && target.made.empty() && !is_empty(target.itself.get()))
    fail(mount_step::not_empty, ENOTEMPTY);

  char byte = 0;
  iovec part{&byte, 1};
  const int handed = device.get();
  if (send_packet<1>(way_there, &part, 1, &handed, 1) != 1)
    fail(mount_step::device, errno);
  device.reset(); // Else it would seem to be served when nobody does any more.

  // The first question waits until it is served, for as long as the spawner has patience with that.
  struct stat root {};
  struct statfs room {};
  if (::fstatat(mounted.get(), "", &root, AT_EMPTY_PATH) != 0 ||
      ::fstatfs(mounted.get(), &room) != 0)
    fail(mount_step::program, errno);
  if (what.is_listed)
    if (const int why = try_to_list(mounted.get()); why != 0)
      fail(mount_step::program, why);
  if (::syscall(SYS_move_mount, mounted.get(), "", target.itself.get(), "",
                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
    fail(mount_step::place, errno);
  visit_report report{mount_step::none, 0, minor(root.st_dev)};
  iovec whole{&report, sizeof report};
  const int there = mounted.get();
  [[maybe_unused]] const auto sent = send_packet<1>(way_there, &whole, 1, &there, 1);
  ::_exit(0);
}

void visit_to_attach(const mount_visit& what, int process, int way, int files) {
  keep_only(process, way, files);
  need(::setns(process_there, CLONE_NEWUSER) == 0, mount_step::visit);
  enter();
  auto target = make(what.path, what.owner);
  if (!target.itself)
    leave(mount_step::directory, errno);
  if (::syscall(SYS_move_mount, files_there, "", target.itself.get(), "",
                MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0) {
    const int why = errno;
    target.undo();
    leave(mount_step::place, why);
  }
  leave(mount_step::none, 0);
}

void visit_to_unmount(const mount_visit& what, int process, int way) {
  const auto& path = what.path;
  keep_only(process, way);
  need(::setns(process_there, CLONE_NEWUSER) == 0, mount_step::visit);
  enter();
  const auto slash = path.rfind('/');
  const auto name = path.substr(slash + 1);
  const unique_fd root{::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  // Of the mount itself nothing is asked: whoever serves it may have hung.
  const unique_fd parent{open_in(root.get(), slash == 0 ? "/" : path.substr(0, slash).c_str())};
  need(parent && ::fchdir(parent.get()) == 0, mount_step::not_there);
  if (::umount2(name.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
    leave(errno == EINVAL || errno == ENOENT ? mount_step::not_there : mount_step::detach, errno);
  if (!what.keeps_directory)
    ::unlinkat(parent.get(), name.c_str(), AT_REMOVEDIR);
  leave(mount_step::none, 0);
}

} // namespace insula::runtime::spawner
