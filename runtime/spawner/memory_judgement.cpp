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
  }
  return "?";
}

bool memory_suspicion::wants_look(const machine_memory& now, std::uint64_t time) {
  looked_at_ = std::min(looked_at_, now.kernel); // What has been given back may be taken again.
  if (last_ != 0 && time - last_ < pause_ns)
    return false;
  return now.kernel - looked_at_ >= rules_.most_held / 2 ||
         ((is_short(now) || in_doubt_) && (last_ == 0 || time - last_ >= pause_));
}

std::uint64_t memory_suspicion::uncharged(const machine_memory& now, std::uint64_t charged) {
  const auto beside = now.kernel - std::min(charged, now.kernel);
  smallest_ = std::min(smallest_, beside);
  return beside - smallest_;
}

void memory_suspicion::looked(const machine_memory& now, std::uint64_t time, outcome what) {
  looked_at_ = now.kernel;
  last_ = time;
  pause_ = what == outcome::found ? pause_ns : std::min(2 * pause_, longest_pause_ns);
  in_doubt_ = what == outcome::cleared;
}

std::optional<memory_verdict> judge(const memory_rules& rules, bool is_short,
                                    std::uint64_t uncharged,
                                    const std::vector<sandbox_memory>& sandboxes) {
  const auto most =
    is_short ? std::min(rules.most_held, rules.most_held_when_short) : rules.most_held;
  std::optional<memory_verdict> worst;
  for (const auto& each : sandboxes) {
    const auto bytes = std::accumulate(each.held.begin(), each.held.end(), std::uint64_t{0});
    if (bytes <= most || (worst && bytes <= worst->bytes))
      continue;
    const auto largest = std::max_element(each.held.begin(), each.held.end());
    worst = memory_verdict{each.id, static_cast<memory_kind>(largest - each.held.begin()), bytes};
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
