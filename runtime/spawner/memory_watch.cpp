#include "runtime/spawner/memory_watch.hpp"

#include "base/log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <system_error>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

/// Most locks that are walked over to be sure of a sandbox, in a walk that holds up all others.
constexpr std::uint64_t most_locks_counted = 250'000;

std::uint64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

} // namespace

bool memory_watch::start() {
  timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  news_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const itimerspec each_second{{1, 0}, {1, 0}};
  if (!timer_ || !stop_ || !news_ || ::timerfd_settime(timer_.get(), 0, &each_second, nullptr) != 0)
    return false;
  try {
    watcher_ = std::thread{[this] { watch(); }};
  } catch (const std::system_error& why) {
    errno = why.code().value();
    return false;
  }
  return true;
}

memory_watch::~memory_watch() {
  if (!watcher_.joinable())
    return;
  constexpr std::uint64_t once = 1;
  [[maybe_unused]] const auto written = ::write(stop_.get(), &once, sizeof once);
  watcher_.join();
}

void memory_watch::add(const watched_sandbox& who) {
  const std::lock_guard hold{guard_};
  sandboxes_[who.slot] = who;
}

void memory_watch::remove(std::uint32_t slot) {
  const std::lock_guard hold{guard_};
  sandboxes_.erase(slot);
}

std::vector<memory_verdict> memory_watch::take_verdicts() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = ::read(news_.get(), &count, sizeof count);
  const std::lock_guard hold{guard_};
  return std::exchange(verdicts_, {});
}

void memory_watch::watch() {
  const auto first = meter_.read();
  if (!first)
    return log::warning("spawner.no_memory_watch", {{"reason", "/proc/meminfo cannot be read"}});
  memory_suspicion suspicion{rules_, *first};
  for (;;) {
    std::array<pollfd, 2> heard{{{timer_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    ::poll(heard.data(), heard.size(), -1);
    if (heard[1].revents != 0)
      return;
    std::uint64_t turns = 0;
    [[maybe_unused]] const auto taken = ::read(timer_.get(), &turns, sizeof turns);
    const auto now = meter_.read();
    if (now && suspicion.wants_look(*now, now_ns()))
      look(*now, suspicion, now_ns());
  }
}

void memory_watch::look(const machine_memory& now, memory_suspicion& suspicion,
                        std::uint64_t time) {
  std::vector<watched_sandbox> all;
  {
    const std::lock_guard hold{guard_};
    for (const auto& [slot, each] : sandboxes_)
      all.push_back(each);
  }
  std::uint64_t charged = 0;
  for (const auto& each : all)
    charged += groups_.kernel_memory(each.slot);
  const auto uncharged = suspicion.uncharged(now, charged);
  std::optional<memory_verdict> worst;
  // What the machine has not lost, nobody holds.
  if (suspicion.is_short(now) || uncharged >= rules_.most_held / 2) {
    const auto locks = lock_sample::read();
    std::vector<sandbox_memory> held;
    for (const auto& each : all)
      held.push_back({each.id, read_kinds(each, groups_, locks)});
    worst = judge(rules_, suspicion.is_short(now), uncharged, held);
  }
  bool found = false;
  if (worst) {
    const auto who =
      std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.id == worst->id; });
    found = confirm(*who, now, uncharged, suspicion);
  }
  if (!found && suspicion.is_short(now))
    log::warning("spawner.memory_short", {{"available_bytes", now.available},
                                          {"reserve_bytes", rules_.reserve},
                                          {"uncharged_bytes", uncharged},
                                          {"consequence", "no sandbox is begun"}});
  using outcome = memory_suspicion::outcome;
  suspicion.looked(now, time, found ? outcome::found : worst ? outcome::cleared : outcome::nobody);
}

/// It stands still, so that it cannot change while it is looked at again.
bool memory_watch::confirm(const watched_sandbox& who, const machine_memory& now,
                           std::uint64_t uncharged, const memory_suspicion& suspicion) {
  const bool stood_still = groups_.is_frozen(who.slot);
  const auto freezer = groups_.open_freezer(who.slot);
  if (freezer && !stood_still) {
    groups_.freeze(freezer.get());
    constexpr int patience_ms = 200;
    for (int i = 0; i < patience_ms && !groups_.is_frozen(who.slot); ++i) {
      ::usleep(1000);
      groups_.freeze(freezer.get()); // V1 has to be told until all of them do.
    }
  }
  const auto again = judge(rules_, suspicion.is_short(now), uncharged,
                           {{who.id, read_kinds(who, groups_, lock_sample::read())}});
  const auto locks = again ? again->bytes / 2 / 192 : 0; // An estimate can be too high by half.
  if (!again || (again->kind == memory_kind::file_locks &&
                 !has_locks(who, std::min(locks, most_locks_counted)))) {
    if (freezer && !stood_still)
      groups_.thaw(freezer.get());
    log::info("spawner.memory_cleared", {{"slot", who.slot}});
    return false;
  }
  {
    const std::lock_guard hold{guard_};
    verdicts_.push_back(*again);
  }
  constexpr std::uint64_t once = 1;
  [[maybe_unused]] const auto written = ::write(news_.get(), &once, sizeof once);
  return true;
}

} // namespace insula::runtime::spawner
