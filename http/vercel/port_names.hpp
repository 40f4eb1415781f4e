#pragma once

#include "http/api/port_names.hpp"
#include "http/vercel/api.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace insula::http::vercel {

/// `sb-<sandbox>-<port>-<signature>`: one label of DNS, the same for as long as the sandbox has its
/// name. Nobody makes one without the secret.
std::string label_of(std::string_view secret, std::string_view id, std::uint16_t port);

/// What labels lead to: a server in a sandbox of this API's that runs, at a port that its settings
/// name. A label counts in front of any domain, and below vercel.run nothing else does.
std::shared_ptr<const port_names> make_port_names(shared_services with);

} // namespace insula::http::vercel
