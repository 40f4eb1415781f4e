#pragma once

#include <stdexcept>

namespace insula::load {

/// Somebody pressed Ctrl-C: everything unwinds, so that nothing stays behind.
struct interrupted : std::runtime_error {
  interrupted()
      : std::runtime_error("interrupted") {}
};

/// From now on SIGINT, SIGTERM and SIGHUP are counted and end nothing by themselves, and a closed
/// socket is an error and no signal.
void watch_for_interrupts();
int interrupts(); ///< How many there have been; in any thread.
void throw_if_interrupted();

} // namespace insula::load
