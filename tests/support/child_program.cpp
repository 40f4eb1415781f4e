#include "tests/support/child_program.hpp"

#include <array>
#include <csignal>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdexcept>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::test {

unique_fd open_process(pid_t pid) {
  return unique_fd{static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))};
}

bool wait_for_end(const unique_fd& process, std::chrono::milliseconds patience) {
  pollfd ended{process.get(), POLLIN, 0};
  return !process || ::poll(&ended, 1, static_cast<int>(patience.count())) == 1;
}

child_program::child_program(const std::vector<std::string>& argv, const options& how) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw std::runtime_error("no pipe");
  output_.reset(ends[0]);
  const unique_fd theirs{ends[1]};
  std::vector<char*> words;
  for (const auto& each : argv)
    words.push_back(const_cast<char*>(each.c_str()));
  words.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ < 0)
    throw std::runtime_error("no child process");
  if (pid_ == 0) {
    ::dup2(::open("/dev/null", O_RDONLY), 0);
    ::dup2(theirs.get(), 1);
    ::dup2(::open(how.error_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
    if (how.user != 0 &&
        (::setgroups(0, nullptr) != 0 || ::setresgid(how.user, how.user, how.user) != 0 ||
         ::setresuid(how.user, how.user, how.user) != 0))
      ::_exit(126);
    ::execvp(words.front(), words.data());
    ::_exit(127);
  }
  process_ = open_process(pid_);
}

child_program::~child_program() {
  if (!running())
    return;
  signal(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void child_program::signal(int number) const {
  if (running())
    ::syscall(SYS_pidfd_send_signal, process_.get(), number, nullptr, 0);
  siginfo_t stopped{};
  if (number == SIGSTOP && running())
    ::waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED | WEXITED | WNOWAIT);
}

std::optional<int> child_program::wait(std::chrono::milliseconds patience) {
  int status = 0;
  if (!status_ && wait_for_end(process_, patience) && ::waitpid(pid_, &status, 0) == pid_)
    status_ = status;
  return status_;
}

bool child_program::fill(std::chrono::milliseconds patience) {
  pollfd ready{output_.get(), POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(patience.count())) <= 0)
    throw std::runtime_error("a program has said nothing in time");
  std::array<char, 16 * 1024> bytes;
  const auto n = ::read(output_.get(), bytes.data(), bytes.size());
  if (n > 0)
    text_.append(bytes.data(), static_cast<std::size_t>(n));
  return n > 0;
}

std::optional<std::string> child_program::read_line(std::chrono::milliseconds patience) {
  std::size_t end;
  while ((end = text_.find('\n')) == std::string::npos)
    if (!fill(patience))
      return std::nullopt;
  auto line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return line;
}

std::string child_program::read_all(std::chrono::milliseconds patience) {
  while (fill(patience)) {
  }
  return std::move(text_);
}

std::string output_of(const std::vector<std::string>& argv) {
  constexpr std::chrono::seconds patience{60};
  child_program program{argv};
  auto text = program.read_all(patience);
  if (program.wait(patience) != 0)
    throw std::runtime_error(argv.front() + " has failed: " + text);
  return text;
}

} // namespace insula::test
