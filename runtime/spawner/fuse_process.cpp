#include "runtime/spawner/fuse_process.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <grp.h>
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

/// Its parent's end of the pipe hears of it.
[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
  ::_exit(127);
}

void need(bool worked, const char* what) {
  if (!worked)
    give_up(what);
}

bool write_program(const char* path) {
  const unique_fd file{::open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0755)};
  const auto size = static_cast<std::size_t>(insula_fusermount_end - insula_fusermount_begin);
  return file && ::write(file.get(), insula_fusermount_begin, size) == static_cast<ssize_t>(size);
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

/// libfuse tries to mount by itself first, for which it must be able to open the device; then it
/// calls fusermount by its full path.
void make_view(const fuse_program& what) {
  need(::unshare(CLONE_NEWNS) == 0 &&
         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0,
       "making a mount namespace");
  char options[64];
  // The cache has its ceiling; a program, a device and a few names need a little more.
  std::snprintf(options, sizeof options, "mode=755,size=%uk,nr_inodes=65536",
                what.cache_mib * 1024 + 4096);
  need(::mount("insula", "/tmp", "tmpfs", MS_NOSUID, options) == 0, "/tmp");
  const auto old_mask = ::umask(0);
  need(::mkdir(fuse_mount_directory, 0755) == 0 &&
         ::chown(fuse_mount_directory, what.user, what.user) == 0 &&
         ::mkdir(fuse_cache_directory, 0700) == 0 &&
         ::chown(fuse_cache_directory, what.user, what.user) == 0 &&
         ::mkdir("/tmp/bin", 0755) == 0 && write_program("/tmp/bin/fusermount") &&
         ::link("/tmp/bin/fusermount", "/tmp/bin/fusermount3") == 0,
       "filling /tmp");
  constexpr unsigned misc = 10, fuse = 229; // Numbers that Linux never changes.
  need(::mknod("/tmp/fuse", S_IFCHR | 0666, makedev(misc, fuse)) == 0 &&
         ::mount("/tmp/fuse", "/dev/fuse", nullptr, MS_BIND, nullptr) == 0,
       "/dev/fuse");
  ::umask(old_mask);
  for (const char* usual : {"/usr/bin/fusermount", "/usr/bin/fusermount3"})
    need(::mount("/tmp/bin/fusermount", usual, nullptr, MS_BIND, nullptr) == 0 || errno == ENOENT,
         usual);
}

void limit(int resource, std::uint64_t value) {
  const rlimit both{value, value};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

[[noreturn]] void become(const fuse_program& what, int device, int out) {
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::setsid();
  const unique_fd nothing{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  ::dup2(nothing.get(), 0);
  ::dup2(out, 1);
  ::dup2(out, 2);
  for (const auto& each : *what.cgroup_procs)
    need(::write(each.get(), "0", 1) == 1, "entering the cgroups");
  const unique_fd score{::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC)};
  [[maybe_unused]] const auto written = ::write(score.get(), "500", 3);
  make_view(what);
  // Above the numbers of both, which the programs use.
  const unique_fd moved{::fcntl(device, F_DUPFD_CLOEXEC, fuse_secret_fd + 1)};
  need(::dup2(moved.get(), fuse_device_fd) >= 0 && keep_secret(what.secret, what.user),
       "handing over descriptors");
  ::close_range(3, fuse_device_fd - 1, 0);
  ::close_range(fuse_secret_fd + 1, ~0u, 0);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NOFILE, 16'384);
  ::umask(022);
  need(::chdir("/") == 0 && ::setgroups(0, nullptr) == 0 &&
         ::setresgid(what.user, what.user, what.user) == 0 &&
         ::setresuid(what.user, what.user, what.user) == 0 &&
         ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0,
       "becoming the user");
  std::vector<std::string> words{what.argv.begin(), what.argv.end()};
  std::vector<char*> argv;
  for (auto& each : words)
    argv.push_back(each.data());
  argv.push_back(nullptr);
  char path[] = "PATH=/tmp/bin:/usr/bin:/bin", home[] = "HOME=/tmp/cache",
       tmp[] = "TMPDIR=/tmp/cache";
  char* env[] = {path, home, tmp, nullptr};
  for (const char* where : {"/usr/bin/", "/usr/local/bin/"})
    ::execve((where + words.front()).c_str(), argv.data(), env);
  give_up(words.front().c_str());
}

} // namespace

fuse_process start_fuse_process(const fuse_program& what, int device) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return {};
  fuse_process made;
  made.said.reset(ends[0]);
  const unique_fd theirs{ends[1]};
  // s3fs writes at once only into what it has opened itself, by its name.
  if (::fchown(theirs.get(), what.user, what.user) != 0)
    return {};
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  made.pid = ::fork();
  if (made.pid == 0)
    become(what, device, theirs.get());
  return made;
}

} // namespace insula::runtime::spawner
