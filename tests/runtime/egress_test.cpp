#include "runtime/egress/address.hpp"
#include "runtime/egress/dns.hpp"
#include "runtime/egress/hello.hpp"
#include "runtime/egress/name_table.hpp"
#include "runtime/egress/opening.hpp"
#include "runtime/egress/policy.hpp"
#include "runtime/port_list.hpp"
#include "tests/support/catch.hpp"

using namespace insula;
using namespace insula::runtime::egress;

namespace {

ip_address at(const std::string& text) {
  const auto parsed = ip_address::parse(text);
  REQUIRE(parsed);
  return *parsed;
}

egress_policy rules(bool rest, std::vector<egress_rule> all) {
  egress_policy made;
  made.allow_rest = rest;
  made.rules = std::move(all);
  return made;
}

std::string judged(const policy& by, const char* address, std::optional<std::string_view> name) {
  const auto where = address != nullptr ? std::optional{at(address)} : std::nullopt;
  const auto found = by.judge(where ? &*where : nullptr, name);
  static constexpr const char* words[] = {"allow", "by name", "refuse", "need name"};
  return std::string{words[static_cast<int>(found.what)]} +
         (found.rule.empty() ? "" : ": " + found.rule);
}

std::string bytes(std::size_t number, int count) {
  std::string text;
  while (count-- > 0)
    text += static_cast<char>(number >> 8 * count & 0xff);
  return text;
}

/// As a client sends it; `padding` bytes of extensions come before the name.
std::string client_hello(const std::string& name, std::size_t padding, std::size_t record) {
  std::string extensions = bytes(0xfafa, 2) + bytes(padding, 2) + std::string(padding, 'k');
  if (!name.empty()) {
    const auto entry = bytes(0, 1) + bytes(name.size(), 2) + name;
    const auto list = bytes(entry.size(), 2) + entry;
    extensions += bytes(0, 2) + bytes(list.size(), 2) + list;
  }
  const auto body = bytes(0x0303, 2) + std::string(32, 'r') + bytes(0, 1) + bytes(2, 2) +
                    bytes(0x1301, 2) + bytes(1, 1) + bytes(0, 1) + bytes(extensions.size(), 2) +
                    extensions;
  const auto message = bytes(1, 1) + bytes(body.size(), 3) + body;
  std::string text;
  for (std::size_t from = 0; from < message.size(); from += record) {
    const auto part = message.substr(from, record);
    text += bytes(22, 1) + bytes(0x0301, 2) + bytes(part.size(), 2) + part;
  }
  return text;
}

using state = hello_name::state;

} // namespace

TEST_CASE("an address is all of its text", "[egress]") {
  CHECK(ip_address::parse("127.0.0.1"));
  CHECK(ip_address::parse("::1"));
  CHECK_FALSE(ip_address::parse(std::string{"127.0.0.1\0", 10}));
  CHECK_FALSE(ip_address::parse(std::string{"::1\0.example", 12}));
}

TEST_CASE("patterns of names", "[egress]") {
  CHECK(matches("a.example", "a.example"));
  CHECK_FALSE(matches("a.example", "b.a.example"));
  CHECK_FALSE(matches("b.a.example", "a.example"));
  CHECK(matches("*.a.example", "b.a.example"));
  CHECK(matches("*.a.example", "c.b.a.example"));
  CHECK_FALSE(matches("*.a.example", "a.example"));
  CHECK_FALSE(matches("*.a.example", "ba.example"));
  CHECK(matches("api.*.example", "api.eu.example"));
  CHECK_FALSE(matches("api.*.example", "api.eu.west.example"));
  CHECK_FALSE(matches("api.*.example", "api.example"));
  CHECK(matches("*.*.example", "x.y.z.example"));
  CHECK(matches("*", ""));
  CHECK(matches("*", "whatever"));
  CHECK_FALSE(matches("*.example", ""));
  CHECK(plain_name("A.Example.") == "a.example");
  for (const char* none : {"", ".", "a..b", "a b", "a/b", "\xc3\xa4.example", ".a", "a.."})
    CHECK(plain_name(none).empty());
}

