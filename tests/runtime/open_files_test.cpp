// What the open files of processes hold in the kernel, with processes of the test's own.
#include "base/unique_fd.hpp"
#include "runtime/spawner/open_files.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <sched.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <vector>

using namespace insula;
using namespace insula::runtime::spawner;
using namespace insula::test;

namespace {

/// A process that has done `first` and waits, without the descriptors of the one before it.
class inhabitant {
public:
  explicit inhabitant(const std::function<void()>& first, bool empty = true) {
    std::array<int, 2> ready{};
    REQUIRE(::pipe2(ready.data(), O_CLOEXEC) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
      ::dup2(ready[1], 0);
      if (empty)
        ::close_range(1, ~0u, 0);
      first();
      [[maybe_unused]] const auto said = ::write(0, "r", 1);
      for (;;)
        ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
  }
  inhabitant(const inhabitant&) = delete;
  inhabitant& operator=(const inhabitant&) = delete;
  ~inhabitant() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  pid_t pid() const { return pid_; }

private:
  pid_t pid_ = -1;
};

constexpr int some = 300;

void lock(int file, int how, int count = some) {
  for (int at = count; at > 0; --at) {
    struct flock wanted {};
    wanted.l_type = F_WRLCK;
    wanted.l_start = 2 * at;
    wanted.l_len = 1;
    if (::fcntl(file, how, &wanted) != 0)
      ::_exit(1);
  }
}

int file_in_memory() {
  return static_cast<int>(::syscall(SYS_memfd_create, "test", 0u));
}

/// Nothing weighs anything.
std::optional<std::uint64_t> nothing(dev_t, const std::string&) {
  return std::nullopt;
}

open_files count(const std::vector<pid_t>& processes, const weigh_directory& weigh = nothing) {
  return count_open_files(processes, weigh, 60'000);
}

} // namespace

TEST_CASE("locks are counted for the process that has the open file, of whichever file it is",
          "[runtime][memory]") {
  const temp_dir place;
  const auto path = (place / "file").string();
  SECTION("POSIX") {
    const inhabitant one{[&] { lock(::open(path.c_str(), O_CREAT | O_RDWR, 0600), F_SETLK); }};
    CHECK(count({one.pid()}).locks == some);
  }
  SECTION("of an open file in memory, which no mount has") {
    const inhabitant one{[&] { lock(file_in_memory(), F_OFD_SETLK); }};
    const inhabitant other{[] { file_in_memory(); }};
    CHECK(count({one.pid()}).locks == some);
    CHECK(count({other.pid()}).locks == 0);
  }
  SECTION("of an inode that everybody has") {
    const inhabitant one{[&] { lock(::eventfd(0, 0), F_OFD_SETLK); }};
    const inhabitant other{[] { ::eventfd(0, 0); }};
    CHECK(count({one.pid()}).locks == some);
    CHECK(count({other.pid()}).locks == 0);
  }
  SECTION("of a whole file") {
    const inhabitant one{[&] { ::flock(file_in_memory(), LOCK_EX); }};
    CHECK(count({one.pid()}).locks == 1);
  }
}

TEST_CASE("locks outlive the process that made them in a table that it shared",
          "[runtime][memory]") {
  const inhabitant one{[] {
    const int file = file_in_memory();
    const auto child = static_cast<pid_t>(
      ::syscall(SYS_clone, CLONE_FILES | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    if (child == 0) {
      lock(file, F_SETLK);
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
  }};
  CHECK(count({one.pid()}).locks == some);
}

TEST_CASE("what descriptors and processes share is counted once", "[runtime][memory]") {
  int shared = -1;
  SECTION("in one process") {
    const inhabitant one{[] {
      const int file = file_in_memory();
      lock(file, F_SETLK);
      for (int i = 0; i < 20; ++i)
        (void)::dup(file);
    }};
    CHECK(count({one.pid()}).locks == some);
  }
  SECTION("by processes") {
    shared = file_in_memory();
    lock(shared, F_OFD_SETLK);
    const inhabitant one{[] {}, false}, two{[] {}, false};
    CHECK(count({one.pid(), two.pid()}).locks == some);
  }
  SECTION("but POSIX locks are of each process alone") {
    shared = file_in_memory();
    const inhabitant one{[] {}, false}, two{[&] { lock(shared, F_SETLK); }, false};
    CHECK(count({one.pid(), two.pid()}).locks == some);
    CHECK(count({one.pid()}).locks == 0);
  }
  SECTION("handles of directories") {
    const temp_dir place;
    const auto path = place.path().string();
    const auto open = [&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY); };
    shared = open();
    const auto handles = [&] {
      for (int i = 0; i < 3; ++i) {
        const int one = open();
        for (int j = 0; j < 10; ++j)
          (void)::dup(one);
      }
    };
    const inhabitant one{handles, false}, two{handles, false};
    int asked = 0;
    const auto found = count({one.pid(), two.pid()}, [&](dev_t, const std::string& which) {
      if (which != path)
        return std::optional<std::uint64_t>{};
      ++asked;
      return std::optional<std::uint64_t>{1000};
    });
    CHECK(found.name_handles == 7);
    CHECK(found.name_bytes == 7'000);
    CHECK(asked == 1);
  }
  ::close(shared);
}

TEST_CASE("descriptors on their way through a socket are known to be there", "[runtime][memory]") {
  const inhabitant one{[] {
    std::array<int, 2> ends{};
    ::socketpair(AF_UNIX, SOCK_DGRAM, 0, ends.data());
    for (int sent = 0; sent < 5; ++sent) {
      char byte = 0;
      iovec data{&byte, 1};
      alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
      msghdr message{};
      message.msg_iov = &data;
      message.msg_iovlen = 1;
      message.msg_control = space.data();
      message.msg_controllen = space.size();
      auto* part = CMSG_FIRSTHDR(&message);
      part->cmsg_level = SOL_SOCKET;
      part->cmsg_type = SCM_RIGHTS;
      part->cmsg_len = CMSG_LEN(sizeof(int));
      const int file = file_in_memory();
      std::memcpy(CMSG_DATA(part), &file, sizeof file);
      ::sendmsg(ends[0], &message, 0);
      ::close(file);
    }
  }};
  CHECK(count({one.pid()}).in_flight == 5);
}

TEST_CASE("timers and events are counted", "[runtime][memory]") {
  const inhabitant one{[] {
    for (int i = 0; i < 7; ++i)
      ::timerfd_create(CLOCK_MONOTONIC, 0);
    for (int i = 0; i < 5; ++i)
      ::eventfd(0, 0);
  }};
  const auto found = count({one.pid()});
  CHECK(found.timers == 7);
  CHECK(found.events == 5);
}

TEST_CASE("many descriptors hide nothing of what comes after them", "[runtime][memory]") {
  rlimit most{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &most) == 0);
  const auto usual = most;
  most.rlim_cur = std::min<rlim_t>(most.rlim_max, 60'000);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &most) == 0);
  const auto many = static_cast<int>(most.rlim_cur) - 10;
  const auto fill = [](int until) {
    while (::dup(0) < until) {
    }
  };
  std::vector<std::unique_ptr<inhabitant>> crowd;
  std::vector<pid_t> all;
  const auto add = [&](const std::function<void()>& first) {
    crowd.push_back(std::make_unique<inhabitant>(first));
    all.push_back(crowd.back()->pid());
  };
  for (std::size_t taken = 0; taken < 2 * max_descriptors; taken += static_cast<std::size_t>(many))
    add([&] { fill(many); });
  SECTION("in another process") {
    add([] { lock(file_in_memory(), F_SETLK); });
    CHECK(count(all).locks == some);
  }
  SECTION("in the same one, about") {
    const int timers = many / 2;
    add([&] {
      fill(many - timers);
      for (int i = 0; i < timers; ++i)
        ::timerfd_create(CLOCK_MONOTONIC, 0);
    });
    const auto found = count(all);
    CHECK(found.timers > static_cast<std::uint64_t>(timers) / 2);
    CHECK(found.timers < static_cast<std::uint64_t>(timers) * 2);
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &usual) == 0);
}

/// A measurement, run by hand on a quiet machine: `runtime_memory_test "[measure]"`.
TEST_CASE("what counting the open files of 500 sandboxes costs", "[.][measure]") {
  const auto usual = [] {
    for (int i = 0; i < 20; ++i)
      file_in_memory();
  };
  const inhabitant one{usual}, two{usual}, three{usual};
  const auto used_us = [] {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1'000'000 + now.tv_nsec / 1000;
  };
  const auto before = used_us();
  for (int i = 0; i < 500; ++i)
    count({one.pid(), two.pid(), three.pid()});
  WARN("three processes each, of 20 descriptors: " << (used_us() - before) / 1000 << " ms");
}

TEST_CASE("an impatient count looks at a little of everything", "[runtime][memory]") {
  const inhabitant one{[] {
    for (int i = 0; i < 1'000; ++i)
      ::eventfd(0, 0);
  }};
  // As many descriptors again are free in the table of this one.
  const inhabitant other{[] {
    for (int i = 0; i < 550; ++i)
      lock(file_in_memory(), F_SETLK, 10);
  }};
  const auto found = count_open_files({one.pid(), other.pid()}, nothing, 0);
  CHECK(found.events > 500);
  CHECK(found.events < 2'000);
  CHECK(found.locks > 2'750);
  CHECK(found.locks < 11'000);
}
