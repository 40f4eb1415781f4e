#pragma once

#include "base/network.hpp"
#include "base/request_rules.hpp"
#include "base/secret_box.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/vercel/failures.hpp"

#include <optional>
#include <string>
#include <vector>

namespace insula::http::vercel {

/// What a sandbox may reach, as this API says it.
struct network_wish {
  enum class kind : std::uint8_t { allow_all, deny_all, custom };

  kind mode = kind::allow_all;
  std::vector<std::string> domains;
  std::vector<std::string> allowed, denied; ///< Subnets.
  /// About single requests, each for one of the domains. Of a request they have their values until
  /// they are sealed.
  std::vector<request_rule> rules = {};
  sealed_rules sealed = {};
};

/// Of a request. None: it is well formed.
std::optional<refusal> read_policy(const json::value& given, network_wish& into);

/// What a request has said becomes what is kept: the rules lose their values. Null: this server
/// keeps no secrets. None: it is done.
std::optional<refusal> seal(network_wish& wish, const secret_box* with);

/// Denied subnets come first, then allowed ones, then domains, and nothing else passes.
egress_policy policy_of(const network_wish& wish);

/// As an answer has it, which a request does not understand. Of values of headers it has the names.
void write_policy(json::ascii_writer& out, const network_wish& wish);
/// The same without rules about requests, as it is kept beside them.
void write_reach(json::ascii_writer& out, const network_wish& wish);

} // namespace insula::http::vercel
