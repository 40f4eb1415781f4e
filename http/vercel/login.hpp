#pragma once

#include "http/api/public_api.hpp"
#include "http/vercel/api.hpp"
#include "http/vercel/device_codes.hpp"

#include <memory>
#include <string>

namespace insula::http::vercel {

/// At one door of a node.
struct login_options {
  std::string node = {};    ///< Its name in its cluster; empty: there is none.
  bool behind_node = false; ///< Requests come from other nodes, which say whose they are.
  std::shared_ptr<device_codes> codes; ///< Of the node: all its doors share them. Not null.
};

/// `sandbox login` of the command line: OAuth's device flow (RFC 8628). A holder of the main key
/// confirms it on the page at /device. The flow gives out a token for one project. No part of the
/// API that is described. In a cluster the node that has begun a sign-in has it.
std::shared_ptr<const public_api> make_login_api(shared_services with, login_options at);

} // namespace insula::http::vercel
