#pragma once

#include "base/error.hpp"
#include "base/network.hpp"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

namespace insula::runtime {

/// What the egress gateway has said last of all sandboxes together. However many want to know, it
/// is asked one question at a time, and one of them waits for the answer; as long as nothing is
/// known, all of them do.
///
/// Threads: any.
class last_totals {
public:
  using tell_fn = std::function<void(result<network_totals>)>;

  last_totals();

  /// What is known at the latest after `patience`. `ask` may also let go of what it gets, without a
  /// word. None: there has been no answer so far.
  std::optional<network_totals> get(const std::function<void(tell_fn)>& ask,
                                    std::chrono::milliseconds patience);

private:
  struct state {
    std::mutex guard; ///< For what follows.
    std::condition_variable answered;
    bool asked = false; ///< There is a question, since:
    std::chrono::steady_clock::time_point since;
    std::optional<network_totals> last;
  };
  const std::shared_ptr<state> state_; ///< Shared by a question under way.
};

} // namespace insula::runtime
