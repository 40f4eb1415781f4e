#include "runtime/gateway/rights.hpp"

#include "runtime/call_filter.hpp"

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <grp.h>
#include <initializer_list>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace insula::runtime::gateway {

namespace {

/// All that the gateway calls once it runs, whatever the arguments are. Names that this machine's
/// architecture does not have are left out. What allocates memory, and what the clock falls back to
/// where the kernel gives none to read, belongs to libc.
constexpr const char* allowed[] = {
  // Events, and what arrives and leaves
  "accept4", "close", "connect", "epoll_ctl", "epoll_pwait", "epoll_wait", "getsockname", "pipe2",
  "poll", "ppoll", "read", "readv", "recvfrom", "recvmsg", "sendmsg", "sendto", "shutdown",
  "splice", "timerfd_settime", "write", "writev",
  // The addresses of this machine's interfaces, by a socket of NETLINK_ROUTE
  "bind",
  // Memory, random numbers, time, whether the spawner still lives, and the end
  "brk", "clock_gettime", "clock_gettime64", "exit", "exit_group", "futex", "getppid", "getrandom",
  "gettimeofday", "madvise", "mremap", "munmap", "restart_syscall", "rt_sigreturn", "time"};

constexpr std::uint64_t socket_kind = 0xf; ///< Without SOCK_CLOEXEC and SOCK_NONBLOCK.

/// Everything else fails with EPERM: one that is killed would cut all sandboxes' connections, and
/// what the list has forgotten is a call whose failure the gateway handles.
bool restrict_calls() {
  call_filter list;
  for (const char* name : allowed)
    list.add(name);
  for (const scmp_datum_t family : {AF_INET, AF_INET6})
    for (const scmp_datum_t kind : {SOCK_STREAM, SOCK_DGRAM})
      list.add("socket", SCMP_A0(SCMP_CMP_EQ, family),
               SCMP_A1(SCMP_CMP_MASKED_EQ, socket_kind, kind), SCMP_A2(SCMP_CMP_EQ, 0));
  constexpr scmp_datum_t route = 0; // NETLINK_ROUTE
  list.add("socket", SCMP_A0(SCMP_CMP_EQ, AF_NETLINK), SCMP_A2(SCMP_CMP_EQ, route));
  list.add_options("setsockopt", SOL_SOCKET,
                   {SO_BUF_LOCK, SO_KEEPALIVE, SO_LINGER, SO_RCVBUF, SO_RCVLOWAT});
  list.add_options(
    "setsockopt", IPPROTO_TCP,
    {TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_NODELAY, TCP_NOTSENT_LOWAT, TCP_USER_TIMEOUT});
  list.add_options("getsockopt", SOL_SOCKET, {SO_DOMAIN, SO_ERROR, SO_RCVBUF, SO_TYPE});
  constexpr int original_destination = 80; // SO_ORIGINAL_DST, and the same of IPv6.
  list.add_options("getsockopt", SOL_IP, {original_destination});
  list.add_options("getsockopt", SOL_IPV6, {original_destination});
  list.add("ioctl", SCMP_A1(SCMP_CMP_EQ, FIONBIO));
  list.add("ioctl", SCMP_A1(SCMP_CMP_EQ, FIONREAD));
  list.add("fcntl", SCMP_A1(SCMP_CMP_EQ, F_SETPIPE_SZ));
  // Nothing that can be run is ever made.
  for (const char* each : {"mmap", "mmap2", "mprotect"})
    list.add(each, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
  return list.load();
}

} // namespace

bool give_up_rights(uid_t user) {
  return become_nobody(user) && restrict_calls();
}

} // namespace insula::runtime::gateway
