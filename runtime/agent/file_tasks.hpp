#pragma once

#include "base/file_tasks.hpp"

namespace insula::runtime::agent {

/// Does the task, as base/file_tasks.hpp has it, and answers through `channel`. Words that make no
/// sense for it: the channel closes without an answer. Runs as file_operations.hpp says.
void run_file_task(int channel, file_task what, char** words, int count);

} // namespace insula::runtime::agent
