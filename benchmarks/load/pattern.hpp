#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace insula::load {

/// Bytes of a file, made from a number: the same ones again for whoever compares, and nowhere in
/// memory as a whole. They do not repeat at any round distance, so that pieces in the wrong order
/// show.
class pattern {
public:
  pattern(std::uint64_t seed, std::uint64_t size)
      : shift_(seed * 2'654'435'761u)
      , size_(size) {}

  std::uint64_t size() const { return size_; }
  /// What stands there, as far as it lies in one piece; none at the end.
  std::string_view at(std::uint64_t offset) const;
  /// Whether these bytes stand there.
  bool matches(std::uint64_t offset, std::string_view bytes) const;
  std::string text() const; ///< All of it, for small ones.

private:
  std::uint64_t shift_;
  std::uint64_t size_;
};

} // namespace insula::load
