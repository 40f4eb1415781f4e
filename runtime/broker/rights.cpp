#include "runtime/broker/rights.hpp"

#include "runtime/call_filter.hpp"

#include <sys/ioctl.h>
#include <sys/mman.h>

namespace insula::runtime::broker {

namespace {

/// All that a broker calls once it runs, whatever the arguments are. Connections come to it through
/// its sockets: it makes none.
constexpr const char* allowed[] = {
  "close", "epoll_ctl", "epoll_pwait", "epoll_wait", "poll", "ppoll", "read", "readv", "recvfrom",
  "recvmsg", "sendmsg", "sendto", "shutdown", "timerfd_settime", "write", "writev",
  // Memory, random numbers, time, whether the spawner still lives, and the end
  "brk", "clock_gettime", "clock_gettime64", "exit", "exit_group", "futex", "getpid", "getppid",
  "getrandom", "gettid", "gettimeofday", "madvise", "mremap", "munmap", "restart_syscall",
  "rt_sigreturn", "time"};

bool restrict_calls() {
  call_filter list;
  for (const char* name : allowed)
    list.add(name);
  list.add("ioctl", SCMP_A1(SCMP_CMP_EQ, FIONBIO));
  list.add("fcntl", SCMP_A1(SCMP_CMP_EQ, F_GETFL));
  list.add("fcntl", SCMP_A1(SCMP_CMP_EQ, F_SETFL));
  // Nothing that can be run is ever made.
  for (const char* each : {"mmap", "mmap2", "mprotect"})
    list.add(each, SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
  return list.load();
}

} // namespace

bool give_up_rights(uid_t user) {
  return become_nobody(user) && restrict_calls();
}

} // namespace insula::runtime::broker
