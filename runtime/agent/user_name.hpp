#pragma once

#include "base/stream_frames.hpp"

namespace insula::runtime::agent {

/// Does file_task::name_user, whose words these are, as the sandbox's root. What failed, with
/// errno, or none. After a failure the task can be done again.
file_step name_user(char** words);

} // namespace insula::runtime::agent
