#include "http/api/openapi_page.hpp"

#include "http/api/openapi.hpp"

extern "C" {
extern const char
  insula_openapi_page_begin[]; ///< All of the page after the document, by `gzip -n`.
extern const char insula_openapi_page_end[];
}

namespace insula::http {

namespace {

/// The page up to where the embedded part goes on.
std::string beginning_with(std::string_view document) {
  std::string html = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                     "<script type=\"application/json\" id=\"document\">";
  for (const char c : document) // In JSON, this one is only ever inside a string.
    if (c == '<')
      html += "\\u003c";
    else
      html += c;
  return html + "</script>\n";
}

} // namespace

const embedded_page& shared_openapi_page() {
  // A key may be in its address, which is told to nobody.
  static const auto page =
    make_page(beginning_with(openapi_document()),
              {insula_openapi_page_begin,
               static_cast<std::size_t>(insula_openapi_page_end - insula_openapi_page_begin)},
              {"img-src data: blob:", "no-referrer"});
  return page;
}

} // namespace insula::http
