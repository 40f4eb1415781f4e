#include "apps/config.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/stat.h>
#include <unistd.h>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

/// A cluster.yaml with this text, known under that short name, as errors print it.
class written {
public:
  explicit written(const std::string& text) {
    std::ofstream{dir_ / "cluster.yaml"} << text;
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(dir_.path());
  }
  ~written() { std::filesystem::current_path(before_); }

private:
  temp_dir dir_;
  std::filesystem::path before_;
};

config loaded(const std::string& text, const environment& env = {}) {
  const written file{text};
  auto values = load_config("cluster.yaml", env);
  if (!values)
    FAIL(values.reason().message);
  return *values;
}

std::string mistake(const std::string& text, const environment& env = {}) {
  const written file{text};
  const auto values = load_config("cluster.yaml", env);
  REQUIRE_FALSE(values);
  CHECK(values.reason().code == errc::invalid_request);
  return values.reason().message;
}

/// What a wrong value of one key is answered with, without file, line and key.
std::string expected_of(const std::string& path, const std::string& value) {
  std::string text, part, indent;
  int line = 1;
  for (auto rest = path;; ++line) {
    const auto dot = rest.find('.');
    text += indent + rest.substr(0, dot) + ":";
    if (dot == rest.npos)
      break;
    text += "\n";
    indent += "  ";
    rest = rest.substr(dot + 1);
  }
  const auto start = "cluster.yaml:" + std::to_string(line) + ": " + path + ": expected ";
  const auto why = mistake(text + " " + value + "\n");
  CAPTURE(why);
  REQUIRE(why.starts_with(start));
  return why.substr(start.size());
}

} // namespace

TEST_CASE("cluster.yaml is the defaults", "[apps][config]") {
  const auto values = load_config(INSULA_CLUSTER_YAML, {});
  if (!values)
    FAIL(values.reason().message);
  CHECK(*values == config{});
  CHECK(*load_config(std::nullopt, {}) == config{});
}

TEST_CASE("cluster.yaml has every key there is", "[apps][config]") {
  // The dotted keys of its lines, by their indentation.
  std::ifstream file{INSULA_CLUSTER_YAML};
  std::vector<std::string> sections, found;
  for (std::string line; std::getline(file, line);) {
    const auto start = line.find_first_not_of(' ');
    const auto colon = line.find(':', start == line.npos ? 0 : start);
    if (start == line.npos || line[start] == '#' || colon == line.npos)
      continue;
    sections.resize(start / 2);
    sections.push_back((sections.empty() ? "" : sections.back() + ".") +
                       line.substr(start, colon - start));
    if (line.size() > colon + 1)
      found.push_back(sections.back());
  }
  CHECK(found == config_keys());
}

