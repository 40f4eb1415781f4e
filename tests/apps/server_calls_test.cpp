#include "apps/server_calls.hpp"
#include "base/unique_fd.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/said_by_fork.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <future>
#include <initializer_list>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

using namespace insula;

namespace {

/// "name=EPERM " for each.
std::string outcomes() {
  std::string all;
  const auto told = [&](const std::string& name, long outcome) {
    all += name + "=" + (outcome < 0 ? ::strerrorname_np(errno) : "0") + " ";
    if (outcome >= 0 && (name.starts_with("socket") || name == "memfd"))
      ::close(static_cast<int>(outcome));
  };
  std::array<int, 2> pair{};
  told("socket:unix", ::socket(AF_UNIX, SOCK_STREAM, 0));
  told("socket:inet", ::socket(AF_INET, SOCK_STREAM, 0));
  told("socket:inet6", ::socket(AF_INET6, SOCK_DGRAM, 0));
  told("socket:route", ::socket(AF_NETLINK, SOCK_RAW, 0));
  told("socket:audit", ::socket(AF_NETLINK, SOCK_RAW, 9));
  told("socket:packet", ::socket(AF_PACKET, SOCK_RAW, 0));
  told("socket:vsock", ::socket(AF_VSOCK, SOCK_STREAM, 0));
  told("pair:vsock", ::socketpair(AF_VSOCK, SOCK_STREAM, 0, pair.data()));
  told("memfd", ::memfd_create("x", MFD_CLOEXEC));
  told("mount", ::mount("none", "/mnt", "tmpfs", 0, nullptr));
  told("unshare", ::unshare(CLONE_NEWUSER));
  told("bpf", ::syscall(SYS_bpf, 0, nullptr, 0));
  told("keyctl", ::syscall(SYS_keyctl, 0, 0, 0));
  told("io_uring", ::syscall(SYS_io_uring_setup, 1, nullptr));
  told("unheard_of", ::syscall(900, 0, 0, 0));
  told("clone3", ::syscall(SYS_clone3, nullptr, 0));
  // Of no descriptor: those that are let through find that out. The kernel reads 32 bits.
  for (const std::uint64_t above : {0ull, 1ull << 32, 0xffffffffull << 32})
    for (const auto& [name, request] :
         std::initializer_list<std::pair<const char*, std::uint64_t>>{{"nbio", FIONBIO},
                                                                      {"read", FIONREAD},
                                                                      {"gets", TCGETS},
                                                                      {"sti", TIOCSTI},
                                                                      {"linux", TIOCLINUX},
                                                                      {"setd", TIOCSETD},
                                                                      {"sctty", TIOCSCTTY}})
      told("ioctl:" + std::string{name}, ::syscall(SYS_ioctl, -1, above | request, nullptr));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  told("fork", ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  char program[] = "/bin/true";
  std::array<char*, 2> words{program, nullptr};
  told("execve", ::execve(program, words.data(), words.data() + 1));
  told("ptrace", ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr));
  told("seccomp_off", ::prctl(PR_SET_SECCOMP, 0, 0, 0, 0));
#endif
  return all;
}

/// What a thread that was there before finds, and one that has come after.
std::string outcomes_with(result<void> (*allow_only)()) {
  return insula::test::said_by_fork([&]() -> std::string {
    std::promise<void> limited;
    std::string earlier;
    std::thread there{[&] {
      limited.get_future().wait();
      earlier = outcomes();
    }};
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    const auto done = allow_only();
    limited.set_value();
    there.join();
    std::string later;
    std::thread{[&] { later = outcomes(); }}.join();
    if (!done)
      return done.reason().message;
    return earlier == later ? later : "they differ";
  });
}

} // namespace

TEST_CASE("a server makes the calls that it needs, in every thread, and no others", "[serve]") {
  // What fetches images is more exposed than the rest, and does without files in memory.
  const bool fetches = GENERATE(false, true);
  std::string wanted =
    "socket:unix=0 socket:inet=0 socket:inet6=0 socket:route=0 socket:audit=ENOSYS "
    "socket:packet=ENOSYS socket:vsock=ENOSYS pair:vsock=ENOSYS memfd=" +
    std::string{fetches ? "ENOSYS" : "0"} +
    " mount=EPERM unshare=EPERM bpf=EPERM keyctl=EPERM io_uring=ENOSYS unheard_of=ENOSYS "
    "clone3=ENOSYS ";
  for (int half = 0; half < 3; ++half)
    wanted += "ioctl:nbio=EBADF ioctl:read=EBADF ioctl:gets=EBADF ioctl:sti=ENOSYS "
              "ioctl:linux=ENOSYS ioctl:setd=ENOSYS ioctl:sctty=ENOSYS ";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  wanted += "fork=ENOSYS execve=EPERM ptrace=EPERM seccomp_off=ENOSYS ";
#endif
  CHECK(outcomes_with(fetches ? allow_only_fetch_calls : allow_only_server_calls) == wanted);
}
