#include "storage/registry/reference.hpp"

#include "storage/images/digest.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>

namespace insula::storage::registry {

namespace {

// The language's own depend on where the program runs.
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_small(char c) {
  return c >= 'a' && c <= 'z';
}

bool is_letter(char c) {
  return is_small(c) || (c >= 'A' && c <= 'Z');
}

char small(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// Calls `check` with what stands between the marks. False as soon as that is.
template <class Check>
bool each_part(std::string_view text, char mark, Check check) {
  while (true) {
    const auto end = text.find(mark);
    if (!check(text.substr(0, end)))
      return false;
    if (end == text.npos)
      return true;
    text.remove_prefix(end + 1);
  }
}

bool is_port(std::string_view text) {
  std::uint16_t number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc{} && end == text.data() + text.size() && number != 0;
}

/// inet_pton() stops at a NUL, so none may be in the text.
template <class Address>
bool is_address(int family, const std::string& text, Address& into) {
  return text.find('\0') == text.npos && ::inet_pton(family, text.c_str(), &into) == 1;
}

/// Without the port; of an address in brackets what is in them. None: it is malformed.
std::optional<std::string> machine_of(std::string_view host) {
  if (host.starts_with('[')) {
    const auto end = host.find(']');
    if (end == host.npos)
      return std::nullopt;
    const auto rest = host.substr(end + 1);
    if (!rest.empty() && (rest.front() != ':' || !is_port(rest.substr(1))))
      return std::nullopt;
    return std::string{host.substr(1, end - 1)};
  }
  const auto colon = host.find(':');
  if (colon != host.npos && !is_port(host.substr(colon + 1)))
    return std::nullopt;
  return std::string{host.substr(0, colon)};
}

bool is_host(std::string_view host) {
  const auto machine = machine_of(host);
  if (!machine)
    return false;
  if (host.starts_with('[')) {
    in6_addr address{};
    return is_address(AF_INET6, *machine, address);
  }
  return each_part(*machine, '.', [](std::string_view label) {
    const auto plain = [](char c) { return is_letter(c) || is_digit(c) || c == '-'; };
    return !label.empty() && label.front() != '-' && label.back() != '-' &&
           std::all_of(label.begin(), label.end(), plain);
  });
}

/// Letters and digits, with a '.', a '_', two of these or any number of '-' between them.
bool is_repository_part(std::string_view part) {
  std::string_view between;
  for (std::size_t at = 0; at < part.size();) {
    if (!is_small(part[at]) && !is_digit(part[at]))
      return false;
    while (at < part.size() && (is_small(part[at]) || is_digit(part[at])))
      ++at;
    const auto end = std::min(part.find_first_not_of("._-", at), part.size());
    between = part.substr(at, end - at);
    if (!between.empty() && between != "." && between != "_" && between != "__" &&
        between.find_first_not_of('-') != between.npos)
      return false;
    at = end;
  }
  return !part.empty() && between.empty();
}

bool is_tag(std::string_view text) {
  constexpr std::size_t longest = 128;
  const auto plain = [](char c) {
    return is_letter(c) || is_digit(c) || c == '_' || c == '.' || c == '-';
  };
  return !text.empty() && text.size() <= longest && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), plain);
}

/// What docker takes the first part of a name for: a host looks like one.
bool looks_like_host(std::string_view part) {
  return part == "localhost" || part.find_first_of(".:[") != part.npos;
}

} // namespace

std::string image_reference::str() const {
  return name() + (tag.empty() ? "" : ":" + tag) + (digest.empty() ? "" : "@" + digest);
}

bool is_loopback(std::string_view host) {
  // One of IPv6 may be here without its brackets, and then has no port.
  in6_addr wide{};
  const bool bare = is_address(AF_INET6, std::string{host}, wide);
  const auto machine = bare ? std::string{host} : machine_of(host).value_or("");
  if (machine == "localhost" || machine.ends_with(".localhost"))
    return true;
  in_addr narrow{};
  if (is_address(AF_INET, machine, narrow))
    return (ntohl(narrow.s_addr) >> 24u) == 127;
  return is_address(AF_INET6, machine, wide) && IN6_IS_ADDR_LOOPBACK(&wide);
}

result<image_reference> parse_reference(std::string_view text) {
  constexpr std::size_t longest = 255;
  const auto refused = [&](const std::string& why) {
    // Somebody else's bytes: of a malformed one only what can be printed is said again.
    std::string shown{text.substr(0, longest)};
    std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return error{errc::invalid_request, "\"" + shown + "\" names no image of a registry: " + why};
  };
  if (text.find("://") != text.npos)
    return refused("expected HOST/NAME:TAG, without \"" +
                   std::string{text.substr(0, text.find("://") + 3).substr(0, 16)} + "\"");
  image_reference made;
  auto name = text;
  if (const auto at = name.find('@'); at != name.npos) {
    made.digest = name.substr(at + 1);
    name = name.substr(0, at);
    if (!images::is_digest(made.digest))
      return refused("behind the '@' there has to be a digest, sha256: or sha512: and its "
                     "lower-case hexadecimal digits");
  }
  const auto slash = name.rfind('/');
  if (const auto colon = name.rfind(':');
      colon != name.npos && (slash == name.npos || colon > slash)) {
    made.tag = name.substr(colon + 1);
    name = name.substr(0, colon);
    if (!is_tag(made.tag))
      return refused("a tag has at most 128 letters, digits, '_', '.' and '-', and begins with "
                     "neither of the last two");
  }
  if (made.tag.empty() && made.digest.empty())
    made.tag = "latest";

  const auto first = name.substr(0, name.find('/'));
  if (first.size() < name.size() && looks_like_host(first)) {
    if (!is_host(first))
      return refused("its first part is no host, with or without a port");
    made.host = first;
    std::transform(made.host.begin(), made.host.end(), made.host.begin(), small);
    made.repository = name.substr(first.size() + 1);
  } else {
    made.host = "docker.io";
    made.repository = name;
  }
  if (made.host == "index.docker.io" || made.host == "registry-1.docker.io")
    made.host = "docker.io";
  if (made.host == "docker.io" && made.repository.find('/') == made.repository.npos)
    made.repository.insert(0, "library/");
  if (!each_part(made.repository, '/', is_repository_part))
    return refused("the parts of a name have lower-case letters and digits, with '.', '_', '__' or "
                   "'-' between them");
  if (made.name().size() > longest)
    return refused("a name has at most " + std::to_string(longest) + " bytes");
  return made;
}

} // namespace insula::storage::registry
