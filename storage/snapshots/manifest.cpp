#include "storage/snapshots/manifest.hpp"

#include "base/limits.hpp"
#include "base/tree_frames.hpp"
#include "storage/images/digest.hpp"

#include <charconv>

namespace insula::storage::snapshots {

namespace {

static_assert(limits::snapshot_manifest_bytes / 64 <= max_known_groups, "all may be told");

constexpr std::string_view title = "insula-snapshot 1";
constexpr std::string_view title_with_groups = "insula-snapshot 2";
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

constexpr std::size_t key_digits = 16;

std::string hexadecimal(std::uint64_t word) {
  std::string text(key_digits, '0');
  for (auto at = text.rbegin(); at != text.rend(); ++at, word >>= 4)
    *at = "0123456789abcdef"[word & 15];
  return text;
}

std::optional<std::uint64_t> word_of(std::string_view text) {
  std::uint64_t word = 0;
  const auto* const end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, word, 16);
  return bad == std::errc{} && stop == end ? std::optional{word} : std::nullopt;
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

constexpr std::string_view word_for(group_kind kind) {
  return kind == group_kind::entries ? "group" : "content";
}

/// `text`: what stands behind the word. None: it makes no sense among so many pieces.
std::optional<piece_group> read_group(group_kind kind, std::string_view text, std::size_t pieces) {
  const auto key = cut(text, ' '), first_text = cut(text, ' ');
  if (!key || key->size() != 2 * key_digits || !first_text)
    return std::nullopt;
  const auto high = word_of(key->substr(0, key_digits)), low = word_of(key->substr(key_digits));
  const auto first = number<std::uint32_t>(*first_text), count = number<std::uint32_t>(text);
  if (!high || !low || !first || !count || std::uint64_t{*first} + *count > pieces)
    return std::nullopt;
  return piece_group{kind, {{*high, *low}}, *first, *count};
}

std::string below(std::string_view space, std::string_view what) {
  return std::string{space} + "/" + std::string{what} + "/";
}

} // namespace

std::string piece::name(std::string_view space) const {
  return below(space, "pieces") + std::to_string(day) + "/" + digest.substr(0, 2) + "/" + digest;
}

std::string manifest::text() const {
  std::string all{groups.empty() ? title : title_with_groups};
  all += "\ntaken_ms " + std::to_string(taken_ms) + "\n";
  for (const auto& each : pieces)
    all += std::to_string(each.day) + " " + each.digest + " " + std::to_string(each.bytes) + "\n";
  for (const auto& each : groups)
    all += std::string{word_for(each.kind)} + ' ' + hexadecimal(each.key.words[0]) +
           hexadecimal(each.key.words[1]) + ' ' + std::to_string(each.first) + ' ' +
           std::to_string(each.count) + '\n';
  return all;
}

std::optional<manifest> manifest::read(std::string_view text) {
  manifest found;
  const auto first = cut(text, '\n');
  auto second = cut(text, '\n');
  const bool has_groups = first == title_with_groups;
  if (!first || (*first != title && !has_groups) || !second || cut(*second, ' ') != "taken_ms")
    return std::nullopt;
  const auto taken = number<std::int64_t>(*second);
  if (!taken)
    return std::nullopt;
  found.taken_ms = *taken;
  while (!text.empty()) {
    auto line = cut(text, '\n');
    if (!line)
      return std::nullopt;
    const auto day_text = cut(*line, ' ');
    if (day_text == word_for(group_kind::entries) || day_text == word_for(group_kind::content)) {
      const auto kind =
        day_text == word_for(group_kind::entries) ? group_kind::entries : group_kind::content;
      const auto group = has_groups ? read_group(kind, *line, found.pieces.size()) : std::nullopt;
      if (!group || (!found.groups.empty() && group->first < found.groups.back().first))
        return std::nullopt;
      found.groups.push_back(*group);
      continue;
    }
    const auto digest = cut(*line, ' ');
    const auto day = day_text ? number<std::int64_t>(*day_text) : std::nullopt;
    const auto bytes = number<std::uint32_t>(*line);
    if (!day || !digest || !is_hexadecimal(*digest) || !bytes ||
        *bytes > limits::snapshot_piece_bytes || !found.groups.empty())
      return std::nullopt;
    found.pieces.push_back({*day, std::string{*digest}, *bytes});
  }
  return has_groups == found.groups.empty() ? std::nullopt : std::optional{std::move(found)};
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
