#pragma once

#include <string>
#include <vector>

namespace insula {

/// An argv or an environment as exec takes it, with the null pointer at its end. It points into
/// `words`, which have to outlive it.
inline std::vector<char*> program_words(std::vector<std::string>& words) {
  std::vector<char*> all;
  all.reserve(words.size() + 1);
  for (auto& each : words)
    all.push_back(each.data());
  all.push_back(nullptr);
  return all;
}

} // namespace insula
