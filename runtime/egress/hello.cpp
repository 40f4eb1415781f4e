#include "runtime/egress/hello.hpp"

#include "runtime/egress/policy.hpp"

#include <algorithm>
#include <utility>

namespace insula::runtime::egress {

namespace {

using state = hello_name::state;

constexpr unsigned char record_handshake = 22, message_client_hello = 1;
constexpr std::size_t record_head = 5, message_head = 4;
constexpr std::size_t longest_record = 16 * 1024 + 256;

std::size_t number(std::string_view bytes) {
  std::size_t value = 0;
  for (const char each : bytes)
    value = value << 8 | static_cast<unsigned char>(each);
  return value;
}

/// Takes fields from the front of a ClientHello.
class fields {
public:
  explicit fields(std::string_view bytes)
      : left_(bytes) {}

  bool skip(std::size_t bytes) {
    if (left_.size() < bytes)
      return false;
    left_.remove_prefix(bytes);
    return true;
  }
  /// What stands behind its length, which takes so many bytes.
  bool take(std::size_t length_bytes, std::string_view& into) {
    if (left_.size() < length_bytes)
      return false;
    const auto length = number(left_.substr(0, length_bytes));
    if (left_.size() - length_bytes < length)
      return false;
    into = left_.substr(length_bytes, length);
    left_.remove_prefix(length_bytes + length);
    return true;
  }
  bool take_number(std::size_t bytes, std::size_t& into) {
    if (left_.size() < bytes)
      return false;
    into = number(left_.substr(0, bytes));
    left_.remove_prefix(bytes);
    return true;
  }
  bool empty() const { return left_.empty(); }

private:
  std::string_view left_;
};

hello_name named(std::string_view text) {
  auto plain = plain_name(text);
  if (plain.empty())
    return {state::none};
  return {state::found, std::move(plain)};
}

/// The list of names in its extension: of the only kind that there is, one.
hello_name name_in(std::string_view extension) {
  std::string_view list, name;
  if (!fields{extension}.take(2, list))
    return {state::none};
  fields names{list};
  for (std::size_t kind = 0; names.take_number(1, kind) && names.take(2, name);)
    if (kind == 0)
      return named(name);
  return {state::none};
}

hello_name name_of(std::string_view hello) {
  constexpr std::size_t version_and_random = 2 + 32;
  constexpr std::size_t server_name = 0;
  std::string_view ignored, extensions, extension;
  fields all{hello};
  if (!all.skip(version_and_random) || !all.take(1, ignored) || !all.take(2, ignored) ||
      !all.take(1, ignored) || !all.take(2, extensions))
    return {state::none};
  fields each{extensions};
  for (std::size_t kind = 0; each.take_number(2, kind) && each.take(2, extension);)
    if (kind == server_name)
      return name_in(extension);
  return {state::none};
}

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  const auto end = text.find_last_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view{} : text.substr(begin, end - begin + 1);
}

bool same_word(std::string_view a, std::string_view b) {
  const auto low = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [&](char x, char y) { return low(x) == low(y); });
}

/// Up to the next end of a line, which goes with it.
std::string_view take_line(std::string_view& text) {
  const auto end = text.find("\r\n");
  const auto line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 2);
  return line;
}

/// Without its port.
std::string_view host_of(std::string_view authority) {
  if (const auto at = authority.rfind('@'); at != std::string_view::npos)
    authority.remove_prefix(at + 1);
  return authority.substr(0, authority.find(':'));
}

} // namespace

bool is_tls(std::string_view so_far) {
  return !so_far.empty() && static_cast<unsigned char>(so_far.front()) == record_handshake;
}

hello_name read_client_hello(std::string_view so_far) {
  std::string message;
  for (auto left = so_far;;) {
    if (message.size() >= message_head) {
      if (static_cast<unsigned char>(message.front()) != message_client_hello)
        return {state::none};
      const auto length = number(std::string_view{message}.substr(1, 3));
      if (length > max_hello)
        return {state::too_long};
      if (message.size() - message_head >= length)
        return name_of(std::string_view{message}.substr(message_head, length));
    }
    if (!left.empty() && !is_tls(left))
      return {state::none};
    if (left.size() < record_head)
      return {so_far.size() < max_hello ? state::more : state::too_long};
    const auto length = number(left.substr(3, 2));
    if (length == 0 || length > longest_record)
      return {state::none};
    left.remove_prefix(record_head);
    message += left.substr(0, length);
    left.remove_prefix(std::min(length, left.size()));
  }
}

hello_name read_http_host(std::string_view so_far) {
  const auto end = so_far.find("\r\n\r\n");
  // A method is letters: what cannot be a request is not waited for.
  const auto word = so_far.substr(0, so_far.find(' '));
  constexpr std::size_t longest_method = 32;
  if (word.size() > longest_method ||
      !std::all_of(word.begin(), word.end(), [](char c) { return c >= 'A' && c <= 'Z'; }))
    return {state::none};
  if (end == std::string_view::npos)
    return {so_far.size() < max_hello ? state::more : state::too_long};
  auto head = so_far.substr(0, end);
  const auto line = take_line(head);
  const auto target = line.substr(std::min(line.size(), word.size() + 1));
  constexpr std::string_view scheme = "http://";
  if (target.size() > scheme.size() && same_word(target.substr(0, scheme.size()), scheme)) {
    const auto authority = target.substr(scheme.size());
    return named(host_of(authority.substr(0, authority.find_first_of("/? "))));
  }
  std::string_view host;
  bool seen = false;
  while (!head.empty()) {
    const auto field = take_line(head);
    const auto colon = field.find(':');
    if (colon == std::string_view::npos || !same_word(field.substr(0, colon), "host"))
      continue;
    if (std::exchange(seen, true))
      return {state::none}; // Servers differ in which they take.
    host = trimmed(field.substr(colon + 1));
  }
  return seen ? named(host_of(host)) : hello_name{state::none};
}

} // namespace insula::runtime::egress
