#pragma once

#include "http/preview/upstream.hpp"

#include <memory>
#include <string>

namespace insula::http::preview {

/// Carries bytes both ways, after an upgrade, until both have ended or one is gone. `first`: for
/// the client. On its strand.
void tunnel(std::shared_ptr<connection> client, std::shared_ptr<upstream> server,
            std::string first);

} // namespace insula::http::preview
