#pragma once

#include "benchmarks/load/control.hpp"

#include <string>

namespace insula::load {

/// Says on standard error how far a scenario is: a line that changes on a terminal, and one every
/// few seconds where there is none.
class progress {
public:
  explicit progress(bool wanted);
  ~progress() { clear(); }
  progress(const progress&) = delete;
  progress& operator=(const progress&) = delete;

  void begin(const std::string& scenario);
  void show(const control& now);
  /// So that something else can be said.
  void clear();

private:
  const bool wanted_, terminal_;
  bool shown_ = false;
  std::string scenario_;
  clock::time_point began_, next_, last_at_;
  std::uint64_t last_ok_ = 0;
};

} // namespace insula::load
