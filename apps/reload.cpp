#include "apps/reload.hpp"

#include "apps/key_files.hpp"
#include "apps/named_keys.hpp"
#include "base/log.hpp"
#include "http/api/auth.hpp"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>
#include <vector>

namespace insula {

namespace {

using namespace std::chrono_literals;

constexpr const char* key_path = "server.api_key";
constexpr const char* named_keys_path = "keys";
constexpr const char* level_path = "log.level";
constexpr std::string_view tls_paths = "server.tls.";
constexpr auto patience = 5s; ///< For file systems that do not answer.
/// Which of the files.
constexpr std::size_t signers_file = 0, configuration_file = 1, certificate_file = 2,
                      tls_key_file = 3;

} // namespace

void warn_of(const config& values) {
  if (!values.exposed_file.empty())
    log::warning("config.exposed",
                 {{"file", values.exposed_file},
                  {"reason", "it holds keys, and others than its owner can read it"}});
  std::vector<std::pair<std::string, std::string>> keys{{key_path, values.server.api_key}};
  for (const auto& [name, each] : values.keys)
    keys.emplace_back(std::string{named_keys_path} + "." + name, each.key);
  for (const auto& [name, key] : keys)
    if (!key.empty() && key.size() < http::key_check::long_bytes)
      log::warning("config.short_key",
                   {{"key", name},
                    {"reason", "it has fewer than " + std::to_string(http::key_check::long_bytes) +
                                 " characters: it can be guessed, and is kept from servers in "
                                 "sandboxes only where it is a whole word"}});
}

result<reloader> reloader::prepare(config values, config_origin from, uid_t uid, gid_t gid) {
  std::vector<std::string> paths{key_file_of_tokens(values)};
  if (from.file)
    paths.push_back(*from.file);
  if (from.file && !values.server.tls_certificate.empty())
    paths.insert(paths.end(), {values.server.tls_certificate, values.server.tls_key});
  auto files = fixed_files::prepare(std::move(paths), uid, gid);
  if (!files)
    return files.reason();
  return reloader{std::move(values), std::move(from), std::move(*files)};
}

void reloader::reload(const takers& by, std::vector<int> ends) {
  if (const auto ok = take(by, {std::chrono::steady_clock::now() + patience, std::move(ends)}); !ok)
    log::error("config.not_reloaded",
               {{"reason", ok.reason().message}, {"consequence", "all goes on as before"}});
}

result<http::oidc::key_set> reloader::read_signers(const fixed_files::patience& how_long) {
  const auto path = key_file_of_tokens(values_);
  auto file = files_.read(signers_file, how_long);
  if (!file)
    return file.reason();
  if (file->others_can_read)
    return error{errc::invalid_request, path + ": it has keys in it, and others than its owner "
                                               "can read it; chmod 600 makes it safe"};
  auto keys = oidc_keys_in(path, file->text);
  wipe(file->text);
  return keys;
}

result<void> reloader::take(const takers& by, const fixed_files::patience& how_long) {
  config_text read;
  if (from_.file) {
    auto file = files_.read(configuration_file, how_long);
    if (!file)
      return file.reason();
    read = {std::move(file->text), file->others_can_read};
  }
  auto next = read_config(from_, read);
  if (!next)
    return next.reason();
  auto later = changed_keys(values_, *next);
  // Where these files are stays as it was; the old ones may have gone, if they are elsewhere.
  const bool moved = std::any_of(later.begin(), later.end(), [](const std::string& each) {
    return each.starts_with(tls_paths);
  });
  std::optional<http::oidc::key_set> signers;
  if (key_file_of_tokens(*next) == key_file_of_tokens(values_)) {
    auto keys = read_signers(how_long);
    if (!keys)
      return keys.reason();
    if (!(*keys == by.issuer.keys()))
      signers = std::move(*keys);
  }
  std::optional<http::tls_text> tls;
  if (from_.file && !values_.server.tls_certificate.empty() && !moved) {
    auto certificate = files_.read(certificate_file, how_long);
    if (!certificate)
      return certificate.reason();
    auto key = files_.read(tls_key_file, how_long);
    if (!key)
      return key.reason();
    tls = http::tls_text{std::move(certificate->text), std::move(key->text)};
  }
  const bool other_key = std::erase(later, key_path) > 0;
  const bool other_named = std::erase(later, named_keys_path) > 0;
  std::erase(later, level_path);
  // With the first key, or without the last one, routes are others, and so are their checks.
  const auto &was = values_.server.api_key, &is = next->server.api_key;
  const bool may_take = was.empty() == is.empty();
  const taken_keys takes{other_key && may_take, other_named && may_take, signers.has_value()};
  for (const auto& [other, taken, path] :
       {std::tuple{other_named, takes.named, named_keys_path}, {other_key, takes.main, key_path}})
    if (other && !taken)
      later.insert(later.begin(), path);
  const auto& named = takes.named ? *next : values_;
  by.places.set_ceilings(ceilings_of(named)); // First: no key is there before its ceilings.
  if (auto ok = by.server.renew(takes.main ? is : was, named_keys_of(named), tls); !ok) {
    by.places.set_ceilings(ceilings_of(values_));
    return ok;
  }
  if (signers)
    by.issuer.take(std::move(*signers));
  if (takes.main)
    values_.server.api_key = is;
  if (takes.named)
    values_.keys = next->keys;
  // The lines about it are written by the level of before or of now: the one that lets more pass.
  // Lines of other threads have the new level from here on, so these are the last ones of the old.
  log::set_level(next->log_level);
  const log::level_of_thread both{std::min(values_.log_level, next->log_level)};
  tell(*next, takes,
       tls                                      ? "anew"
       : values_.server.tls_certificate.empty() ? "none"
                                                : "same",
       later);
  values_.log_level = next->log_level;
  return {};
}

void reloader::tell(const config& next, taken_keys keys, std::string_view certificate,
                    const std::vector<std::string>& later) {
  warn_of(next);
  log::info("config.reloaded", {{"key", keys.main ? "another" : "same"},
                                {"level", next.log_level == values_.log_level ? "same" : "another"},
                                {"certificate", certificate},
                                {"named_keys", keys.named ? "others" : "same"},
                                {"signing_keys", keys.signers ? "others" : "same"}});
  if (later.empty())
    return;
  std::string names;
  for (const auto& each : later)
    names += (names.empty() ? "" : " ") + each;
  log::warning("config.needs_restart",
               {{"keys", names}, {"consequence", "they hold from the next start on"}});
}

} // namespace insula
