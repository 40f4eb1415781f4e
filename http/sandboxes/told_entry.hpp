#pragma once

#include "base/file_tasks.hpp"

#include <cstring>
#include <string_view>
#include <utility>

namespace insula::http {

/// A file_entry with what follows it.
struct told_entry {
  file_entry is;
  std::string_view path, owner, group;
};

/// Takes one off `bytes`. False: there is none, or no whole one.
inline bool take_entry(std::string_view& bytes, told_entry& into) {
  if (bytes.size() < sizeof into.is)
    return false;
  std::memcpy(&into.is, bytes.data(), sizeof into.is);
  auto left = bytes.substr(sizeof into.is);
  for (const auto& [size, text] : {std::pair{into.is.path_bytes, &into.path},
                                   {into.is.owner_bytes, &into.owner},
                                   {into.is.group_bytes, &into.group}}) {
    if (left.size() < size)
      return false;
    *text = left.substr(0, size);
    left.remove_prefix(size);
  }
  bytes = left;
  return true;
}

} // namespace insula::http
