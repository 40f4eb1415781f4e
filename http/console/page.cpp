#include "http/console/page.hpp"

extern "C" {
extern const char insula_console_page_begin[]; ///< All of the page, by `gzip -n`.
extern const char insula_console_page_end[];
}

namespace insula::http::console {

const embedded_page& shared_page() {
  // The terminal's colours are attributes of its cells; a style sheet of another page's making has
  // no way in. Referer tells this node, and nobody else, whose requests are the page's.
  static const auto page =
    make_page({},
              {insula_console_page_begin,
               static_cast<std::size_t>(insula_console_page_end - insula_console_page_begin)},
              {"style-src-attr 'unsafe-inline'; img-src data:", "same-origin"});
  return page;
}

} // namespace insula::http::console