TEST_CASE("every key sets its value", "[apps][config]") {
  const auto c = loaded(R"(
server:
  listen: "[::]:0"
  metrics_listen: "[::1]:9464"
  execd_listen: 127.0.0.1:44772
  allow_open: true
  api_key: s3cret
  allowed_hosts: [insula.example, other]
  threads: 4
  max_connections: 100
  tls: {certificate: /etc/cert.pem, key: /etc/key.pem}
state: {directory: /srv/insula, user: insula}
runtime:
  first_slot: 4096
  slots: 2000
  disk: {backend: tmpfs, pool: 100GiB}
sandbox:
  max_instances: 1500
  freeze_after: 0
  stop_after: 48h
  seccomp_filters: false
  privileges: sudo
  allow_sudo: true
  limits:
    memory: 512MiB
    cpus: 0.5
    processes: 64
    disk: 1TiB
    shm: 65536
    log: 1MiB
    open_files: 1024
image: {default: bookworm, available: [tiny, node-22.1], unknown: default}
network: {default: deny-all, allow_private: [10.1.2.3/16, "fd00:1::/32"], resolvers: [9.9.9.9, "2620:fe::9"]}
buckets:
  driver: rclone
  cache: 1GiB
  credentials_for: ["https://s3.example.com/", "http://10.0.0.1:9000"]
  bindings:
    DATA: {endpoint: "https://s3.example.com", bucket: my-data, access_key_id: k3y, secret_access_key: s3cret, read_only: true}
    _2: {endpoint: "http://[::1]:9000/", bucket: b.2}
snapshots: {endpoint: "https://s3.example.com/", bucket: kept, region: eu-1, interval: 30s, all: true}
secrets: {key_file: /etc/insula/secrets.key}
oidc: {key_file: /etc/insula/oidc.json, issuer: "https://a.example:8443/b/c_1", token_lifetime: 1h}
preview: {domain: preview.example, public: true}
pool: {target: 3, refresh_interval: 500ms, scale_batch_size: 20}
bridge: {default_session: true}
log: {level: debug}
)");
  CHECK(c.server.listen == endpoint{"::", 0});
  CHECK(c.server.metrics_listen == endpoint{"::1", 9464});
  CHECK(c.server.execd_listen == endpoint{"127.0.0.1", 44772});
  CHECK(c.server.allow_open);
  CHECK(c.server.api_key == "s3cret");
  CHECK(c.server.allowed_hosts == std::vector<std::string>{"insula.example", "other"});
  CHECK(c.server.threads == 4);
  CHECK(c.server.max_connections == 100);
  CHECK(c.server.tls_certificate == "/etc/cert.pem");
  CHECK(c.server.tls_key == "/etc/key.pem");
  CHECK(c.state.directory == "/srv/insula");
  CHECK(c.state.user == "insula");
  CHECK(c.runtime.first_slot == 4096);
  CHECK(c.runtime.slots == 2000);
  CHECK(c.runtime.backend == disk_backend::tmpfs);
  CHECK(c.runtime.pool_bytes == 100ull << 30);
  CHECK(c.sandbox.max_instances == 1500);
  CHECK(c.sandbox.freeze_after == 0ms);
  CHECK(c.sandbox.stop_after == 48h);
  CHECK_FALSE(c.sandbox.seccomp_filters);
  CHECK(c.sandbox.gains == privileges::sudo);
  CHECK(c.sandbox.allow_sudo);
  CHECK(c.sandbox.memory_bytes == 512ull << 20);
  CHECK(c.sandbox.cpus == 0.5);
  CHECK(c.sandbox.processes == 64);
  CHECK(c.sandbox.disk_bytes == 1ull << 40);
  CHECK(c.sandbox.shm_bytes == 65'536);
  CHECK(c.sandbox.log_bytes == 1'048'576);
  CHECK(c.sandbox.open_files == 1024);
  CHECK(c.image.default_name == "bookworm");
  CHECK(c.image.available == std::vector<std::string>{"tiny", "node-22.1"});
  CHECK(c.image.replaces_unknown);
  CHECK_FALSE(c.network.allow_all);
  CHECK(c.network.allow_private == std::vector<std::string>{"10.1.0.0/16", "fd00:1::/32"});
  CHECK(c.network.resolvers == std::vector<std::string>{"9.9.9.9", "2620:fe::9"});
  CHECK(c.buckets.driver == "rclone");
  CHECK(c.buckets.cache_bytes == 1ull << 30);
  CHECK(c.buckets.credentials_for ==
        std::vector<std::string>{"https://s3.example.com", "http://10.0.0.1:9000"});
  REQUIRE(c.buckets.bindings.size() == 2);
  const auto& data = c.buckets.bindings.at("DATA");
  CHECK(data.endpoint == "https://s3.example.com");
  CHECK(data.bucket == "my-data");
  CHECK(data.read_only);
  CHECK(data.credentials == bucket_credentials{"k3y", "s3cret"});
  const auto& other = c.buckets.bindings.at("_2");
  CHECK(other.endpoint == "http://[::1]:9000");
  CHECK(other.bucket == "b.2");
  CHECK_FALSE(other.read_only);
  CHECK_FALSE(other.credentials);
  CHECK_FALSE(c.buckets.credentials);
  CHECK(c.snapshots.directory.empty());
  CHECK(c.snapshots.endpoint == "https://s3.example.com");
  CHECK(c.snapshots.bucket == "kept");
  CHECK(c.snapshots.region == "eu-1");
  CHECK(c.snapshots.interval == 30s);
  CHECK(c.snapshots.all);
  CHECK_FALSE(c.snapshots.credentials);
  CHECK(c.preview.domain == "preview.example");
  CHECK(c.preview.is_public);
  CHECK(c.pool.target == 3);
  CHECK(c.pool.refresh_interval == 500ms);
  CHECK(c.pool.scale_batch_size == 20);
  CHECK(c.default_session);
  CHECK(c.secrets.key_file == "/etc/insula/secrets.key");
  CHECK(key_file_of_secrets(c) == "/etc/insula/secrets.key");
  CHECK(c.oidc.key_file == "/etc/insula/oidc.json");
  CHECK(key_file_of_tokens(c) == "/etc/insula/oidc.json");
  CHECK(c.oidc.issuer == "https://a.example:8443/b/c_1");
  CHECK(c.oidc.token_lifetime == 1h);
  CHECK(c.log_level == log::level::debug);
}

TEST_CASE("files of keys are in the state directory unless they are named", "[apps][config]") {
  CHECK(key_file_of_secrets(config{}) == "/var/lib/insula/secrets.key");
  CHECK(key_file_of_tokens(config{}) == "/var/lib/insula/oidc-keys.json");
  const auto moved = load_config(std::nullopt, {}, {.state_directory = "here"});
  REQUIRE(moved);
  CHECK(key_file_of_secrets(*moved) == "here/secrets.key");
  CHECK(key_file_of_tokens(*moved) == "here/oidc-keys.json");
}

TEST_CASE("an issuer is a URL whose last word can be a part of a path", "[apps][config]") {
  for (const auto* good : {"https://oidc.vercel.com/acme", "https://a/b", "https://[::1]:443/b",
                           "https://a.example/b/c/d-e_f.g~1"}) {
    CAPTURE(good);
    CHECK(loaded(std::string{"oidc: {issuer: \""} + good + "\"}").oidc.issuer == good);
  }
  for (const auto* bad :
       {"\"\"", "\"https://\"", "https://a.example", "https://a.example/", "https://a.example/b/",
        "https://a.example//b", "http://a.example/b", "https://a.example/b?c",
        "\"https://a.example/b#c\"", "https://a.example/..", "https://a.example/b/../c",
        "https://a.example/%62", "https://a.example/:id", "\"https://a.example/*\"", "https:///b",
        "https://a b/c", "https://u@a.example/b", "https://a.example:0/b"}) {
    CAPTURE(bad);
    CHECK(expected_of("oidc.issuer", bad).starts_with("an https URL of at most 255 characters"));
  }
  const auto longest = "https://a.example/" + std::string(255 - 18, 'b');
  CHECK(loaded("oidc: {issuer: " + longest + "}").oidc.issuer == longest);
  CHECK_FALSE(expected_of("oidc.issuer", longest + "b").empty());
}

TEST_CASE("an empty file, and empty sections, leave the defaults", "[apps][config]") {
  CHECK(loaded("") == config{});
  CHECK(loaded("# nothing\n") == config{});
  CHECK(loaded("---\nsandbox:\n  limits:\nlog:\n") == config{});
  CHECK(loaded("buckets:\n  bindings:\n") == config{});
}

TEST_CASE("durations have units", "[apps][config]") {
  const auto idle = [](const std::string& text) {
    return loaded("sandbox: {freeze_after: " + text + "}").sandbox.freeze_after;
  };
  CHECK(idle("500ms") == 500ms);
  CHECK(idle("30s") == 30s);
  CHECK(idle("10m") == 10min);
  CHECK(idle("2h") == 2h);
  CHECK(idle("0s") == 0s);
}

TEST_CASE("a wrong value is answered with what was expected", "[apps][config]") {
  const auto [path, value, expected] = GENERATE(table<std::string, std::string, std::string>({
    {"server.execd_listen", "44772",
     "\"\", or an address and a port such as 127.0.0.1:44772 or [::1]:44772, got \"44772\""},
    {"server.metrics_listen", "9464",
     "\"\", or an address and a port such as 127.0.0.1:9464 or [::1]:9464, got \"9464\""},
    {"server.listen", "8787",
     "an address and a port such as 127.0.0.1:8787 or [::1]:8787, got \"8787\""},
    {"server.listen", "localhost:8787",
     "an address and a port such as 127.0.0.1:8787 or [::1]:8787, got \"localhost:8787\""},
    {"server.listen", "127.0.0.1:65536",
     "an address and a port such as 127.0.0.1:8787 or [::1]:8787, got \"127.0.0.1:65536\""},
    {"server.listen", "::1:8787",
     "an address and a port such as 127.0.0.1:8787 or [::1]:8787, got \"::1:8787\""},
    {"server.allow_open", "yes", "true or false, got \"yes\""},
    {"server.api_key", "two words", "at most 4096 printable ASCII characters without spaces"},
    {"server.api_key", "", "at most 4096 printable ASCII characters without spaces"},
    {"server.allowed_hosts", "a", "a list of names such as [insula.example], got \"a\""},
    {"server.allowed_hosts", "", "a list of names such as [insula.example], got nothing"},
    {"server.allowed_hosts", "[a, 'b:80']",
     "a list of names such as [insula.example], got \"b:80\" in it"},
    {"server.allowed_hosts", "[[a]]", "a list of names such as [insula.example], got a list in it"},
    {"server.threads", "0", "a whole number from 1 to 256, got \"0\""},
    {"server.threads", "-1", "a whole number from 1 to 256, got \"-1\""},
    {"server.threads", "2.5", "a whole number from 1 to 256, got \"2.5\""},
    {"server.max_connections", "99999999999",
     "a whole number from 1 to 1000000, got \"99999999999\""},
    {"server.tls.certificate", "cert.pem", "an absolute path or \"\", got \"cert.pem\""},
    {"server.tls.key", "[a, b]", "an absolute path or \"\", got a list"},
    {"state.directory", "\"\"", "an absolute path, got \"\""},
    {"state.directory", "", "an absolute path, got nothing"},
    {"state.user", "1879048192",
     "a user's name, root or a uid below 1879048192, got \"1879048192\""},
    {"state.user", "Not A User",
     "a user's name, root or a uid below 1879048192, got \"Not A User\""},
    {"runtime.first_slot", "36863", "a whole number from 0 to 36862, got \"36863\""},
    {"runtime.slots", "0", "a whole number from 1 to 36863, got \"0\""},
    {"runtime.disk.backend", "zfs", "auto, btrfs or tmpfs, got \"zfs\""},
    {"runtime.disk.pool", "2048TiB", "a size from 0 to 1024TiB, got \"2048TiB\""},
    {"sandbox.max_instances", "many", "a whole number from 1 to 36863, got \"many\""},
    {"sandbox.freeze_after", "10", "a duration such as 500ms, 30s, 10m or 2h, got \"10\""},
    {"sandbox.freeze_after", "10 m", "a duration such as 500ms, 30s, 10m or 2h, got \"10 m\""},
    {"sandbox.stop_after", "9000h", "a duration from 0 to 8760h, got \"9000h\""},
    {"sandbox.idle_timeout", "9000h", "a duration from 0 to 8760h, got \"9000h\""},
    {"sandbox.seccomp_filters", "1", "true or false, got \"1\""},
    {"sandbox.privileges", "root", "none or sudo, got \"root\""},
    {"sandbox.allow_sudo", "yes", "true or false, got \"yes\""},
    {"sandbox.limits.memory", "lots", "a size such as 2GiB, got \"lots\""},
    {"sandbox.limits.memory", "2GB", "a size such as 2GiB, got \"2GB\""},
    {"sandbox.limits.memory", "GiB", "a size such as 2GiB, got \"GiB\""},
    {"sandbox.limits.memory", "99999999999GiB", "a size such as 2GiB, got \"99999999999GiB\""},
    {"sandbox.limits.memory", "", "a size such as 2GiB, got nothing"},
    {"sandbox.limits.memory", "{max: 2GiB}", "a size such as 2GiB, got a section"},
    {"sandbox.limits.memory", "1MiB", "a size from 16MiB to 64TiB, got \"1MiB\""},
    {"sandbox.limits.cpus", "-1",
     "a number of CPUs from 0.01 to 4096, such as 2 or 0.5, or 0 for no limit, got \"-1\""},
    {"sandbox.limits.cpus", "inf",
     "a number of CPUs from 0.01 to 4096, such as 2 or 0.5, or 0 for no limit, got \"inf\""},
    {"sandbox.limits.cpus", "0.009",
     "a number of CPUs from 0.01 to 4096, such as 2 or 0.5, or 0 for no limit, got \"0.009\""},
    {"sandbox.limits.cpus", "5000",
     "a number of CPUs from 0.01 to 4096, such as 2 or 0.5, or 0 for no limit, got \"5000\""},
    {"sandbox.limits.processes", "1", "a whole number from 8 to 4194304, or 0, got \"1\""},
    {"sandbox.limits.processes", "-1", "a whole number from 8 to 4194304, or 0, got \"-1\""},
    {"sandbox.limits.disk", "0", "a size from 1MiB to 1024TiB, got \"0\""},
    {"sandbox.limits.shm", "1KiB", "a size from 64KiB to 64TiB, got \"1KiB\""},
    {"sandbox.limits.log", "64KiB", "a size from 1MiB to 1TiB, got \"64KiB\""},
    {"sandbox.limits.kept_logs", "2TiB", "a size from 0 to 1TiB, got \"2TiB\""},
    {"node.kept_logs", "65TiB", "a size from 0 to 64TiB, got \"65TiB\""},
    {"sandbox.limits.open_files", "2000000", "a whole number from 64 to 1048576, got \"2000000\""},
    {"sandbox.limits", "2GiB", "a section, got \"2GiB\""},
    {"sandbox", "[limits]", "a section, got a list"},
    {"image.default", "debian:12",
     "host or the name of an imported image: at most 63 of a-z, 0-9, '.', '_' and '-', got "
     "\"debian:12\""},
    {"image.default", "../host",
     "host or the name of an imported image: at most 63 of a-z, 0-9, '.', '_' and '-', got "
     "\"../host\""},
    {"image.available", "[bookworm, /etc]",
     "a list of names of imported images such as [bookworm], got \"/etc\" in it"},
    {"image.unknown", "replace", "refuse or default, got \"replace\""},
    {"network.default", "open", "allow-all or deny-all, got \"open\""},
    {"network.allow_private", "[example.org]",
     "a list of subnets such as [10.1.0.0/16, fd00:1::/32], got \"example.org\" in it"},
    {"network.resolvers", "[resolver.example]",
     "a list of addresses such as [9.9.9.9], got \"resolver.example\" in it"},
    {"buckets.driver", "goofys", "s3fs or rclone, got \"goofys\""},
    {"buckets.driver", "", "s3fs or rclone, got nothing"},
    {"buckets.cache", "32MiB", "a size from 64MiB to 64GiB, got \"32MiB\""},
    {"buckets.credentials_for", "[s3.example.com]",
     "a list of http or https URLs without a path such as [https://s3.example.com], got "
     "\"s3.example.com\" in it"},
    {"buckets.credentials_for", "[\"https://*.example.com\"]",
     "a list of http or https URLs without a path such as [https://s3.example.com], got "
     "\"https://*.example.com\" in it"},
    {"sandbox.env", "[A]",
     "a section of variables with their values, such as {http_proxy: "
     "\"http://proxy.example:3128\"}, got a list"},
    {"buckets.bindings", "[DATA]",
     "a section of buckets by name, such as {DATA: {endpoint: \"https://s3.example.com\", bucket: "
     "my-data}}, got a list"},
    {"buckets.bindings", "{2nd: {}}",
     "names of letters, digits and '_' that begin with no digit, got \"2nd\""},
    {"buckets.bindings", "{my-data: {}}",
     "names of letters, digits and '_' that begin with no digit, got \"my-data\""},
    {"buckets.bindings", "{? [a] : {}}",
     "names of letters, digits and '_' that begin with no digit, got a list"},
    {"snapshots.directory", "here", "an absolute path or \"\", got \"here\""},
    {"snapshots.endpoint", "10.0.0.1:9000",
     "\"\", or an http or https URL without a path, such as http://10.77.0.1:9000, got "
     "\"10.0.0.1:9000\""},
    {"snapshots.bucket", "A",
     "a bucket's name: at most 63 of a-z, 0-9, '.' and '-', with a letter or digit at both ends, "
     "got \"A\""},
    {"snapshots.region", "us east",
     "a region's name such as us-east-1: at most 63 of a-z, 0-9 and '-', got \"us east\""},
    {"snapshots.interval", "25h", "a duration from 0 to 24h, got \"25h\""},
    {"snapshots.all", "yes", "true or false, got \"yes\""},
    {"secrets.key_file", "secrets.key", "an absolute path or \"\", got \"secrets.key\""},
    {"oidc.key_file", "[]", "an absolute path or \"\", got a list"},
    {"oidc.token_lifetime", "59s", "a duration from 1m to 24h, got \"59s\""},
    {"oidc.token_lifetime", "25h", "a duration from 1m to 24h, got \"25h\""},
    {"preview.domain", "[a]", "a name such as preview.example, got a list"},
    {"preview.public", "maybe", "true or false, got \"maybe\""},
    {"pool.target", "-3", "a whole number from 0 to 36863, got \"-3\""},
    {"pool.refresh_interval", "10ms", "a duration from 100ms to 1h, got \"10ms\""},
    {"pool.scale_batch_size", "21", "a whole number from 1 to 20, got \"21\""},
    {"bridge.default_session", "sometimes", "true or false, got \"sometimes\""},
    {"log.level", "trace", "debug, info, warning or error, got \"trace\""},
  }));
  CAPTURE(path, value);
  CHECK(expected_of(path, value) == expected);
}

TEST_CASE("a mistake is found in its line", "[apps][config]") {
  CHECK(
    mistake("# one\nserver:\n  threads: 2\n\nsandbox:\n  limits:\n    # two\n    memory: lots\n") ==
    "cluster.yaml:8: sandbox.limits.memory: expected a size such as 2GiB, got \"lots\"");
}

TEST_CASE("a bucket that is described wrongly is refused, and its secret not repeated",
          "[apps][config]") {
  const std::string good = "endpoint: http://s3, bucket: b";
  const auto line = [](const std::string& members) {
    return mistake("buckets:\n  bindings:\n    D: {" + members + "}\n");
  };
  const std::string here = "cluster.yaml:3: buckets.bindings.D";
  CHECK(
    mistake("buckets: {bindings: {D: }}") ==
    "cluster.yaml:1: buckets.bindings.D: expected a section with endpoint and bucket, got nothing");
  CHECK(line("bucket: b") == here + ": expected an endpoint");
  CHECK(line("endpoint: http://s3") == here + ": expected a bucket");
  CHECK(line(good + ", access_key_id: a") ==
        here + ": expected both access_key_id and secret_access_key, or neither");
  CHECK(line(good + ", secret_access_key: a") ==
        here + ": expected both access_key_id and secret_access_key, or neither");
  CHECK(line(good + ", region: eu") ==
        here + ".region: no such key; a binding has endpoint, bucket, access_key_id, "
               "secret_access_key and read_only");
  CHECK(line(good + ", bucket: c") == here + ".bucket: given twice, first in line 3");
  CHECK(line(good + ", [a]: c") == "cluster.yaml:3: expected a key, got a list");
  CHECK(line(good + ", read_only: 1") == here + ".read_only: expected true or false, got \"1\"");
  CHECK(mistake("buckets:\n  bindings:\n    D: {" + good + "}\n    D: {" + good + "}\n") ==
        "cluster.yaml:4: buckets.bindings.D: given twice, first in line 3");
  const std::string printed = "expected 1 to 4096 printable ASCII characters without spaces";
  for (const std::string value : {"\"\"", "'two words'", "\"a\\nb\"", "[s3cret]", ""}) {
    CHECK(line(good + ", secret_access_key: " + value) == here + ".secret_access_key: " + printed);
    CHECK(line(good + ", access_key_id: " + value) == here + ".access_key_id: " + printed);
  }
  for (const std::string url : {"s3.example.com", "ftp://s3", "HTTP://s3", "http://", "https:///",
                                "http://s3/path", "http://s3//", "http://s3?a", "http://k:s@s3",
                                "http://s3:0", "http://s3:", "http://s3:99999", "http://[::g]",
                                "http://::1", "http://a b", "https://a_b#c"})
    CHECK(line("bucket: b, endpoint: \"" + url + "\"") ==
          here +
            ".endpoint: expected an http or https URL without a path, such as "
            "https://s3.example.com, got \"" +
            url + "\"");
  const std::string too_long(64, 'a');
  for (const auto& name : std::vector<std::string>{"", "-b", "b-", "B", "a:b", "a/b", too_long})
    CHECK(line("endpoint: http://s3, bucket: \"" + name + "\"") ==
          here +
            ".bucket: expected a bucket's name: at most 63 of a-z, 0-9, '.' and '-', with a "
            "letter or digit at both ends, got \"" +
            name + "\"");
}

TEST_CASE("a file with secrets that others can read is known as that", "[apps][config]") {
  const temp_dir dir;
  const auto file = (dir / "cluster.yaml").string();
  const auto exposed = [&](const std::string& text, mode_t mode) {
    std::ofstream{file} << text;
    REQUIRE(::chmod(file.c_str(), mode) == 0);
    // Those of the environment do not stand in the file.
    const auto values = load_config(
      file, {{"SANDBOX_API_KEY", "k"}, {"AWS_ACCESS_KEY_ID", "k"}, {"AWS_SECRET_ACCESS_KEY", "s"}});
    REQUIRE(values);
    return values->exposed_file;
  };
  const std::string secret =
    "buckets: {bindings: {D: {endpoint: http://s3, bucket: b, access_key_id: k, "
    "secret_access_key: s}}}";
  CHECK(exposed(secret, 0600).empty());
  CHECK(exposed(secret, 0640) == file);
  CHECK(exposed(secret, 0604) == file);
  CHECK(exposed("server: {api_key: k}", 0644) == file);
  CHECK(exposed("server: {api_key: \"\"}", 0644).empty());
  CHECK(exposed("keys: {ci: {key: k1}}", 0644) == file);
  CHECK(exposed("buckets: {bindings: {D: {endpoint: http://s3, bucket: b}}}", 0644).empty());
}

TEST_CASE("an unknown key is told the nearest known one", "[apps][config]") {
  CHECK(mistake("sandbox:\n  limits:\n    memroy: 2GiB\n") ==
        "cluster.yaml:3: sandbox.limits.memroy: no such key; the nearest is sandbox.limits.memory");
  CHECK(mistake("memory: 2GiB\n") ==
        "cluster.yaml:1: memory: no such key; the nearest is sandbox.limits.memory");
  CHECK(mistake("sandboxes:\n  max_instances: 1\n") ==
        "cluster.yaml:1: sandboxes: no such key; the nearest is sandbox");
  CHECK(mistake("server:\n  port: 1\n  Listen: 127.0.0.1:1\n") ==
        "cluster.yaml:2: server.port: no such key; the nearest is server.tls");
  CHECK(mistake("server:\n  Listen: 127.0.0.1:1\n") ==
        "cluster.yaml:2: server.Listen: no such key; the nearest is server.listen");
}

TEST_CASE("a key that is given twice is refused", "[apps][config]") {
  CHECK(mistake("log:\n  level: info\n  level: debug\n") ==
        "cluster.yaml:3: log.level: given twice, first in line 2");
  CHECK(mistake("log:\n  level: info\nlog:\n  level: info\n") ==
        "cluster.yaml:3: log: given twice, first in line 1");
}

TEST_CASE("a key that has another name now is understood, but not beside it", "[apps][config]") {
  const auto before = loaded("sandbox: {idle_timeout: 20m}").sandbox;
  CHECK(before.stop_after == 20min);
  CHECK(before.freeze_after == 10min);
  CHECK(loaded("sandbox: {idle_timeout: 0}").sandbox.stop_after == 0ms);
  CHECK(mistake("sandbox:\n  stop_after: 1h\n  idle_timeout: 10m\n") ==
        "cluster.yaml:3: sandbox.idle_timeout: is the same as sandbox.stop_after, which stands in "
        "line 2");
  CHECK(mistake("sandbox:\n  idle_timeout: 10m\n  stop_after: 1h\n") ==
        "cluster.yaml:3: sandbox.stop_after: given twice, first in line 2");
}

TEST_CASE("what is not a configuration at all is refused", "[apps][config]") {
  CHECK(mistake("- a\n- b\n") == "cluster.yaml:1: expected sections such as server:, got a list");
  CHECK(mistake("hello\n") == "cluster.yaml:1: expected sections such as server:, got \"hello\"");
  CHECK(mistake("log: {level: info}\n---\nlog: {level: info}\n") ==
        "cluster.yaml: expected one YAML document, got more");
  CHECK(mistake("log:\n  [a, b]: 1\n") == "cluster.yaml:2: expected a key, got a list");
  CHECK(mistake("log:\n  level: [info\nserver:\n") ==
        "cluster.yaml:3: not YAML: end of sequence flow not found");
  for (const std::string text :
       {"log:\n\tlevel: info\n", "log:\n \tlevel: info\n", "log:\n  \tlevel: info\n  level: info\n",
        "server:\n\t- a\n", "log:\n-\tlevel: info\n"})
    CHECK(mistake(text) ==
          "cluster.yaml:2: not YAML: a tab indents this line, and only blanks may do that");
  // Elsewhere, a tab is none of YAML's business.
  CHECK(mistake("log:\n  level:\t[info\nserver:\n") ==
        "cluster.yaml:3: not YAML: end of sequence flow not found");
  CHECK(mistake("log:\t# a tab\n  level:\tloud\t\n").starts_with("cluster.yaml:2: log.level:"));
  CHECK(mistake(std::string(2'000'000, '#')) ==
        "cluster.yaml: expected at most 1MiB of configuration");
}

TEST_CASE("a file that cannot be read is an error, not the defaults", "[apps][config]") {
  const auto none = load_config("/no/such/cluster.yaml", {});
  REQUIRE_FALSE(none);
  CHECK(none.reason().code == errc::io_failed);
  CHECK(none.reason().message ==
        "/no/such/cluster.yaml: cannot be read: No such file or directory");
  const temp_dir dir;
  const auto directory = load_config(dir.path().string(), {});
  REQUIRE_FALSE(directory);
  CHECK(directory.reason().message == dir.path().string() + ": cannot be read: Is a directory");
}

TEST_CASE("an open node wants a key or to be told that it is open on purpose", "[apps][config]") {
  const std::string why =
    "server.listen: others can reach this address and no key is asked for; set "
    "server.api_key (or SANDBOX_API_KEY), or server.allow_open to true";
  CHECK(mistake("server:\n  listen: 0.0.0.0:8787\n") == "cluster.yaml:2: " + why);
  CHECK(mistake("server:\n  listen: \"[::]:8787\"\n") == "cluster.yaml:2: " + why);
  CHECK(loaded("server: {listen: 127.0.0.2:80}").server.listen == endpoint{"127.0.0.2", 80});
  CHECK(loaded("server: {listen: \"[::1]:80\"}").server.listen == endpoint{"::1", 80});
  CHECK(loaded("server: {listen: 0.0.0.0:80, api_key: k}").server.api_key == "k");
  CHECK(loaded("server: {listen: 0.0.0.0:80, allow_open: true}").server.allow_open);
  CHECK(loaded("server: {listen: 0.0.0.0:80}", {{"SANDBOX_API_KEY", "k"}}).server.api_key == "k");

  config changed; // As by the command line, after the file was read.
  changed.server.listen.address = "0.0.0.0";
  const auto good = check(changed);
  REQUIRE_FALSE(good);
  CHECK(good.reason().message == why);
  CHECK(check(config{}));
}

TEST_CASE("a listener for figures alone is for this machine, or asks for the key",
          "[apps][config]") {
  const std::string line = "cluster.yaml:2: server.metrics_listen: ";
  const std::string open = line + "others can reach this address and no key is asked for; set "
                                  "server.api_key (or SANDBOX_API_KEY), or server.allow_open to "
                                  "true, or listen on this machine alone";
  const auto at = [](const std::string& more) {
    return loaded("server: {metrics_listen: " + more + "}").server.metrics_listen;
  };
  CHECK(mistake("server:\n  metrics_listen: 0.0.0.0:9464\n") == open);
  CHECK(mistake("server:\n  metrics_listen: 127.0.0.1:8787\n") ==
        line + "server.listen is there already, and has /metrics too");
  CHECK_FALSE(at("\"\""));
  CHECK(at("127.0.0.1:9464") == endpoint{"127.0.0.1", 9464});
  CHECK(at("0.0.0.0:9464, api_key: k") == endpoint{"0.0.0.0", 9464});
  CHECK(at("0.0.0.0:9464, allow_open: true") == endpoint{"0.0.0.0", 9464});
  CHECK(at("127.0.0.1:0, listen: 127.0.0.1:0"));
}

TEST_CASE("values that do not go together are refused", "[apps][config]") {
  CHECK(mistake("server:\n  tls:\n    certificate: /c.pem\n") ==
        "cluster.yaml:3: server.tls.certificate: expected both server.tls.certificate and "
        "server.tls.key, or neither");
  CHECK(mistake("server:\n  tls:\n    key: /k.pem\n") ==
        "server.tls.certificate: expected both server.tls.certificate and server.tls.key, or "
        "neither");
  CHECK(
    mistake("runtime:\n  first_slot: 36000\n  slots: 1000\n") ==
    "cluster.yaml:3: runtime.slots: expected runtime.first_slot and runtime.slots to be at most "
    "36863 together");
  CHECK(loaded("runtime: {first_slot: 35863, slots: 1000}").runtime.first_slot == 35'863);
  CHECK(mistake("sandbox:\n  privileges: sudo\n  allow_sudo: false\n") ==
        "cluster.yaml:2: sandbox.privileges: sudo needs sandbox.allow_sudo: true");
  CHECK(mistake("sandbox:\n  max_instances: 5000\n") ==
        "cluster.yaml:2: sandbox.max_instances: expected at most runtime.slots, since each sandbox "
        "needs one");
}

TEST_CASE("the environment wins over the file", "[apps][config]") {
  const std::string file = R"(
server: {api_key: of the file's own}
)";
  CHECK(mistake(file) == "cluster.yaml:2: server.api_key: expected at most 4096 printable ASCII "
                         "characters without spaces");
  const auto c = loaded("server: {api_key: file}\npool: {target: 1}\nsandbox: {max_instances: 9}\n",
                        {{"SANDBOX_API_KEY", "env"},
                         {"WARM_POOL_TARGET", "7"},
                         {"WARM_POOL_REFRESH_INTERVAL", "2500"},
                         {"WARM_POOL_MAX_INSTANCES", "20"},
                         {"WARM_POOL_SCALE_BATCH_SIZE", "6"},
                         {"PATH", "/bin"}});
  CHECK(c.server.api_key == "env");
  CHECK(c.pool.target == 7);
  CHECK(c.pool.refresh_interval == 2500ms);
  CHECK(c.sandbox.max_instances == 20);
  CHECK(c.pool.scale_batch_size == 6);

  CHECK(loaded("server: {api_key: file}", {{"SANDBOX_API_KEY", ""}}).server.api_key == "file");
  CHECK(mistake("", {{"SANDBOX_API_KEY", "a\nb"}}) ==
        "SANDBOX_API_KEY: expected at most 4096 printable ASCII characters without spaces");
}

TEST_CASE("credentials for buckets are a pair of the environment", "[apps][config]") {
  const auto taken = [](const environment& env) {
    const auto values = load_config(std::nullopt, env);
    REQUIRE(values);
    const auto& found = values->buckets.credentials;
    return found ? found->access_key_id + ":" + found->secret_access_key : "none";
  };
  environment env{{"R2_ACCESS_KEY_ID", "r"}, {"R2_SECRET_ACCESS_KEY", "2"}};
  CHECK(taken({}) == "none");
  CHECK(taken({{"AWS_ACCESS_KEY_ID", "a"}}) == "none");
  CHECK(taken({{"AWS_ACCESS_KEY_ID", "a"}, {"AWS_SECRET_ACCESS_KEY", ""}}) == "none");
  CHECK(taken({{"AWS_ACCESS_KEY_ID", "a"}, {"R2_SECRET_ACCESS_KEY", "2"}}) == "none");
  CHECK(taken(env) == "r:2");
  env["AWS_SECRET_ACCESS_KEY"] = "w=:/+s";
  CHECK(taken(env) == "r:2");
  env["AWS_ACCESS_KEY_ID"] = "a";
  CHECK(taken(env) == "a:w=:/+s");
  env["AWS_SECRET_ACCESS_KEY"] = "a s3cret";
  CHECK(mistake("", env) == "AWS_SECRET_ACCESS_KEY: expected 1 to 4096 printable ASCII characters "
                            "without spaces");
}

TEST_CASE("snapshots go to one place, whose credentials are in the environment", "[apps][config]") {
  CHECK(
    mistake("snapshots:\n  directory: /a\n  endpoint: http://s3\n  bucket: b\n") ==
    "cluster.yaml:2: snapshots.directory: expected either this or snapshots.endpoint, not both");
  CHECK(mistake("snapshots:\n  endpoint: http://s3\n") ==
        "snapshots.bucket: expected both snapshots.endpoint and snapshots.bucket, or neither");
  CHECK(mistake("snapshots:\n  bucket: b\n") ==
        "cluster.yaml:2: snapshots.bucket: expected both snapshots.endpoint and snapshots.bucket, "
        "or neither");
  CHECK(loaded("snapshots:\n  all: true\n").snapshots.all); // Their disks, on this node.
  CHECK(loaded("snapshots: {directory: /a, all: true, interval: 0}").snapshots.interval == 0s);
  const environment env{{"SNAPSHOTS_ACCESS_KEY_ID", "k"}, {"SNAPSHOTS_SECRET_ACCESS_KEY", "s"}};
  const auto values = loaded("snapshots: {endpoint: \"http://s3\", bucket: b}", env);
  CHECK(values.snapshots.credentials == bucket_credentials{"k", "s"});
  CHECK_FALSE(values.buckets.credentials);
  CHECK(mistake("", {{"SNAPSHOTS_ACCESS_KEY_ID", "a b"}, {"SNAPSHOTS_SECRET_ACCESS_KEY", "s"}}) ==
        "SNAPSHOTS_ACCESS_KEY_ID: expected 1 to 4096 printable ASCII characters without spaces");
}

TEST_CASE("numbers in the environment are read as C reads them", "[apps][config]") {
  const auto size = [](const std::string& text) {
    return load_config(std::nullopt, {{"WARM_POOL_SCALE_BATCH_SIZE", text}})->pool.scale_batch_size;
  };
  CHECK(size("12abc") == 12);
  CHECK(size("  +3.9") == 3);
  CHECK(size("50") == 20);
  CHECK(size("99999999999999999999") == 20);
  for (const auto* nothing : {"", "0", "abc", "-4", "0x10"})
    CHECK(size(nothing) == 5);
  const auto target = load_config(std::nullopt, {{"WARM_POOL_TARGET", "99999999999999999999"}});
  REQUIRE(target);
  CHECK(target->pool.target == 36'863);
  const auto interval = load_config(std::nullopt, {{"WARM_POOL_REFRESH_INTERVAL", "1"}});
  REQUIRE(interval);
  CHECK(interval->pool.refresh_interval == 100ms);
}

TEST_CASE("a cluster is one file for all nodes, and each is told which one it is",
          "[apps][config]") {
  const std::string two = "cluster:\n"
                          "  etcd: {endpoints: [\"http://10.0.0.1:2379\"]}\n"
                          "  authority: /pki/ca.crt\n"
                          "  certificate: /pki/{node}.crt\n"
                          "  key: /pki/{node}.key\n"
                          "  nodes:\n"
                          "    n1: {internal: \"10.0.0.1:1\", link: \"10.0.0.1:2\", state: /s1}\n"
                          "    n2: {internal: \"10.0.0.2:1\", link: \"10.0.0.2:2\", "
                          "listen: \"127.0.0.1:9\", first_slot: 100}\n";
  const auto load_as = [](const std::string& text, const std::optional<std::string>& node) {
    const written file{text};
    return load_config("cluster.yaml", {}, {.node = node});
  };
  const auto nowhere = load_as("snapshots:\n  all: true\n" + two, "n2");
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.reason().message ==
        "cluster.yaml:2: snapshots.all: expected snapshots.directory or snapshots.endpoint, where "
        "they are to be");
  const auto second = load_as(two, "n2");
  REQUIRE(second);
  CHECK(second->cluster.self == "n2");
  CHECK(second->cluster.certificate == "/pki/n2.crt");
  CHECK(second->cluster.key == "/pki/n2.key");
  CHECK(second->server.listen == endpoint{"127.0.0.1", 9});
  CHECK(second->runtime.first_slot == 100);
  CHECK(second->cluster.nodes.at("n1").link == endpoint{"10.0.0.1", 2});
  CHECK(load_as(two, "n1")->state.directory == "/s1");

  CHECK(load_as(two, std::nullopt).reason().message ==
        "the configuration is that of a cluster: say by --node which of its nodes this is: n1, n2");
  CHECK(load_as(two, "n3").reason().message ==
        "--node: there is no node \"n3\" in cluster.nodes, only n1, n2");
  CHECK(load_as("", "n1").reason().message == "--node: the configuration has no cluster.nodes");

  const auto wrong = [&](const std::string& nodes) {
    return load_as("cluster:\n  nodes:\n    " + nodes + "\n", "n1").reason().message;
  };
  CHECK(wrong("n1: {internal: \"10.0.0.1:1\"}") ==
        "cluster.yaml:3: cluster.nodes.n1: expected both internal and link");
  CHECK(wrong("n1: {internal: \"0.0.0.0:1\"}") ==
        "cluster.yaml:3: cluster.nodes.n1.internal: expected an address that the others can reach, "
        "such as 10.0.0.1:8788, got \"0.0.0.0:1\"");
  CHECK(wrong("n1: {port: 1}") ==
        "cluster.yaml:3: cluster.nodes.n1.port: no such key; a node has internal, link, listen, "
        "state and first_slot");
  CHECK(wrong("N1: {}").starts_with("cluster.yaml:3: cluster.nodes: expected names of a-z"));
  const std::string one = "n1: {internal: \"10.0.0.1:1\", link: \"10.0.0.1:2\"}";
  CHECK(wrong(one + "\n    " + one) ==
        "cluster.yaml:4: cluster.nodes.n1: given twice, first in line 3");
  CHECK(wrong(one) == "cluster.etcd.endpoints: a cluster needs etcd: expected its endpoints, such "
                      "as [http://10.0.0.1:2379]");
}

TEST_CASE("keys whose values differ are named, whatever they are written like", "[config]") {
  const auto base = loaded("server: {api_key: k, allow_open: true}\nsandbox: {stop_after: 60m}");
  const auto changes = [&](const std::string& text) { return changed_keys(base, loaded(text)); };
  CHECK(changes("server: {allow_open: true, api_key: k}\nsandbox: {idle_timeout: 1h}").empty());
  using names = std::vector<std::string>;
  CHECK(changes("server: {api_key: other}\nsandbox: {stop_after: 1h}\nlog: {level: debug}") ==
        names{"server.allow_open", "server.api_key", "log.level"});
  CHECK(changes("server: {api_key: k, allow_open: true}\nnetwork: {resolvers: [9.9.9.9]}\n"
                "buckets: {bindings: {DATA: {endpoint: \"https://s3.example.com\", bucket: b}}}") ==
        names{"sandbox.stop_after", "network.resolvers", "buckets.bindings"});
  const auto with_bucket = [](const std::string& more) {
    return loaded("buckets: {bindings: {DATA: {endpoint: \"https://s3.example.com\", bucket: b" +
                  more + "}}}");
  };
  CHECK(changed_keys(with_bucket(""), with_bucket("")).empty());
  CHECK(changed_keys(with_bucket(""), with_bucket(", read_only: true")) ==
        names{"buckets.bindings"});
  // What the command line says goes before both.
  const config_origin typed{"f", {}, {.listen = "127.0.0.1:1"}};
  CHECK(changed_keys(*read_config(typed, {"server: {listen: \"127.0.0.1:2\"}"}),
                     *read_config(typed, {"server: {listen: \"127.0.0.1:3\"}"}))
          .empty());
}

TEST_CASE("variables for all sandboxes have names that programs can read", "[config]") {
  const auto values = loaded("sandbox:\n  env:\n    http_proxy: http://u:p@proxy:3128\n    _A1: 7\n"
                             "    LINES_: \"one\\ntwo\"\n    EMPTY: \"\"\n");
  using variables = std::map<std::string, std::string>;
  CHECK(mistake("sandbox: {env: {BARE: }}") ==
        "cluster.yaml:1: sandbox.env.BARE: expected a text without NUL");
  CHECK(values.sandbox.env == variables{{"http_proxy", "http://u:p@proxy:3128"},
                                        {"_A1", "7"},
                                        {"LINES_", "one\ntwo"},
                                        {"EMPTY", ""}});
  CHECK(loaded("sandbox: {env: }").sandbox.env.empty());
  const auto line = [](const std::string& members) {
    return mistake("sandbox:\n  env:\n    {" + members + "}\n");
  };
  const std::string here = "cluster.yaml:3: sandbox.env";
  for (const std::string name : {"2A", "a-b", "a.b", "\"a b\"", "\"\"", "\"A=B\"", "\"\\0\""})
    CHECK(line(name + ": x")
            .starts_with(here + ": expected names of letters, digits and '_' that begin with no"));
  for (const std::string name : {"HOME", "LOGNAME", "PATH", "SHELL", "USER"})
    CHECK(line(name + ": x") ==
          here + "." + name + ": is the sandbox's own, as its image and its user have it");
  CHECK(line("A: x, A: y") == here + ".A: given twice, first in line 3");
  for (const std::string value : {"[s3cret]", "{a: s3cret}", "\"s3cret\\0\""})
    CHECK(line("A: " + value) == here + ".A: expected a text without NUL");
  CHECK(line("A: " + std::string(16 * 1024, 'x')) ==
        here + ": expected at most 16KiB of names and values");
  CHECK(loaded("sandbox: {env: {A: " + std::string(16 * 1024 - 3, 'x') + "}}").sandbox.env.size() ==
        1);
}

TEST_CASE("named keys are read with all that they may and may have", "[apps][config]") {
  const auto c = loaded(R"(
server: {api_key: main}
keys:
  ci:
    key: k1
    apis: [vercel]
    teams: [me, them]
    projects: [tests]
    limits: {sandboxes: 10, vcpus: 2.5, creates_per_minute: 30}
  a-Key_2: {key: k2, apis: [bridge, opensandbox]}
)");
  REQUIRE(c.keys.size() == 2);
  CHECK(c.keys.at("ci") ==
        named_key_config{"k1", {"vercel"}, {"me", "them"}, {"tests"}, 10, 2.5, 30});
  CHECK(c.keys.at("a-Key_2") == named_key_config{"k2", {"bridge", "opensandbox"}, {}, {}, 0, 0, 0});
  CHECK(loaded("keys: {}").keys.empty());
  CHECK(loaded("keys:").keys.empty());
  CHECK(loaded("keys: {ci: {key: k}}", {{"SANDBOX_API_KEY", "main"}}).keys.at("ci").key == "k");
}

TEST_CASE("a mistake in a named key is told with its place, and no key is", "[apps][config]") {
  const auto [text, why] = GENERATE(table<std::string, std::string>({
    {"ci: {}",
     "keys.ci.key: expected 1 to 4096 printable ASCII characters without spaces, got none"},
    {"ci: secret", "keys.ci: expected a section with key"},
    {"ci: {key: a secret}",
     "keys.ci.key: expected 1 to 4096 printable ASCII characters without spaces"},
    {"ci: {key: [secret]}",
     "keys.ci.key: expected 1 to 4096 printable ASCII characters without spaces"},
    {"sec.ret: {key: k}", "keys: expected names of 1 to 63 of a-z, A-Z, 0-9, '_' and '-'"},
    {"ci: {key: k, api: [bridge]}",
     "keys.ci.api: no such key; a named key has key, apis, teams, projects and limits with "
     "sandboxes, vcpus and creates_per_minute"},
    {"ci: {key: k, apis: [console]}",
     "keys.ci.apis: expected a list of bridge, opensandbox and vercel, got \"console\""},
    {"ci: {key: k, apis: bridge}",
     "keys.ci.apis: expected a list of bridge, opensandbox and vercel, got \"bridge\""},
    {"ci: {key: k, apis: []}",
     "keys.ci.apis: expected a list of bridge, opensandbox and vercel, got a list"},
    {"ci: {key: k, apis: [vercel], projects: [a b]}",
     "keys.ci.projects: expected a list of names of 1 to 128 of a-z, A-Z, 0-9, '_' and '-', got "
     "\"a b\""},
    {"ci: {key: k, projects: [a]}",
     "keys.ci.projects: needs apis: [vercel], since the other APIs know none"},
    {"ci: {key: k, apis: [vercel, bridge], teams: [a]}",
     "keys.ci.teams: needs apis: [vercel], since the other APIs know none"},
    {"ci: {key: k, limits: 5}",
     "keys.ci.limits: expected a section with sandboxes, vcpus and creates_per_minute, got \"5\""},
    {"ci: {key: k, limits: {sandboxes: 0}}",
     "keys.ci.limits.sandboxes: expected a whole number from 1 to 1000000, got \"0\""},
    {"ci: {key: k, limits: {vcpus: -1}}",
     "keys.ci.limits.vcpus: expected a number of CPUs from 0.01 to 1000000, such as 8 or 0.5, got "
     "\"-1\""},
    {"ci: {key: k, limits: {creates: 1}}",
     "keys.ci.limits.creates: no such key; a named key has key, apis, teams, projects and limits "
     "with sandboxes, vcpus and creates_per_minute"},
    {"ci: {key: k}, ci: {key: l}", "keys.ci: given twice, first in line 2"},
    {"ci: {key: k, key: l}", "keys.ci.key: given twice, first in line 2"},
  }));
  CAPTURE(text);
  const auto told = mistake("server: {api_key: main}\nkeys: {" + text + "}");
  CHECK(told == "cluster.yaml:2: " + why);
  CHECK(told.find("secret") == std::string::npos);
}

TEST_CASE("the projects of the Vercel API may be listed", "[apps][config]") {
  CHECK(loaded("").vercel.projects.empty());
  CHECK(loaded("vercel: {projects: []}").vercel.projects.empty());
  CHECK(loaded("vercel: {projects: [tests, prj_2]}").vercel.projects ==
        std::vector<std::string>{"tests", "prj_2"});
  CHECK(mistake("vercel: {projects: [a b]}") ==
        "cluster.yaml:1: vercel.projects: expected a list of names of 1 to 128 of a-z, A-Z, 0-9, "
        "'_' and '-', got \"a b\" in it");
  CHECK(changed_keys(loaded("vercel: {projects: [a]}"), loaded("")) ==
        std::vector<std::string>{"vercel.projects"});
}

TEST_CASE("named keys stand beside a main one, and are different from each other",
          "[apps][config]") {
  CHECK(mistake("keys: {ci: {key: k}}") ==
        "cluster.yaml:1: keys: beside named keys there is a main one: set SANDBOX_API_KEY or "
        "server.api_key");
  const std::string same = "cluster.yaml:1: keys: two keys are the same, or one is "
                           "server.api_key; each has to be different from all others";
  CHECK(mistake("keys: {a: {key: k}, b: {key: k}}\nserver: {api_key: main}") == same);
  CHECK(mistake("keys: {a: {key: main}}\nserver: {api_key: main}") == same);
  CHECK(changed_keys(loaded("server: {api_key: m}\nkeys: {a: {key: k}}"),
                     loaded("server: {api_key: m}\nkeys: {a: {key: l}}")) ==
        std::vector<std::string>{"keys"});
}
