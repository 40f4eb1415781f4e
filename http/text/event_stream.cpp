#include "http/text/event_stream.hpp"

#include <openssl/evp.h>

namespace insula::http::sse {

namespace {

void append_head(std::string& to, std::string_view name, std::string_view id) {
  if (!id.empty()) {
    to += "id: ";
    to += id;
    to += '\n';
  }
  to += "event: ";
  to += name;
  to += "\ndata: ";
}

} // namespace

void append_event(std::string& to, std::string_view name, std::string_view data,
                  std::string_view id) {
  append_head(to, name, id);
  to += data;
  to += "\n\n";
}

void append_base64_event(std::string& to, std::string_view name, std::string_view bytes,
                         std::string_view id) {
  append_head(to, name, id);
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
