#include "http/auth.hpp"

#include "http/header_text.hpp"
#include "http/percent.hpp"

#include <algorithm>
#include <openssl/crypto.h>

namespace insula::http {

namespace {
constexpr std::string_view scheme = "Bearer ";
} // namespace

bool key_check::is_key(std::string_view candidate) const {
  // The length may become known, the content may not.
  return !open() && candidate.size() == key_.size() &&
         CRYPTO_memcmp(candidate.data(), key_.data(), key_.size()) == 0;
}

bool key_check::allows_header(std::string_view authorization, bool any_case) const {
  if (open())
    return true;
  const auto word = authorization.substr(0, scheme.size());
  return (any_case ? same_letters(word, scheme) : word == scheme) &&
         is_key(authorization.substr(scheme.size()));
}

bool key_check::allows_query(std::string_view query) const {
  if (open())
    return true;
  constexpr std::string_view name = "token=";
  while (!query.empty()) {
    const auto pair = query.substr(0, query.find('&'));
    if (pair.substr(0, name.size()) == name)
      return is_key(percent_decode(pair.substr(name.size())));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
  }
  return false;
}

} // namespace insula::http
