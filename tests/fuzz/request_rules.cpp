// Rules about requests, as clients say them and as they are kept: what is read is written so that
// it is read the same again, and what may be seen of them has no values. The first byte says what
// it is.
#include "base/request_rules.hpp"
#include "base/sealed_rules.hpp"
#include "http/bridge/network_json.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/sandboxes/request_rules_json.hpp"
#include "http/vercel/policy.hpp"
#include "tests/fuzz/bytes.hpp"

#include <string>
#include <variant>
#include <vector>

using namespace insula;
using namespace insula::fuzz;

namespace {

const secret_box& box() {
  static const auto made = secret_box::from_key(std::string(secret_box::key_bytes, 'k'));
  return *made;
}

void check_match(const http::json::value& given) {
  const auto match = http::read_match(given);
  if (!match)
    return must(!match.reason().message.empty(), "a refusal has words");
  http::json::writer out;
  out.begin_object();
  http::write_match_member(out, *match);
  out.end_object();
  http::json::document again;
  must(http::json::parse(out.str(), again), "a match is written as JSON");
  const auto* member = http::json::find(again, "match");
  must((member == nullptr) == (*match == request_match{}), "a match that matches all is left out");
  if (member == nullptr)
    return;
  const auto read = http::read_match(*member);
  must(read && *read == *match, "a match is read as it was written");
}

void check_headers(const http::json::value& given) {
  const auto headers = http::read_headers(given);
  if (!headers)
    return;
  http::json::writer out;
  out.begin_object();
  for (const auto& [name, value] : *headers)
    out.member(name, value);
  out.end_object();
  http::json::document again;
  must(http::json::parse(out.str(), again), "headers are written as JSON");
  const auto read = http::read_headers(again);
  must(read && *read == *headers, "headers are read as they were written");
}

void must_have_no_values(const std::vector<request_rule>& rules) {
  const auto are_empty = [](const header_list& all) {
    for (const auto& [name, value] : all)
      must(value.empty(), "what may be seen has no value of a header");
  };
  for (const auto& each : rules) {
    if (const auto* sets = std::get_if<transform_action>(&each.action))
      are_empty(sets->headers);
    if (const auto* says = std::get_if<respond_action>(&each.action)) {
      are_empty(says->headers);
      must(says->body.empty(), "what may be seen has no body");
    }
  }
}

/// Those that a client has said, once they are good.
void check_rules(const std::vector<request_rule>& rules) {
  must(static_cast<bool>(check(rules)), "what is taken is good");
  const auto again = rules_from_text(to_text(rules));
  must(again && *again == rules, "rules are the same after they were text");
  const auto sealed = seal_rules(box(), rules);
  if (!sealed) // An expression that is none.
    return must(sealed.reason().code == errc::invalid_request, "what is good can be sealed");
  const auto opened = open_rules(box(), sealed->sealed);
  must(opened && *opened == rules, "rules are the same after they were sealed");
  const auto shape = rules_from_text(sealed->shape);
  must(shape && shape->size() == rules.size(), "what may be seen can be read");
  must_have_no_values(*shape);
}

void check_vercel(const http::json::value& given) {
  http::vercel::network_wish wish;
  if (const auto why = http::vercel::read_policy(given, wish))
    return must(why->status == 400 && !why->message.empty(), "a bad policy is the client's fault");
  check_rules(wish.rules);
  must(policy_of(wish).rules.size() <= max_egress_rules, "a policy has its size");
  const auto rules = wish.rules;
  if (const auto why = http::vercel::seal(wish, &box()))
    return must(why->status == 400, "an expression that is none is the client's fault");
  must_have_no_values(wish.rules);
  must(wish.sealed.empty() == rules.empty(), "rules are sealed, and nothing else is");
  if (!rules.empty()) {
    const auto opened = open_rules(box(), wish.sealed.sealed);
    must(opened && *opened == rules, "what is sealed is what was said");
  }
  http::json::ascii_writer out;
  http::vercel::write_policy(out, wish);
  http::json::document told;
  must(http::json::parse(out.str(), told), "a policy is told as JSON");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  const auto as = from.plain<std::uint8_t>() % 6;
  const auto text = from.rest();
  http::json::document document;
  const bool is_json = as < 3 && http::json::parse(text, document);
  switch (as) {
    case 0:
      if (is_json)
        check_match(document);
      break;
    case 1:
      if (is_json)
        check_headers(document);
      break;
    case 2:
      if (is_json)
        check_vercel(document);
      break;
    case 3:
      if (const auto body = http::json::read_network_body(text)) {
        check_rules(body->requests);
        network_state state{body->policy};
        state.requests = without_values(body->requests);
        must(http::json::parse(http::json::write_network(state), document), "it is told as JSON");
      }
      break;
    case 4:
      if (const auto rules = rules_from_text(text)) {
        must(to_text(*rules) == text, "what is read is what to_text() has written");
        check_rules(*rules);
      }
      break;
    default:
      if (const auto url = normalise_forward_url(text)) {
        const auto again = normalise_forward_url(*url);
        must(again && *again == *url, "a URL in its normal form stays as it is");
      }
  }
  return 0;
}
