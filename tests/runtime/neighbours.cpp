// What the neighbours of a gateway do to each other, for gateway_test.cpp and for tests/abuse.
//
//   neighbours serve [ADDRESS]           in the far network: answers one byte to each connection to
//                                        port 9100, as well to 9102 and stays there, a MiB at
//                                        9101, and questions to the DNS at port 5353 but for names
//                                        below silent.example. ADDRESS: at port 53 there instead.
//                                        Prints "ready".
//   neighbours connect COUNT             prints how long each took with its first byte, in us
//   neighbours resolve COUNT             the same of a question to the DNS; 0: it has failed
//   neighbours download COUNT            the same of the MiB, with its connection
//   neighbours hold                      connections that stay, until there are no more; prints how
//                                        many there are and why, and waits
//   neighbours flood KIND SECONDS        as much as it can, by two threads; prints how many
//                                        operations that were. KIND: "refused" (connections to
//                                        where nobody may go), "connections" (to the far end),
//                                        "nowhere" (that never come to be), "questions" (to the
//                                        DNS, about names whose server is silent), "names"
//                                        (connections by TLS to such names), "burn" (nothing but
//                                        the processor's time, by a third thread with the gateway's
//                                        priority as well)
//
// All but the flood has the highest priority: what is measured is the gateway, and not how the
// machine shares its processors.
#include "base/limits.hpp"
#include "base/unique_fd.hpp"
#include "runtime/egress/dns.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

using namespace insula;
namespace dns = runtime::egress::dns;
using clock_type = std::chrono::steady_clock;

namespace {

constexpr const char* far_end = "203.0.113.2";
constexpr std::uint16_t far_port = 9100, far_download = 9101, far_held = 9102, far_dns = 5353,
                        dns_port = 53, tls_port = 443;
constexpr std::size_t download_bytes = 1 << 20;
constexpr timeval socket_patience{5, 0};

[[noreturn]] void fail(const char* doing) {
  std::perror(doing);
  std::exit(1);
}

sockaddr_in address(const char* of, std::uint16_t port) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(port);
  ::inet_pton(AF_INET, of, &made.sin_addr);
  return made;
}

