#pragma once

#include "base/network.hpp"
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
};

/// Of a request. None: it is well formed.
std::optional<refusal> read_policy(const json::value& given, network_wish& into);

/// Denied subnets come first, then allowed ones, then domains, and nothing else passes.
egress_policy policy_of(const network_wish& wish);

/// As an answer has it, which a request does not understand.
void write_policy(json::ascii_writer& out, const network_wish& wish);

} // namespace insula::http::vercel
