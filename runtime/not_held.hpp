#pragma once

#include "base/error.hpp"

namespace insula::runtime {

/// What an epoch_fence has refused.
inline const error not_held{errc::stale_epoch, "the sandbox is held under a newer epoch by now"};

} // namespace insula::runtime
