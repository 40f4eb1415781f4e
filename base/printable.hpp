#pragma once

#include <algorithm>
#include <string>

namespace insula {

/// Words of somebody else's, for a terminal or a log: what is no printable ASCII becomes '?'.
inline std::string printable(std::string words) {
  std::replace_if(
    words.begin(), words.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return words;
}

} // namespace insula
