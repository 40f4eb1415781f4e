#include "http/api/openapi_page.hpp"

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

embedded_page make_openapi_page(const std::string& document) {
  // A key may be in its address, which is told to nobody.
  return make_page(beginning_with(document),
                   {insula_openapi_page_begin,
                    static_cast<std::size_t>(insula_openapi_page_end - insula_openapi_page_begin)},
                   {"img-src data: blob:", "no-referrer"});
}

} // namespace insula::http
