#include "base/request_rules.hpp"
#include "tests/support/catch.hpp"

#include <string>
#include <vector>

using namespace insula;

namespace {

std::string why_not(const result<void>& outcome) {
  return outcome ? std::string{} : outcome.reason().message;
}

request_rule transforming(header_list headers) {
  return {"a.example", {}, transform_action{std::move(headers)}};
}

} // namespace

TEST_CASE("rules about requests are text, and read as they were written", "[base][rules]") {
  using kind = text_match::kind;
  std::vector<request_rule> rules{
    transforming({{"authorization", "Bearer a:b\n"}}),
    {"*.b.example",
     {text_match{kind::prefix, "/v1/"},
      {"GET", "POST"},
      {{text_match{kind::exact, "q"}, std::nullopt}},
      {{text_match{kind::regex, "^x-"}, text_match{kind::exact, std::string("\0;9:", 4)}}}},
     forward_action{"https://c.example:8443/p"}},
    {"*", {}, respond_action{403, {{"x-why", "no"}}, "not here"}}};
  // What may not be set is refused, on the way out and back.
  CHECK(why_not(check(rules)) ==
        "the value of header \"authorization\" has a control character, or "
        "more than 16384 bytes");
  CHECK_FALSE(rules_from_text(to_text(rules)));
  rules[0] = transforming({{"authorization", "Bearer a:b"}});
  CHECK(why_not(check(rules)).empty());
  const auto text = to_text(rules);
  const auto read = rules_from_text(text);
  REQUIRE(read);
  CHECK(*read == rules);
  for (std::size_t size = 0; size < text.size(); ++size)
    CHECK_FALSE(rules_from_text(text.substr(0, size)));
  CHECK_FALSE(rules_from_text(text + "0:"));
  CHECK(text.starts_with("1:3"));
  CHECK_FALSE(rules_from_text("2:03" + text.substr(3))); // It is written in one way.
  CHECK(rules_from_text(to_text(std::vector<request_rule>{}))->empty());
}

TEST_CASE("a rule sets no header that says how a message is carried, and none twice",
          "[base][rules]") {
  for (const std::string name : {"Connection", "content-length", "Transfer-Encoding", "host", "te",
                                 "upgrade", "", "a b", "a:", "x\r"})
    CHECK_FALSE(why_not(check({transforming({{name, "value"}})})).empty());
  CHECK(why_not(check({transforming({{"x-a", "1"}, {"X-A", "2"}})})) ==
        "header \"X-A\" is there twice");
  // Nothing that is said has a value.
  CHECK(why_not(check({transforming({{"x-key", "secret\x01"}})})).find("secret") ==
        std::string::npos);
}

TEST_CASE("a URL to forward to is https, names a host, and has a normal form", "[base][rules]") {
  CHECK(*normalise_forward_url("https://A.Example") == "https://a.example");
  CHECK(*normalise_forward_url("HTTPS://a.example:443/x/") == "https://a.example/x");
  CHECK(*normalise_forward_url("https://a.example:8443/x/y") == "https://a.example:8443/x/y");
  for (const std::string url :
       {"http://a.example", "https://", "https://a.example/?q", "https://a.example/#f",
        "https://u@a.example", "https://a.example:0", "https://a.example:65536",
        "https://a.example:x", "https://*.example", "https://10.0.0.1", "https://[::1]/",
        "https://a.example/a b", "ftp://a.example", "a.example", "https://a_.example/\x01"})
    CHECK_FALSE(normalise_forward_url(url));
}

TEST_CASE("expressions and headers of all rules have ceilings", "[base][rules]") {
  request_rule one = transforming({{"x-a", "1"}});
  one.match.path = text_match{text_match::kind::regex, "^/v1"};
  one.match.query = {{text_match{text_match::kind::regex, "a"}, std::nullopt}};
  one.match.headers = {{std::nullopt, text_match{text_match::kind::regex, "b"}}};
  CHECK(check(std::vector<request_rule>(max_rule_expressions / 3, one)));
  const auto many = check(std::vector<request_rule>(max_rule_expressions / 3 + 1, one));
  REQUIRE_FALSE(many);
  CHECK(many.reason().code == errc::limit_reached);
  CHECK(many.reason().message.find("regular expressions") != std::string::npos);
  request_rule of_words = transforming({{"x-a", "1"}});
  of_words.match.path = text_match{text_match::kind::regex, std::string(1024, 'a')};
  constexpr auto as_many = max_expression_bytes / 1024;
  CHECK(check(std::vector<request_rule>(as_many, of_words)));
  const auto long_ones = check(std::vector<request_rule>(as_many + 1, of_words));
  REQUIRE_FALSE(long_ones);
  CHECK(long_ones.reason().code == errc::limit_reached);
  const header_list large{{"x-large", std::string(8 << 10, 'v')}};
  CHECK(check(std::vector<request_rule>(7, transforming(large))));
  const request_rule says{"a.example", {}, respond_action{403, large, ""}};
  auto both = std::vector<request_rule>(7, transforming(large));
  both.push_back(says);
  const auto heavy = check(both);
  REQUIRE_FALSE(heavy);
  CHECK(heavy.reason().code == errc::limit_reached);
}

TEST_CASE("rules are for domains, and few", "[base][rules]") {
  auto rule = transforming({{"x-a", "1"}});
  for (const std::string domain : {"", "A.example", "10.0.0.0/8", "a*.example"}) {
    rule.domain = domain;
    CHECK_FALSE(check({rule}));
  }
  rule.domain = "a.example";
  CHECK(check(std::vector<request_rule>(max_request_rules, rule)));
  CHECK(check(std::vector<request_rule>(max_request_rules + 1, rule)).reason().code ==
        errc::limit_reached);
  CHECK_FALSE(check({{"a.example", {}, respond_action{199, {}, ""}}}));
  CHECK_FALSE(check({{"a.example", {}, respond_action{204, {}, "body"}}}));
  CHECK(check({{"a.example", {}, respond_action{599, {}, "body"}}}));
}
