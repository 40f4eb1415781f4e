#include "base/network.hpp"
#include "tests/support/catch.hpp"

using namespace insula;

TEST_CASE("targets of rules have one spelling, or are refused with the reason", "[base][network]") {
  using row = std::pair<std::string, std::string>;
  const auto [text, normal] = GENERATE(table<std::string, std::string>({
    row{"Example.ORG.", "example.org"},
    row{"*.a.example", "*.a.example"},
    row{"api.*.example", "api.*.example"},
    row{"*", "*"},
    row{"_dmarc.a-b.example", "_dmarc.a-b.example"},
    row{"10.1.2.3/8", "10.0.0.0/8"},
    row{"10.1.2.3", "10.1.2.3/32"},
    row{"2001:DB8::1/33", "2001:db8::/33"},
    row{"::1", "::1/128"},
    row{"0.0.0.0/0", "0.0.0.0/0"},
  }));
  CAPTURE(text);
  const auto target = normalise_target(text);
  REQUIRE(target);
  CHECK(*target == normal);
  CHECK(*normalise_target(*target) == *target);
}

TEST_CASE("what is no target is refused", "[base][network]") {
  const std::string text =
    GENERATE(as<std::string>{}, "", ".", "a..b", "a b", "*a.example", "a*", "ex*.org", "http://a",
             "10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "10.0.0.0/x", "10.0.0.256", "1.2.3", "::/129",
             "fe80::1%eth0/64", "a.example:443", "b\n.example", std::string(64, 'a'),
             std::string("10.0.0.1\0x", 10), std::string("::1\0/64", 7),
             std::string(127, 'a') + std::string(127, '.'));
  CAPTURE(text);
  const auto target = normalise_target(text);
  REQUIRE_FALSE(target);
  CHECK(target.reason().code == errc::invalid_request);
  CHECK_FALSE(target.reason().message.empty());
}

TEST_CASE("a policy is the same after it was text", "[base][network]") {
  egress_policy policy;
  policy.allow_rest = GENERATE(false, true);
  policy.dry_run = GENERATE(false, true);
  policy.match_host = !policy.dry_run;
  policy.rules = {{false, "10.0.0.0/8"}, {true, "*.a.example"}, {true, "*"}};
  const auto read = policy_from_text(to_text(policy));
  REQUIRE(read);
  CHECK(*read == policy);
}

TEST_CASE("what to_text() has not written is no policy", "[base][network]") {
  const std::string text =
    GENERATE("", "default maybe\n", "allow a.example\n", "default allow\nallow A.example\n",
             "default allow\nallow 10.1.0.0/8\n", "default allow\nforget a\n",
             "default allow\ndry-run perhaps\n", "default allow\n\n");
  CAPTURE(text);
  CHECK_FALSE(policy_from_text(text));
}

TEST_CASE("a policy has a largest number of rules", "[base][network]") {
  std::string text = "default deny\n";
  for (std::size_t i = 0; i < max_egress_rules; ++i)
    text += "allow a" + std::to_string(i) + ".example\n";
  CHECK(policy_from_text(text));
  CHECK_FALSE(policy_from_text(text + "allow one.more\n"));
}

TEST_CASE("figures are the same after they were text, whatever a name was", "[base][network]") {
  network_figures figures{1, 2, 3, 4, 5, {}, 6};
  figures.last_refusals.push_back({-7, "tcp", "", "::1", 65535, "deny ::1/128", false});
  figures.last_refusals.push_back({1'700'000'000'000, "dns", "a b\nc", "", 53, "default", true});
  figures.failures = 7;
  figures.last_failures.push_back({8, "tcp", "a b", "::1", 25, connection_failure::timed_out});
  const auto read = figures_from_text(to_text(figures));
  REQUIRE(read);
  CHECK(read->bytes_in == 1);
  CHECK(read->refusals == 5);
  CHECK(read->gateway_us == 6);
  CHECK(figures_from_text("figures 1 2 3 4 5\n")->gateway_us == 0); // A gateway of before.
  REQUIRE(read->last_refusals.size() == 2);
  CHECK(read->last_refusals[0].name.empty());
  CHECK(read->last_refusals[0].rule == "deny ::1/128");
  CHECK(read->last_refusals[1].name == "a?b?c"); // A sandbox has chosen it.
  CHECK(read->last_refusals[1].let_through);
  CHECK(read->failures == 7);
  REQUIRE(read->last_failures.size() == 1);
  CHECK(read->last_failures[0].at_ms == 8);
  CHECK(read->last_failures[0].name == "a?b");
  CHECK(read->last_failures[0].port == 25);
  CHECK(read->last_failures[0].reason == connection_failure::timed_out);
  CHECK(figures_from_text("figures 1 2 3 4 5 6\n")->failures == 0); // A gateway of before.
  CHECK_FALSE(figures_from_text("figures 1 2 3 4 5\nfailure 1 tcp - - 1 somehow\n"));
  CHECK_FALSE(figures_from_text("figures 1 2 3\n"));
  CHECK_FALSE(figures_from_text("figures 1 2 3 4 5\nrefusal x tcp - - 1 0 default\n"));
}

TEST_CASE("totals are the same after they were text", "[base][network]") {
  const network_totals totals{9, {1, 2, 3, 4, 5}};
  const auto read = totals_from_text(to_text(totals));
  REQUIRE(read);
  CHECK(read->refusals == 9);
  CHECK(read->failures == totals.failures);
  for (const char* text : {"", "totals\n", "totals 9 1 2 3 4\n", "figures 1 2 3 4 5 6\n"})
    CHECK_FALSE(totals_from_text(text));
}
