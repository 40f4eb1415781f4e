#include "benchmarks/interrupt.hpp"

#include <atomic>
#include <csignal>

namespace insula::bench {

namespace {
std::atomic<bool> asked_to_end{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler writes it");
} // namespace

void watch_for_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { asked_to_end = true; };
  // Without SA_RESTART: what waits in the kernel returns and looks.
  for (const int number : {SIGINT, SIGTERM, SIGHUP})
    ::sigaction(number, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void throw_if_interrupted() {
  if (asked_to_end)
    throw interrupted{};
}

} // namespace insula::bench
