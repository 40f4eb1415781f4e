#include "http/vercel/ids.hpp"

#include "base/hex.hpp"
#include "base/id.hpp"
#include "http/sandboxes/keyed_id.hpp"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <stdexcept>

namespace insula::http::vercel {

namespace {

constexpr std::string_view session_prefix = "sbx_", command_prefix = "cmd_",
                           snapshot_prefix = "snap_", drive_prefix = "drv_";
constexpr std::size_t key_bytes = 16;

template <std::size_t Count>
std::array<unsigned char, Count> random_bytes() {
  std::array<unsigned char, Count> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    throw std::runtime_error("there is no randomness");
  return bytes;
}

std::string id_in(std::string_view secret, std::string_view kind, std::string_view project,
                  std::string_view name) {
  std::string key{kind};
  for (const auto part : {project, name})
    (key += '\0') += part;
  return keyed_id(secret, key);
}

/// "" if it has not that form.
std::string id_after(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix))
    return {};
  text.remove_prefix(prefix.size());
  return sandbox_id::parse(text) && text.size() == sandbox_digits ? std::string{text}
                                                                  : std::string{};
}

bool is_name(std::string_view text, std::size_t longest) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !text.empty() && text.size() <= longest && std::all_of(text.begin(), text.end(), fits);
}

} // namespace

std::string sandbox_of(std::string_view secret, std::string_view project, std::string_view name) {
  return id_in(secret, "\nvercel", project, name);
}

std::string other_sandbox_of(std::string_view name) {
  return id_after(session_prefix, name);
}

std::string id_of_name(std::string_view secret, std::string_view project, std::string_view name) {
  auto other = other_sandbox_of(name);
  return other.empty() ? sandbox_of(secret, project, name) : other;
}

std::string drive_of(std::string_view secret, std::string_view project, std::string_view name) {
  return id_in(secret, "\nvercel drive", project, name);
}

std::string id_of_drive(std::string_view sandbox) {
  return std::string{drive_prefix}.append(sandbox);
}

std::string drive_of_id(std::string_view id) {
  return id_after(drive_prefix, id);
}

std::string session_id::text() const {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), run, 16).ptr;
  return std::string{session_prefix} + sandbox + std::string{digits.data(), end};
}

std::string session_id::name() const {
  return std::string{session_prefix} + sandbox;
}

std::optional<session_id> session_id::parse(std::string_view text) {
  const auto whole = text;
  if (!text.starts_with(session_prefix) || text.size() <= session_prefix.size() + sandbox_digits)
    return std::nullopt;
  text.remove_prefix(session_prefix.size());
  session_id is{std::string{text.substr(0, sandbox_digits)}, 0};
  text.remove_prefix(sandbox_digits);
  const auto* const end = text.data() + text.size();
  const auto [at, why] = std::from_chars(text.data(), end, is.run, 16);
  if (why != std::errc{} || at != end || !sandbox_id::parse(is.sandbox))
    return std::nullopt;
  // A session has one id, so its number has one spelling.
  return is.text() == whole ? std::optional{std::move(is)} : std::nullopt;
}

std::string id_of_snapshot(std::string_view snapshot) {
  return std::string{snapshot_prefix}.append(snapshot);
}

std::string snapshot_of(std::string_view id) {
  return id_after(snapshot_prefix, id);
}

std::string new_command_id() {
  const auto bytes = random_bytes<key_bytes>();
  return std::string{command_prefix} + to_hex({bytes.data(), bytes.size()});
}

std::string key_of_command(std::string_view id) {
  if (!id.starts_with(command_prefix) || id.size() != command_prefix.size() + 2 * key_bytes)
    return {};
  id.remove_prefix(command_prefix.size());
  return id.find_first_not_of("0123456789abcdef") == std::string_view::npos ? std::string{id}
                                                                            : std::string{};
}

std::string generate_name() {
  constexpr std::array colours{"amber",  "azure", "coral", "green", "ivory", "jade",
                               "lilac",  "mint",  "ochre", "olive", "plum",  "rose",
                               "sienna", "slate", "teal",  "white"};
  constexpr std::array animals{"badger", "beaver", "crane",  "falcon", "gecko",  "heron",
                               "ibis",   "lynx",   "marten", "otter",  "petrel", "plover",
                               "raven",  "seal",   "stork",  "wren"};
  const auto bytes = random_bytes<10>();
  return std::string{colours[bytes[0] % colours.size()]} + '-' +
         animals[bytes[1] % animals.size()] + '-' + base32(bytes.data() + 2, 8);
}

bool is_drive_name(std::string_view text) {
  return is_name(text, 64);
}

bool is_sandbox_name(std::string_view text) {
  constexpr std::array reserved{std::string_view{"sessions"}, std::string_view{"snapshots"},
                                std::string_view{"drives"}};
  return is_name(text, 128) && std::find(reserved.begin(), reserved.end(), text) == reserved.end();
}

bool is_name_to_give(std::string_view text) {
  return is_sandbox_name(text) && other_sandbox_of(text).empty();
}

} // namespace insula::http::vercel
