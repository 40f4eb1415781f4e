#include "benchmarks/load/schedule.hpp"

#include <charconv>
#include <cmath>

namespace insula::load {

std::optional<share> parse_share(std::string_view text) {
  share made;
  std::uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, number);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '/')
    return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, made.of);
  if (second.ec != std::errc{} || second.ptr != end || number == 0 || number > made.of)
    return std::nullopt;
  made.index = number - 1;
  return made;
}

std::uint64_t seed_of(std::uint64_t seed, share part) {
  std::seed_seq mixed{seed, seed >> 32, std::uint64_t{part.index}, std::uint64_t{part.of}};
  std::uint32_t words[2];
  mixed.generate(std::begin(words), std::end(words));
  return std::uint64_t{words[0]} << 32 | words[1];
}

schedule::schedule(arrivals kind, double rate, std::uint64_t seed, share part)
    : kind_(kind)
    , gap_seconds_(part.of / rate)
    , at_seconds_(kind == arrivals::fixed ? part.index / rate - gap_seconds_ : 0)
    , random_(seed_of(seed, part)) {}

std::chrono::nanoseconds schedule::next() {
  if (kind_ == arrivals::fixed) {
    at_seconds_ += gap_seconds_;
  } else {
    // 53 random bits, never 0: written out, since the library's distribution is not the same
    // everywhere.
    const double uniform = (static_cast<double>(random_() >> 11) + 1) * 0x1p-53;
    at_seconds_ += -std::log(uniform) * gap_seconds_;
  }
  return std::chrono::nanoseconds{std::llround(at_seconds_ * 1e9)};
}

} // namespace insula::load
