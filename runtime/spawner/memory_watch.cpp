#include "runtime/spawner/memory_watch.hpp"

#include "base/log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <exception>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <system_error>
#include <unistd.h>

namespace insula::runtime::spawner {

namespace {

/// How many sandboxes of one look may stand still to be counted again.
constexpr int most_confirmed = 8;

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
  constexpr long turn_ns = 100'000'000;
  const itimerspec each_turn{{0, turn_ns}, {0, turn_ns}};
  if (!timer_ || !stop_ || !news_ || ::timerfd_settime(timer_.get(), 0, &each_turn, nullptr) != 0)
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
  // Of what a group is charged for, V1 does not tell apart what the kernel gives back.
  const auto read = [this] {
    auto now = meter_.read();
    if (now && groups_.charges_reclaimable())
      now->kernel += now->reclaimable;
    return now;
  };
  const auto first = read();
  if (!first)
    return log::warning("spawner.no_memory_watch", {{"reason", "/proc/meminfo cannot be read"}});
  memory_suspicion suspicion{rules_, *first, meter_.pages_at_hand()};
  for (;;) {
    std::array<pollfd, 2> heard{{{timer_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    ::poll(heard.data(), heard.size(), -1);
    if (heard[1].revents != 0)
      return;
    std::uint64_t turns = 0;
    [[maybe_unused]] const auto taken = ::read(timer_.get(), &turns, sizeof turns);
    const auto now = read();
    try {
      if (now && suspicion.wants_charges(*now, now_ns()))
        look(*now, suspicion, now_ns());
    } catch (const std::exception& why) { // What is read is made by sandboxes; all would end here.
      log::error("spawner.memory_look_failed", {{"reason", why.what()}});
    }
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
  auto known = meter_.pages_at_hand();
  for (const auto& each : all)
    known += groups_.kernel_memory(each.slot);
  if (!suspicion.wants_look(now, known, time))
    return;
  const bool is_short = suspicion.is_short(now);
  std::vector<sandbox_memory> held;
  for (const auto& each : all)
    held.push_back(read_memory(each, groups_, is_short));
  const auto uncharged = suspicion.uncharged();
  bool found = false;
  for (int i = 0; i < most_confirmed && !found; ++i) {
    const auto worst = judge(rules_, is_short, uncharged, held);
    if (!worst)
      break;
    const auto at = std::find_if(held.begin(), held.end(),
                                 [&](const auto& each) { return each.id == worst->id; });
    const auto culprit = static_cast<std::size_t>(at - held.begin());
    found = confirm(all[culprit], is_short, uncharged, held);
    if (found) // It ends, and what it gives back must not hide what others take.
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(culprit));
  }
  if (!found && is_short)
    log::warning("spawner.memory_short", {{"available_bytes", now.available},
                                          {"reserve_bytes", rules_.reserve},
                                          {"uncharged_bytes", uncharged},
                                          {"consequence", "no sandbox is begun"}});
  const auto over = now_ns();
  suspicion.looked(over, over - time, found, held);
}

/// It stands still, so that it cannot change while it is looked at again. What is found then takes
/// the place of what was found before.
bool memory_watch::confirm(const watched_sandbox& who, bool is_short, std::uint64_t uncharged,
                           std::vector<sandbox_memory>& held) {
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
  auto& reading =
    *std::find_if(held.begin(), held.end(), [&](const auto& each) { return each.id == who.id; });
  reading = read_memory(who, groups_, is_short);
  const auto again = judge(rules_, is_short, uncharged, held);
  if (!again || again->id != who.id) {
    reading.cleared = true;
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
