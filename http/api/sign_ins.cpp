#include "http/api/sign_ins.hpp"

#include "base/limits.hpp"
#include "http/text/header_text.hpp"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

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
  bool any = false;
  head.each_field([&](std::string_view name, std::string_view value) {
    if (!any && same_letters(name, "Cookie"))
      for (const auto token : sign_in_tokens(value, head.field("Host")))
        any = any || holds(token, now);
  });
  return any && own_page(head);
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

void sign_ins::close_all() {
  const std::lock_guard hold{guard_};
  ends_.clear();
}

std::optional<std::chrono::seconds> sign_ins::note_wrong_key(const std::string& network,
                                                             time_point now) {
  const std::lock_guard hold{guard_};
  if (!wrong_.contains(network) && wrong_.size() >= limits::wrong_networks)
    forget_quiet_networks(now);
  auto& times = wrong_[network];
  while (!times.empty() && times.front() + limits::wrong_keys_within <= now)
    times.pop_front();
  if (times.size() >= limits::wrong_keys)
    return std::chrono::ceil<std::chrono::seconds>(times.front() + limits::wrong_keys_within - now);
  times.push_back(now);
  return std::nullopt;
}

void sign_ins::forget_quiet_networks(time_point now) {
  std::erase_if(wrong_,
                [&](auto& each) { return each.second.back() + limits::wrong_keys_within <= now; });
  if (wrong_.size() >= limits::wrong_networks)
    wrong_.erase(std::min_element(wrong_.begin(), wrong_.end(), [](auto& a, auto& b) {
      return a.second.back() < b.second.back();
    }));
}

std::string sign_in_cookie_name(std::string_view host) {
  const auto port = host.substr(std::min(host.size(), host.find_last_of(":]") + 1));
  const bool has_port = !port.empty() && port.size() < host.size() &&
                        port.find_first_not_of("0123456789") == std::string_view::npos;
  return has_port ? "insula-" + std::string{port} : "insula";
}

std::string sign_in_cookie_name_of_host(std::string_view host) {
  return "__Host-" + sign_in_cookie_name(host);
}

std::vector<std::string_view> sign_in_tokens(std::string_view field, std::string_view host) {
  const auto plain = sign_in_cookie_name(host), of_host = sign_in_cookie_name_of_host(host);
  std::vector<std::string_view> found;
  while (!field.empty()) {
    auto value = field.substr(0, field.find(';'));
    field.remove_prefix(std::min(field.size(), value.size() + 1));
    value.remove_prefix(std::min(value.size(), value.find_first_not_of(' ')));
    const auto name = value.substr(0, value.find('='));
    value.remove_prefix(std::min(value.size(), name.size() + 1));
    if (!value.empty() && (name == plain || name == of_host))
      found.push_back(value);
  }
  return found;
}

} // namespace insula::http
