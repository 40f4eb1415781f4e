#pragma once

#include "benchmarks/load/result.hpp"
#include "benchmarks/load/task.hpp"

#include <map>
#include <optional>
#include <string>

namespace insula::load {

/// How often the client's own timer ticks while it measures.
inline constexpr std::chrono::milliseconds tick_length{2};

/// What one thread of the client finds out about itself. Belongs to that thread.
class self_watch {
public:
  /// `of_process`: it also speaks for what the whole process has used; one thread does that.
  explicit self_watch(bool of_process)
      : of_process_(of_process) {}

  void begin(clock::time_point from);

  /// While this lives, an operation is being measured: its figures are compared with what timers
  /// did meanwhile, and with nothing else. Several may be at the same time, of one operation too.
  class span {
  public:
    span(self_watch& of, std::string operation)
        : of_(of)
        , operation_(std::move(operation)) {
      ++of_.measured_[operation_];
    }
    ~span() {
      if (--of_.measured_[operation_] == 0)
        of_.measured_.erase(operation_);
    }
    span(const span&) = delete;
    span& operator=(const span&) = delete;

  private:
    self_watch& of_;
    const std::string operation_;
  };

  /// A timer that was to fire at `intended` has.
  void tick(clock::time_point intended, clock::time_point now);
  client_result end(clock::time_point now);
  /// By operation. Taken once, after the end.
  std::map<std::string, histogram> lateness() { return std::exchange(lateness_, {}); }

private:
  struct mark {
    clock::time_point at;
    double thread_seconds = 0;
  };

  mark now_used(clock::time_point now) const;
  void close_window(clock::time_point now);

  const bool of_process_;
  std::optional<clock::time_point> from_;
  double process_seconds_ = 0;
  std::optional<mark> begin_, window_;
  client_result found_;
  std::map<std::string, unsigned> measured_;
  std::map<std::string, histogram> lateness_;
};

} // namespace insula::load
