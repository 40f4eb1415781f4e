#include "http/sandboxes/byte_range.hpp"

#include "http/text/header_text.hpp"

#include <algorithm>
#include <charconv>

namespace insula::http {

namespace {

/// A number with more digits is more than any file has.
constexpr std::size_t most_digits = 18;

/// False: it is no number. None at all is one.
bool take_digits(std::string_view text, std::string& into) {
  if (!std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return false;
  into = text.size() <= most_digits ? std::string{text} : std::string(most_digits, '9');
  return true;
}

std::uint64_t number_of(const std::string& digits) {
  std::uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

} // namespace

asked_range read_range(std::string_view field) {
  if (!same_letters(take_until(field, '='), "bytes"))
    return {};
  auto range = take_until(field, ',');
  const auto dash = range.find('-');
  byte_range asked;
  if (dash == std::string_view::npos || !take_digits(trimmed(range.substr(0, dash)), asked.first) ||
      !take_digits(trimmed(range.substr(dash + 1)), asked.last) ||
      (asked.first.empty() && asked.last.empty()))
    return {};
  return {std::move(asked), !trimmed(field).empty()};
}

bool is_backwards(const byte_range& range) {
  return !range.first.empty() && !range.last.empty() &&
         number_of(range.last) < number_of(range.first);
}

std::optional<file_part> part_of(const byte_range& range, std::uint64_t from, std::uint64_t size) {
  if (from >= size)
    return std::nullopt;
  const bool to_end = range.first.empty() || range.last.empty();
  const auto to = to_end ? size : std::min(size, number_of(range.last) + 1);
  return to > from ? std::optional{file_part{from, to, size}} : std::nullopt;
}

void tell_part(stream_head& how, const file_part& part) {
  how.status = 206;
  how.length = part.to - part.from;
  how.fields.push_back({"Content-Range", "bytes " + std::to_string(part.from) + "-" +
                                           std::to_string(part.to - 1) + "/" +
                                           std::to_string(part.size)});
}

header_field no_part_of(std::uint64_t size) {
  return {"Content-Range", "bytes */" + std::to_string(size)};
}

} // namespace insula::http
