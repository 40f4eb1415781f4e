#include "benchmarks/load/interrupt.hpp"

#include <atomic>
#include <csignal>

namespace insula::load {

namespace {
std::atomic<int> asked_to_end{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler writes it");
} // namespace

void watch_for_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { ++asked_to_end; };
  // Without SA_RESTART: what waits in the kernel returns and looks.
  for (const int number : {SIGINT, SIGTERM, SIGHUP})
    ::sigaction(number, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int interrupts() {
  return asked_to_end;
}

void throw_if_interrupted() {
  if (interrupts() > 0)
    throw interrupted{};
}

} // namespace insula::load
