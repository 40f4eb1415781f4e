#pragma once

#include "http/api/access.hpp"

namespace insula::http::vercel::access {

/// The key as a bearer token.
extern const access_scheme* const bearer;

} // namespace insula::http::vercel::access
