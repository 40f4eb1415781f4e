#pragma once

#include "base/error.hpp"

#include <string>
#include <yaml-cpp/yaml.h>

namespace insula {

/// The one document of a YAML text; null if there is nothing in it. Errors: invalid_request, with
/// "name:line: " in front.
result<YAML::Node> yaml_document(const std::string& text, const std::string& name);

/// What a value is, for a sentence that says what was expected: "\"text\"", "a list".
std::string spelled(const YAML::Node& value);

/// "name:line", of a mark or node, counted from 1.
std::string yaml_place(const std::string& name, const YAML::Mark& mark);

} // namespace insula
