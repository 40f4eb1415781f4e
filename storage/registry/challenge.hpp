#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace insula::storage::registry {

/// How a server wants to know who asks: one challenge of WWW-Authenticate.
struct challenge {
  std::string scheme;                            ///< In lower case: "bearer", "basic".
  std::map<std::string, std::string> parameters; ///< Their names in lower case.
};

/// All challenges of the field, in their order. What is malformed ends it: those before stay.
/// Source: RFC 9110, 11.6.1.
std::vector<challenge> read_challenges(std::string_view field);

} // namespace insula::storage::registry
