// Texts that travel between server, gateway and agent, and bodies that say a policy.
#include "base/network.hpp"
#include "base/sealed_rules.hpp"
#include "http/bridge/network_json.hpp"
#include "http/opensandbox/policy_json.hpp"
#include "runtime/port_list.hpp"
#include "tests/fuzz/bytes.hpp"

using namespace insula;
using namespace insula::fuzz;

namespace {

void check(const result<egress_policy>& policy) {
  if (!policy)
    return;
  must(policy->rules.size() <= max_egress_rules, "a policy has its size");
  const auto again = policy_from_text(to_text(*policy));
  must(again && *again == *policy, "a policy is the same after it was text");
  const auto told = http::json::write_network({*policy});
  must(told.find("\"policy\":") == 1, "it can be told");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  const auto as = from.plain<std::uint8_t>() % 6;
  const auto text = from.rest();
  switch (as) {
    case 0: check(policy_from_text(text)); break;
    case 1:
      if (const auto figures = figures_from_text(text))
        must(static_cast<bool>(figures_from_text(to_text(*figures))), "figures stay figures");
      break;
    case 2:
      if (const auto read = http::json::read_network_body(text))
        must(to_text(without_values(read->requests)).size() <= to_text(read->requests).size(),
             "rules lose their values");
      break;
    case 3: check(http::opensandbox::read_policy(text)); break;
    case 4:
      if (const auto targets = http::opensandbox::read_targets(text))
        for (const auto& each : *targets)
          must(*normalise_target(each) == each, "targets are normal");
      break;
    default:
      for (const auto& each : runtime::parse_port_list(text))
        must(each.process.size() <= 15, "a process has a short name");
  }
  return 0;
}
