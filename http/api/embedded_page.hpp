#pragma once

#include "http/transport/exchange.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace insula::http {

/// HTML with every script and style inside, which loads nothing and talks to nobody but the node it
/// came from.
struct embedded_page {
  std::shared_ptr<const std::string> html;
  std::shared_ptr<const std::string> gzip; ///< The same, compressed.
  std::string policy; ///< For Content-Security-Policy: its own scripts and styles, by their hashes.
  std::string referrer; ///< For Referrer-Policy.
};

struct page_options {
  std::string_view more_policy; ///< What it needs besides scripts, styles and this node.
  std::string_view referrer;
};

/// `file`: what `gzip -n` has made and is linked into this program. `beginning` goes before it, not
/// compressed. Inflates all of it, to know the hashes: call it once for a page.
embedded_page make_page(std::string_view beginning, std::string_view file,
                        const page_options& options);

/// The page as an answer, which nobody keeps, frames, or takes for anything else.
response page_response(const embedded_page& page, bool takes_gzip);

} // namespace insula::http
