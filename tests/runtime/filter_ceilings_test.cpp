// How many filters of system calls processes can hold.
#include "base/unique_fd.hpp"
#include "runtime/spawner/filter_ceilings.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <future>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace insula;
using namespace insula::runtime::spawner;

namespace {

/// 0, or errno.
int load(std::size_t instructions) {
  std::vector<sock_filter> filter(instructions, BPF_STMT(BPF_ALU | BPF_ADD | BPF_K, 1));
  filter.front() = filter.back() = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0 ? 0 : errno;
}

/// A process that does `before`, tells what that answers, and lives until this is gone.
class child {
public:
  template <class Before>
  explicit child(Before before) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    ours_.reset(ends[0]);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::close(ends[0]);
      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      const std::int64_t answer = before();
      [[maybe_unused]] const auto told = ::write(ends[1], &answer, sizeof answer);
      char byte = 0;
      [[maybe_unused]] const auto end = ::read(ends[1], &byte, 1);
      ::_exit(0);
    }
    ::close(ends[1]);
    REQUIRE(::read(ours_.get(), &answer_, sizeof answer_) == sizeof answer_);
  }
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  ~child() {
    ours_.reset();
    ::waitpid(pid_, nullptr, 0);
  }

  std::int64_t answer() const { return answer_; }

private:
  unique_fd ours_;
  pid_t pid_ = -1;
  std::int64_t answer_ = -1;
};

/// How many instructions fit behind what this process has.
std::int64_t instructions_that_fit() {
  std::int64_t all = 0;
  for (std::size_t size = 1024; size >= 64;)
    if (load(size) == 0)
      all += static_cast<std::int64_t>(size);
    else
      size /= 2;
  return all;
}

} // namespace

TEST_CASE("processes that are started later have room for a program's filters, and for little more",
          "[runtime][seccomp]") {
  const auto before = child{instructions_that_fit}.answer();
  const child narrowed{[] {
    const std::array<sock_filter, 1> own{BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    narrow_filters_of_processes(own);
    return instructions_that_fit();
  }};
  CHECK(before > 20'000);
  CHECK(narrowed.answer() > 6'000);
#ifndef __SANITIZE_THREAD__ // It has a thread of its own, and with several nothing is narrowed.
  CHECK(narrowed.answer() < 8'200);
#endif
}

TEST_CASE("where filters would not fit any more, processes are not narrowed",
          "[runtime][seccomp]") {
  const child crowded{[] {
    for (int i = 0; i < 2; ++i)
      load(4'096);
    const std::array<sock_filter, 1> own{BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    narrow_filters_of_processes(own);
    return instructions_that_fit();
  }};
  CHECK(crowded.answer() > 20'000);
}

TEST_CASE("beside another thread nothing is narrowed", "[runtime][seccomp]") {
  const child busy{[] {
    std::promise<void> over;
    std::thread other{[done = over.get_future()] { done.wait(); }};
    const std::array<sock_filter, 1> own{BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    narrow_filters_of_processes(own);
    over.set_value();
    other.join();
    return instructions_that_fit();
  }};
  CHECK(busy.answer() > 20'000);
}
