#include "storage/blobs/blob_store.hpp"

#include <algorithm>

namespace insula::storage {

bool is_blob_name(std::string_view name) {
  constexpr std::string_view letters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._=-";
  if (name.empty() || name.size() > blob_store::max_name_bytes)
    return false;
  for (std::size_t at = 0; at <= name.size();) {
    const auto end = std::min(name.find('/', at), name.size());
    const auto part = name.substr(at, end - at);
    if (part.empty() || part.front() == '.' || part.find_first_not_of(letters) != part.npos)
      return false;
    at = end + 1;
  }
  return true;
}

} // namespace insula::storage
