#pragma once

#include "base/error.hpp"

#include <string>

namespace insula::load {

/// Markdown of what `insula_bench --json` has written to this file: a table for each of its
/// scenarios, with columns for what each row is beside its floors. Errors: io_failed;
/// invalid_request if it is no such file.
result<std::string> floors_as_markdown(const std::string& path);

} // namespace insula::load