TEST_CASE("addresses that no policy opens", "[egress]") {
  reserved_addresses reserved;
  reserved.own = {at("198.51.100.7"), at("2001:db8::7")};
  for (const char* each : {"127.0.0.1",
                           "0.0.0.0",
                           "10.1.2.3",
                           "172.31.255.255",
                           "192.168.0.1",
                           "100.127.0.1",
                           "169.254.169.254",
                           "168.63.129.16",
                           "198.19.0.1",
                           "224.0.0.1",
                           "255.255.255.255",
                           "::",
                           "::1",
                           "fe80::1",
                           "fd00:ec2::254",
                           "ff02::1",
                           "::ffff:10.0.0.1",
                           "::10.0.0.1",
                           "64:ff9b::7f00:1",
                           "2002:a9fe:a9fe::1",
                           "2001:0:1:2:3:4:80ff:fffe",
                           "198.51.100.7",
                           "2001:db8::7",
                           "64:ff9b::c633:6407"}) {
    CAPTURE(each);
    CHECK(reserved.kind_of(at(each)) != nullptr);
  }
  for (const char* each : {"203.0.113.1", "172.32.0.1", "100.128.0.1", "2001:db8::8",
                           "64:ff9b::cb00:7101", "2002:cb00:7101::1", "9.9.9.9"}) {
    CAPTURE(each);
    CHECK(reserved.kind_of(at(each)) == nullptr);
  }
  reserved.allowed = {*subnet::parse("10.1.0.0/16"), *subnet::parse("198.51.100.7/32")};
  CHECK(reserved.kind_of(at("10.1.2.3")) == nullptr);
  CHECK(reserved.kind_of(at("10.2.2.3")) != nullptr);
  CHECK(reserved.kind_of(at("198.51.100.7")) == nullptr);
}

TEST_CASE("every way to write an address of IPv4 in one of IPv6 is judged by that one",
          "[egress]") {
  const reserved_addresses reserved;
  struct way {
    const char* is;
    const char* to_private; ///< 10.1.2.3
    const char* to_public;  ///< 203.0.113.9
  };
  for (const auto& each :
       {way{"mapped", "::ffff:10.1.2.3", "::ffff:203.0.113.9"},
        way{"compatible", "::10.1.2.3", "::203.0.113.9"},
        way{"translated", "::ffff:0:10.1.2.3", "::ffff:0:203.0.113.9"},
        way{"NAT64", "64:ff9b::10.1.2.3", "64:ff9b::203.0.113.9"},
        way{"6to4", "2002:a01:203::1", "2002:cb00:7109::1"},
        way{"a client of Teredo", "2001:0:cb00:7101:0:0:f5fe:fdfc",
            "2001:0:cb00:7101:0:0:34ff:8ef6"},
        way{"a server of Teredo", "2001:0:a01:203:0:0:34ff:8efe", "2001:0:cb00:7109:0:0:34ff:8efe"},
        way{"ISATAP", "2001:db8::5efe:10.1.2.3", "2001:db8::5efe:203.0.113.9"},
        way{"ISATAP with a global identifier", "2001:db8::200:5efe:10.1.2.3",
            "2001:db8::200:5efe:203.0.113.9"}}) {
    CAPTURE(each.is);
    CHECK(reserved.kind_of(at(each.to_private)) == std::string{"private address"});
    CHECK(reserved.kind_of(at(each.to_public)) == nullptr);
    const policy by{rules(true, {{false, "203.0.113.9/32"}})};
    CHECK(by.denies(at(each.to_public)) == "deny 203.0.113.9/32");
    CHECK(judged(by, each.to_public, {}) == "refuse: deny 203.0.113.9/32");
    CHECK(by.denies(at(each.to_private)).empty());
  }
  // A prefix of a network's own: nobody reaches it, and where the operator opens it, a rule about
  // IPv4 still holds, however long the translator's prefix is.
  const policy by{rules(true, {{false, "203.0.113.9/32"}})};
  for (const char* each : {"64:ff9b:1::203.0.113.9", "64:ff9b:1:cb00:71:900::",
                           "64:ff9b:1:cb:0:7109::", "64:ff9b:1:0:cb:71:900:0"}) {
    CAPTURE(each);
    CHECK(reserved.kind_of(at(each)) == std::string{"private address"});
    CHECK(by.denies(at(each)) == "deny 203.0.113.9/32");
  }
  CHECK(by.denies(at("64:ff9b:1:cb00:71:900:0:1")).empty()); // What is behind it has to be zero.
}

