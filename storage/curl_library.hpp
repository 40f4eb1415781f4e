#pragma once

#include <curl/curl.h>

namespace insula::storage {

/// Before a first use of libcurl. Any thread, and as often as one likes.
inline void begin_curl() {
  static const CURLcode once = ::curl_global_init(CURL_GLOBAL_DEFAULT);
  static_cast<void>(once);
}

} // namespace insula::storage
