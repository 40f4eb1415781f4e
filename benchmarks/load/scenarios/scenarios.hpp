#pragma once

#include "benchmarks/load/loops.hpp"

/// One function for each scenario, with what several of them share. The table is in
/// ../scenario_table.cpp.
namespace insula::load {

scenario tti_cold();
scenario tti_warm();
scenario burst();
scenario burst_warm();
scenario exec_loop();
scenario exec_open();
scenario stream_first_byte();
scenario file_rw();
scenario persist_hydrate();
scenario mixed();
scenario hold();
scenario cliff();
scenario soak();
scenario growth();
scenario session_loop();
scenario pty_echo();

/// Waits until the server's pool has that many warm, or its target. Throws scenario_failed.
task<> wait_for_pool(scenario_context& in, std::uint64_t wanted);
/// Has the pool begin, and says how many it keeps. Throws scenario_skipped if there is none.
task<std::uint64_t> find_pool(scenario_context& in);

/// The command that is run where it does not matter which one, and what it prints.
command echo_hi(const scenario_context& in);

/// An exec of echo on one of the sandboxes, by chance.
activity exec_on_any(scenario_context& in, const std::vector<std::string>& sandboxes,
                     recorder& into, double weight = 1);

/// Does it that often without measuring; notes what failed.
task<> warm_up(scenario_context& in, std::uint64_t count, std::function<task<ending>()> what);

void note_warm_up_failures(scenario_context& in,
                           const std::map<std::string, std::uint64_t>& failures);

/// Whether a server that fails like this has no such thing at all.
bool is_missing(const std::string& failure);

/// Memory as far as it can be seen from here, in MiB.
struct memory_seen {
  std::optional<double> server;  ///< What it says of itself.
  std::optional<double> machine; ///< What is in use, if it is the same one; without the client's.
};
task<memory_seen> look_at_memory(scenario_context& in);
/// The same once the kernel has done what it does later.
task<memory_seen> look_at_calm_memory(scenario_context& in);
/// What each of so many has cost since then, as values.
task<> tell_memory_per(scenario_context& in, std::string thing, std::uint64_t count,
                       memory_seen before);

/// The mixed load until its time is over.
task<> run_mixed(scenario_context& in);

/// Parameters of everything that goes through drive().
parameter rate_parameter(const char* value, const char* quick);
parameter duration_parameter(const char* value, const char* quick);
parameter warm_up_parameter();

} // namespace insula::load
