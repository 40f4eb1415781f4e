#pragma once

#include <stdexcept>

namespace insula::bench {

/// Somebody pressed Ctrl-C: everything unwinds, so that nothing stays behind.
struct interrupted : std::runtime_error {
  interrupted()
      : std::runtime_error("interrupted") {}
};

/// From now on SIGINT, SIGTERM and SIGHUP make throw_if_interrupted() throw, in every thread.
void watch_for_interrupts();
void throw_if_interrupted();

} // namespace insula::bench
