#include "http/api/origin.hpp"

#include "http/text/header_text.hpp"

namespace insula::http {

namespace {

constexpr std::string_view mark = "://";

/// `https://a:1` is `a:1`; what is no such thing, such as `null`, is empty.
std::string_view authority_of(std::string_view origin) {
  const auto at = origin.find(mark);
  return at == std::string_view::npos ? std::string_view{} : origin.substr(at + mark.size());
}

/// Without the path of an address.
std::string_view origin_in(std::string_view address) {
  const auto at = address.find(mark);
  return at == std::string_view::npos ? std::string_view{}
                                      : address.substr(0, address.find('/', at + mark.size()));
}

} // namespace

bool is_origin_of(std::string_view origin, std::string_view host) {
  return !host.empty() && same_letters(authority_of(origin), host);
}

bool comes_from_own_page(const request_head& head, bool encrypted) {
  const auto own = [&, host = head.field("Host")](std::string_view origin) {
    return is_origin_of(origin, host) && (!encrypted || origin.substr(0, 6) == "https:");
  };
  if (const auto origin = head.field("Origin"); !origin.empty())
    return own(origin);
  if (head.method != verb::get || !head.field("Upgrade").empty())
    return false;
  if (const auto site = head.field("Sec-Fetch-Site"); !site.empty())
    return site == "same-origin";
  return own(origin_in(head.field("Referer")));
}

} // namespace insula::http