TEST_CASE("the first rule that matches decides", "[egress]") {
  SECTION("no rules") {
    CHECK(judged(policy{egress_policy::allow_all()}, "203.0.113.1", {}) == "allow: default");
    CHECK(judged(policy{egress_policy::deny_all()}, "203.0.113.1", {}) == "refuse: default");
  }
  SECTION("denied subnets, allowed subnets, domains") {
    const policy by{rules(false, {{false, "203.0.113.0/24"},
                                  {true, "203.0.113.9/32"},
                                  {true, "198.51.0.0/16"},
                                  {true, "a.example"}})};
    CHECK(judged(by, "203.0.113.9", {}) == "refuse: deny 203.0.113.0/24");
    CHECK(judged(by, "198.51.1.1", {}) == "allow: allow 198.51.0.0/16");
    CHECK(judged(by, "9.9.9.9", {}) == "need name");
    CHECK(judged(by, "9.9.9.9", "a.example") == "by name: allow a.example");
    CHECK(judged(by, "9.9.9.9", "b.example") == "refuse: default");
    CHECK(judged(by, "9.9.9.9", "") == "refuse: default");
    CHECK(judged(by, nullptr, "a.example") == "by name: allow a.example");
    CHECK(by.denies(at("203.0.113.200")) == "deny 203.0.113.0/24");
    CHECK(by.denies(at("::ffff:203.0.113.200")) == "deny 203.0.113.0/24");
    CHECK(by.denies(at("9.9.9.9")).empty());
    // What somebody on the way makes an address of IPv4 of.
    CHECK(by.denies(at("64:ff9b::203.0.113.200")) == "deny 203.0.113.0/24");
    CHECK(judged(by, "64:ff9b::203.0.113.200", "a.example") == "refuse: deny 203.0.113.0/24");
    CHECK(judged(by, "2002:cb00:71c8::1", "a.example") == "refuse: deny 203.0.113.0/24");
    CHECK(judged(by, "64:ff9b::198.51.1.1", "b.example") == "refuse: default");
  }
  SECTION("a star is for what has no name as well") {
    const policy by{rules(false, {{false, "b.example"}, {true, "*"}})};
    CHECK(judged(by, "9.9.9.9", {}) == "need name");
    CHECK(judged(by, "9.9.9.9", "") == "allow: allow *");
    CHECK(judged(by, "9.9.9.9", "b.example") == "refuse: deny b.example");
    CHECK(judged(policy{rules(true, {{false, "*"}})}, "9.9.9.9", {}) == "refuse: deny *");
  }
}

