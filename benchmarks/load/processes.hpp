#pragma once

#include "base/error.hpp"
#include "benchmarks/load/run.hpp"

namespace insula::load {

/// Runs `count` copies of this program, each with its part of the options' own share, and merges
/// what they have found. An interrupt is handed on to all of them.
///
/// Errors: io_failed, if one of them could not run; it has said why on standard error. Those of
/// merge().
result<run_result> run_in_processes(const run_options& options, unsigned count);

} // namespace insula::load
