#include "http/opensandbox/multipart.hpp"

#include "http/text/header_text.hpp"

#include <algorithm>
#include <utility>

namespace insula::http::opensandbox {

namespace {

constexpr std::size_t longest_header = 16 * 1024;
constexpr std::size_t longest_boundary = 256; // 70 by the standard.

/// Takes the value of a parameter off `text`: quoted, or up to the next semicolon.
std::string take_value(std::string_view& text) {
  std::string value;
  if (!text.starts_with('"'))
    return std::string{take_until(text, ';')};
  text.remove_prefix(1);
  while (!text.empty() && text.front() != '"') {
    if (text.front() == '\\' && text.size() > 1)
      text.remove_prefix(1);
    value += text.front();
    text.remove_prefix(1);
  }
  take_until(text, ';');
  return value;
}

/// Calls `tell` with each parameter after the first word.
template <class Tell>
void each_parameter(std::string_view field, Tell tell) {
  take_until(field, ';');
  while (!field.empty()) {
    const auto equals = field.find('=');
    if (equals == std::string_view::npos)
      return;
    const auto name = trimmed(field.substr(0, equals));
    field.remove_prefix(equals + 1);
    while (field.starts_with(' '))
      field.remove_prefix(1);
    tell(name, take_value(field));
  }
}

} // namespace

std::optional<std::string> boundary_of(std::string_view content_type) {
  auto rest = content_type;
  if (!same_letters(take_until(rest, ';'), "multipart/form-data"))
    return std::nullopt;
  std::string boundary;
  each_parameter(content_type, [&](std::string_view name, std::string value) {
    if (same_letters(name, "boundary"))
      boundary = std::move(value);
  });
  if (boundary.empty() || boundary.size() > longest_boundary)
    return std::nullopt;
  return boundary;
}

void multipart_reader::feed(std::string_view bytes) {
  held_.erase(0, std::exchange(taken_, 0));
  content_ = {};
  if (where_ != place::over && where_ != place::lost)
    held_ += bytes;
}

multipart_reader::event multipart_reader::lose() {
  where_ = place::lost;
  return event::wrong;
}

multipart_reader::event multipart_reader::next() {
  const auto left = std::string_view{held_}.substr(taken_);
  switch (where_) {
    case place::before: {
      const auto at = left.find(mark_);
      if (at == std::string_view::npos) {
        taken_ += left.size() - std::min(left.size(), mark_.size());
        return event::nothing;
      }
      taken_ += at + mark_.size();
      where_ = place::after_mark;
      return next();
    }
    case place::after_mark: {
      // Blanks may follow it.
      const auto line = left.find_first_not_of(" \t");
      if (line == std::string_view::npos || left.size() - line < 2)
        return left.size() > longest_header ? lose() : event::nothing;
      const auto two = left.substr(line, 2);
      if (two == "--") {
        where_ = place::over;
        return event::end;
      }
      if (two != "\r\n")
        return lose();
      taken_ += line; // The header's lines begin with their ends.
      where_ = place::header;
      return next();
    }
    case place::header: return read_header();
    case place::body: return read_body();
    case place::over: return event::end;
    case place::lost: return event::wrong;
  }
  return event::wrong;
}

multipart_reader::event multipart_reader::read_header() {
  const auto left = std::string_view{held_}.substr(taken_);
  const auto end = left.find("\r\n\r\n");
  if (std::min(end, left.size()) > longest_header)
    return lose();
  if (end == std::string_view::npos)
    return event::nothing;
  name_.clear();
  is_file_ = false;
  for (auto lines = left.substr(0, end); !lines.empty();) {
    auto line = take_until(lines, '\n');
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    const auto field = take_until(line, ':');
    if (same_letters(field, "content-disposition"))
      each_parameter(line, [&](std::string_view name, std::string value) {
        if (same_letters(name, "name"))
          name_ = std::move(value);
        is_file_ = is_file_ || same_letters(name, "filename") || same_letters(name, "filename*");
      });
  }
  taken_ += end + 2; // A part without a body ends with the line that ends its header.
  where_ = place::body;
  first_ = true;
  return event::part;
}

multipart_reader::event multipart_reader::read_body() {
  auto left = std::string_view{held_}.substr(taken_);
  if (first_) {
    if (left.size() < mark_.size() + 2)
      return event::nothing;
    first_ = false;
    if (!left.starts_with(mark_)) {
      taken_ += 2;
      left.remove_prefix(2);
    }
  }
  const auto at = left.find(mark_);
  if (at == 0) {
    taken_ += mark_.size();
    where_ = place::after_mark;
    return event::part_end;
  }
  // What could be the beginning of a mark stays.
  const auto whole =
    at != std::string_view::npos ? at : left.size() - std::min(left.size(), mark_.size());
  if (whole == 0)
    return event::nothing;
  content_ = left.substr(0, whole);
  taken_ += whole;
  return event::content;
}

} // namespace insula::http::opensandbox
