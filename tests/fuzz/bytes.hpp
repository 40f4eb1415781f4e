#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <poll.h>
#include <string_view>

namespace insula::fuzz {

/// What must hold whatever the input; else the fuzzer keeps the input as a crash.
inline void must(bool holds, const char* what) {
  if (holds)
    return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// An input, taken from its beginning to decide what is done. Zeros where there is no more.
class byte_source {
public:
  byte_source(const std::uint8_t* data, std::size_t size)
      : left_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return left_.empty(); }

  std::string_view take(std::size_t count) {
    const auto taken = left_.substr(0, count);
    left_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest() { return take(left_.size()); }

  /// Up to the next `mark`, which is taken as well.
  std::string_view until(char mark) {
    const auto taken = left_.substr(0, left_.find(mark));
    left_.remove_prefix(std::min(left_.size(), taken.size() + 1));
    return taken;
  }

  /// A number, or a struct of plain numbers.
  template <class Plain>
  Plain plain() {
    Plain value{};
    const auto bytes = take(sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }

private:
  std::string_view left_;
};

/// Waits a minute for what another thread does to a descriptor.
inline void wait_for(pollfd& what, const char* name) {
  int ready = 0;
  do // The fuzzer's own alarm interrupts.
    ready = ::poll(&what, 1, 60'000);
  while (ready < 0 && errno == EINTR);
  must(ready == 1, name);
}

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

} // namespace insula::fuzz
