#pragma once

#include "base/error.hpp"

#include <string>

namespace insula::load {

/// Markdown of what `insula_bench --json` has written: a table for each of its scenarios, with
/// columns for what each row is beside its floors. Errors: invalid_request if it is something else.
result<std::string> floors_as_markdown(const std::string& json);

} // namespace insula::load
