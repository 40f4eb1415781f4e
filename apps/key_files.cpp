#include "apps/key_files.hpp"

#include "storage/private_file.hpp"
#include "storage/secret_key.hpp"

#include <chrono>
#include <utility>

namespace insula {

namespace {

result<http::oidc::key_set> open_oidc_keys(const std::string& path, std::int64_t now_s) {
  auto keys = read_oidc_keys(path);
  if (keys || keys.reason().code != errc::not_found)
    return keys;
  auto fresh = http::oidc::key_set::make(now_s);
  if (!fresh)
    return fresh;
  auto text = fresh->text();
  if (!text)
    return text.reason();
  const auto made = storage::make_private_file(path, *text);
  wipe(*text);
  if (!made)
    return made.reason();
  return read_oidc_keys(path); // It may be another start's.
}

} // namespace

result<http::oidc::key_set> oidc_keys_in(const std::string& path, std::string_view text) {
  auto keys = http::oidc::key_set::read(text);
  if (keys)
    return keys;
  auto why = keys.reason();
  why.message = path + ": " + why.message +
                ". Put the file back from a copy, or remove it and start the server: then a new "
                "key signs";
  return why;
}

result<http::oidc::key_set> read_oidc_keys(const std::string& path) {
  auto text = storage::read_private_file(path, http::oidc::key_set::most_bytes);
  if (!text)
    return text.reason();
  auto keys = oidc_keys_in(path, *text);
  wipe(*text);
  return keys;
}

result<key_files> key_files::open(const config& values, std::int64_t now_s) {
  auto secrets = storage::open_secret_key(key_file_of_secrets(values));
  if (!secrets)
    return secrets.reason();
  auto oidc = open_oidc_keys(key_file_of_tokens(values), now_s);
  if (!oidc)
    return oidc.reason();
  return key_files{std::move(*secrets), std::move(*oidc)};
}

http::oidc::issuer_settings issuer_of(const config& values) {
  return {values.oidc.issuer,
          std::chrono::duration_cast<std::chrono::seconds>(values.oidc.token_lifetime)};
}

} // namespace insula
