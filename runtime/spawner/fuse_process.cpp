#include "runtime/spawner/fuse_process.hpp"

#include "base/inner_network.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

// The program that it finds as fusermount, linked in.
extern "C" const unsigned char insula_fusermount_begin[], insula_fusermount_end[];

namespace insula::runtime::spawner {

namespace {

// ---- The child. It is a copy of one thread of several, so it allocates nothing and asks libc for
// nothing that takes a lock or concerns all threads.

/// Its parent's end of the pipe hears of it.
[[noreturn]] void give_up(const char* what) {
  char line[160];
  const int length = std::snprintf(line, sizeof line, "%s: errno %d\n", what, errno);
  [[maybe_unused]] const auto written =
    ::write(2, line, std::min(static_cast<std::size_t>(length), sizeof line - 1));
  ::_exit(127);
}

void need(bool worked, const char* what) {
  if (!worked)
    give_up(what);
}

bool write_file(const char* path, const void* bytes, std::size_t size, mode_t mode) {
  const unique_fd file{::open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode)};
  return file && ::write(file.get(), bytes, size) == static_cast<ssize_t>(size);
}

bool write_text(const char* path, std::string_view text) {
  return write_file(path, text.data(), text.size(), 0644);
}

bool write_program(const char* path) {
  return write_file(path, insula_fusermount_begin,
                    static_cast<std::size_t>(insula_fusermount_end - insula_fusermount_begin),
                    0755);
}

/// Descriptor `fuse_secret_fd` is a memory file that this user alone can open again.
bool keep_secret(std::string_view text, uid_t user) {
  const int file = static_cast<int>(::syscall(SYS_memfd_create, "secret", 0u));
  // It may have got that number by itself. Under another one it goes with all that is not kept.
  return file >= 0 &&
         ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
         ::lseek(file, 0, SEEK_SET) == 0 && ::fchmod(file, 0600) == 0 &&
         ::fchown(file, user, user) == 0 && ::dup2(file, fuse_secret_fd) >= 0;
}

/// What is below `from` appears at `to`, to be read only.
bool show(const char* from, const char* to) {
  const unique_fd tree{static_cast<int>(
    ::syscall(SYS_open_tree, AT_FDCWD, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE))};
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  return tree &&
         ::syscall(SYS_mount_setattr, tree.get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes,
                   sizeof attributes) == 0 &&
         ::syscall(SYS_move_mount, tree.get(), "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) == 0;
}

/// The directories that `path` is in. It is changed, and is then as it was.
bool make_parents(char* path) {
  for (char* at = path; (at = std::strchr(at, '/')) != nullptr; ++at) {
    *at = '\0';
    const bool made = ::mkdir(path, 0755) == 0 || errno == EEXIST;
    *at = '/';
    if (!made)
      return false;
  }
  return true;
}

/// The same of a path that this machine may not have. Below the working directory it has its name.
bool show_if_there(const char* path) {
  struct stat is {};
  if (::stat(path, &is) != 0)
    return errno == ENOENT || errno == ENOTDIR;
  char name[64];
  std::snprintf(name, sizeof name, "%s", path + 1);
  const bool there = make_parents(name) && (S_ISDIR(is.st_mode) ? ::mkdir(name, 0755) == 0
                                                                : write_file(name, "", 0, 0644));
  return there && show(path, name);
}

/// /usr, and what leads there from outside: links, or on some machines directories.
bool show_programs() {
  if (::mkdir("usr", 0755) != 0 || !show("/usr", "usr"))
    return false;
  for (const char* each : {"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}) {
    char to[64];
    const auto length = ::readlink(each, to, sizeof to - 1);
    if (length < 0 && errno == EINVAL && !show_if_there(each))
      return false;
    if (length < 0)
      continue;
    to[length] = '\0';
    if (::symlink(to, each + 1) != 0)
      return false;
  }
  return true;
}

/// What tells TLS whom to believe, libc where libraries are, and s3fs types of files by their
/// names. Names are asked of the gateway, as in a sandbox.
bool make_etc() {
  for (const char* each : {"/etc/ca-certificates/extracted", "/etc/ld.so.cache", "/etc/mime.types",
                           "/etc/pki/ca-trust/extracted", "/etc/pki/tls/certs",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/certs", "/etc/ssl/openssl.cnf"})
    if (!show_if_there(each))
      return false;
  return (::mkdir("etc", 0755) == 0 || errno == EEXIST) &&
         write_text("etc/resolv.conf", inner_resolv_conf) &&
         write_text("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n") &&
         write_text("etc/nsswitch.conf", "hosts: files dns\n");
}

/// libfuse tries to mount by itself first, for which it must be able to open the device; then it
/// calls fusermount by its full path.
bool make_dev() {
  struct node {
    const char* path;
    unsigned major, minor; // Numbers that Linux never changes.
  };
  constexpr node all[] = {{"dev/null", 1, 3},   {"dev/zero", 1, 5},    {"dev/full", 1, 7},
                          {"dev/random", 1, 8}, {"dev/urandom", 1, 9}, {"dev/fuse", 10, 229}};
  if (::mkdir("dev", 0755) != 0)
    return false;
  for (const auto& each : all)
    if (::mknod(each.path, S_IFCHR | 0666, makedev(each.major, each.minor)) != 0)
      return false;
  return true;
}

bool make_fusermount() {
  if (::mkdir("insula", 0755) != 0 || !write_program("insula/fusermount") ||
      ::link("insula/fusermount", "insula/fusermount3") != 0)
    return false;
  for (const char* usual : {"usr/bin/fusermount", "usr/bin/fusermount3"})
    if (::mount("insula/fusermount", usual, nullptr, MS_BIND, nullptr) != 0 && errno != ENOENT)
      return false;
  return true;
}

/// A root directory with what it needs. Nothing else of the machine can be named from there.
void make_root(const fuse_program& what) {
  constexpr auto inert = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  need(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0,
       "making the mounts private");
  ::umask(0);
  need(::mount("insula", "/tmp", "tmpfs", MS_NOSUID, "mode=755,size=4m,nr_inodes=512") == 0 &&
         ::chdir("/tmp") == 0,
       "the root");
  need(show_programs(), "/usr");
  need(make_etc(), "/etc");
  need(make_dev(), "/dev");
  need(make_fusermount(), "fusermount");
  // Of processes only; rclone looks at /proc/mounts, which is not among that.
  const char* subset = what.argv.front() == "rclone" ? nullptr : "subset=pid";
  need(::mkdir("proc", 0755) == 0 && ::mount("proc", "proc", "proc", inert, subset) == 0, "/proc");
  char options[64];
  // The cache has its ceiling; a few names need a little more.
  std::snprintf(options, sizeof options, "mode=755,size=%uk,nr_inodes=65536",
                what.cache_mib * 1024 + 1024);
  need(::mkdir("tmp", 0755) == 0 && ::mount("insula", "tmp", "tmpfs", inert, options) == 0, "/tmp");
  need(::syscall(SYS_pivot_root, ".", ".") == 0 && ::umount2(".", MNT_DETACH) == 0 &&
         ::chdir("/") == 0,
       "changing the root");
  need(::mkdir(fuse_mount_directory, 0755) == 0 &&
         ::chown(fuse_mount_directory, what.user, what.user) == 0 &&
         ::mkdir(fuse_cache_directory, 0700) == 0 &&
         ::chown(fuse_cache_directory, what.user, what.user) == 0,
       "filling /tmp");
  need(::mount(nullptr, "/", nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID, nullptr) == 0,
       "closing the root");
}

void limit(int resource, std::uint64_t value) {
  const rlimit both{value, value};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

/// By number: libc would have the spawner's other thread do the same.
bool become_user(std::uint32_t user) {
  for (int each = 0; each <= CAP_LAST_CAP; ++each)
    if (::prctl(PR_CAPBSET_DROP, each, 0, 0, 0) != 0 && errno != EINVAL)
      return false;
  return ::syscall(SYS_setgroups, 0, nullptr) == 0 &&
         ::syscall(SYS_setresgid, user, user, user) == 0 &&
         ::syscall(SYS_setresuid, user, user, user) == 0;
}

/// Root loads it: what that takes is not counted where programs without rights are.
bool load(const std::vector<sock_filter>& filter) {
  const sock_fprog program{static_cast<unsigned short>(filter.size()),
                           const_cast<sock_filter*>(filter.data())};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

struct descriptors {
  int device, out, go;
};

[[noreturn]] void become(const fuse_program& what, char* const* argv, descriptors has) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::setsid();
  const unique_fd nothing{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  ::dup2(nothing.get(), 0);
  ::dup2(has.out, 1);
  ::dup2(has.out, 2);
  for (const auto& each : *what.cgroup_procs)
    need(::write(each.get(), "0", 1) == 1, "entering the cgroups");
  const unique_fd score{::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC)};
  [[maybe_unused]] const auto written = ::write(score.get(), "500", 3);
  make_root(what);
  need(::sethostname("bucket", 6) == 0, "its name");
  // Above the numbers of both, which the programs use.
  const unique_fd moved{::fcntl(has.device, F_DUPFD_CLOEXEC, fuse_secret_fd + 1)};
  const unique_fd go{::fcntl(has.go, F_DUPFD_CLOEXEC, fuse_secret_fd + 1)};
  need(::dup2(moved.get(), fuse_device_fd) >= 0 && keep_secret(what.secret, what.user),
       "handing over descriptors");
  char byte = 0;
  if (::read(go.get(), &byte, 1) != 1) // There is no network for it.
    ::_exit(127);
  ::close_range(3, fuse_device_fd - 1, 0);
  ::close_range(fuse_secret_fd + 1, ~0u, 0);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NOFILE, 16'384);
  ::umask(022);
  need(::syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, nullptr) >= 0 || errno == ENOSYS,
       "a keyring");
  need(load(*what.filter), "loading the system call filter");
  need(become_user(what.user) && ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0,
       "becoming the user");
  char path[] = "PATH=/insula:/usr/bin:/bin", home[] = "HOME=/tmp/cache",
       tmp[] = "TMPDIR=/tmp/cache";
  char* env[] = {path, home, tmp, nullptr};
  for (const char* where : {"/usr/bin/", "/usr/local/bin/"}) {
    char program[64];
    std::snprintf(program, sizeof program, "%s%s", where, argv[0]);
    ::execve(program, argv, env);
  }
  give_up(argv[0]);
}

} // namespace

fuse_process start_fuse_process(const fuse_program& what, int device) {
  std::vector<std::string> words{what.argv.begin(), what.argv.end()};
  std::vector<char*> argv;
  for (auto& each : words)
    argv.push_back(each.data());
  argv.push_back(nullptr);

  int out[2], go[2];
  if (::pipe2(out, O_CLOEXEC) != 0)
    return {};
  fuse_process made;
  made.said.reset(out[0]);
  const unique_fd theirs{out[1]};
  // s3fs writes at once only into what it has opened itself, by its name.
  if (::fchown(theirs.get(), what.user, what.user) != 0 || ::pipe2(go, O_CLOEXEC) != 0)
    return {};
  const unique_fd waits{go[0]};
  made.go.reset(go[1]);
  ::fcntl(out[0], F_SETFL, O_NONBLOCK);

  int process = -1;
  clone_args how{};
  how.flags = CLONE_PIDFD | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
  how.pidfd = reinterpret_cast<std::uint64_t>(&process);
  how.exit_signal = SIGCHLD;
  made.pid = static_cast<pid_t>(::syscall(SYS_clone3, &how, sizeof how));
  if (made.pid == 0) {
    ::close(go[1]); // Else it would never see the spawner's end close.
    become(what, argv.data(), {device, theirs.get(), waits.get()});
  }
  made.process.reset(process);
  return made;
}

bool let_run(fuse_process& which) {
  const bool told = ::write(which.go.get(), "g", 1) == 1;
  which.go.reset();
  return told;
}

bool has_ended(const unique_fd& said) {
  pollfd end{said.get(), 0, 0};
  return ::poll(&end, 1, 0) > 0 && (end.revents & POLLHUP) != 0;
}

} // namespace insula::runtime::spawner
