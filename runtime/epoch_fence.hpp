#pragma once

#include <cstdint>

namespace insula::runtime {

/// Who may command a sandbox: whoever holds its id, under an epoch that grows with each holder.
/// Kept where commands have their effect, so that what an earlier holder has asked for has none,
/// however late it comes. As long as it is nobody's its epoch is 0.
class epoch_fence {
public:
  explicit epoch_fence(std::uint64_t newest = 0)
      : newest_(newest) {}

  /// False: it has been somebody else's since.
  bool admits(std::uint64_t epoch) {
    if (epoch < newest_)
      return false;
    newest_ = epoch;
    return true;
  }

  std::uint64_t newest() const { return newest_; }

private:
  std::uint64_t newest_;
};

} // namespace insula::runtime
