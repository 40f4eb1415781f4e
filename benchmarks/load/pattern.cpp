#include "benchmarks/load/pattern.hpp"

#include <algorithm>
#include <random>

namespace insula::load {

namespace {

constexpr std::size_t block_size = 1'048'573; // A prime.

/// One for all, random enough not to be compressed by anybody.
const std::string& block() {
  static const std::string made = [] {
    std::mt19937_64 random{20'260'101};
    std::string bytes(block_size, '\0');
    std::generate(bytes.begin(), bytes.end(), [&random] { return static_cast<char>(random()); });
    return bytes;
  }();
  return made;
}

} // namespace

std::string_view pattern::at(std::uint64_t offset) const {
  const auto& all = block();
  const auto begin = static_cast<std::size_t>((shift_ + offset) % block_size);
  const auto left = offset < size_ ? size_ - offset : 0;
  return std::string_view{all}.substr(begin, static_cast<std::size_t>(left));
}

bool pattern::matches(std::uint64_t offset, std::string_view bytes) const {
  while (!bytes.empty()) {
    const auto wanted = at(offset).substr(0, bytes.size());
    if (wanted.empty() || bytes.substr(0, wanted.size()) != wanted)
      return false;
    offset += wanted.size();
    bytes.remove_prefix(wanted.size());
  }
  return true;
}

std::string pattern::text() const {
  std::string all;
  while (all.size() < size_)
    all += at(all.size());
  return all;
}

} // namespace insula::load
