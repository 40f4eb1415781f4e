#include "http/event_stream.hpp"

#include <openssl/evp.h>

namespace insula::http::sse {

namespace {

void append_head(std::string& to, std::string_view name) {
  to += "event: ";
  to += name;
  to += "\ndata: ";
}

} // namespace

void append_event(std::string& to, std::string_view name, std::string_view data) {
  append_head(to, name);
  to += data;
  to += "\n\n";
}

void append_base64_event(std::string& to, std::string_view name, std::string_view bytes) {
  append_head(to, name);
  const auto start = to.size();
  const auto length = (bytes.size() + 2) / 3 * 4;
  to.resize(start + length + 1); // The encoder writes a NUL after the text.
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(to.data() + start),
                  reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  to.resize(start + length);
  to += "\n\n";
}

} // namespace insula::http::sse
