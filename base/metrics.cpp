#include "base/metrics.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

namespace insula::metrics {

namespace {

constexpr std::uint64_t us = 1'000, ms = 1'000'000, s = 1'000'000'000;

constexpr std::uint64_t duration_ends[] = {
  100 * us, 250 * us, 500 * us, 1 * ms, 2500 * us, 5 * ms, 10 * ms, 25 * ms, 50 * ms,
  100 * ms, 250 * ms, 500 * ms, 1 * s,  2500 * ms, 5 * s,  10 * s,  30 * s,  60 * s};
constexpr std::uint64_t size_ends[] = {1,   2,   4,    8,    16,   32,   64,   128,
                                       256, 512, 1024, 2048, 4096, 8192, 16384};
static_assert(std::size(duration_ends) <= most_buckets && std::size(size_ends) <= most_buckets);

std::string_view name_of(kind what) {
  switch (what) {
    case kind::counter: return "counter";
    case kind::gauge: return "gauge";
    case kind::histogram: return "histogram";
  }
  return "untyped";
}

void append_escaped(std::string& into, std::string_view value, bool quoted) {
  for (const char c : value)
    if (c == '\n')
      into += "\\n";
    else if (c == '\\' || (c == '"' && quoted))
      (into += '\\') += c;
    else
      into += c;
}

std::string number_text(double value) {
  std::array<char, 400> digits{}; // The longest is the smallest of all.
  const auto end =
    std::to_chars(digits.data(), digits.data() + digits.size(), value, std::chars_format::fixed);
  return {digits.data(), end.ptr};
}

} // namespace

const scale durations{duration_ends, 1e9};
const scale sizes{size_ends, 1};

void histogram::observe(std::uint64_t value) {
  const auto& ends = scale_.ends;
  const auto at = std::lower_bound(ends.begin(), ends.end(), value) - ends.begin();
  counts_[static_cast<std::size_t>(at)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::uint64_t histogram::count() const {
  std::uint64_t all = 0;
  for (std::size_t i = 0; i <= scale_.ends.size(); ++i)
    all += in_bucket(i);
  return all;
}

double histogram::sum() const {
  return static_cast<double>(sum_.load(std::memory_order_relaxed)) / scale_.per_unit;
}

void text::family(std::string_view name, kind what, std::string_view help) {
  family_ = name;
  text_ += "# HELP ";
  text_ += name;
  text_ += ' ';
  append_escaped(text_, help, false);
  text_ += "\n# TYPE ";
  text_ += name;
  text_ += ' ';
  text_ += name_of(what);
  text_ += '\n';
}

/// `end`: of a bucket.
void text::name(std::string_view suffix, std::span<const label> with, std::string_view end) {
  text_ += family_;
  text_ += suffix;
  char before = '{';
  const auto append = [&](std::string_view name, std::string_view value) {
    text_ += std::exchange(before, ',');
    text_ += name;
    text_ += "=\"";
    append_escaped(text_, value, true);
    text_ += '"';
  };
  for (const auto& [name, value] : with)
    append(name, value);
  if (!end.empty())
    append("le", end);
  if (before == ',')
    text_ += '}';
  text_ += ' ';
}

void text::sample(std::uint64_t value, std::span<const label> with) {
  name({}, with);
  text_ += std::to_string(value);
  text_ += '\n';
}

void text::sample(std::int64_t value, std::span<const label> with) {
  name({}, with);
  text_ += std::to_string(value);
  text_ += '\n';
}

void text::number(double value) {
  text_ += number_text(value);
  text_ += '\n';
}

void text::sample(double value, std::span<const label> with) {
  name({}, with);
  number(value);
}

void text::sample(const histogram& of, std::span<const label> with) {
  const auto& [ends, per_unit] = of.buckets();
  std::uint64_t so_far = 0;
  for (std::size_t i = 0; i <= ends.size(); ++i) {
    so_far += of.in_bucket(i);
    name("_bucket", with,
         i < ends.size() ? number_text(static_cast<double>(ends[i]) / per_unit)
                         : std::string{"+Inf"});
    text_ += std::to_string(so_far);
    text_ += '\n';
  }
  name("_sum", with);
  number(of.sum());
  // What was added up above, so that it agrees while others go on observing.
  name("_count", with);
  text_ += std::to_string(so_far);
  text_ += '\n';
}

} // namespace insula::metrics
