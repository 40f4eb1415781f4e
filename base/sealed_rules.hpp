#pragma once

#include "base/request_rules.hpp"
#include "base/secret_box.hpp"

#include <string>
#include <vector>

/// How rules about requests come to be sealed.
namespace insula {

/// Errors: those of check(), limit_reached, internal; invalid_request for a regular expression that
/// is none.
result<sealed_rules> seal_rules(const secret_box& with, const std::vector<request_rule>& rules);
/// Errors: io_failed, as of secret_box::open(); invalid_request.
result<std::vector<request_rule>> open_rules(const secret_box& with, const std::string& sealed);

/// With empty texts in place of values that may be secrets.
std::vector<request_rule> without_values(std::vector<request_rule> rules);

/// The same for the key of a sandbox's authority.
result<std::string> seal_key(const secret_box& with, const std::string& pem);
result<std::string> open_key(const secret_box& with, const std::string& sealed);

} // namespace insula
