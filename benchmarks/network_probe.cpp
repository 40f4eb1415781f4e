// What runs at both ends of a measured network: static, since it must run in any image.
//
//   network_probe serve PORT              sends what a connection's first line asks for: a number
//   of bytes network_probe pull ADDRESS PORT MIB   takes so much through one connection; prints
//   Gbit/s network_probe connect ADDRESS PORT N  connects and takes a byte, N times; prints the
//   milliseconds of each

#include <arpa/inet.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

using clock_type = std::chrono::steady_clock;
constexpr std::size_t block = 256 * 1024;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "network_probe: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

std::uint64_t read_number(int from) {
  std::string text;
  for (char each; ::read(from, &each, 1) == 1 && each != '\n' && text.size() < 20;)
    text += each;
  return std::strtoull(text.c_str(), nullptr, 10);
}

void serve_one(int to) {
  const std::vector<char> bytes(block, 'x');
  for (auto left = read_number(to); left > 0;) {
    const auto n = ::send(to, bytes.data(), std::min<std::uint64_t>(left, block), MSG_NOSIGNAL);
    if (n <= 0)
      return;
    left -= static_cast<std::uint64_t>(n);
  }
}

[[noreturn]] void serve(const char* port) {
  std::signal(SIGCHLD, SIG_IGN);
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  const int yes = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  if (::bind(listener, reinterpret_cast<sockaddr*>(&where), sizeof where) != 0 ||
      ::listen(listener, 1024) != 0)
    fail("listening");
  std::puts("ready");
  std::fflush(stdout);
  for (;;) {
    const int next = ::accept(listener, nullptr, nullptr);
    if (next < 0)
      continue;
    if (::fork() == 0) {
      serve_one(next);
      ::_exit(0);
    }
    ::close(next);
  }
}

int connect_to(const char* address, const char* port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  const int made = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::inet_pton(AF_INET, address, &where.sin_addr) != 1 ||
      ::connect(made, reinterpret_cast<sockaddr*>(&where), sizeof where) != 0)
    fail("connecting");
  const int yes = 1;
  ::setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  return made;
}

void ask(int for_it, std::uint64_t bytes) {
  const auto text = std::to_string(bytes) + "\n";
  if (::send(for_it, text.data(), text.size(), MSG_NOSIGNAL) < 0)
    fail("asking");
}

void pull(const char* address, const char* port, std::uint64_t mib) {
  const auto wanted = mib << 20;
  const int from = connect_to(address, port);
  ask(from, wanted);
  std::vector<char> room(block);
  std::uint64_t taken = 0;
  const auto began = clock_type::now();
  while (taken < wanted) {
    const auto n = ::read(from, room.data(), room.size());
    if (n <= 0)
      fail("it ended early");
    taken += static_cast<std::uint64_t>(n);
  }
  const std::chrono::duration<double> took = clock_type::now() - began;
  std::printf("%.3f\n", static_cast<double>(taken) * 8 / took.count() / 1e9);
}

void connect_often(const char* address, const char* port, int count) {
  for (int i = 0; i < count; ++i) {
    const auto began = clock_type::now();
    const int made = connect_to(address, port);
    ask(made, 1);
    char byte = 0;
    if (::read(made, &byte, 1) != 1)
      fail("no first byte");
    const std::chrono::duration<double, std::milli> took = clock_type::now() - began;
    std::printf("%.4f\n", took.count());
    ::close(made);
  }
}

} // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "serve" && argc == 3)
    serve(argv[2]);
  if (what == "pull" && argc == 5)
    return pull(argv[2], argv[3], std::strtoull(argv[4], nullptr, 10)), 0;
  if (what == "connect" && argc == 5)
    return connect_often(argv[2], argv[3], std::atoi(argv[4])), 0;
  std::fputs("network_probe serve PORT | pull ADDRESS PORT MIB | connect ADDRESS PORT N\n", stderr);
  return 2;
}
