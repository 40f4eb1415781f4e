#pragma once

#include "runtime/engine.hpp"

#include <cstdint>

namespace insula::runtime {

/// Something that the agent was asked to start, as it hears what becomes of it. On the thread of
/// its sandbox; what comes out of turn is not passed on.
class agent_job {
public:
  virtual ~agent_job() = default;

  /// Said right before started(): which process it is, as the sandbox counts.
  virtual void runs_as(std::int32_t) {}
  virtual void started() = 0;
  virtual void failed(error why) = 0;
  virtual void ended(process_exit how) = 0;
  virtual void fall_silent() = 0; ///< Takes no more output and answers nobody.
};

} // namespace insula::runtime
