#include "benchmarks/load/scenarios/scenarios.hpp"

namespace insula::load {

const std::vector<scenario>& all_scenarios() {
  static const std::vector<scenario> all{tti_cold(),
                                         tti_warm(),
                                         burst(),
                                         burst_warm(),
                                         exec_loop(),
                                         exec_open(),
                                         stream_first_byte(),
                                         session_loop(),
                                         pty_echo(),
                                         file_rw(),
                                         persist_hydrate(),
                                         mixed(),
                                         hold(),
                                         cliff(),
                                         growth(),
                                         soak()};
  return all;
}

} // namespace insula::load
