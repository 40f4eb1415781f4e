#include "http/transport/places.hpp"

#include "http/transport/connection.hpp"

#include <utility>

namespace insula::http {

namespace {
/// Connections that have been sent away, and are not closed yet.
constexpr std::size_t most_going = 64;
} // namespace

bool places::has_room() const {
  const std::lock_guard hold{mutex_};
  if (places_.size() >= most_.all + most_going)
    return false;
  return places_.size() - going_ < most_.all || !strangers_.empty() || idle_visitor() != nullptr;
}

bool places::is_full() const {
  const std::lock_guard hold{mutex_};
  return places_.size() >= most_.all;
}

places::one places::enter(const one& newcomer, std::string network) {
  const std::lock_guard hold{mutex_};
  auto& neighbours = of_network_[network];
  const auto who = newcomer.get();
  const auto at = strangers_.insert(strangers_.end(), who);
  const auto in_network = neighbours.insert(neighbours.end(), who);
  places_[who] = {newcomer, caller::stranger, std::move(network), at, in_network, false};
  if (neighbours.size() > most_.of_network)
    return send_away(neighbours.front());
  const bool full = places_.size() - going_ > most_.all;
  if (!full && strangers_.size() <= most_.strangers)
    return nullptr;
  if (strangers_.front() != who)
    return send_away(strangers_.front());
  auto* idle = idle_visitor(); // None: the one that would have gone has shown a key.
  return idle != nullptr ? send_away(idle) : nullptr;
}

places::rise places::rise_to(connection* who, caller shown) {
  const std::lock_guard hold{mutex_};
  const auto found = places_.find(who);
  if (found == places_.end() || shown <= found->second.shown)
    return {};
  if (found->second.goes) {
    if (shown == caller::holder) { // It was about to be closed.
      found->second.goes = false;
      found->second.shown = shown;
      --going_;
    }
    return {};
  }
  rise answer;
  if (shown == caller::visitor && visitors_.size() >= most_.visitors) {
    auto* idle = idle_visitor();
    if (idle == nullptr)
      return {false};
    answer.goes = send_away(idle);
  }
  auto& its = found->second;
  take_out(its);
  its.shown = shown;
  if (shown == caller::visitor)
    its.at = visitors_.insert(visitors_.end(), who);
  return answer;
}

bool places::goes(connection* who) const {
  const std::lock_guard hold{mutex_};
  const auto found = places_.find(who);
  return found != places_.end() && found->second.goes;
}

bool places::leave(connection* who) {
  const std::lock_guard hold{mutex_};
  const auto found = places_.find(who);
  if (found == places_.end())
    return false;
  const bool was_full = places_.size() >= most_.all;
  if (found->second.goes)
    --going_;
  else
    take_out(found->second);
  places_.erase(found);
  return was_full;
}

bool places::is_empty() const {
  const std::lock_guard hold{mutex_};
  return places_.empty();
}

std::vector<places::one> places::all() const {
  const std::lock_guard hold{mutex_};
  std::vector<one> alive;
  alive.reserve(places_.size());
  for (const auto& [unused, each] : places_)
    if (auto held = each.who.lock())
      alive.push_back(std::move(held));
  return alive;
}

void places::take_out(place& of) {
  if (of.shown == caller::visitor)
    visitors_.erase(of.at);
  if (of.shown != caller::stranger)
    return;
  strangers_.erase(of.at);
  const auto neighbours = of_network_.find(of.network);
  neighbours->second.erase(of.in_network);
  if (neighbours->second.empty())
    of_network_.erase(neighbours);
}

/// It leaves once it has been closed. Null: it is being destroyed, and leaves by itself.
places::one places::send_away(connection* who) {
  auto& its = places_.find(who)->second;
  take_out(its);
  its.goes = true;
  ++going_;
  return its.who.lock();
}

connection* places::idle_visitor() const {
  for (auto* each : visitors_)
    if (!each->is_at_work())
      return each;
  return nullptr;
}

} // namespace insula::http
