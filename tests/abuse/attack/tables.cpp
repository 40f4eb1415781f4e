#include "tests/abuse/attack/attacks.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/in6.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <string_view>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace insula::attack {

namespace {

constexpr std::size_t mebibyte = 1 << 20;

/// Until one says no.
template <class Once>
long until_refused(Once once) {
  long count = 0;
  while (once(count))
    ++count;
  return count;
}

long fill_aio() {
  return until_refused([](long) {
    aio_context_t made = 0;
    return ::syscall(SYS_io_setup, 1'024, &made) == 0;
  });
}

long fill_queues() {
  return until_refused([](long at) {
    const auto name = "/queue" + std::to_string(at);
    return ::mq_open(name.c_str(), O_CREAT | O_RDWR, 0600, nullptr) >= 0;
  });
}

long fill_signals() {
  sigset_t held;
  ::sigemptyset(&held);
  ::sigaddset(&held, SIGRTMIN);
  ::sigprocmask(SIG_BLOCK, &held, nullptr);
  return until_refused([](long) { return ::sigqueue(::getpid(), SIGRTMIN, {}) == 0; });
}

long fill_timers() {
  return until_refused([](long) {
    timer_t made{};
    return ::timer_create(CLOCK_MONOTONIC, nullptr, &made) == 0;
  });
}

long fill_watches() {
  const int watch = ::inotify_init();
  ::mkdir("watched", 0700);
  return until_refused([watch](long at) {
    const auto name = "watched/" + std::to_string(at);
    const int file = ::open(name.c_str(), O_CREAT | O_WRONLY, 0600);
    ::close(file);
    return file >= 0 && ::inotify_add_watch(watch, name.c_str(), IN_MODIFY) >= 0;
  });
}

long fill_segments() {
  return until_refused([](long) {
    const int made = ::shmget(IPC_PRIVATE, mebibyte, IPC_CREAT | 0600);
    void* const at = made < 0 ? reinterpret_cast<void*>(-1) : ::shmat(made, nullptr, 0);
    if (at == reinterpret_cast<void*>(-1))
      return false;
    std::memset(at, 1, mebibyte);
    return true;
  });
}

long fill_messages() {
  static struct {
    long kind = 1;
    char text[8'000] = {};
  } message;
  return until_refused([](long) {
    const int made = ::msgget(IPC_PRIVATE, IPC_CREAT | 0600);
    while (made >= 0 && ::msgsnd(made, &message, sizeof message.text, IPC_NOWAIT) == 0) {
    }
    return made >= 0;
  });
}

long fill_semaphores() {
  return until_refused([](long) {
    constexpr int most_of_one = 250;
    return ::semget(IPC_PRIVATE, most_of_one, IPC_CREAT | 0600) >= 0;
  });
}

/// Says no, or what would be the matter without that.
struct socket_option {
  int family, type, level, option;
  std::size_t size;
};

/// Each keeps something for as long as the socket lives, and no group is charged for it.
const std::vector<socket_option>& options_with_memory() {
  static const std::vector<socket_option> all{
    {AF_INET, SOCK_DGRAM, IPPROTO_IP, IP_OPTIONS, 4},
    {AF_INET, SOCK_DGRAM, IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, sizeof(ip_mreq_source)},
    {AF_INET, SOCK_DGRAM, IPPROTO_IP, IP_BLOCK_SOURCE, sizeof(ip_mreq_source)},
    {AF_INET, SOCK_DGRAM, IPPROTO_IP, IP_MSFILTER, 16},
    {AF_INET, SOCK_DGRAM, IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP, sizeof(group_source_req)},
    {AF_INET, SOCK_DGRAM, IPPROTO_IP, MCAST_BLOCK_SOURCE, sizeof(group_source_req)},
    {AF_INET, SOCK_DGRAM, IPPROTO_IP, MCAST_MSFILTER, sizeof(group_filter)},
    {AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, IPV6_JOIN_ANYCAST, sizeof(ipv6_mreq)},
    {AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP, sizeof(group_source_req)},
    {AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, MCAST_MSFILTER, sizeof(group_filter)},
    {AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, sizeof(in6_flowlabel_req)},
    {AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, 6 /* IPV6_2292PKTOPTIONS */, 64},
    {AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, IPV6_HOPOPTS, 8},
    {AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, IPV6_RTHDRDSTOPTS, 8},
    {AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, IPV6_RTHDR, 8},
    {AF_INET6, SOCK_DGRAM, IPPROTO_IPV6, IPV6_DSTOPTS, 8},
    {AF_INET, SOCK_STREAM, IPPROTO_TCP, TCP_MD5SIG, sizeof(tcp_md5sig)},
    {AF_INET, SOCK_STREAM, IPPROTO_TCP, TCP_MD5SIG_EXT, sizeof(tcp_md5sig)},
    {AF_INET, SOCK_STREAM, IPPROTO_TCP, 38 /* TCP_AO_ADD_KEY */, 256},
    {AF_INET, SOCK_STREAM, SOL_SOCKET, SO_ZEROCOPY, sizeof(int)},
  };
  return all;
}

/// EPERM if each is refused as Insula does it.
long try_options() {
  static char value[1024] = {1};
  long at = 0;
  for (const auto& each : options_with_memory()) {
    const int made = ::socket(each.family, each.type, 0);
    errno = 0;
    if (::setsockopt(made, each.level, each.option, value, static_cast<socklen_t>(each.size)) ==
          0 ||
        (errno != ENOPROTOOPT && errno != EOPNOTSUPP))
      return at;
    ::close(made);
    ++at;
  }
  errno = EPERM;
  return at;
}

} // namespace

void fill_kernel_table(const char* kind) {
  const std::string_view what{kind};
  settle(what == "aio"        ? fill_aio
         : what == "queues"   ? fill_queues
         : what == "signals"  ? fill_signals
         : what == "timers"   ? fill_timers
         : what == "watches"  ? fill_watches
         : what == "segments" ? fill_segments
         : what == "messages" ? fill_messages
                              : fill_semaphores);
}

void read_figures(long processes) {
  errno = 0;
  met_limit(processes);
  for (long i = 1; i < processes; ++i)
    if (::fork() == 0)
      break;
  std::vector<int> files;
  for (const char* each :
       {"/sys/fs/cgroup/memory.stat", "/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat",
        "/sys/fs/cgroup/memory/memory.numa_stat", "/sys/fs/cgroup/cpuacct/cpuacct.usage_all"})
    if (const int file = ::open(each, O_RDONLY | O_CLOEXEC); file >= 0)
      files.push_back(file);
  if (files.empty())
    ::_exit(1);
  for (char text[16'384];;)
    for (const int each : files)
      [[maybe_unused]] const auto n = ::pread(each, text, sizeof text, 0);
}

void many_filters(long processes) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    ::_exit(1);
  // Divisions are the longest when they are compiled.
  std::vector<sock_filter> longest(4'096, BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 3));
  longest.back() = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  be_many(processes, [&longest] {
    for (auto left = longest.size(); left > 0;) {
      const sock_fprog program{static_cast<unsigned short>(left),
                               longest.data() + (longest.size() - left)};
      if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        left /= 2;
    }
  });
}

void ask_for(const char* what) {
  const std::string_view thing{what};
  long count = 0;
  errno = 0;
  if (thing == "filter") {
    static sock_filter everything[] = {BPF_STMT(BPF_RET | BPF_K, 0xffff)};
    const sock_fprog program{1, everything};
    ::setsockopt(::socket(AF_INET, SOCK_DGRAM, 0), SOL_SOCKET, SO_ATTACH_FILTER, &program,
                 sizeof program);
  } else if (thing == "key") {
    ::syscall(SYS_add_key, "user", "name", "text", 4, -2 /* of this process */);
  } else if (thing == "mount") {
    ::mount("none", "/tmp", "tmpfs", 0, nullptr);
  } else if (thing == "options") {
    count = try_options();
  }
  met_limit(count);
  press_on();
}

} // namespace insula::attack
