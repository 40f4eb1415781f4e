#include "tests/abuse/attack/attacks.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <string_view>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace insula::attack {

namespace {

char block[60'000];

sockaddr_in loopback(int port) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  made.sin_port = htons(static_cast<std::uint16_t>(port));
  return made;
}

/// A socket on a port of the loopback's. -1: there is none left.
int bound(int type, sockaddr_in& at) {
  const int made = ::socket(AF_INET, type, 0);
  at = loopback(0);
  socklen_t size = sizeof at;
  if (made >= 0 && ::bind(made, reinterpret_cast<sockaddr*>(&at), size) == 0)
    ::getsockname(made, reinterpret_cast<sockaddr*>(&at), &size);
  return made;
}

/// Into a descriptor that waits for nobody, until it takes nothing more.
long long fill(int into) {
  long long sent = 0;
  ::fcntl(into, F_SETFL, O_NONBLOCK);
  for (ssize_t n; (n = ::write(into, block, sizeof block)) > 0;)
    sent += n;
  return sent;
}

/// Answers MiB. The kernel's limit of what all have may be met long before that of descriptors,
/// which is what ends it.
long fill_tcp() {
  sockaddr_in at{};
  const int listener = bound(SOCK_STREAM, at);
  ::listen(listener, 4096);
  long long sent = 0;
  for (;;) {
    const int out = ::socket(AF_INET, SOCK_STREAM, 0);
    if (out < 0 || ::connect(out, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0)
      return static_cast<long>(sent >> 20);
    const int in = ::accept(listener, nullptr, nullptr);
    if (in < 0)
      return static_cast<long>(sent >> 20);
    sent += fill(out) + fill(in);
  }
}

long fill_udp() {
  long long sent = 0;
  for (;;) {
    sockaddr_in at{};
    const int made = bound(SOCK_DGRAM, at);
    if (made < 0)
      return static_cast<long>(sent >> 20);
    for (int i = 0; i < 8; ++i) // What is too much is dropped.
      if (const auto n = ::sendto(made, block, sizeof block, MSG_DONTWAIT,
                                  reinterpret_cast<sockaddr*>(&at), sizeof at);
          n > 0)
        sent += n;
  }
}

long fill_unix() {
  long long sent = 0;
  for (;;) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
      return static_cast<long>(sent >> 20);
    sent += fill(ends[0]) + fill(ends[1]);
  }
}

/// Every message that means nothing is answered, and quoted.
long fill_netlink() {
  auto& head = *reinterpret_cast<nlmsghdr*>(block);
  constexpr std::size_t size = 4'000;
  head.nlmsg_len = size;
  head.nlmsg_type = 0xff;
  head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
  for (long count = 0;; ++count) {
    const int made = ::socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
    if (made < 0)
      return count;
    for (int i = 0; i < 64; ++i)
      ::send(made, block, size, MSG_DONTWAIT);
  }
}

/// What came of datagrams to a port where nobody is, for a socket that wants to know.
long fill_errors() {
  // A port that the kernel gives to no socket which asks for any: one of thousands would be there.
  sockaddr_in nobody{};
  nobody.sin_family = AF_INET;
  nobody.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  nobody.sin_port = htons(9);
  for (long count = 0;; ++count) {
    sockaddr_in own{};
    const int made = bound(SOCK_DGRAM, own);
    if (made < 0)
      return count;
    const int yes = 1;
    ::setsockopt(made, IPPROTO_IP, IP_RECVERR, &yes, sizeof yes);
    for (int i = 0; i < 150; ++i) // Every second one says only what came of the one before.
      ::sendto(made, block, 1'000, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&nobody),
               sizeof nobody);
  }
}

long fill_pipes() {
  long long sent = 0;
  for (;;) {
    int ends[2];
    if (::pipe(ends) != 0)
      return static_cast<long>(sent >> 20);
    ::fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
    sent += fill(ends[1]);
  }
}

} // namespace

void fill_buffers(const char* kind) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const std::string_view what{kind};
  settle(what == "tcp"       ? fill_tcp
         : what == "udp"     ? fill_udp
         : what == "unix"    ? fill_unix
         : what == "netlink" ? fill_netlink
         : what == "errors"  ? fill_errors
                             : fill_pipes);
}

} // namespace insula::attack
