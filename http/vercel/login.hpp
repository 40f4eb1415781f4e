#pragma once

#include "http/api/public_api.hpp"
#include "http/vercel/api.hpp"

#include <memory>
#include <string>

namespace insula::http::vercel {

/// `sandbox login` of the command line: OAuth's device flow (RFC 8628), and the page at /device on
/// which somebody with the main key confirms it. What it gives out is a token for one project. No
/// part of the API that is described. `node`: the name in its cluster, which has the codes of the
/// sign-ins that it has begun; empty: there is none. `encrypted`: the node speaks TLS.
std::shared_ptr<const public_api> make_login_api(shared_services with, std::string node,
                                                 bool encrypted);

} // namespace insula::http::vercel
