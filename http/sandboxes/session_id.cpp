#include "http/sandboxes/session_id.hpp"

#include <algorithm>

namespace insula::http {

bool is_session_id(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), allowed) &&
         text.find("..") == std::string_view::npos;
}

} // namespace insula::http
