// What the programs that serve buckets are told.
#include "runtime/bucket_mounter.hpp"
#include "runtime/node_hosts.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace insula;
using namespace insula::runtime;

namespace {

const mount_place place{"/mnt", {1000, 1000}, 256ull << 20, {"127.0.0.1/32"}};

bucket_source source(std::vector<std::string> options = {}) {
  return {"http://127.0.0.1:9000", "data", "/part", false, {"key", "secret"}, std::move(options)};
}

/// ",a=b,c," so that ",c," is found.
std::string options_of(const mount_spec& plan) {
  return "," + plan.argv.back() + ",";
}

bool has(const mount_spec& plan, const std::string& option) {
  return options_of(plan).find("," + option + ",") != std::string::npos;
}

} // namespace

TEST_CASE("s3fs is told where, as whom, and how its secret is read", "[runtime][mounts]") {
  const auto plan = make_s3fs_mounter()->plan(source(), place);
  REQUIRE(plan);
  CHECK(plan->argv[0] == "s3fs");
  CHECK(plan->argv[1] == "data:/part");
  CHECK(plan->source == "data:/part");
  CHECK(plan->secret == "data:key:secret\n");
  for (const std::string each : {"url=http://127.0.0.1:9000", "use_path_request_style", "uid=1000",
                                 "gid=1000", "allow_other"})
    CHECK(has(*plan, each));
  CHECK(options_of(*plan).find("secret") == std::string::npos);
  CHECK_FALSE(has(*plan, "ro"));
}

TEST_CASE("services of which it is known are addressed as they want it", "[runtime][mounts]") {
  auto from = source();
  from.endpoint = "https://abc.r2.cloudflarestorage.com";
  auto plan = make_s3fs_mounter()->plan(from, place);
  CHECK(has(*plan, "nomixupload"));
  CHECK_FALSE(has(*plan, "use_path_request_style"));
  from.endpoint = "https://s3.eu-west-1.amazonaws.com:443";
  plan = make_s3fs_mounter()->plan(from, place);
  CHECK_FALSE(has(*plan, "use_path_request_style"));
  CHECK_FALSE(has(*plan, "nomixupload"));
  from.endpoint = "https://notamazonaws.com";
  CHECK(has(*make_s3fs_mounter()->plan(from, place), "use_path_request_style"));
}

TEST_CASE("options of a user's go over the usual ones, never over the node's",
          "[runtime][mounts]") {
  const auto plan = make_s3fs_mounter()->plan(
    source({"retries=9", "uid=0", "url=http://evil", "passwd_file=/etc/shadow", "nonempty", "ro"}),
    place);
  REQUIRE(plan);
  CHECK(has(*plan, "retries=9"));
  CHECK(has(*plan, "uid=0"));
  CHECK(has(*plan, "url=http://127.0.0.1:9000"));
  CHECK(options_of(*plan).find("evil") == std::string::npos);
  CHECK(options_of(*plan).find("shadow") == std::string::npos);
  CHECK(plan->over_files);
  CHECK(plan->read_only);
  CHECK(has(*plan, "ro"));
}

TEST_CASE("an option that could do harm, or is none, is refused", "[runtime][mounts]") {
  for (const std::string bad :
       {"logfile=/etc/x", "use_cache=/var", "tmpdir=/", "ahbe_conf=/etc/passwd",
        "use_sse=custom:/x", "credlib=/x.so", "curldbg", "dbglevel=debug", "iam_role",
        "retries=1,logfile=/x", "a\\b", "", "=x", "storage_class=STANDARD\r\nX-Other: 1",
        "endpoint=a\nb", "uid\x7f=1", "uid\t"}) {
    INFO(bad);
    const auto plan = make_s3fs_mounter()->plan(source({bad}), place);
    REQUIRE_FALSE(plan);
    CHECK(plan.reason().code == errc::invalid_request);
  }
  CHECK_FALSE(make_rclone_mounter()->plan(source({"retries=1"}), place));
}

TEST_CASE("what an option is set to is not in what is said of it", "[runtime][mounts]") {
  for (const auto& driver : {make_s3fs_mounter(), make_rclone_mounter()})
    for (const std::string bad : {"passwd=KEY", "passwd=KEY,SECRET", "passwd=SECRET\n"}) {
      CAPTURE(driver->name(), bad);
      const auto plan = driver->plan(source({bad}), place);
      REQUIRE_FALSE(plan);
      CHECK(plan.reason().message.find("\"passwd\"") != std::string::npos);
      CHECK(plan.reason().message.find("KEY") == std::string::npos);
      CHECK(plan.reason().message.find("SECRET") == std::string::npos);
    }
}

TEST_CASE("rclone reads its secret from a configuration that nobody else can",
          "[runtime][mounts]") {
  auto from = source();
  from.read_only = true;
  const auto plan = make_rclone_mounter()->plan(from, place);
  REQUIRE(plan);
  CHECK(plan->argv[2] == "bucket:data/part");
  CHECK(plan->secret.find("secret_access_key = secret\n") != std::string::npos);
  for (const auto& word : plan->argv)
    CHECK(word.find("secret") == std::string::npos);
  CHECK(std::count(plan->argv.begin(), plan->argv.end(), "--read-only") == 1);
  CHECK(find_bucket_mounter("rclone")->name() == "rclone");
  CHECK(find_bucket_mounter("s3fs")->name() == "s3fs");
  CHECK(find_bucket_mounter("goofys") == nullptr);
}

