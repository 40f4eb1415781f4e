#pragma once

#include "base/error.hpp"

#include <CLI/App.hpp>

#include <string>
#include <vector>

namespace insula {

/// The words behind the program's name, as the parser of command lines is to have them: `help` and
/// `version` in the place of a command become --help and --version. Errors: invalid_request for
/// what is no command where one is expected, naming those that there are.
result<std::vector<std::string>> command_words(const CLI::App& program,
                                               std::vector<std::string> words);

} // namespace insula
