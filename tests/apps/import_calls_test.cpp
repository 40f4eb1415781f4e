#include "apps/import_calls.hpp"
#include "base/unique_fd.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/said_by_fork.hpp"
#include "tests/support/temp_dir.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <linux/capability.h>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

using namespace insula;
using namespace insula::test;

namespace {

/// "name=EPERM " for each. In the directory in which it stands.
class outcomes {
public:
  void operator()(const std::string& name, long outcome) {
    text += name + "=" + (outcome < 0 ? ::strerrorname_np(errno) : "0") + " ";
  }
  std::string text;
};

/// By which a tree comes to be.
std::string outcomes_of_unpacking() {
  outcomes told;
  const unique_fd here{::open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  told("mkdir", ::mkdirat(here.get(), "made", 0700));
  const unique_fd file{
    ::openat(here.get(), "made/file", O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600)};
  told("open", file.get());
  told("write", ::write(file.get(), "x", 1));
  told("chown", ::fchown(file.get(), 1000, 1000));
  told("chmod", ::fchmod(file.get(), 04755));
  const bool keeps = ::fsetxattr(file.get(), "user.x", "y", 1, 0) == 0;
  told("xattr", keeps || errno == ENOTSUP ? 0 : -1);
  told("no_xattr", keeps ? ::fremovexattr(file.get(), "user.x") : 0);
  told("link", ::linkat(here.get(), "made/file", here.get(), "link", 0));
  told("symlink", ::symlinkat("made", here.get(), "symlink"));
  told("fifo", ::mkfifoat(here.get(), "fifo", 0600));
  told("times", ::utimensat(here.get(), "symlink", nullptr, AT_SYMLINK_NOFOLLOW));
  told("rename", ::renameat(here.get(), "made", here.get(), "moved"));
  told("unlink", ::unlinkat(here.get(), "link", 0));
  told("sync", ::syncfs(here.get()));
  rlimit now{};
  told("limits", ::getrlimit(RLIMIT_NOFILE, &now));
  return told.text;
}

/// Of all that leads elsewhere.
std::string outcomes_of_leaving(int pair) {
  outcomes told;
  std::array<int, 2> ends{};
  told("socket", ::socket(AF_INET, SOCK_STREAM, 0));
  told("socket:unix", ::socket(AF_UNIX, SOCK_STREAM, 0));
  told("pair", ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()));
  told("connect", ::connect(pair, nullptr, 0));
  told("mount", ::mount("none", "/mnt", "tmpfs", 0, nullptr));
  told("unshare", ::unshare(CLONE_NEWUSER));
  told("chroot", ::chroot("."));
  told("setuid", ::syscall(SYS_setresuid, 1, 1, 1));
  told("setgid", ::syscall(SYS_setresgid, 1, 1, 1));
  told("setgroups", ::syscall(SYS_setgroups, 0, nullptr));
  told("kill", ::kill(::getppid(), 0));
  told("tgkill", ::syscall(SYS_tgkill, ::getppid(), ::getppid(), 0));
  told("device", ::mknod("device", S_IFCHR | 0600, makedev(1, 3)));
  told("block", ::mknodat(AT_FDCWD, "block", S_IFBLK | 0600, makedev(7, 0)));
  told("plain", ::mknod("plain", S_IFREG | 0600, 0));
  told("bpf", ::syscall(SYS_bpf, 0, nullptr, 0));
  told("keyctl", ::syscall(SYS_keyctl, 0, 0, 0));
  told("module", ::syscall(SYS_finit_module, -1, "", 0));
  told("handle", ::syscall(SYS_open_by_handle_at, -1, nullptr, 0));
  told("memfd", ::syscall(SYS_memfd_create, "x", 0));
  told("io_uring", ::syscall(SYS_io_uring_setup, 1, nullptr));
  told("unheard_of", ::syscall(900, 0, 0, 0));
  told("ioctl", ::ioctl(STDIN_FILENO, TIOCSTI, "x"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit none{0, 0};
  told("limit", ::syscall(SYS_prlimit64, 0, RLIMIT_CORE, &none, nullptr));
  told("fork", ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  told("clone3", ::syscall(SYS_clone3, nullptr, 0));
  char program[] = "/bin/true";
  std::array<char*, 2> words{program, nullptr};
  told("execve", ::execve(program, words.data(), words.data() + 1));
  told("ptrace", ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr));
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> rights{};
  told("capset", ::syscall(SYS_capset, &header, rights.data()));
  told("dumpable", ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
  told("seccomp_off", ::prctl(PR_SET_SECCOMP, 0, 0, 0, 0));
#endif
  return told.text;
}

/// What `made` says in a process that may only unpack, in that directory.
template <class Made>
std::string said_by_importer(const temp_dir& where, Made made) {
  return said_by_fork([&] {
    if (::chdir(where.path().c_str()) != 0)
      return std::string{"no such directory"};
    const auto done = allow_only_import_calls();
    return done ? made() : done.reason().message;
  });
}

} // namespace

TEST_CASE("a process that unpacks an image makes files of every kind", "[import]") {
  const temp_dir where;
  CHECK(said_by_importer(where, outcomes_of_unpacking) ==
        "mkdir=0 open=0 write=0 chown=0 chmod=0 xattr=0 no_xattr=0 link=0 symlink=0 fifo=0 times=0 "
        "rename=0 unlink=0 sync=0 limits=0 ");
}

TEST_CASE("a process that unpacks an image makes no other call, also as root", "[import]") {
  const temp_dir where;
  std::array<int, 2> pair{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0);
  const unique_fd one{pair[0]}, other{pair[1]};
  std::string wanted =
    "socket=ENOSYS socket:unix=ENOSYS pair=ENOSYS connect=ENOSYS mount=EPERM unshare=EPERM "
    "chroot=EPERM setuid=ENOSYS setgid=ENOSYS setgroups=ENOSYS kill=EPERM tgkill=ENOSYS "
    "device=ENOSYS block=ENOSYS plain=ENOSYS bpf=EPERM keyctl=EPERM module=EPERM handle=EPERM "
    "memfd=ENOSYS io_uring=ENOSYS unheard_of=ENOSYS ioctl=ENOSYS ";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  wanted += "limit=ENOSYS fork=ENOSYS clone3=ENOSYS execve=EPERM ptrace=EPERM capset=ENOSYS "
            "dumpable=ENOSYS seccomp_off=ENOSYS ";
#endif
  CHECK(said_by_importer(where, [&] { return outcomes_of_leaving(one.get()); }) == wanted);
  CHECK_FALSE(std::filesystem::exists(where / "device"));
}
