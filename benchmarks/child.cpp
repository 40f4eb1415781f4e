#include "benchmarks/child.hpp"

#include "benchmarks/clock.hpp"
#include "benchmarks/load/interrupt.hpp"
#include "benchmarks/load/spawn.hpp"

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <stdexcept>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

namespace insula::bench {

namespace {

constexpr int look_every_ms = 200;

/// True once there is something to read, or the end.
bool wait_readable(int fd, clock::time_point until) {
  pollfd wanted{fd, POLLIN, 0};
  while (clock::now() < until) {
    if (::poll(&wanted, 1, look_every_ms) > 0)
      return true;
    load::throw_if_interrupted();
  }
  return false;
}

} // namespace

std::vector<std::string> plain_environment() {
  return {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/",
          "LANG=C.UTF-8"};
}

child::child(const options& what) {
  unique_fd log{::open(what.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)};
  if (!log)
    throw std::system_error{errno, std::generic_category(), what.log};
  auto [read_end, write_end] = load::make_pipe();
  pid_ = load::spawn({what.argv, what.env, write_end.get(), log.get(), true});
  output_ = std::move(read_end);
}

child::~child() {
  if (pid_ > 0)
    stop(SIGINT, std::chrono::seconds{60});
}

std::string child::read_line(std::chrono::seconds patience) {
  const auto until = clock::now() + patience;
  for (;;) {
    if (const auto end = line_.find('\n'); end != std::string::npos) {
      auto line = line_.substr(0, end);
      line_.erase(0, end + 1);
      return line;
    }
    char bytes[4096];
    if (!wait_readable(output_.get(), until))
      throw std::runtime_error("it does not become ready");
    const auto got = ::read(output_.get(), bytes, sizeof bytes);
    if (got == 0)
      throw std::runtime_error("it ended before it was ready");
    if (got > 0)
      line_.append(bytes, static_cast<std::size_t>(got));
  }
}

bool child::stop(int signal, std::chrono::seconds patience) {
  const unique_fd watched{static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0))};
  ::kill(pid_, signal);
  pollfd ended{watched.get(), POLLIN, 0};
  const auto until = clock::now() + patience;
  int ready = 0;
  // An interrupt does not cut this short: it is what an interrupt leads to.
  while (ready <= 0 && clock::now() < until)
    ready = ::poll(&ended, 1, look_every_ms);
  if (ready <= 0)
    ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return ready > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

} // namespace insula::bench
