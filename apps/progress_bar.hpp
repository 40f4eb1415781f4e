#pragma once

#include "storage/images/image_store.hpp"
#include "storage/registry/pull.hpp"

#include <chrono>
#include <string>

namespace insula {

/// Shows on standard error how far an import or a pull is: a bar that moves on a terminal, and a
/// line every few seconds where there is none.
class progress_bar {
public:
  progress_bar();
  ~progress_bar(); ///< The bar's line is cleared.
  progress_bar(const progress_bar&) = delete;
  progress_bar& operator=(const progress_bar&) = delete;

  void show(const storage::images::import_progress& now);
  void show(const storage::registry::pull_progress& now);

private:
  bool is_time();
  void show(double part, const std::string& words);

  const bool terminal_;
  std::chrono::steady_clock::time_point next_;
  bool shown_ = false;
};

} // namespace insula
