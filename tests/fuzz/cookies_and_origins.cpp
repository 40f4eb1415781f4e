// What browsers send of cookies and origins, and the cookies that servers in sandboxes set, against
// models that go letter by letter.
#include "http/api/auth.hpp"
#include "http/api/origin.hpp"
#include "http/api/sign_ins.hpp"
#include "http/preview/message.hpp"
#include "http/proxy/request_fields.hpp"
#include "http/text/header_text.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/support/played_head.hpp"

#include <algorithm>
#include <string>
#include <vector>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::http;

namespace {

std::string lower(std::string_view text) {
  std::string made{text};
  for (char& c : made)
    if (c >= 'A' && c <= 'Z')
      c = static_cast<char>(c + 32);
  return made;
}

std::vector<std::string> split(std::string_view text, char mark) {
  std::vector<std::string> all(1);
  for (const char c : text)
    if (c == mark)
      all.emplace_back();
    else
      all.back() += c;
  return all;
}

void check_tokens(std::string_view field, std::string_view host) {
  const auto plain = sign_in_cookie_name(host);
  must(plain == "insula" || (plain.starts_with("insula-") && host.ends_with(plain.substr(7))),
       "the cookie's name has the port that was asked");
  std::vector<std::string> wanted;
  for (auto each : split(field, ';')) {
    each.erase(0, std::min(each.size(), each.find_first_not_of(' ')));
    for (const auto& name : {plain + "=", "__Host-" + plain + "="})
      if (each.starts_with(name) && each.size() > name.size())
        wanted.push_back(each.substr(name.size()));
  }
  const auto found = sign_in_tokens(field, host);
  must(std::equal(found.begin(), found.end(), wanted.begin(), wanted.end()),
       "every cookie of the name is found, and no other");
}

void check_for_server(std::string_view field, const key_check& key, std::string_view secret) {
  const auto kept = proxy::cookies_for_server(field, &key);
  for (const auto& each : split(kept, ';')) {
    const auto cookie = trimmed(each);
    must(!cookie.starts_with("insula") && !cookie.starts_with("__Host-insula"),
         "the node's own cookies stay here");
    must(cookie.find(secret) == std::string_view::npos, "no cookie has the key in it");
    must(cookie.empty() || field.find(cookie) != std::string_view::npos,
         "what is kept is as it was");
  }
  must(proxy::cookies_for_server(kept, &key) == kept, "what is kept once is kept");
}

/// What a browser would make of the line: the last Path and Domain count.
void check_set(std::string_view value, const std::string& prefix) {
  const auto line = preview::answer_line("Set-Cookie", value, {"abc", 80, prefix, "/"});
  must(line.starts_with("Set-Cookie: ") && line.ends_with("\r\n"), "a cookie is one line");
  const auto parts = split(std::string_view{line}.substr(12, line.size() - 14), ';');
  std::string path;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto equals = parts[i].find('=');
    const auto name = lower(trimmed(std::string_view{parts[i]}.substr(0, equals)));
    must(name != "domain", "a cookie is for its own host alone");
    if (name == "path")
      path = trimmed(equals == std::string::npos ? std::string_view{}
                                                 : std::string_view{parts[i]}.substr(equals + 1));
  }
  must(prefix.empty() || path.starts_with(prefix + "/"), "a cookie holds for the prefix alone");
}

/// What leads to the server leads through the prefix; what leads elsewhere is as it was.
void check_reference(std::string_view value, std::string_view host, const std::string& prefix) {
  const preview::address to{"abc", 3000, prefix, "/", false, std::string{host}};
  for (const std::string_view name : {"Location", "Content-Location", "Refresh", "Link"}) {
    const auto line = preview::answer_line(name, value, to);
    const auto head = std::string{name} + ": ";
    must(line.starts_with(head) && line.ends_with("\r\n"), "a reference is one line");
    const auto told = line.substr(head.size(), line.size() - head.size() - 2);
    const bool named = name == "Refresh" || name == "Link";
    must(told == value || told.find(prefix + "/") != std::string::npos,
         "what is written anew leads through the prefix");
    if (named)
      continue;
    const bool from_root = value.starts_with("/") && !value.starts_with("//");
    must(!from_root || told.starts_with(prefix + "/"), "a path from the root is the server's");
    const auto again = preview::answer_line(name, told, to);
    must(again == line, "what leads through the prefix stays");
  }
}

void check_origin(std::string_view origin, std::string_view host, bool encrypted) {
  const auto mark = origin.find("://");
  const bool same = mark != std::string_view::npos && !host.empty() &&
                    lower(origin.substr(mark + 3)) == lower(host);
  must(is_origin_of(origin, host) == same, "an origin is a host's by all of its letters");
  const test::played_head head{
    verb::post, "/", {{"Host", std::string{host}}, {"Origin", std::string{origin}}}};
  const bool own = comes_from_own_page(head, encrypted);
  must(!own || same, "an own page has this host's origin");
  must(!own || !encrypted || origin.starts_with("https:"), "an own page has come encrypted");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view secret = "key-0123456789abcdef";
  static const key_check key{std::string{secret}};
  byte_source from{data, size};
  const bool encrypted = from.plain<std::uint8_t>() % 2 != 0;
  const auto host = from.until('\n'), origin = from.until('\n'), cookies = from.until('\n');
  const auto set = from.until('\n');
  check_tokens(cookies, host);
  check_for_server(cookies, key, secret);
  check_set(set, "");
  check_set(set, "/v1/sandbox/abc/port/80");
  check_origin(origin, host, encrypted);
  check_reference(set, host, "/v1/sandbox/abc/port/3000");
  return 0;
}
