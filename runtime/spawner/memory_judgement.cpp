#include "runtime/spawner/memory_judgement.hpp"

#include <algorithm>
#include <cstdio>
#include <numeric>

namespace insula::runtime::spawner {

const char* name_of(memory_kind kind) {
  switch (kind) {
    case memory_kind::file_locks: return "file locks";
    case memory_kind::directory_names: return "names of open directories";
    case memory_kind::netlink_queues: return "queues of netlink sockets";
    case memory_kind::socket_errors: return "errors of sockets";
    case memory_kind::connection_records: return "records of connections";
    case memory_kind::seccomp_filters: return "seccomp filters";
    case memory_kind::small_objects: return "timers and events";
    case memory_kind::memberships: return "multicast memberships";
    case memory_kind::hidden: return "files in flight, mapped files, and names that are gone";
  }
  return "?";
}

std::uint64_t bytes_of(const sandbox_memory& sandbox) {
  return std::accumulate(sandbox.held.begin(), sandbox.held.end(), std::uint64_t{0});
}

/// A sandbox that goes on as it began is looked at as soon as it can hold too much.
std::uint64_t memory_suspicion::growth_to_look() const {
  const auto most = rules_.most_held;
  return std::clamp(most - std::min(largest_, most), most / 16, most / 2);
}

bool memory_suspicion::wants_charges(const machine_memory& now, std::uint64_t time) const {
  if (due_ != 0 && time >= due_)
    return true;
  const auto waited = asked_ == 0 ? longest_pause_ns : time - asked_;
  if (waited < pause_ns)
    return now.kernel > asked_at_ && now.kernel - asked_at_ >= rules_.most_held / 2;
  // The sum can stay as it is while what nobody is charged for takes the place of what somebody is.
  return waited >= longest_pause_of_growth_ns ||
         (has_changed(now) && waited >= std::min(pause_of_asking_, longest_of_growth(now))) ||
         ((is_short(now) || is_unexplained()) && (last_ == 0 || time - last_ >= pause_));
}

/// Also when it has fallen: what has been given back may be taken again.
bool memory_suspicion::has_changed(const machine_memory& now) const {
  const auto changed = std::max(now.kernel, asked_at_) - std::min(now.kernel, asked_at_);
  return changed >= growth_to_look() / 2;
}

bool memory_suspicion::wants_look(const machine_memory& now, std::uint64_t known,
                                  std::uint64_t time) {
  if (has_changed(now)) {
    const bool was_quiet = changed_ == 0 || time - changed_ >= longest_pause_ns;
    pause_of_asking_ =
      was_quiet ? pause_ns : std::min(2 * pause_of_asking_, longest_pause_of_growth_ns);
    changed_ = time;
  }
  asked_at_ = now.kernel;
  asked_ = time;
  due_ = 0;
  beside_ = now.kernel - std::min(known, now.kernel);
  smallest_ = std::min(smallest_, beside_);
  looked_at_ = std::min(looked_at_, uncharged());
  explained_ = std::min(explained_, uncharged());
  const auto grown = uncharged() - looked_at_;
  if (grown >= growth_to_look()) {
    const auto pause = std::min(pause_, longest_of_growth(now));
    due_ = last_ + (grown >= rules_.most_held / 2 ? std::min(pause, 2 * took_) : pause);
    if (last_ != 0 && time < due_)
      return false;
    due_ = 0;
    return true;
  }
  return (is_short(now) || is_unexplained()) && (last_ == 0 || time - last_ >= pause_);
}

void memory_suspicion::looked(std::uint64_t time, std::uint64_t took, bool found,
                              const std::vector<sandbox_memory>& held) {
  last_ = time;
  took_ = took;
  pause_ = found ? pause_ns : std::min(2 * pause_, longest_pause_ns);
  largest_ = 0;
  for (const auto& each : held)
    largest_ = std::max(largest_, bytes_of(each));
  const auto most = possible(held);
  if (!found && most < uncharged())
    smallest_ += (uncharged() - most) / 4;
  looked_at_ = uncharged();
  // Not what they might hide: anybody could have that explain what others take.
  explained_ = 0;
  for (const auto& each : held)
    explained_ += bytes_of(each);
  explained_ = std::min(explained_, uncharged());
}

std::uint64_t possible(const std::vector<sandbox_memory>& sandboxes) {
  std::uint64_t counted = 0, hidden = 0;
  for (const auto& each : sandboxes) {
    counted += bytes_of(each);
    hidden = std::max(hidden, each.may_hide * most_hidden_by_each);
  }
  return counted + hidden;
}

std::optional<memory_verdict> judge(const memory_rules& rules, bool is_short,
                                    std::uint64_t uncharged,
                                    const std::vector<sandbox_memory>& sandboxes) {
  const auto most =
    is_short ? std::min(rules.most_held, rules.most_held_when_short) : rules.most_held;
  std::uint64_t counted = 0;
  const sandbox_memory* hider = nullptr;
  for (const auto& each : sandboxes) {
    counted += bytes_of(each);
    if (!each.cleared && each.may_hide > 0 && (hider == nullptr || each.may_hide > hider->may_hide))
      hider = &each;
  }
  std::optional<memory_verdict> worst;
  const auto consider = [&](const sandbox_memory& one) {
    const auto bytes = bytes_of(one);
    if (one.cleared || bytes <= most || (worst && bytes <= worst->bytes))
      return;
    const auto largest = std::max_element(one.held.begin(), one.held.end());
    worst = memory_verdict{one.id, static_cast<memory_kind>(largest - one.held.begin()), bytes};
  };
  for (const auto& each : sandboxes)
    consider(each);
  if (!worst && is_short && hider != nullptr && uncharged > counted) {
    auto with_hidden = *hider;
    with_hidden.held[static_cast<std::size_t>(memory_kind::hidden)] =
      std::min(uncharged - counted, hider->may_hide * most_hidden_by_each);
    consider(with_hidden);
  }
  // Estimates can be too high by half; a machine that has lost less than that has no culprit.
  if (worst && uncharged < std::min(worst->bytes, most) / 2)
    return std::nullopt;
  return worst;
}

std::string reason_of(const memory_verdict& verdict) {
  const auto size = static_cast<double>(verdict.bytes);
  constexpr double mib = 1 << 20, gib = 1 << 30;
  char text[128];
  std::snprintf(text, sizeof text,
                "Sandbox ended: it holds kernel memory outside of its limit (%s: %.*f %s)",
                name_of(verdict.kind), size < gib ? 0 : 1, size / (size < gib ? mib : gib),
                size < gib ? "MiB" : "GiB");
  return text;
}

} // namespace insula::runtime::spawner
