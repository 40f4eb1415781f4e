#include "storage/registry/allow.hpp"
#include "storage/registry/challenge.hpp"
#include "storage/registry/credentials.hpp"
#include "storage/registry/pull.hpp"
#include "storage/registry/reference.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/image_builder.hpp"
#include "tests/support/temp_dir.hpp"

using namespace insula;
using namespace insula::storage::registry;
using namespace insula::test;

namespace {

const std::string some_digest = "sha256:" + std::string(64, 'a');

std::string normal(const std::string& text) {
  const auto read = parse_reference(text);
  return read ? read->str() : read.reason().message;
}

bool allowed(const std::string& pattern, const std::string& image) {
  const auto read = parse_reference(image);
  REQUIRE(read);
  return allows({pattern}, *read);
}

credentials read(const std::string& json) {
  auto made = credentials::read(json);
  CAPTURE(json);
  if (!made)
    FAIL(made.reason().message);
  return *made;
}

credentials::found of(const credentials& all, const std::string& image) {
  return all.find(*parse_reference(image));
}

} // namespace

TEST_CASE("a reference is read as docker reads it", "[registry]") {
  const std::vector<std::pair<std::string, std::string>> all{
    {"debian", "docker.io/library/debian:latest"},
    {"debian:12", "docker.io/library/debian:12"},
    {"acme/tool", "docker.io/acme/tool:latest"},
    {"docker.io/debian", "docker.io/library/debian:latest"},
    {"docker.io/a/b/c:1", "docker.io/a/b/c:1"},
    {"index.docker.io/debian", "docker.io/library/debian:latest"},
    {"registry-1.docker.io/library/debian", "docker.io/library/debian:latest"},
    {"ghcr.io/acme/tool:v1.2-rc_3", "ghcr.io/acme/tool:v1.2-rc_3"},
    {"127.0.0.1:5000/debian:12", "127.0.0.1:5000/debian:12"},
    {"localhost/debian", "localhost/debian:latest"},
    {"localhost:5000/a/b", "localhost:5000/a/b:latest"},
    {"[::1]:5000/debian:12", "[::1]:5000/debian:12"},
    {"[2001:db8::1]/debian", "[2001:db8::1]/debian:latest"},
    {"Registry.Example/debian", "registry.example/debian:latest"},
    {"a--b/c__d/e.f_g", "docker.io/a--b/c__d/e.f_g:latest"},
    {"debian@" + some_digest, "docker.io/library/debian@" + some_digest},
    {"ghcr.io/a/b:1@" + some_digest, "ghcr.io/a/b:1@" + some_digest},
    {"h.example:443/x@sha512:" + std::string(128, '0'),
     "h.example:443/x@sha512:" + std::string(128, '0')},
    {"x:" + std::string(128, 't'), "docker.io/library/x:" + std::string(128, 't')},
  };
  for (const auto& [text, expected] : all) {
    CAPTURE(text);
    CHECK(normal(text) == expected);
    CHECK(normal(expected) == expected); // What is written in full is read as that.
  }
}

