#pragma once

#include "benchmarks/load/loops.hpp"

/// One function for each scenario, with what several of them share. The table is in
/// ../scenario_table.cpp.
namespace insula::load {

scenario tti_cold();
scenario tti_warm();
scenario burst();
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

/// The command that is run where it does not matter which one, and what it prints.
command echo_hi(const scenario_context& in);

/// An exec of echo on one of the sandboxes, by chance.
activity exec_on_any(scenario_context& in, const std::vector<std::string>& sandboxes,
                     recorder& into, double weight = 1);

/// The mixed load until its time is over.
task<> run_mixed(scenario_context& in);

/// Parameters of everything that goes through drive().
parameter rate_parameter(const char* value, const char* quick);
parameter duration_parameter(const char* value, const char* quick);
parameter warm_up_parameter();

} // namespace insula::load
