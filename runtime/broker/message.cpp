#include "runtime/broker/message.hpp"

#include <algorithm>
#include <array>

namespace insula::runtime::broker {

namespace {

int hexadecimal(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/// The byte that is encoded there. None: there is no such thing.
std::optional<char> encoded_at(std::string_view text, std::size_t at) {
  if (at + 2 >= text.size() || text[at] != '%')
    return std::nullopt;
  const int high = hexadecimal(text[at + 1]), low = hexadecimal(text[at + 2]);
  return high < 0 || low < 0 ? std::nullopt : std::optional{static_cast<char>(high * 16 + low)};
}

/// "." or "..", also with parameters behind it, which some servers cut off.
bool is_dots(std::string_view segment) {
  const auto name = segment.substr(0, segment.find(';'));
  return name == "." || name == "..";
}

} // namespace

const std::string* find(const fields& in, std::string_view name) {
  const auto at =
    std::find_if(in.begin(), in.end(), [&](const auto& each) { return each.name == name; });
  return at == in.end() ? nullptr : &at->value;
}

void remove_field(fields& in, std::string_view name) {
  std::erase_if(in, [&](const auto& each) { return each.name == name; });
}

void set(fields& in, std::string_view name, std::string value) {
  remove_field(in, name);
  in.push_back({std::string{name}, std::move(value)});
}

std::string_view request_head::path() const {
  return std::string_view{target}.substr(0, target.find('?'));
}

std::string_view request_head::query() const {
  const auto at = target.find('?');
  return at == std::string::npos ? std::string_view{} : std::string_view{target}.substr(at + 1);
}

bool is_idempotent(std::string_view method) {
  constexpr std::array all{std::string_view{"GET"}, std::string_view{"HEAD"},
                           std::string_view{"OPTIONS"}, std::string_view{"PUT"},
                           std::string_view{"DELETE"}};
  return std::find(all.begin(), all.end(), method) != all.end();
}

std::string decoded_path(std::string_view path) {
  std::string made;
  for (std::size_t at = 0; at < path.size(); ++at) {
    const auto plain = encoded_at(path, at);
    made += plain.value_or(path[at]);
    if (plain)
      at += 2;
  }
  return made;
}

std::string why_unclear(std::string_view path) {
  for (std::size_t at = 0; at < path.size(); ++at) {
    const char c = path[at];
    if (c == '\\' || c == '#' || static_cast<unsigned char>(c) <= 0x20 || c == 0x7f)
      return "The path has a backslash, a fragment or a control character.";
    if (c != '%')
      continue;
    const auto plain = encoded_at(path, at);
    if (!plain)
      return "The path has a '%' that encodes nothing.";
    if (*plain == '/' || *plain == '\\' || static_cast<unsigned char>(*plain) < 0x20 ||
        *plain == 0x7f)
      return "The path has an encoded separator or control character.";
  }
  // Some servers decode twice: so no second reading may have what the first must not.
  const auto once = decoded_path(path);
  for (std::size_t at = 0; at < once.size(); ++at)
    if (const auto plain = encoded_at(once, at);
        plain && (*plain == '/' || *plain == '\\' || *plain == '.'))
      return "The path has a separator or a dot that is encoded twice.";
  for (std::size_t at = 1; at <= once.size();) {
    const auto end = std::min(once.find('/', at), once.size());
    const auto segment = std::string_view{once}.substr(at, end - at);
    if (is_dots(segment))
      return "The path has a dot segment.";
    if (segment.empty() && end < once.size())
      return "The path has an empty segment.";
    at = end + 1;
  }
  return {};
}

} // namespace insula::runtime::broker
