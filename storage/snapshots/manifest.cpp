#include "storage/snapshots/manifest.hpp"

#include "base/limits.hpp"
#include "storage/images/digest.hpp"

#include <charconv>

namespace insula::storage::snapshots {

namespace {

constexpr std::string_view title = "insula-snapshot 1";
constexpr std::size_t number_digits = 20;

template <class Number>
std::optional<Number> number(std::string_view text) {
  Number n{};
  const auto* const end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, n);
  return bad == std::errc{} && stop == end && n >= 0 ? std::optional{n} : std::nullopt;
}

std::string padded(std::uint64_t number) {
  auto text = std::to_string(number);
  return std::string(number_digits - text.size(), '0') + text;
}

bool is_hexadecimal(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

/// What stands before the next `mark`; `text` goes on behind it. None: there is no such mark.
std::optional<std::string_view> cut(std::string_view& text, char mark) {
  const auto end = text.find(mark);
  if (end == text.npos)
    return std::nullopt;
  const auto part = text.substr(0, end);
  text.remove_prefix(end + 1);
  return part;
}

std::string below(std::string_view space, std::string_view what) {
  return std::string{space} + "/" + std::string{what} + "/";
}

} // namespace

std::string piece::name(std::string_view space) const {
  return below(space, "pieces") + std::to_string(day) + "/" + digest.substr(0, 2) + "/" + digest;
}

std::string manifest::text() const {
  std::string all{title};
  all += "\ntaken_ms " + std::to_string(taken_ms) + "\n";
  for (const auto& each : pieces)
    all += std::to_string(each.day) + " " + each.digest + " " + std::to_string(each.bytes) + "\n";
  return all;
}

std::optional<manifest> manifest::read(std::string_view text) {
  manifest found;
  const auto first = cut(text, '\n');
  auto second = cut(text, '\n');
  if (!first || *first != title || !second || cut(*second, ' ') != "taken_ms")
    return std::nullopt;
  const auto taken = number<std::int64_t>(*second);
  if (!taken)
    return std::nullopt;
  found.taken_ms = *taken;
  while (!text.empty()) {
    auto line = cut(text, '\n');
    if (!line)
      return std::nullopt;
    const auto day_text = cut(*line, ' '), digest = cut(*line, ' ');
    const auto day = day_text ? number<std::int64_t>(*day_text) : std::nullopt;
    const auto bytes = number<std::uint32_t>(*line);
    if (!day || !digest || !is_hexadecimal(*digest) || !bytes ||
        *bytes > limits::snapshot_piece_bytes)
      return std::nullopt;
    found.pieces.push_back({*day, std::string{*digest}, *bytes});
  }
  return found;
}

std::optional<reference> reference::read(std::string_view text) {
  const auto name = cut(text, ' ');
  if (!name || name->empty() || !images::is_digest(text))
    return std::nullopt;
  return reference{std::string{*name}, std::string{text}};
}

std::string manifests_of(std::string_view space, std::string_view owner) {
  return below(space, "manifests") + std::string{owner} + "/";
}

std::string manifest_name(std::string_view space, std::string_view owner, epoch at,
                          std::int64_t taken_ms) {
  return manifests_of(space, owner) + padded(at) + "-" +
         padded(static_cast<std::uint64_t>(taken_ms));
}

std::optional<manifest_key> key_of(std::string_view space, std::string_view name) {
  const auto above = below(space, "manifests");
  if (!name.starts_with(above))
    return std::nullopt;
  name.remove_prefix(above.size());
  const auto owner = cut(name, '/');
  const auto at_text = cut(name, '-');
  const auto at = at_text ? number<epoch>(*at_text) : std::nullopt;
  const auto taken = number<std::int64_t>(name);
  if (!owner || !at || !taken)
    return std::nullopt;
  return manifest_key{std::string{*owner}, *at, *taken};
}

std::optional<piece> piece_of(std::string_view space, std::string_view name) {
  const auto above = below(space, "pieces");
  if (!name.starts_with(above))
    return std::nullopt;
  name.remove_prefix(above.size());
  const auto day_text = cut(name, '/');
  const auto day = day_text ? number<std::int64_t>(*day_text) : std::nullopt;
  if (!day || !cut(name, '/') || !is_hexadecimal(name))
    return std::nullopt;
  return piece{*day, std::string{name}, 0};
}

} // namespace insula::storage::snapshots