TEST_CASE("questions to the DNS are answered by the policy", "[egress]") {
  using kind = policy::dns_answer;
  CHECK(policy{egress_policy::allow_all()}.judge_question("x.example").what == kind::real);
  CHECK(policy{egress_policy::deny_all()}.judge_question("x.example").what == kind::refuse);
  const policy list{rules(false, {{true, "*.a.example"}})};
  CHECK(list.judge_question("x.a.example").what == kind::inner);
  CHECK(list.judge_question("x.example").what == kind::refuse);
  const policy nets{rules(false, {{true, "9.9.9.0/24"}, {true, "a.example"}})};
  CHECK(nets.judge_question("a.example").what == kind::inner);
  CHECK(nets.judge_question("x.example").what == kind::real);
  const policy denies{rules(true, {{false, "b.example"}})};
  CHECK(denies.judge_question("b.example").what == kind::refuse);
  CHECK(denies.judge_question("x.example").what == kind::real);
  CHECK(policy{rules(false, {{false, "10.0.0.0/8"}})}.judge_question("a").what == kind::refuse);
}

TEST_CASE("the name in a ClientHello, in whatever pieces it comes", "[egress]") {
  const std::size_t record = GENERATE(16'384, 700, 9, 1);
  const std::size_t padding = GENERATE(0, 1'700, 12'000);
  const auto hello = client_hello("A.Example", padding, record);
  CAPTURE(record, padding);
  const auto whole = read_client_hello(hello);
  if (hello.size() > max_hello) {
    CHECK(read_client_hello(hello.substr(0, max_hello)).is == state::too_long);
    return;
  }
  CHECK(whole.is == state::found);
  CHECK(whole.name == "a.example");
  CHECK(read_client_hello(hello + "more").name == "a.example");
  for (std::size_t cut = 0; cut < hello.size(); cut += 1 + hello.size() / 97) {
    CAPTURE(cut);
    CHECK(read_client_hello(hello.substr(0, cut)).is == state::more);
  }
  CHECK(read_client_hello(client_hello("", padding, record)).is == state::none);
}

TEST_CASE("what is no ClientHello has no name", "[egress]") {
  CHECK_FALSE(is_tls("GET / HTTP/1.1"));
  CHECK(read_client_hello("GET / HTTP/1.1\r\n").is == state::none);
  CHECK(read_client_hello(std::string("\x16\x03\x01\x00\x00", 5)).is == state::none);
  CHECK(read_client_hello(std::string("\x16\x03\x01\xff\xff", 5)).is == state::none);
  CHECK(read_client_hello(std::string("\x16\x03\x01\x00\x04\x02\x00\x00\x00", 9)).is ==
        state::none);
  CHECK(read_client_hello(client_hello("a.example", max_hello, 16'384)).is == state::too_long);
  auto odd = client_hello("a.example", 0, 16'384);
  odd.back() = '\xff'; // Not a name.
  CHECK(read_client_hello(odd).is == state::none);
}

TEST_CASE("the Host of a request", "[egress]") {
  const auto name = [](const std::string& head) { return read_http_host(head + "\r\n\r\n").name; };
  CHECK(name("GET / HTTP/1.1\r\nHost: A.example:8080") == "a.example");
  CHECK(name("POST /x HTTP/1.1\r\nAccept: y\r\nhOST:\t b.example ") == "b.example");
  CHECK(name("GET http://c.example:81/x HTTP/1.1\r\nHost: a.example") == "c.example");
  CHECK(name("GET http://user@d.example HTTP/1.1\r\nHost: a.example") == "d.example");
  CHECK(name("GET / HTTP/1.1\r\nHost: a.example\r\nHost: b.example").empty());
  CHECK(name("GET / HTTP/1.0").empty());
  CHECK(name("GET / HTTP/1.1\r\nX-Host: a.example").empty());
  CHECK(read_http_host("GET / HTTP/1.1\r\nHost: a.exam").is == state::more);
  CHECK(read_http_host("").is == state::more);
  CHECK(read_http_host("SSH-2.0-x\r\n").is == state::none);
  CHECK(read_http_host("get / HTTP/1.1\r\n\r\n").is == state::none);
  CHECK(read_http_host("GET /" + std::string(max_hello, 'x')).is == state::too_long);
}

TEST_CASE("questions to the DNS are read, and answers written", "[egress][dns]") {
  const auto asked = dns::write_question(0x1234, "a.example", dns::type_a);
  const auto read = dns::read_question(asked);
  REQUIRE(read);
  CHECK(read->name == "a.example");
  CHECK(read->type == dns::type_a);
  CHECK(read->udp_bytes == dns::plain_udp);
  const auto answer = dns::write_addresses(*read, {at("198.18.0.1"), at("fd00::1")}, 60);
  const auto said = dns::read_reply(answer, asked);
  REQUIRE(said);
  CHECK(said->repeats);
  CHECK(said->id == 0x1234);
  CHECK(said->addresses == std::vector{at("198.18.0.1")}); // The question's kind alone.
  CHECK(said->ttl == 60);
  CHECK(dns::read_reply(dns::write_status(*read, dns::status::refused), asked)->how ==
        dns::status::refused);
  CHECK(dns::read_reply(dns::write_truncated(*read), asked)->truncated);
  CHECK_FALSE(dns::read_reply(asked, asked)); // It is no reply.
  // Somebody else's question.
  const auto other = dns::write_question(0x1234, "b.example", dns::type_a);
  CHECK_FALSE(dns::read_reply(answer, other)->repeats);
  CHECK(dns::read_question(dns::forward(*read, 7))->id == 7);
}

TEST_CASE("what is no question is not answered", "[egress][dns]") {
  const auto good = dns::write_question(1, "a.example", dns::type_a);
  for (std::size_t cut = 0; cut < good.size(); ++cut)
    CHECK_FALSE(dns::read_question(good.substr(0, cut)));
  auto two = good;
  two[5] = 2;
  CHECK_FALSE(dns::read_question(two));
  auto loop =
    good.substr(0, 12) + "\xc0\x0c" + std::string("\0\1\0\1", 4); // A name that is itself.
  CHECK_FALSE(dns::read_question(loop));
  auto pointed = good.substr(0, 12) + std::string("\4\0\0\0\0\xc0\x0d\0\1\0\1", 11);
  CHECK_FALSE(dns::read_question(pointed));
  auto dotted = good;
  dotted[13] = '.'; // A label with a dot in it is no name that a rule could be about.
  CHECK(dns::read_question(dotted)->name.empty());
}

TEST_CASE("addresses that stand for names", "[egress]") {
  name_table table;
  const auto first = table.address_of("a.example");
  CHECK(first.ipv4.text() == "198.18.0.1");
  CHECK(name_table::is_inner(first.ipv4));
  CHECK(name_table::is_inner(first.ipv6));
  CHECK_FALSE(name_table::is_inner(at("198.20.0.1")));
  CHECK(*table.name_of(first.ipv4) == "a.example");
  CHECK(*table.name_of(first.ipv6) == "a.example");
  CHECK(table.address_of("a.example").ipv4 == first.ipv4);
  CHECK(table.name_of(at("198.18.0.2")) == nullptr);
  CHECK(table.name_of(at("203.0.113.1")) == nullptr);
  const auto second = table.address_of("b.example");
  for (std::size_t i = 0; i < name_table::most - 1; ++i) {
    table.address_of("n" + std::to_string(i) + ".example");
    table.name_of(first.ipv4); // It is in use, and stays.
  }
  CHECK(*table.name_of(first.ipv4) == "a.example");
  const auto* taken = table.name_of(second.ipv4);
  REQUIRE(taken != nullptr); // Another name has its address by now.
  CHECK(*taken != "b.example");
}

TEST_CASE("a list of ports is read as it comes, and nothing in it is believed", "[egress][ports]") {
  const auto all = runtime::parse_port_list("9000 :: 12 node\n80 127.0.0.1 0 ?\n1 127.0.0.1 0 ?\n"
                                            "1 ::1 0 ?\n1 0.0.0.0 7 mine\nx\n70000 :: 1 a\n"
                                            "80 nowhere 1 a\n80 :: -1 a\n81 :: 5 a b\n81 :: 5");
  REQUIRE(all.size() == 4);
  CHECK(all[0].port == 1); // Not the gateway's: it is at every address.
  CHECK(all[1].port == 80);
  CHECK(all[1].process.empty());
  CHECK(all[3].process == "node");
}

TEST_CASE("the best that a name can do for an address", "[egress]") {
  using answer = policy::answer;
  const auto best = [](egress_policy by, const char* address) {
    return policy{by}.best(at(address));
  };
  CHECK(best(rules(true, {}), "9.9.9.9") == answer::allow);
  CHECK(best(rules(false, {}), "9.9.9.9") == answer::refuse);
  CHECK(best(rules(false, {{false, "a.example"}}), "9.9.9.9") == answer::refuse);
  CHECK(best(rules(false, {{false, "*"}, {true, "a.example"}}), "9.9.9.9") == answer::refuse);
  CHECK(best(rules(false, {{true, "a.example"}}), "9.9.9.9") == answer::by_name);
  CHECK(best(rules(true, {{false, "9.0.0.0/8"}, {true, "a.example"}}), "9.9.9.9") ==
        answer::refuse);
  CHECK(best(rules(false, {{false, "9.0.0.0/8"}, {true, "a.example"}}), "8.8.8.8") ==
        answer::by_name);
  CHECK(best(rules(false, {{true, "a.example"}, {false, "9.0.0.0/8"}}), "9.9.9.9") ==
        answer::by_name);
  CHECK(best(rules(false, {{false, "a.example"}, {true, "9.0.0.0/8"}}), "9.9.9.9") ==
        answer::allow);
}

namespace {

/// The sum of all 16-bit numbers, as a receiver makes it: 0xffff if a checksum is in it.
unsigned sum_of(const std::string& text) {
  unsigned sum = 0;
  for (std::size_t i = 0; i < text.size(); ++i)
    sum += static_cast<unsigned char>(text[i]) * (i % 2 == 0 ? 256u : 1u);
  while (sum > 0xffff)
    sum = (sum & 0xffff) + (sum >> 16);
  return sum;
}

const std::string ipv4_ends = bytes(0x0a000001, 4) + bytes(0xcb007102, 4);
const std::string ipv6_ends = bytes(0xfd00, 2) + std::string(13, '\0') + bytes(1, 1) +
                              bytes(0x20010db8, 4) + std::string(11, '\0') + bytes(2, 1);

/// SYN from port 4000 to port 81, with an option, and data behind it.
std::string opening_segment(std::size_t flags = 0x02) {
  return bytes(4000, 2) + bytes(81, 2) + bytes(0xfffffffful, 4) + bytes(0, 4) + bytes(0x60, 1) +
         bytes(flags, 1) + bytes(65535, 2) + bytes(0xbeef, 2) + bytes(0, 2) + bytes(0x020405b4, 4) +
         "data";
}
std::string ipv4_packet(const std::string& segment, std::size_t protocol = 6) {
  return bytes(0x46000000 + 24 + segment.size(), 4) + bytes(0x1234, 2) + bytes(0x4000, 2) +
         bytes(64, 1) + bytes(protocol, 1) + bytes(0, 2) + ipv4_ends + bytes(0x01010101, 4) +
         segment;
}
std::string ipv6_packet(const std::string& segment) {
  return bytes(0x60000000, 4) + bytes(segment.size(), 2) + bytes(6, 1) + bytes(64, 1) + ipv6_ends +
         segment;
}

} // namespace

TEST_CASE("an opening is read, and sent on without its data and with its checksums", "[egress]") {
  const auto v4 = opening::read(ipv4_packet(opening_segment()));
  REQUIRE(v4);
  CHECK(v4->flow() == tcp_flow{at("10.0.0.1"), at("203.0.113.2"), 4000, 81});
  CHECK(v4->number() == 0xffffffff);
  const auto again = v4->again();
  REQUIRE(again.size() == 20 + 24);
  CHECK(sum_of(again.substr(0, 20)) == 0xffff);
  CHECK(sum_of(ipv4_ends + bytes(6, 2) + bytes(24, 2) + again.substr(20)) == 0xffff);
  CHECK(again.substr(40) == bytes(0x020405b4, 4));
  const auto read = opening::read(again);
  REQUIRE(read);
  CHECK(read->flow() == v4->flow());
  CHECK(read->number() == v4->number());

  const auto v6 = opening::read(ipv6_packet(opening_segment()));
  REQUIRE(v6);
  CHECK(v6->flow() == tcp_flow{at("fd00::1"), at("2001:db8::2"), 4000, 81});
  CHECK(sum_of(ipv6_ends + bytes(24, 4) + bytes(6, 4) + v6->again().substr(40)) == 0xffff);
}

TEST_CASE("an opening's answers are for its client", "[egress]") {
  const auto v4 = opening::read(ipv4_packet(opening_segment())).value();
  const auto v6 = opening::read(ipv6_packet(opening_segment())).value();
  const auto turned4 = ipv4_ends.substr(4) + ipv4_ends.substr(0, 4);
  const auto turned6 = ipv6_ends.substr(16) + ipv6_ends.substr(0, 16);
  const auto reset = v4.reset();
  REQUIRE(reset.size() == 40);
  CHECK(reset.substr(12, 8) == turned4);
  CHECK(reset.substr(20, 4) == bytes(81, 2) + bytes(4000, 2));
  CHECK(reset.substr(28, 4) == bytes(0, 4)); // It goes round.
  CHECK(reset.substr(33, 1) == bytes(0x14, 1));
  CHECK(sum_of(turned4 + bytes(6, 2) + bytes(20, 2) + reset.substr(20)) == 0xffff);
  CHECK(sum_of(turned6 + bytes(20, 4) + bytes(6, 4) + v6.reset().substr(40)) == 0xffff);

  using missing = opening::missing;
  const auto gone4 = v4.unreachable(missing::host);
  CHECK(gone4.substr(20, 2) == bytes(0x0301, 2));
  CHECK(sum_of(gone4.substr(20)) == 0xffff);
  CHECK(gone4.substr(28 + 20) == opening_segment().substr(0, 8));
  CHECK(v4.unreachable(missing::network).substr(20, 2) == bytes(0x0300, 2));
  const auto gone6 = v6.unreachable(missing::host);
  CHECK(gone6.substr(40, 2) == bytes(0x0103, 2));
  CHECK(sum_of(turned6 + bytes(gone6.size() - 40, 4) + bytes(58, 4) + gone6.substr(40)) == 0xffff);
  CHECK(v6.unreachable(missing::network).substr(40, 2) == bytes(0x0100, 2));
}

TEST_CASE("what is no opening is none", "[egress]") {
  for (const std::size_t flags : {0x12, 0x10, 0x04, 0x11, 0x00, 0x03})
    CHECK_FALSE(opening::read(ipv4_packet(opening_segment(flags))));
  CHECK(opening::read(ipv4_packet(opening_segment(0xc2)))); // With congestion told (RFC 3168).
  CHECK_FALSE(opening::read(ipv4_packet(opening_segment(), 17)));
  const auto whole = ipv4_packet(opening_segment()), whole6 = ipv6_packet(opening_segment());
  for (const auto& each : {whole, whole6})
    for (std::size_t size = 0; size < each.size() - 4; ++size)
      CHECK_FALSE(opening::read(std::string_view{each}.substr(0, size)));
  CHECK_FALSE(opening::read(bytes(0x50, 1) + whole.substr(1)));
  CHECK_FALSE(opening::read(bytes(0x41, 1) + whole.substr(1)));
}
