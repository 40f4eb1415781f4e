#include "http/transport/request_semantics.hpp"

#include "http/text/header_text.hpp"

#include <algorithm>
#include <array>

namespace insula::http {

bool wants_upgrade(const request_head& head) {
  return !head.old_protocol && !head.chunked && head.content_length.value_or(0) == 0 &&
         !head.field("Upgrade").empty() && names(head.field("Connection"), "upgrade");
}

bool takes_trailers(const request_head& head) {
  return !head.old_protocol && names(head.field("TE"), "trailers") &&
         names(connection_options(head), "TE");
}

bool is_repeatable(const request_head& head) {
  constexpr std::array<std::string_view, 5> known{"GET", "HEAD", "OPTIONS", "PUT", "DELETE"};
  return !head.chunked && head.content_length.value_or(0) == 0 &&
         std::find(known.begin(), known.end(), head.method_name) != known.end();
}

std::string connection_options(const request_head& head) {
  std::string all;
  head.each_field([&](std::string_view name, std::string_view value) {
    if (same_letters(name, "Connection"))
      (all += value) += ',';
  });
  return all;
}

bool wants_page(const request_head& head) {
  return head.method == verb::get &&
         head.field("Accept").find("text/html") != std::string_view::npos;
}

} // namespace insula::http
