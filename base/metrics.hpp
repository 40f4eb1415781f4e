#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

/// What is counted while the system runs, and how it is written for Prometheus. Counting is one or
/// two relaxed additions, without locks, look-ups or memory of its own; nothing is computed until
/// somebody asks for the text. Threads: any, except that one `text` belongs to one thread.
namespace insula::metrics {

/// Only grows.
class counter {
public:
  void add(std::uint64_t more = 1) { value_.fetch_add(more, std::memory_order_relaxed); }
  std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

private:
  std::atomic<std::uint64_t> value_ = 0;
};

/// Goes up and down.
class gauge {
public:
  void add(std::int64_t more = 1) { value_.fetch_add(more, std::memory_order_relaxed); }
  void subtract(std::int64_t less = 1) { add(-less); }
  std::int64_t value() const { return value_.load(std::memory_order_relaxed); }

private:
  std::atomic<std::int64_t> value_ = 0;
};

/// The buckets of a histogram: their inclusive upper ends, ascending, and how many of what is
/// observed make one of what is written.
struct scale {
  std::span<const std::uint64_t> ends;
  double per_unit;
};

inline constexpr std::size_t most_buckets = 18;

/// 100 µs to 60 s, observed in nanoseconds and written in seconds.
extern const scale durations;
/// 1 to 16,384 of something.
extern const scale sizes;

class histogram {
public:
  /// `of` is not owned: one of the above, or another that lives as long.
  explicit histogram(const scale& of = durations)
      : scale_(of) {}

  void observe(std::uint64_t value);
  void observe(std::chrono::nanoseconds took) {
    observe(static_cast<std::uint64_t>(took.count() > 0 ? took.count() : 0));
  }

  const scale& buckets() const { return scale_; }
  /// In one bucket alone; the one after the last end has what is larger than all of them.
  std::uint64_t in_bucket(std::size_t i) const {
    return counts_[i].load(std::memory_order_relaxed);
  }
  std::uint64_t count() const;
  double sum() const; ///< As it is written.

private:
  const scale& scale_;
  std::array<std::atomic<std::uint64_t>, most_buckets + 1> counts_{};
  std::atomic<std::uint64_t> sum_ = 0;
};

struct label {
  std::string_view name;
  std::string_view value;
};
using labels = std::initializer_list<label>;

enum class kind : std::uint8_t { counter, gauge, histogram };

/// The text exposition format, version 0.0.4. A family is begun, then all of its samples follow.
class text {
public:
  static constexpr std::string_view content_type = "text/plain; version=0.0.4; charset=utf-8";

  void family(std::string_view name, kind what, std::string_view help);

  void sample(std::uint64_t value, std::span<const label> with = {});
  void sample(std::int64_t value, std::span<const label> with = {});
  void sample(double value, std::span<const label> with = {});
  void sample(const counter& of, std::span<const label> with = {}) { sample(of.value(), with); }
  void sample(const gauge& of, std::span<const label> with = {}) { sample(of.value(), with); }
  /// Its buckets, each with all that is smaller, then its sum and its count.
  void sample(const histogram& of, std::span<const label> with = {});

  template <class Value>
  void sample(const Value& value, labels with) {
    sample(value, std::span{with.begin(), with.size()});
  }

  /// A family with one sample.
  template <class Value>
  void single(std::string_view name, kind what, std::string_view help, const Value& value) {
    family(name, what, help);
    sample(value);
  }

  const std::string& str() const { return text_; }
  std::string take() { return std::move(text_); }

private:
  void name(std::string_view suffix, std::span<const label> with, std::string_view end = {});
  void number(double value);

  std::string text_;
  std::string family_;
};

} // namespace insula::metrics
