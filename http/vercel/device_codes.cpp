#include "http/vercel/device_codes.hpp"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

namespace insula::http::vercel {

namespace {

/// Without vowels no code is a word; none of these looks like another.
constexpr std::string_view letters = "BCDFGHJKLMNPQRST";
constexpr std::size_t user_letters = 8, device_bytes = 32;
/// So much too early counts as in time: a client's timer and the way here are not exact.
constexpr std::chrono::milliseconds slack{500};

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1)
    throw std::runtime_error{"there are no random numbers"};
  return bytes;
}

std::string new_user_code() {
  std::string code;
  for (const unsigned char byte : random_bytes(user_letters)) {
    if (code.size() == user_letters / 2)
      code += '-';
    code += letters[byte & 15U];
  }
  return code;
}

std::string new_device_code() {
  std::string code;
  for (const unsigned char byte : random_bytes(device_bytes))
    for (const auto digit : {byte >> 4, byte & 15})
      code += "0123456789abcdef"[digit];
  return code;
}

std::string device_digest(std::string_view code) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
  unsigned size = 0;
  EVP_Digest(code.data(), code.size(), hash.data(), &size, EVP_sha256(), nullptr);
  return {reinterpret_cast<const char*>(hash.data()), size};
}

} // namespace

std::string user_code_in(std::string_view typed) {
  std::string code;
  for (char each : typed) {
    if (each == '-' || each == ' ')
      continue;
    if (each >= 'a' && each <= 'z')
      each = static_cast<char>(each - 'a' + 'A');
    if (letters.find(each) == std::string_view::npos || code.size() > user_letters)
      return {};
    if (code.size() == user_letters / 2)
      code += '-';
    code += each;
  }
  return code.size() == user_letters + 1 ? code : std::string{};
}

std::optional<device_codes::codes> device_codes::open(const std::string& network, time_point now) {
  codes made{new_device_code(), new_user_code()};
  const std::lock_guard hold{guard_};
  std::erase_if(all_, [&](const auto& each) { return each.second.ends <= now; });
  drop_silent(network, now);
  const auto of_network = std::count_if(
    all_.begin(), all_.end(), [&](const auto& each) { return each.second.network == network; });
  if (all_.size() >= most || static_cast<std::size_t>(of_network) >= most_of_network)
    return std::nullopt;
  while (find(all_, made.user, now) != nullptr)
    made.user = new_user_code();
  sign_in fresh;
  fresh.user = made.user;
  fresh.network = network;
  fresh.begun = now;
  fresh.ends = now + lasts;
  all_[device_digest(made.device)] = std::move(fresh);
  return made;
}

/// Where no more may wait. A command line asks every five seconds.
void device_codes::drop_silent(const std::string& network, time_point now) {
  const auto is_of = [&](const auto& each) { return each.second.network == network; };
  if (all_.size() < most &&
      std::count_if(all_.begin(), all_.end(), is_of) < static_cast<std::ptrdiff_t>(most_of_network))
    return;
  std::erase_if(all_, [&](const auto& each) {
    return is_of(each) && each.second.asked.value_or(each.second.begun) + silence <= now;
  });
}

void device_codes::clear() {
  const std::lock_guard hold{guard_};
  all_.clear();
}

std::optional<std::string> device_codes::network_of(std::string_view user, time_point now) const {
  const std::lock_guard hold{guard_};
  const auto* found = find(all_, user, now);
  return found != nullptr && !found->decided ? std::optional{found->network} : std::nullopt;
}

bool device_codes::decide(std::string_view user, std::optional<device_grant> what, time_point now) {
  const std::lock_guard hold{guard_};
  auto* found = find(all_, user, now);
  if (found == nullptr || found->decided)
    return false;
  found->decided = true;
  found->grant = std::move(what);
  return true;
}

device_codes::outcome device_codes::ask(std::string_view device, time_point now) {
  const auto digest = device_digest(device);
  const std::lock_guard hold{guard_};
  const auto at = all_.find(digest);
  if (at == all_.end())
    return {};
  auto& is = at->second;
  if (now >= is.ends) {
    all_.erase(at);
    return {};
  }
  if (is.decided) {
    outcome told{is.grant ? state::granted : state::refused, is.grant.value_or(device_grant{})};
    all_.erase(at);
    return told;
  }
  const bool too_soon = is.asked && now + slack < *is.asked + is.interval;
  is.asked = now;
  if (too_soon)
    is.interval += interval;
  return {too_soon ? state::too_soon : state::waiting};
}

} // namespace insula::http::vercel