/// Or on its way, if it does not block.
unique_fd connected(const char* to, std::uint16_t port, int type) {
  unique_fd made{::socket(AF_INET, type | SOCK_CLOEXEC, 0)};
  const auto where = address(to, port);
  ::setsockopt(made.get(), SOL_SOCKET, SO_RCVTIMEO, &socket_patience, sizeof socket_patience);
  if (::connect(made.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0 &&
      errno != EINPROGRESS)
    return {};
  return made;
}

unique_fd bound(int type, std::uint16_t port, const char* to = "0.0.0.0") {
  unique_fd made{::socket(AF_INET, type | SOCK_CLOEXEC, 0)};
  const auto where = address(to, port);
  const int yes = 1;
  ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(made.get(), reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
    fail("binding");
  return made;
}

unique_fd listening(std::uint16_t port) {
  auto made = bound(SOCK_STREAM, port);
  if (::listen(made.get(), 4096) != 0)
    fail("listening");
  return made;
}

unique_fd accepted(const unique_fd& listener) {
  return unique_fd{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
}

[[noreturn]] void serve_downloads(const unique_fd& listener) {
  const std::string all(download_bytes, 'x');
  for (;;) {
    const auto next = accepted(listener);
    ::setsockopt(next.get(), SOL_SOCKET, SO_SNDTIMEO, &socket_patience, sizeof socket_patience);
    for (std::size_t sent = 0; sent < all.size();) {
      const auto n = ::send(next.get(), all.data() + sent, all.size() - sent, MSG_NOSIGNAL);
      if (n <= 0)
        break;
      sent += static_cast<std::size_t>(n);
    }
  }
}

/// Accepts, and keeps the last thousands.
[[noreturn]] void serve_held(const unique_fd& listener) {
  std::deque<unique_fd> all;
  constexpr std::size_t most = 8'000;
  for (;;) {
    ::send(all.emplace_back(accepted(listener)).get(), "x", 1, MSG_NOSIGNAL);
    if (all.size() > most)
      all.pop_front();
  }
}

void serve(const char* dns_address) {
  const auto listener = listening(far_port), downloads = listening(far_download),
             held = listening(far_held);
  const auto names =
    dns_address != nullptr ? bound(SOCK_DGRAM, dns_port, dns_address) : bound(SOCK_DGRAM, far_dns);
  std::thread{[&] { serve_downloads(downloads); }}.detach();
  std::thread{[&] { serve_held(held); }}.detach();
  std::puts("ready");
  std::fflush(stdout);
  for (;;) {
    std::array<pollfd, 2> ready{pollfd{listener.get(), POLLIN, 0}, pollfd{names.get(), POLLIN, 0}};
    ::poll(ready.data(), ready.size(), -1);
    if (ready[0].revents != 0)
      ::send(accepted(listener).get(), "x", 1, MSG_NOSIGNAL);
    if (ready[1].revents == 0)
      continue;
    std::array<char, 4096> bytes;
    sockaddr_in from{};
    socklen_t size = sizeof from;
    const auto n = ::recvfrom(names.get(), bytes.data(), bytes.size(), 0,
                              reinterpret_cast<sockaddr*>(&from), &size);
    const auto asked =
      dns::read_question({bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))});
    if (!asked || asked->name.ends_with(".silent.example"))
      continue;
    const auto said =
      dns::write_addresses(*asked, {*runtime::egress::ip_address::parse(far_end)}, 60);
    ::sendto(names.get(), said.data(), said.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
  }
}

void pause_between() {
  std::this_thread::sleep_for(std::chrono::milliseconds{2});
}

void measure(int count, bool (*once)(int)) {
  for (int i = 0; i < count; ++i) {
    const auto began = clock_type::now();
    const bool good = once(i);
    const auto took =
      std::chrono::duration_cast<std::chrono::microseconds>(clock_type::now() - began).count();
    std::printf("%lld\n", good ? static_cast<long long>(took) : 0ll);
    pause_between();
  }
}

bool connect_once(int) {
  const auto made = connected(far_end, far_port, SOCK_STREAM);
  char byte = 0;
  return made && ::recv(made.get(), &byte, 1, 0) == 1;
}

bool download_once(int) {
  const auto made = connected(far_end, far_download, SOCK_STREAM);
  std::vector<char> bytes(1 << 16);
  std::size_t all = 0;
  for (ssize_t n; made && (n = ::recv(made.get(), bytes.data(), bytes.size(), 0)) > 0;)
    all += static_cast<std::size_t>(n);
  return all == download_bytes;
}

[[noreturn]] void hold() {
  std::vector<unique_fd> all;
  for (;;) {
    errno = 0;
    auto made = connected(far_end, far_held, SOCK_STREAM);
    char byte = 0;
    if (!made || ::recv(made.get(), &byte, 1, 0) != 1)
      break;
    all.push_back(std::move(made));
  }
  const char* const why = ::strerrorname_np(errno);
  std::printf("%zu %s\n", all.size(), why != nullptr ? why : "closed");
  std::fflush(stdout);
  for (;;)
    ::pause();
}

bool resolve_once(int number) {
  const auto asker = connected("9.9.9.9", dns_port, SOCK_DGRAM);
  const auto asked =
    dns::write_question(1, "good" + std::to_string(number) + ".example", dns::type_a);
  ::send(asker.get(), asked.data(), asked.size(), MSG_NOSIGNAL);
  std::array<char, 4096> bytes;
  const auto n = ::recv(asker.get(), bytes.data(), bytes.size(), 0);
  const auto said =
    dns::read_reply({bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))}, asked);
  return said && said->how == dns::status::good && !said->addresses.empty();
}