TEST_CASE("what is no reference is refused with the part that is wrong", "[registry]") {
  const std::vector<std::pair<std::string, std::string>> all{
    {"", "the parts of a name"},
    {"Debian", "the parts of a name"},
    {"REGISTRY/debian", "the parts of a name"},
    {"docker.io/Debian", "the parts of a name"},
    {"a//b", "the parts of a name"},
    {"/a", "the parts of a name"},
    {"a/", "the parts of a name"},
    {"a/../b", "the parts of a name"},
    {"ghcr.io/../../etc", "the parts of a name"},
    {"-a", "the parts of a name"},
    {"a-", "the parts of a name"},
    {"a___b", "the parts of a name"},
    {"a..b/c", "its first part is no host"},
    {"a b", "the parts of a name"},
    {"a\nb", "the parts of a name"},
    {"debian:", "a tag has"},
    {"debian:.1", "a tag has"},
    {"debian:-1", "a tag has"},
    {"debian:a/b:", "a tag has"},
    {"debian:" + std::string(129, 't'), "a tag has"},
    {"debian:a b", "a tag has"},
    {"debian@sha256:12", "a digest"},
    {"debian@" + some_digest + "0", "a digest"},
    {"debian@sha1:" + std::string(40, 'a'), "a digest"},
    {"debian@SHA256:" + std::string(64, 'a'), "a digest"},
    {"debian@sha256:" + std::string(64, 'A'), "a digest"},
    {"a@b@" + some_digest, "a digest"},
    {"https://ghcr.io/a", "without \"https://\""},
    {"docker://debian", "without \"docker://\""},
    {"h.example:0/a", "its first part is no host"},
    {"h.example:65536/a", "its first part is no host"},
    {"h.example:/a", "its first part is no host"},
    {"h.example:1x/a", "its first part is no host"},
    {"-h.example/a", "its first part is no host"},
    {"h..example/a", "its first part is no host"},
    {"user@h.example/a", "a digest"},
    {"[::1/a", "its first part is no host"},
    {"[::g]/a", "its first part is no host"},
    {"[::1]x/a", "its first part is no host"},
    {"h.example/" + std::string(300, 'a'), "at most 255"},
  };
  for (const auto& [text, expected] : all) {
    CAPTURE(text);
    const auto got = parse_reference(text);
    REQUIRE(!got);
    CHECK(got.reason().code == errc::invalid_request);
    CHECK(got.reason().message.find(expected) != std::string::npos);
    CHECK(got.reason().message.find('\n') == std::string::npos);
  }
}

TEST_CASE("hosts of this machine are known by how they are written", "[registry]") {
  for (const char* each : {"localhost", "localhost:5000", "127.0.0.1", "127.1.2.3:80", "[::1]:5000",
                           "[::1]", "::1", "a.localhost:1"})
    CHECK(is_loopback(each));
  for (const char* each : {"localhost.example", "127.0.0.1.example", "128.0.0.1", "10.0.0.1:5000",
                           "[::2]", "::ffff:8.8.8.8", "notlocalhost", "", "127.1"})
    CHECK_FALSE(is_loopback(each));
}

TEST_CASE("an address ends where its text ends, also behind a NUL", "[registry]") {
  using namespace std::string_literals;
  CHECK(parse_reference("[::1]:5/a"));
  for (const auto& each : {"[::1\0x]:5/a"s, "[::1\0]/a"s, "127.0.0.1\0:5/a"s}) {
    const auto got = parse_reference(each);
    REQUIRE_FALSE(got);
    CHECK(got.reason().code == errc::invalid_request);
  }
  for (const auto& each : {"::1\0x"s, "[::1\0x]:5"s, "127.0.0.1\0.example"s})
    CHECK_FALSE(is_loopback(each));
}

TEST_CASE("patterns say which images may be fetched", "[registry]") {
  const std::string debian = "docker.io/library/debian:12";
  CHECK(allowed("**", debian));
  CHECK(allowed("docker.io/library/debian:12", debian));
  CHECK(allowed("docker.io/library/debian", debian));
  CHECK(allowed("docker.io/library/*", debian));
  CHECK(allowed("docker.io/**", debian));
  CHECK(allowed("docker.io/*/debian:*", debian));
  CHECK(allowed("*/library/debian", debian));
  CHECK(allowed("docker.io/library/deb*an:1*", debian));
  CHECK(allowed("127.0.0.1:5000/*", "127.0.0.1:5000/debian:12"));
  CHECK_FALSE(allowed("docker.io/*", debian)); // One '*' ends at a '/'.
  CHECK_FALSE(allowed("docker.io/library/debian:13", debian));
  CHECK_FALSE(allowed("docker.io/library/debia", debian));
  CHECK_FALSE(allowed("docker.io/library/debian:1", debian));
  CHECK_FALSE(allowed("ocker.io/**", debian));
  CHECK_FALSE(allowed("docker.io/library/debian", "docker.io/library/debian2:12"));
  CHECK_FALSE(allowed("ghcr.io/**", debian));
  CHECK_FALSE(allowed("debian", debian));
  CHECK_FALSE(allows({}, *parse_reference(debian)));
  // Of a tag and a digest, the digest is fetched: a tag that is allowed opens no other bytes.
  const auto both = debian + "@" + some_digest;
  CHECK_FALSE(allowed("docker.io/library/debian:12", both));
  CHECK(allowed("docker.io/library/debian", both));
  CHECK(allowed("docker.io/library/debian@" + some_digest, both));
  CHECK(allowed("docker.io/library/debian@sha256:*", both));
  // However it is written, it ends soon.
  std::string many;
  for (int i = 0; i < 250; ++i)
    many += "*a";
  CHECK_FALSE(allowed(many + "/x", "docker.io/" + std::string(200, 'a') + ":1"));
}

