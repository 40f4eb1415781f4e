#include "runtime/spawner/create_queue.hpp"

#include <algorithm>

namespace insula::runtime::spawner {

namespace {

bool can_be_made(const request& wanted, const at_hand& there) {
  return (there.machines_usr || (wanted.flags & create_with_machines_usr) == 0) &&
         (there.package_lists || !needs_package_lists(wanted));
}

} // namespace

bool needs_package_lists(const request& create) {
  constexpr auto both = create_with_machines_usr | create_may_gain_rights;
  return (create.flags & both) == both;
}

const request* create_queue::of(std::uint32_t slot) const {
  const auto at = std::find_if(waiting_.begin(), waiting_.end(),
                               [slot](const auto& each) { return each.slot == slot; });
  return at == waiting_.end() ? nullptr : &*at;
}

std::uint64_t create_queue::newest_epoch(std::string_view tag) const {
  std::uint64_t newest = 0;
  for (const auto& each : waiting_)
    if (tag == each.tag)
      newest = std::max(newest, each.epoch);
  return newest;
}

bool create_queue::has_next(const at_hand& there) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const auto& each) { return can_be_made(each, there); });
}

template <class Is>
std::optional<request> create_queue::take_if(Is is) {
  const auto at = std::find_if(waiting_.begin(), waiting_.end(), is);
  if (at == waiting_.end())
    return std::nullopt;
  const auto taken = *at;
  waiting_.erase(at);
  return taken;
}

std::optional<request> create_queue::take_next(const at_hand& there) {
  return take_if([&](const auto& each) { return can_be_made(each, there); });
}

std::optional<request> create_queue::take(std::uint32_t slot, const at_hand& there) {
  return take_if([&](const auto& each) { return each.slot == slot && can_be_made(each, there); });
}

void create_queue::drop(std::uint32_t slot) {
  std::erase_if(waiting_, [slot](const auto& each) { return each.slot == slot; });
}

} // namespace insula::runtime::spawner
