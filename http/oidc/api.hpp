#pragma once

#include "http/api/public_api.hpp"
#include "http/oidc/issuer.hpp"

#include <memory>

namespace insula::http::oidc {

/// The public keys of an issuer, and what is to be known of it, below /oidc/ and the last word of
/// its name. Null: its routes can be listed, with the usual name, but not called.
std::shared_ptr<const public_api> make_api(std::shared_ptr<const issuer> of);

} // namespace insula::http::oidc
