#include "tests/abuse/attack/attacks.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::attack {

void met_limit(long count) {
  const char* why = ::strerrorname_np(errno);
  std::printf("%ld %s\n", count, why != nullptr ? why : "0");
  std::fflush(stdout);
}

void press_on() {
  for (;;)
    ::pause();
}

void again() {
  for (bool told = false;; told = true) {
    const pid_t child = ::fork();
    if (child == 0)
      return;
    ::waitpid(child, nullptr, 0);
    errno = 0;
    if (!told)
      met_limit(1);
  }
}

namespace {

/// The kernel takes this process before its parent, which has to tell of it; and with it.
void offer_as_victim() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int score = ::open("/proc/self/oom_score_adj", O_WRONLY);
  [[maybe_unused]] const auto written = ::write(score, "1000", 4);
  ::close(score);
}

} // namespace

void settle(long (*deed)()) {
  struct {
    long count;
    int why;
  } met{};
  int told[2];
  if (::pipe(told) != 0)
    ::_exit(1);
  if (::fork() == 0) {
    offer_as_victim();
    met.count = deed();
    met.why = errno;
    if (::write(told[1], &met, sizeof met) != sizeof met)
      ::_exit(1);
    press_on();
  }
  ::close(told[1]);
  if (::read(told[0], &met, sizeof met) == sizeof met) {
    errno = met.why;
    met_limit(met.count);
  } else {
    std::puts("0 killed");
    std::fflush(stdout);
  }
  press_on();
}

void be_many(long processes, const std::function<void()>& deed) {
  int settled[2];
  if (::pipe(settled) != 0)
    ::_exit(1);
  for (long i = 0; i < processes; ++i)
    if (::fork() == 0) {
      offer_as_victim();
      deed();
      ::close(settled[1]);
      press_on();
    }
  ::close(settled[1]);
  char byte = 0;
  [[maybe_unused]] const auto end = ::read(settled[0], &byte, 1);
  long killed = 0;
  for (int status = 0; ::waitpid(-1, &status, WNOHANG) > 0;)
    killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  errno = 0;
  met_limit(killed);
  press_on();
}

void fork_bomb() {
  bool told = false;
  for (long count = 0;; ++count) {
    const pid_t child = ::fork();
    if (child == 0)
      for (;;) // The children of children, and so on: none of them ends by itself.
        ::fork();
    if (child < 0 && !told) {
      met_limit(count);
      told = true;
    }
  }
}

void many_threads(long wanted) {
  pthread_attr_t small;
  ::pthread_attr_init(&small);
  ::pthread_attr_setstacksize(&small, 16 * 1024);
  long count = 0;
  for (; count < wanted; ++count) {
    pthread_t ignored;
    const int failed = ::pthread_create(
      &ignored, &small, [](void*) -> void* { press_on(); }, nullptr);
    if (failed != 0) {
      errno = failed;
      break;
    }
  }
  met_limit(count);
  for (pthread_t ignored;;) // Whoever ends makes room for one more.
    ::pthread_create(
      &ignored, &small, [](void*) -> void* { return nullptr; }, nullptr);
}

/// Each child leaves a grandchild behind, which PID 1 has to bury; those of its own it never does.
void zombie_storm() {
  bool told = false;
  for (long count = 0;; ++count) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (::fork() == 0)
        ::_exit(0);
      ::_exit(0);
    }
    if (child > 0 && count % 2 == 0)
      ::waitpid(child, nullptr, 0);
    if (child < 0 && !told) {
      met_limit(count);
      told = true;
    }
    if (child < 0) // Full of its own dead: buries some, and goes on.
      for (int i = 0; i < 32; ++i)
        ::waitpid(-1, nullptr, WNOHANG);
  }
}

void burn(long threads) {
  errno = 0;
  met_limit(threads);
  for (long i = 1; i < threads; ++i)
    if (::fork() == 0)
      break;
  for (volatile unsigned long spin = 0;;)
    spin = spin + 1;
}

void stop_everybody() {
  errno = 0;
  met_limit(0);
  for (;;)
    ::kill(-1, SIGSTOP); // All that it may signal, but for itself.
}

} // namespace insula::attack