/// A ClientHello that says this name.
std::string hello(const std::string& name) {
  const auto number = [](std::size_t value, int count) {
    std::string text;
    while (count-- > 0)
      text += static_cast<char>(value >> 8 * count & 0xff);
    return text;
  };
  const auto entry = number(0, 1) + number(name.size(), 2) + name;
  const auto list = number(entry.size(), 2) + entry;
  const auto extensions = number(0, 2) + number(list.size(), 2) + list;
  const auto body = number(0x0303, 2) + std::string(32, 'r') + number(0, 1) + number(2, 2) +
                    number(0x1301, 2) + number(1, 1) + number(0, 1) + number(extensions.size(), 2) +
                    extensions;
  const auto message = number(1, 1) + number(body.size(), 3) + body;
  return number(22, 1) + number(0x0301, 2) + number(message.size(), 2) + message;
}

void reset(const unique_fd& of) {
  const linger at_once{1, 0};
  ::setsockopt(of.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
}

void flood(const std::string& kind, clock_type::time_point until, std::atomic<long>& done) {
  static std::atomic<long> numbers{0};
  std::vector<unique_fd> held;
  constexpr std::size_t most_held = 3000;
  volatile unsigned burnt = 0;
  while (clock_type::now() < until) {
    const auto number = ++numbers;
    if (kind == "burn") {
      for (int i = 0; i < 10'000; ++i)
        burnt = burnt + 1;
    } else if (kind == "questions") {
      thread_local const auto asker = connected("9.9.9.9", dns_port, SOCK_DGRAM);
      const auto asked =
        dns::write_question(1, "q" + std::to_string(number) + ".silent.example", dns::type_a);
      ::send(asker.get(), asked.data(), asked.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      std::array<char, 4096> bytes;
      while (::recv(asker.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0)
        ;
    } else if (kind == "names") {
      auto made = connected(far_end, tls_port, SOCK_STREAM);
      const auto text = hello("n" + std::to_string(number) + ".silent.example");
      ::send(made.get(), text.data(), text.size(), MSG_NOSIGNAL);
      held.push_back(std::move(made));
    } else {
      auto made = kind == "refused" ? connected("10.1.2.3", far_port, SOCK_STREAM)
                  : kind == "nowhere"
                    ? connected("198.51.100.1", far_port, SOCK_STREAM | SOCK_NONBLOCK)
                    : connected(far_end, far_port, SOCK_STREAM);
      if (kind == "nowhere")
        held.push_back(std::move(made));
      else if (made)
        reset(made);
    }
    if (held.size() >= most_held)
      held.clear();
    ++done;
  }
}

} // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  rlimit files{16'384, 16'384};
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (what != "flood")
    ::setpriority(PRIO_PROCESS, 0, -20);
  if (what == "serve")
    serve(argc > 2 ? argv[2] : nullptr);
  if (what == "connect" && argc == 3)
    return measure(std::atoi(argv[2]), connect_once), 0;
  if (what == "resolve" && argc == 3)
    return measure(std::atoi(argv[2]), resolve_once), 0;
  if (what == "download" && argc == 3)
    return measure(std::atoi(argv[2]), download_once), 0;
  if (what == "hold")
    hold();
  if (what == "flood" && argc == 4) {
    const auto until = clock_type::now() + std::chrono::seconds{std::atoi(argv[3])};
    std::atomic<long> done{0};
    std::puts("0 begun");
    std::fflush(stdout);
    std::vector<std::thread> others;
    others.emplace_back([&] { flood(argv[2], until, done); });
    if (std::string{"burn"} == argv[2])
      others.emplace_back([&] {
        ::setpriority(PRIO_PROCESS, 0, limits::gateway_nice); // This thread's.
        flood(argv[2], until, done);
      });
    flood(argv[2], until, done);
    for (auto& each : others)
      each.join();
    std::printf("%ld\n", done.load());
    return 0;
  }
  std::fputs("neighbours serve | connect | resolve | download COUNT | hold | flood KIND SECONDS\n",
             stderr);
  return 2;
}