TEST_CASE("a program may connect to its endpoint and to the bucket below that",
          "[runtime][mounts]") {
  const auto driver = GENERATE(make_s3fs_mounter(), make_rclone_mounter());
  CAPTURE(driver->name());
  const auto of = [&](const std::string& endpoint) {
    auto from = source();
    from.endpoint = endpoint;
    const auto plan = driver->plan(from, place);
    INFO(endpoint);
    REQUIRE(plan);
    return std::pair{to_text(plan->reach), plan->port};
  };
  const auto text = [](std::vector<std::string> allowed) {
    auto reach = egress_policy::deny_all();
    for (auto& each : allowed)
      reach.rules.push_back({true, std::move(each)});
    reach.rules.push_back({false, "*"});
    return to_text(reach);
  };
  using all = std::pair<std::string, std::uint16_t>;
  CHECK(of("https://s3.example.com") == all{text({"s3.example.com", "data.s3.example.com"}), 443});
  CHECK(of("http://s3.example.com:") == all{text({"s3.example.com", "data.s3.example.com"}), 80});
  CHECK(of("http://s3.example.com.:9000/path") ==
        all{text({"s3.example.com", "data.s3.example.com"}), 9000});
  CHECK(of("http://127.0.0.1:9000") == all{text({"127.0.0.1/32"}), 9000});
  CHECK(of("http://[::ffff:7f00:1]:9000") == all{text({"127.0.0.1/32"}), 9000});
  CHECK(of("https://[2606:4700::1111]") == all{text({"2606:4700::1111/128"}), 443});
  CHECK(of("http://localhost:1") ==
        all{text({"127.0.0.1/32", "::1/128", "localhost", "data.localhost"}), 1});
  CHECK(of("https://s3.eu-west-1.amazonaws.com").first ==
        text({"s3.eu-west-1.amazonaws.com", "data.s3.eu-west-1.amazonaws.com", "s3.amazonaws.com",
              "data.s3.amazonaws.com", "s3.*.amazonaws.com", "data.s3.*.amazonaws.com"}));
}

TEST_CASE("an endpoint is at no address that is private, or is written oddly",
          "[runtime][mounts]") {
  const auto driver = GENERATE(make_s3fs_mounter(), make_rclone_mounter());
  CAPTURE(driver->name());
  for (const std::string host : {"127.0.0.2",
                                 "10.0.0.1",
                                 "192.168.1.1",
                                 "172.16.0.1",
                                 "169.254.169.254",
                                 "0.0.0.0",
                                 "100.64.0.1",
                                 "[::1]",
                                 "[::]",
                                 "[fe80::1]",
                                 "[fd00::1]",
                                 "[::ffff:10.0.0.1]",
                                 "[64:ff9b::a00:1]",
                                 "[2002:a00:1::]",
                                 "2130706433",
                                 "0x7f000001",
                                 "0177.0.0.1",
                                 "127.1",
                                 "127.0.0.1.",
                                 "0x7f.1",
                                 "1.2.3.4.5",
                                 "a..b",
                                 "224.0.0.1",
                                 "host.0x7f000001"}) {
    auto from = source();
    from.endpoint = "http://" + host + ":9000";
    CAPTURE(from.endpoint);
    const auto plan = driver->plan(from, place);
    REQUIRE_FALSE(plan);
    CHECK(plan.reason().code == errc::invalid_request);
    CHECK(
      plan.reason().message.starts_with("The endpoint \"" + from.endpoint + "\" is not allowed: "));
  }
  auto from = source();
  from.endpoint = "http://localhost:9000";
  CHECK(driver->plan(from, place));
  CHECK_FALSE(driver->plan(from, {"/mnt", {1000, 1000}, 256ull << 20}));
}

TEST_CASE("names of the node's hosts file are known, and no others are told", "[runtime][mounts]") {
  constexpr const char* file = "# 192.0.2.1 store.lan\n"
                               "127.0.0.1\tlocalhost node\n"
                               "\n"
                               "nonsense store.lan\n"
                               "  192.0.2.7   other Store.LAN. # store\n"
                               "2001:db8::7 store.lan\r\n"
                               "192.0.2.8 data.store.lan private.lan\n"
                               "192.0.2.9";
  const auto of = [&](std::vector<egress_rule> rules) {
    return known_hosts({.allow_rest = false, .rules = std::move(rules)}, file);
  };
  CHECK(of({{true, "store.lan"}, {true, "data.store.lan"}, {false, "*"}}) ==
        "host store.lan 192.0.2.7\nhost store.lan 2001:db8::7\nhost data.store.lan 192.0.2.8\n");
  CHECK(of({{true, "s3.example.com"}, {true, "192.0.2.7/32"}}).empty());
  CHECK(of({{true, "*.lan"}, {true, "*"}, {false, "private.lan"}}).empty());
  // The node itself, whatever its file says.
  CHECK(of({{true, "localhost"}}) == "host localhost 127.0.0.1\nhost localhost ::1\n");
  CHECK(of({{true, "data.localhost"}}) ==
        "host data.localhost 127.0.0.1\nhost data.localhost ::1\n");
  SECTION("at a few addresses") {
    std::string many;
    for (int i = 0; i < 1000; ++i)
      many += "192.0.2.1 store.lan\n";
    const auto lines = known_hosts({.allow_rest = false, .rules = {{true, "store.lan"}}}, many);
    CHECK(std::count(lines.begin(), lines.end(), '\n') == 8);
  }
}
