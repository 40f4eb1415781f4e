#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string_view>

/// When things are to begin. Nothing here knows a clock: lengths of time count from the start.
namespace insula::load {

/// Which part of a run this is, when several threads, processes or hosts share it.
struct share {
  std::uint32_t index = 0;
  std::uint32_t of = 1;

  /// Of a whole number of things: the parts of all add up to it.
  std::uint64_t part_of(std::uint64_t count) const {
    return count / of + (index < count % of ? 1 : 0);
  }
  /// One thread's part of this part.
  share inside(share smaller) const {
    return {index * smaller.of + smaller.index, of * smaller.of};
  }
};

/// "2/4": the second of four.
std::optional<share> parse_share(std::string_view text);

enum class arrivals : std::uint8_t {
  poisson, ///< As independent callers come: bursts and gaps. Parts of it add up to the same again.
  fixed,   ///< At even distances, and the parts of a run between each other.
};

/// The seed of one part of a run.
std::uint64_t seed_of(std::uint64_t seed, share part);

/// The starts of one part of a run, in order, without end. The same for the same seed and share.
class schedule {
public:
  /// `rate`: of the whole run, per second, more than 0.
  schedule(arrivals kind, double rate, std::uint64_t seed, share part);

  std::chrono::nanoseconds next();

private:
  arrivals kind_;
  double gap_seconds_;
  double at_seconds_;
  std::mt19937_64 random_;
};

} // namespace insula::load
