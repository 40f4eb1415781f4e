#include "http/sign_ins.hpp"

#include "base/limits.hpp"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <stdexcept>

namespace insula::http {

namespace {

constexpr std::size_t token_bytes = 32;

std::string digest_of(std::string_view token) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash{};
  unsigned size = 0;
  EVP_Digest(token.data(), token.size(), hash.data(), &size, EVP_sha256(), nullptr);
  return {reinterpret_cast<const char*>(hash.data()), size};
}

std::string random_token() {
  std::array<unsigned char, token_bytes> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw std::runtime_error{"there are no random numbers"};
  std::string text;
  for (const unsigned byte : bytes)
    for (const auto digit : {byte >> 4, byte & 15})
      text += "0123456789abcdef"[digit];
  return text;
}

} // namespace

bool sign_ins::vouch_for(const request_head& head, time_point now) const {
  const auto token = cookie_value(head.field("Cookie"), sign_in_cookie_name(head.field("Host")));
  return !token.empty() && own_page(head) && holds(token, now);
}

std::string sign_ins::open(time_point now) {
  auto token = random_token();
  const std::lock_guard hold{guard_};
  std::erase_if(ends_, [&](auto& each) { return each.second <= now; });
  if (ends_.size() >= limits::sign_ins)
    ends_.erase(std::min_element(ends_.begin(), ends_.end(),
                                 [](auto& a, auto& b) { return a.second < b.second; }));
  ends_[digest_of(token)] = now + limits::sign_in_lasts;
  return token;
}

bool sign_ins::holds(std::string_view token, time_point now) const {
  if (token.size() != 2 * token_bytes)
    return false;
  const auto digest = digest_of(token);
  const std::lock_guard hold{guard_};
  const auto at = ends_.find(digest);
  return at != ends_.end() && now < at->second;
}

void sign_ins::close(std::string_view token) {
  const auto digest = digest_of(token);
  const std::lock_guard hold{guard_};
  ends_.erase(digest);
}

std::optional<std::chrono::seconds> sign_ins::wait(time_point now) const {
  const std::lock_guard hold{guard_};
  if (wrong_.size() < limits::wrong_keys)
    return std::nullopt;
  const auto over = wrong_.front() + limits::wrong_keys_within;
  if (over <= now)
    return std::nullopt;
  return std::chrono::ceil<std::chrono::seconds>(over - now);
}

void sign_ins::note_wrong_key(time_point now) {
  const std::lock_guard hold{guard_};
  wrong_.push_back(now);
  if (wrong_.size() > limits::wrong_keys)
    wrong_.pop_front();
}

std::string sign_in_cookie_name(std::string_view host) {
  const auto port = host.substr(std::min(host.size(), host.find_last_of(":]") + 1));
  const bool has_port = !port.empty() && port.size() < host.size() &&
                        port.find_first_not_of("0123456789") == std::string_view::npos;
  return has_port ? "insula-" + std::string{port} : "insula";
}

std::string_view cookie_value(std::string_view field, std::string_view name) {
  while (!field.empty()) {
    auto pair = field.substr(0, field.find(';'));
    field.remove_prefix(std::min(field.size(), pair.size() + 1));
    pair.remove_prefix(std::min(pair.size(), pair.find_first_not_of(' ')));
    if (pair.size() > name.size() && pair[name.size()] == '=' &&
        pair.substr(0, name.size()) == name)
      return pair.substr(name.size() + 1);
  }
  return {};
}

} // namespace insula::http
