#pragma once

#include <memory>
#include <string>

namespace insula::http {

/// The document as a page that shows it and sends requests: HTML with every script and style
/// inside, which loads nothing and talks to nobody but the node it came from.
struct openapi_page {
  std::shared_ptr<const std::string> html;
  std::shared_ptr<const std::string> gzip; ///< The same, compressed.
  std::string policy; ///< For Content-Security-Policy: its own scripts and styles, by their hashes.
};

/// Made when first asked for, which takes some 20 ms, and kept: 2.5 MB. Any thread.
const openapi_page& shared_openapi_page();

} // namespace insula::http
