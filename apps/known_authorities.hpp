#pragma once

#include "apps/config.hpp"
#include "storage/images/authorities.hpp"

#include <string>

namespace insula {

/// The authorities by which servers are known to the brokers of requests, as PEM: this machine's,
/// those of sandbox.ca_file (which `of_sandboxes` are), and those of network.ca_file. Errors: those
/// of read_authorities(), naming the key.
result<std::string> known_authorities(const config& values,
                                      const storage::images::authorities& of_sandboxes);

} // namespace insula
