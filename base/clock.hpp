#pragma once

#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>

namespace insula {

/// Where time comes from. Passed in, so that tests can move it.
class clock {
public:
  virtual ~clock() = default;

  /// For deadlines and durations; never jumps.
  virtual std::chrono::steady_clock::time_point now() const = 0;

  /// For records that people and other nodes read: milliseconds since 1970, UTC.
  virtual std::int64_t unix_ms() const = 0;

  /// Which start of the machine now() counts from: times of two processes can be compared if theirs
  /// are the same.
  virtual std::string boot() const = 0;
};

class system_clock final : public clock {
public:
  std::chrono::steady_clock::time_point now() const override {
    return std::chrono::steady_clock::now();
  }
  std::int64_t unix_ms() const override {
    using namespace std::chrono;
    return duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
  std::string boot() const override {
    static const std::string id = [] {
      std::string read;
      std::ifstream{"/proc/sys/kernel/random/boot_id"} >> read;
      return read.empty() ? "unknown" : read;
    }();
    return id;
  }
};

} // namespace insula