TEST_CASE("a pattern that fits nothing is refused", "[registry]") {
  for (const char* each : {"**", "a/b", "ghcr.io/**", "127.0.0.1:5000/*", "a/b@sha256:*"})
    CHECK(check_pattern(each));
  for (const std::string each : {"", "debian", "*", "a/b c", "a/\n", "a/b?"})
    CHECK_FALSE(check_pattern(each));
  CHECK_FALSE(check_pattern("a/" + std::string(600, 'b')));
}

TEST_CASE("challenges are read as RFC 9110 has them", "[registry]") {
  const auto one = read_challenges(
    R"(Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull")");
  REQUIRE(one.size() == 1);
  CHECK(one[0].scheme == "bearer");
  CHECK(one[0].parameters.at("realm") == "https://auth.example/token");
  CHECK(one[0].parameters.at("service") == "registry.example");
  CHECK(one[0].parameters.at("scope") == "repository:a/b:pull");

  const auto two = read_challenges(R"(BASIC Realm = "a \"b\", c" , bearer realm=plain, x=1)");
  REQUIRE(two.size() == 2);
  CHECK(two[0].scheme == "basic");
  CHECK(two[0].parameters.at("realm") == "a \"b\", c");
  CHECK(two[1].parameters.at("realm") == "plain");
  CHECK(two[1].parameters.at("x") == "1");

  CHECK(read_challenges("").empty());
  CHECK(read_challenges("\"x\"").empty());
  CHECK(read_challenges("realm=\"x\"").empty()); // Of no scheme.
  CHECK(read_challenges("Basic").size() == 1);
  CHECK(read_challenges("Bearer realm=\"no end").at(0).parameters.empty());
  CHECK(read_challenges("Bearer realm=\"a\nb\"").at(0).parameters.empty());
  CHECK(read_challenges("Bearer realm=\"a\", realm=\"b\"").at(0).parameters.at("realm") == "a");
  CHECK(read_challenges("Bearer " + std::string(20'000, 'x')).empty());
  std::string many;
  for (int i = 0; i < 1000; ++i)
    many += "s" + std::to_string(i) + ", ";
  CHECK(read_challenges(many).size() <= 16);
}

TEST_CASE("a config.json says who asks which registry", "[registry]") {
  const auto all = read(R"({"auths":{
    "https://index.docker.io/v1/":{"auth":"dXNlcjpwYTpzcw=="},
    "registry.example:5000":{"auth":"YTpi"},
    "https://Other.Example/v2/":{"username":"u","password":"p"},
    "ghcr.io/acme":{"auth":"YWNtZTo="},
    "ghcr.io/acme/tool":{"auth":"dG9vbDox"},
    "empty.example":{},
    "token.example":{"auth":"MDA6","identitytoken":"t"}},
    "HttpHeaders":{"x":"y"}, "credHelpers":{"gcr.io":"gcloud"}})");
  CHECK(of(all, "debian").who == login{"user", "pa:ss", ""});
  CHECK(of(all, "registry.example:5000/x").who == login{"a", "b", ""});
  CHECK(of(all, "registry.example/x").who.empty()); // Another port is another registry.
  CHECK(of(all, "other.example/x").who == login{"u", "p", ""});
  CHECK(of(all, "ghcr.io/acme/other").who.user == "acme");
  CHECK(of(all, "ghcr.io/acme/tool").who.user == "tool"); // The longest one counts.
  CHECK(of(all, "ghcr.io/acme/tool/deeper").who.user == "tool");
  CHECK(of(all, "ghcr.io/acmes/tool").who.empty());
  CHECK(of(all, "empty.example/x").who.empty());
  CHECK(of(all, "empty.example/x").helper.empty());
  CHECK(of(all, "token.example/x").who.identity_token == "t");
  // A helper concerns its own registry, and a store all that have nothing else.
  CHECK(of(all, "gcr.io/x").helper == "gcloud");
  CHECK(of(all, "quay.io/x").helper.empty());
  const auto stored = read(R"({"auths":{"a.example":{},"b.example":{"auth":"YTpi"}},
                               "credsStore":"desktop"})");
  CHECK(of(stored, "a.example/x").helper == "desktop");
  CHECK(of(stored, "c.example/x").helper == "desktop");
  CHECK(of(stored, "b.example/x").helper.empty());
  CHECK(of(stored, "b.example/x").who.user == "a");
  CHECK(of(read("{}"), "debian").who.empty());
  CHECK(login{"a", "b", ""}.basic() == "YTpi");
  CHECK(login{"Aladdin", "open sesame", ""}.basic() == "QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
}

TEST_CASE("what is no config.json is refused", "[registry]") {
  for (const std::string each :
       {"", "[]", "{", R"({"auths":[]})", R"({"auths":{"a":{"auth":"***"}}})",
        R"({"auths":{"a":{"auth":"YWI="}}})", // No colon.
        R"({"auths":{"a":{"auth":"OmI="}}})", // Nobody.
        R"({"auths":{"a":{"username":"x:y"}}})"}) {
    CAPTURE(each);
    const auto got = credentials::read(each);
    REQUIRE(!got);
    CHECK(got.reason().code == errc::invalid_request);
  }
}

TEST_CASE("the file of logins is found as docker and podman find it", "[registry]") {
  const temp_dir where;
  const auto file = [](const std::string& user) {
    return R"({"auths":{"a.example":{"username":")" + user + R"(","password":"p"}}})";
  };
  write_file(where / "home/.docker/config.json", file("home"));
  write_file(where / "docker/config.json", file("docker"));
  write_file(where / "auth.json", file("named"));
  write_file(where / "bad/config.json", "{");
  const auto at = [&](const char* name) { return (where / name).string(); };
  const auto user = [](const std::map<std::string, std::string>& environment) {
    const auto all = read_credentials(environment);
    return all ? of(*all, "a.example/x").who.user : all.reason().message;
  };
  CHECK(user({{"HOME", at("home")}}) == "home");
  CHECK(user({{"HOME", at("home")}, {"DOCKER_CONFIG", at("docker")}}) == "docker");
  CHECK(user({{"DOCKER_CONFIG", at("docker")}, {"REGISTRY_AUTH_FILE", at("auth.json")}}) ==
        "named");
  CHECK(user({{"HOME", at("nowhere")}}).empty());
  CHECK(user({}).empty());
  CHECK(user({{"REGISTRY_AUTH_FILE", at("nowhere")}}) ==
        at("nowhere") + ": No such file or directory");
  CHECK(user({{"DOCKER_CONFIG", at("bad")}}).starts_with(at("bad") + "/config.json: "));
}

TEST_CASE("a platform is read", "[registry]") {
  CHECK(parse_platform("linux/amd64")->str() == "linux/amd64");
  CHECK(parse_platform("linux/arm64/v8")->variant == "v8");
  for (const std::string each : {"", "linux", "linux/", "/amd64", "linux/a/b/c", "Linux/amd64",
                                 "linux/amd 64", "linux/amd64/"})
    CHECK_FALSE(parse_platform(each));
  CHECK_FALSE(parse_platform("linux/" + std::string(100, 'a')));
}
