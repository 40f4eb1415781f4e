#include "storage/key_places.hpp"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

namespace insula::storage {

namespace {

constexpr std::int64_t minute_us = 60'000'000, second_us = 1'000'000;

std::string some_life() {
  constexpr std::string_view digits = "0123456789abcdef";
  std::random_device random;
  std::string text;
  for (int i = 0; i < 16; ++i)
    text += digits[random() % digits.size()];
  return text;
}

/// 250 is "2.5".
std::string processors(std::uint64_t percent) {
  auto text = std::to_string(percent / 100);
  if (percent % 100 == 0)
    return text;
  const auto rest = percent % 100;
  text += '.';
  text += static_cast<char>('0' + rest / 10);
  if (rest % 10 != 0)
    text += static_cast<char>('0' + rest % 10);
  return text;
}

error over(const std::string& key, const std::string& what, std::uint32_t retry_s = 0) {
  return {errc::key_ceiling, "The API key " + key + ' ' + what, retry_s};
}

} // namespace

result<std::int64_t> admit(const place_wish& wish, const key_ceilings& most, const key_usage& has,
                           std::int64_t now_us) {
  if (most.sandboxes != 0 && has.sandboxes >= most.sandboxes)
    return over(wish.key, "may have " + std::to_string(most.sandboxes) +
                            " sandboxes at once, and has them (limits.sandboxes).");
  if (most.cpu_percent != 0 && has.cpu_percent + wish.cpu_percent > most.cpu_percent)
    return over(wish.key, "may have " + processors(most.cpu_percent) +
                            " processors in its sandboxes together, and has " +
                            processors(has.cpu_percent) + "; this one needs " +
                            processors(wish.cpu_percent) + " (limits.vcpus).");
  if (most.creates_per_minute == 0 || !wish.is_new)
    return has.empty_us;
  // More than full it never is, unless a clock has been put back.
  const auto before = std::clamp(has.empty_us, now_us, now_us + minute_us);
  const auto after = before + minute_us / most.creates_per_minute;
  const auto too_much = after - (now_us + minute_us);
  if (too_much <= 0)
    return after;
  return over(wish.key,
              "may make " + std::to_string(most.creates_per_minute) +
                " sandboxes a minute, and has made them (limits.creates_per_minute).",
              static_cast<std::uint32_t>((too_much + second_us - 1) / second_us));
}

key_places::key_places(std::function<std::int64_t()> now_us)
    : now_us_(std::move(now_us))
    , life_(some_life()) {}

void key_places::share(key_ledger* with) {
  const std::lock_guard hold{guard_};
  shared_ = with;
}

std::string key_places::token_of(std::uint64_t number) const {
  return life_ + '-' + std::to_string(number);
}

key_ceilings key_places::ceilings_of(std::string_view key) const {
  const auto at = ceilings_.find(key);
  return at == ceilings_.end() ? key_ceilings{} : at->second;
}

bool key_places::counts_here_alone(std::string_view key) const {
  const std::lock_guard hold{guard_};
  return shared_ == nullptr && ceilings_of(key).any();
}

void key_places::set_ceilings(std::map<std::string, key_ceilings, std::less<>> all) {
  const std::lock_guard hold{guard_};
  ceilings_ = std::move(all);
  if (shared_ == nullptr)
    return;
  for (auto& [number, each] : places_) // Of those that had none before.
    if (each.is_sure && !each.is_shared && ceilings_of(each.by.key).any()) {
      each.is_shared = true;
      shared_->put(each.by, token_of(number));
    }
}

/// A sandbox counts once, however many of its starts are not gone yet.
key_usage key_places::usage_without(const place_wish& wish) const {
  key_usage sum;
  for (const auto& [number, each] : places_)
    if (each.by.key == wish.key && each.by.sandbox != wish.sandbox) {
      ++sum.sandboxes;
      sum.cpu_percent += each.by.cpu_percent;
    }
  if (const auto at = empty_us_.find(wish.key); at != empty_us_.end())
    sum.empty_us = at->second;
  return sum;
}

void key_places::take(place_wish wish, taken_function then) {
  std::uint64_t number = 0;
  key_ceilings most;
  bool asks = false;
  std::optional<error> refusal;
  {
    const std::lock_guard hold{guard_};
    most = ceilings_of(wish.key);
    asks = most.any() && shared_ != nullptr;
    if (most.any() && !asks) {
      const auto next = admit(wish, most, usage_without(wish), now_us_());
      if (next)
        empty_us_[wish.key] = *next;
      else
        refusal = next.reason();
    }
    if (!refusal) {
      number = ++numbers_;
      places_.emplace(number, taken{wish, asks, !asks});
    }
  }
  if (refusal)
    return then(std::move(*refusal));
  auto mine = std::make_shared<place>(*this, number);
  if (!asks)
    return then(std::move(mine));
  const auto answered = [this, number, mine, then = std::move(then)](const result<void>& outcome) {
    {
      const std::lock_guard hold{guard_};
      auto& kept = places_.at(number);
      kept.is_sure = true;
      kept.is_shared = static_cast<bool>(outcome);
    }
    outcome ? then(mine) : then(outcome.reason());
  };
  {
    const std::lock_guard hold{guard_};
    if (shared_ != nullptr)
      return shared_->reserve(std::move(wish), most, token_of(number), answered);
  }
  answered(error{errc::node_unreachable, "the node is going down"});
}

key_places::held key_places::take_over(place_wish wish) {
  const std::lock_guard hold{guard_};
  const auto number = ++numbers_;
  const bool shares = shared_ != nullptr && ceilings_of(wish.key).any();
  places_.emplace(number, taken{wish, shares, true});
  if (shares)
    shared_->put(std::move(wish), token_of(number));
  return std::make_shared<place>(*this, number);
}

void key_places::leave(std::uint64_t number) {
  const std::lock_guard hold{guard_};
  auto gone = places_.extract(number);
  if (gone && gone.mapped().is_shared && shared_ != nullptr)
    shared_->drop(std::move(gone.mapped().by), token_of(number));
}

std::map<std::string, unsigned> key_places::counts() const {
  const std::lock_guard hold{guard_};
  std::map<std::string, unsigned> all;
  for (const auto& [key, most] : ceilings_)
    if (most.any())
      all[key] = 0;
  for (const auto& [number, each] : places_)
    ++all[each.by.key];
  return all;
}

} // namespace insula::storage
