#pragma once

#include "actors/protocol/messages.hpp"
#include "http/vercel/settings.hpp"

#include <string>
#include <string_view>
#include <vector>

/// What a sandbox of this API is made of, and what is done in it before its client has it.
namespace insula::http::vercel {

/// Without the settings, which are metadata. `secret`: the node's.
define_sandbox definition_of(const create_request& wanted, std::string_view secret);

/// What a session may use and reach.
run_limits limits_of(const settings& is);
/// None: the sandbox is not this API's.
std::optional<run_limits> limits_in(const api_metadata& all);

/// A command, and what is told if it fails: its last words follow.
struct set_up_step {
  exec_request command;
  std::string failure;
};
std::vector<set_up_step> steps_of(const create_request& wanted);

inline bool has_source(const create_request& wanted) {
  return wanted.git.has_value() || wanted.tarball.has_value();
}

/// Of what a command has said on stderr.
std::string last_line(std::string_view text);

} // namespace insula::http::vercel
