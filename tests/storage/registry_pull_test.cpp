#include "storage/images/digest.hpp"
#include "storage/images/image_source.hpp"
#include "storage/registry/pull.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/image_builder.hpp"
#include "tests/support/made_authority.hpp"
#include "tests/support/registry_server.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <sys/resource.h>

using namespace insula;
using namespace insula::storage::registry;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

namespace images = storage::images;

constexpr auto manifest_type = "application/vnd.oci.image.manifest.v1+json";
constexpr auto index_type = "application/vnd.oci.image.index.v1+json";

std::string noise(std::size_t size, unsigned seed = 1) {
  std::mt19937_64 next{seed};
  std::string bytes(size, '\0');
  for (auto& each : bytes)
    each = static_cast<char>(next());
  return bytes;
}

std::string described(const std::string& type, const std::string& digest, std::size_t size,
                      const std::string& more = "") {
  return R"({"mediaType":")" + type + R"(","digest":")" + digest + R"(","size":)" +
         std::to_string(size) + more + "}";
}

/// An image as a registry has it, with layers of any bytes: nobody here unpacks them.
struct image {
  std::vector<std::string> layers;
  std::string architecture = images::machine_architecture();
  std::string digest = {}; ///< Of the manifest, once it is pushed.
  std::string manifest = {};

  std::string layer_digest(std::size_t which) const { return sha256(layers.at(which)); }

  image& push(registry_server& to, const std::string& tag = "1") {
    std::string ids, all;
    for (const auto& each : layers) {
      ids += (ids.empty() ? "\"" : ",\"") + sha256(each) + "\"";
      all += (all.empty() ? "" : ",") +
             described("application/vnd.oci.image.layer.v1.tar", to.put_blob(each), each.size());
    }
    const auto config = R"({"os":"linux","architecture":")" + architecture +
                        R"(","rootfs":{"type":"layers","diff_ids":[)" + ids + "]}}";
    manifest =
      R"({"schemaVersion":2,"mediaType":")" + std::string{manifest_type} + R"(","config":)" +
      described("application/vnd.oci.image.config.v1+json", to.put_blob(config), config.size()) +
      R"(,"layers":[)" + all + "]}";
    digest = to.put_manifest(tag, manifest, manifest_type);
    return *this;
  }
};

/// What one pull is told, and where it goes.
struct puller {
  explicit puller(const registry_server& from, const std::string& what = "thing:1")
      : reference(*parse_reference(from.host() + "/" + what)) {
    client.connect_patience = 5s;
    client.silence_patience = 1s;
    client.document_patience = 5s;
    client.first_pause = 1ms;
    client.longest_pause = 2000ms;
    client.cancelled = [this] { return stop.load(); };
  }

  result<pulled> run() {
    registry_client speaks{reference, client};
    return pull(speaks, reference, where.path().string(), how, client.cancelled);
  }

  std::string reason() {
    const auto got = run();
    REQUIRE(!got);
    CHECK_FALSE(std::filesystem::exists(where / "index.json"));
    code = got.reason().code;
    return got.reason().message;
  }

  void check_layers(const image& expected) {
    const auto files = images::open_file_set(where.path().string(), "/tmp", 0);
    REQUIRE(files);
    const auto source = images::open_image_source(**files, "");
    if (!source)
      FAIL(source.reason().message);
    CHECK(source->digest == expected.digest);
    REQUIRE(source->layers.size() == expected.layers.size());
    for (std::size_t i = 0; i < expected.layers.size(); ++i)
      CHECK(read_file(where / ("blobs/sha256/" + expected.layer_digest(i).substr(7))) ==
            expected.layers[i]);
  }

  std::filesystem::path part(const image& of, std::size_t which) const {
    return where / ("blobs/sha256/" + of.layer_digest(which).substr(7) + ".part");
  }

  temp_dir where;
  image_reference reference;
  client_options client;
  pull_options how;
  std::atomic<bool> stop = false;
  errc code{};
};

bool is_blob(const registry_server::request& what, const std::string& digest) {
  return what.target.ends_with("/blobs/" + digest);
}

bool has(const std::string& text, const std::string& part) {
  INFO(text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

/// A token service and a registry in one, that believes `token` alone.
struct guarded {
  std::string token = "good-token";
  std::string scheme = "Bearer";
  std::string login; ///< What the token service wants behind "Basic ". Empty: nothing.
  std::function<std::string(const registry_server::request&)> realm_of = {};

  bool operator()(const registry_server::request& what, registry_server::client& to) const {
    if (what.target.starts_with("/token")) {
      if (!login.empty() && what.field("authorization") != "Basic " + login)
        to.answer(401, R"({"errors":[{"message":"wrong password"}]})");
      else
        to.answer(200, R"({"token":")" + token + R"(","expires_in":60})");
      return true;
    }
    const auto expected = scheme + " " + (scheme == "Basic" ? login : token);
    if (what.field("authorization") == expected)
      return false;
    const auto realm = realm_of ? realm_of(what) : "http://" + what.field("host") + "/token";
    to.answer(401, "{}",
              "WWW-Authenticate: " + scheme + " realm=\"" + realm + "\",service=\"it self\"\r\n");
    return true;
  }
};

} // namespace

TEST_CASE("an image is pulled into a layout", "[registry]") {
  registry_server server;
  auto it = image{{noise(100'000), noise(5, 2), "", noise(100'000)}};
  it.push(server);
  puller mine{server};
  pull_progress last;
  mine.how.on_progress = [&](const pull_progress& now) { last = now; };
  const auto got = mine.run();
  if (!got)
    FAIL(got.reason().message);
  CHECK(got->digest == it.digest);
  CHECK_FALSE(got->was_here);
  mine.check_layers(it);
  CHECK(last.done == 3); // Two layers are one.
  CHECK(last.layers == 3);
  CHECK(last.bytes == last.total_bytes);
  CHECK(server.count("/blobs/") == 4);
  // Once more: what is there is believed after it has been read, and nothing comes again.
  REQUIRE(mine.run());
  mine.check_layers(it);
  CHECK(server.count("/blobs/") == 5); // The empty layer.
}

TEST_CASE("an image is pulled by its digest, and no other one", "[registry]") {
  registry_server server;
  auto it = image{{noise(1000)}}.push(server);
  puller mine{server, "thing@" + it.digest};
  REQUIRE(mine.run());
  mine.check_layers(it);
  auto other = image{{noise(1000, 2)}}.push(server, it.digest); // A lie.
  puller fooled{server, "thing@" + it.digest};
  has(fooled.reason(), "has another digest than " + it.digest);
  CHECK(fooled.code == errc::invalid_request);
}

TEST_CASE("of an index the image for the platform is taken", "[registry]") {
  registry_server server;
  const auto machine = images::machine_architecture();
  auto mine_is = image{{noise(1000)}}.push(server, "mine");
  auto arm = image{{noise(1000, 2)}, "arm"}.push(server, "arm");
  const auto one = [](const image& what, const std::string& architecture,
                      const std::string& variant) {
    return described(manifest_type, what.digest, what.manifest.size(),
                     R"(,"platform":{"os":"linux","architecture":")" + architecture + "\"" +
                       (variant.empty() ? "" : R"(,"variant":")" + variant + "\"") + "}");
  };
  const std::string unknown = described(manifest_type, sha256("attestation"), 11,
                                        R"(,"platform":{"os":"unknown","architecture":"unknown"})");
  const auto index = [](const std::string& all) {
    return R"({"schemaVersion":2,"manifests":[)" + all + "]}";
  };
  const auto v9 = sha256("nothing"); // Is never asked for.
  const auto all_platforms = index(
    unknown + "," + one(arm, "arm", "v7") + "," +
    described(manifest_type, v9, 7,
              R"(,"platform":{"os":"linux","architecture":")" + machine + R"(","variant":"v9"})") +
    "," + one(mine_is, machine, ""));
  server.put_manifest("all", all_platforms,
                      "application/vnd.docker.distribution.manifest.list.v2+json; charset=utf-8");
  puller usual{server, "thing:all"};
  const auto got = usual.run();
  if (!got)
    FAIL(got.reason().message);
  usual.check_layers(mine_is);

  puller for_arm{server, "thing:all"};
  for_arm.how.which = {"linux", "arm", ""};
  REQUIRE(for_arm.run());
  CHECK(std::filesystem::exists(for_arm.where / "index.json"));

  puller for_other{server, "thing:all"};
  for_other.how.which = {"linux", "riscv64", ""};
  has(for_other.reason(), "it is not there for linux/riscv64; its platforms: linux/" + machine);

  // By its digest, the way to the image can be followed by somebody else.
  const auto all = sha256(all_platforms);
  puller exact{server, "thing@" + all};
  REQUIRE(exact.run());
  exact.check_layers(mine_is);
  CHECK(check_way(exact.where.path().string(), all, mine_is.digest));
  CHECK(check_way(exact.where.path().string(), mine_is.digest, mine_is.digest));
  CHECK_FALSE(check_way(exact.where.path().string(), all, sha256("another")));
  CHECK_FALSE(check_way(exact.where.path().string(), sha256("another"), mine_is.digest));
  write_file(exact.where / ("blobs/sha256/" + all.substr(7)), all_platforms + " ");
  CHECK_FALSE(check_way(exact.where.path().string(), all, mine_is.digest));

  // One in the other, and too deep.
  auto inner = index(one(mine_is, machine, ""));
  for (int depth = 0; depth < 6; ++depth) {
    const auto digest = server.put_manifest("deep" + std::to_string(depth), inner, index_type);
    inner = index(described(index_type, digest, inner.size()));
  }
  puller deep{server, "thing:deep2"};
  REQUIRE(deep.run());
  deep.check_layers(mine_is);
  puller deeper{server, "thing:deep5"};
  has(deeper.reason(), "indexes lead to each other");
}

TEST_CASE("an image for another machine is refused before its layers come", "[registry]") {
  registry_server server;
  auto it = image{{noise(1000)}, "s390x"}.push(server);
  puller mine{server};
  has(mine.reason(), "it is for linux/s390x, not for linux/" + images::machine_architecture());
  CHECK(server.count(it.layer_digest(0)) == 0);
}

TEST_CASE("what is no image of today's is refused by name", "[registry]") {
  registry_server server;
  const auto reason_for = [&](const std::string& text, const std::string& type) {
    server.put_manifest("1", text, type);
    return puller{server}.reason();
  };
  has(reason_for(R"({"schemaVersion":1,"fsLayers":[]})",
                 "application/vnd.docker.distribution.manifest.v1+prettyjws"),
      "schema 1");
  has(reason_for(R"({"schemaVersion":2})", "application/json"), "is no image");
  has(reason_for("no JSON", "text/html"), "it is no JSON");
  has(reason_for(R"({"schemaVersion":2,"manifests":[]})", index_type), "its platforms: none");
  has(reason_for(R"({"schemaVersion":2,"config":{},"layers":[]})", manifest_type),
      "a descriptor without a good digest");
  const auto config = server.put_blob("{}");
  has(reason_for(R"({"schemaVersion":2,"config":)" +
                   described("application/vnd.cncf.helm.config.v1+json", config, 2) +
                   R"(,"layers":[]})",
                 manifest_type),
      "no image for sandboxes but application/vnd.cncf.helm");
  // Words of a stranger's do nothing to a terminal.
  const auto shown = reason_for(R"({"mediaType":"a\u001b[2Jb"})", "application/json");
  CHECK(shown.find('\x1b') == std::string::npos);
}

TEST_CASE("a token service is asked, with the login that there is", "[registry]") {
  guarded rules;
  const bool known = GENERATE(false, true);
  CAPTURE(known);
  if (known)
    rules.login = login{"me", "p:w", ""}.basic();
  registry_server server{rules};
  auto it = image{{noise(1000), noise(2000, 2)}}.push(server);
  puller mine{server};
  if (known)
    mine.client.who = {"me", "p:w", ""};
  const auto got = mine.run();
  if (!got)
    FAIL(got.reason().message);
  mine.check_layers(it);
  // One token does for all, and for no more than pulling this.
  REQUIRE(server.count("/token") == 1);
  for (const auto& each : server.requests()) {
    if (each.target.starts_with("/token")) {
      CHECK(each.target == "/token?service=it%20self&scope=repository%3Athing%3Apull");
      CHECK(each.field("authorization").empty() == !known);
    } else {
      CHECK_FALSE(each.field("authorization").starts_with("Basic")); // That is the service's alone.
    }
  }
}

TEST_CASE("an identity token is exchanged", "[registry]") {
  registry_server server{guarded{}};
  auto it = image{{noise(1000)}}.push(server);
  puller mine{server};
  mine.client.who = {"", "", "secret identity"};
  REQUIRE(mine.run());
  const auto all = server.requests();
  const auto token =
    std::find_if(all.begin(), all.end(), [](auto& each) { return each.target == "/token"; });
  REQUIRE(token != all.end());
  CHECK(token->method == "POST");
  has(token->body, "grant_type=refresh_token");
  has(token->body, "refresh_token=secret%20identity");
}

TEST_CASE("a token that ends is renewed in the middle of a pull", "[registry]") {
  std::atomic<int> tokens = 0;
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    guarded rules;
    if (what.target.starts_with("/token")) {
      rules.token = "token-" + std::to_string(++tokens);
    } else {
      // Each is good for one blob.
      rules.token = "token-" + std::to_string(tokens);
      if (what.target.find("/blobs/") != std::string::npos &&
          what.field("authorization") == "Bearer " + rules.token && tokens < 3) {
        rules.token = "none";
      }
    }
    return rules(what, to);
  }};
  auto it = image{{noise(1000), noise(2000, 2)}}.push(server);
  puller mine{server};
  mine.how.at_once = 1;
  const auto got = mine.run();
  if (!got)
    FAIL(got.reason().message);
  mine.check_layers(it);
  CHECK(tokens == 3);
}

TEST_CASE("Basic is told who asks, and only after it has asked", "[registry]") {
  guarded rules;
  rules.scheme = "Basic";
  rules.login = login{"me", "pw", ""}.basic();
  registry_server server{rules};
  auto it = image{{noise(1000)}}.push(server);
  puller mine{server};
  mine.client.who = {"me", "pw", ""};
  REQUIRE(mine.run());
  mine.check_layers(it);
  CHECK(server.requests().front().field("authorization").empty());

  puller wrong{server};
  wrong.client.who = {"me", "other", ""};
  has(wrong.reason(), "does not give thing to me");
  CHECK(wrong.code == errc::unauthorized);

  puller nobody{server};
  has(nobody.reason(), "to nobody who has not logged in");
  CHECK(nobody.code == errc::unauthorized);

  puller helped{server};
  helped.client.helper = "desktop";
  has(helped.reason(), "docker-credential-desktop, which is not run");
}

TEST_CASE("a token service that refuses, lies or is nowhere ends the pull", "[registry]") {
  guarded rules;
  SECTION("refuses") {
    rules.login = login{"me", "pw", ""}.basic();
    registry_server server{rules};
    puller mine{server};
    mine.client.who = {"me", "other", ""};
    has(mine.reason(), "wrong password");
    CHECK(mine.code == errc::unauthorized);
    CHECK(server.count("/token") == 1);
  }
  SECTION("a token that would be a header of its own") {
    rules.token = R"(a\r\nX-Evil: 1)";
    registry_server server{rules};
    has(puller{server}.reason(), "without a good token");
  }
  SECTION("a token that nobody takes") {
    registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
      if (what.target.starts_with("/token"))
        return rules(what, to);
      to.answer(401, "{}",
                "WWW-Authenticate: Bearer realm=\"http://" + what.field("host") + "/token\"\r\n");
      return true;
    }};
    puller mine{server};
    mine.reason();
    CHECK(mine.code == errc::unauthorized);
    CHECK(server.count("/token") <= 4);
  }
  SECTION("nowhere") {
    for (const char* realm : {"", "ftp://x/", "file:///etc/passwd", "gopher://127.0.0.1:1/", "x"}) {
      rules.realm_of = [&](auto&) { return std::string{realm}; };
      registry_server server{rules};
      has(puller{server}.reason(), "is no place to ask");
    }
  }
}

TEST_CASE("what a registry refuses is said in words", "[registry]") {
  const int status = GENERATE(403, 404);
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    if (what.target == "/v2/")
      return false;
    to.answer(status, R"({"errors":[{"code":"X","message":"so it is"}]})");
    return true;
  }};
  puller mine{server};
  const auto words = mine.reason();
  has(words, "so it is");
  CHECK(mine.code == (status == 403 ? errc::unauthorized : errc::not_found));
  CHECK(server.count("/manifests/") == 1);
}

TEST_CASE("429 and 503 are obeyed, up to a bound", "[registry]") {
  std::atomic<int> left = 2;
  std::string after = "Retry-After: 1\r\n";
  const int status = GENERATE(429, 503);
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    if (what.target == "/v2/" || left-- <= 0)
      return false;
    to.answer(status, "", after);
    return true;
  }};
  auto it = image{{noise(1000)}}.push(server);
  const auto began = std::chrono::steady_clock::now();
  puller patient{server};
  REQUIRE(patient.run());
  CHECK(std::chrono::steady_clock::now() - began >= 2s);

  left = 1000;
  after = "Retry-After: 3600\r\n";
  puller told{server};
  has(told.reason(), "wants to be asked again in 3600 s");
  CHECK(told.code == errc::limit_reached);

  left = 1000;
  after.clear();
  puller tired{server};
  tired.reason();
  CHECK(left == 1000 - 6);
}

TEST_CASE("a registry that hangs is left after a while, and a cancelled pull at once",
          "[registry]") {
  const std::string where = GENERATE("/v2/", "/manifests/", "/blobs/");
  CAPTURE(where);
  std::promise<void> asked;
  std::atomic<bool> told = false;
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    if (where == "/v2/" ? what.target != where : what.target.find(where) == std::string::npos)
      return false;
    if (where == "/blobs/") // In the middle.
      to.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    if (!told.exchange(true))
      asked.set_value();
    to.hang();
    return true;
  }};
  auto it = image{{noise(100)}}.push(server);
  SECTION("it is left") {
    puller mine{server};
    mine.client.tries = 2;
    mine.reason();
    CHECK(mine.code == errc::io_failed);
  }
  SECTION("it is cancelled") {
    puller mine{server};
    mine.client.silence_patience = 60s;
    mine.client.document_patience = 60s;
    auto ended = std::async(std::launch::async, [&] { return mine.run(); });
    REQUIRE(asked.get_future().wait_for(60s) == std::future_status::ready);
    const auto began = std::chrono::steady_clock::now();
    mine.stop = true;
    const auto got = ended.get();
    CHECK(std::chrono::steady_clock::now() - began < 1s);
    REQUIRE(!got);
    CHECK(got.reason().code == errc::deadline_exceeded);
  }
}

TEST_CASE("a pause before the next try is cancelled at once", "[registry]") {
  std::promise<void> asked;
  std::atomic<bool> told = false;
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    if (what.target == "/v2/")
      return false;
    to.answer(429, "", "Retry-After: 60\r\n");
    if (!told.exchange(true))
      asked.set_value();
    return true;
  }};
  puller mine{server};
  mine.client.longest_pause = 60s;
  auto ended = std::async(std::launch::async, [&] { return mine.run(); });
  REQUIRE(asked.get_future().wait_for(60s) == std::future_status::ready);
  const auto began = std::chrono::steady_clock::now();
  mine.stop = true;
  CHECK_FALSE(ended.get());
  CHECK(std::chrono::steady_clock::now() - began < 1s);
}

TEST_CASE("bytes that are not the ones that were promised are refused", "[registry]") {
  enum class lie { digest, longer, shorter, endless_chunks, other_range };
  const auto which =
    GENERATE(lie::digest, lie::longer, lie::shorter, lie::endless_chunks, lie::other_range);
  CAPTURE(static_cast<int>(which));
  auto it = image{{noise(100'000)}};
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    if (!is_blob(what, it.layer_digest(0)))
      return false;
    switch (which) {
      case lie::digest: to.answer(200, noise(100'000, 7)); break;
      case lie::longer: to.answer(200, noise(100'001)); break;
      case lie::shorter: to.answer(200, noise(99'999)); break;
      case lie::endless_chunks:
        to.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while (to.send("1000\r\n" + std::string(0x1000, 'x') + "\r\n")) {
        }
        break;
      case lie::other_range:
        to.answer(206, noise(99'999), "Content-Range: bytes 1-99999/100000\r\n");
        break;
    }
    return true;
  }};
  it.push(server);
  puller mine{server};
  const auto words = mine.reason();
  INFO(words);
  CHECK(mine.code == errc::invalid_request);
  CHECK(server.count(it.layer_digest(0)) == 1);
  if (which == lie::digest) {
    has(words, "has another digest");
    CHECK(std::filesystem::file_size(mine.part(it, 0)) == 0); // Nothing of it is gone on with.
  }
}

TEST_CASE("a layer comes in chunks, too", "[registry]") {
  auto it = image{{noise(100'000)}};
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    if (!is_blob(what, it.layer_digest(0)))
      return false;
    to.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (std::size_t at = 0; at < 100'000; at += 10'000)
      to.send("2710\r\n" + it.layers[0].substr(at, 10'000) + "\r\n");
    to.send("0\r\n\r\n");
    return true;
  }};
  it.push(server);
  puller mine{server};
  REQUIRE(mine.run());
  mine.check_layers(it);
}

TEST_CASE("a layer that breaks off goes on where it was", "[registry]") {
  const bool ranges = GENERATE(true, false);
  CAPTURE(ranges);
  auto it = image{{noise(3u << 20)}};
  std::atomic<int> asked = 0;
  std::mutex guard;
  std::vector<std::string> seen;
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    if (!is_blob(what, it.layer_digest(0)))
      return false;
    const std::lock_guard hold{guard};
    seen.push_back(what.field("range"));
    if (++asked <= 2) {
      // A third of all each time, and the end without a word.
      const std::size_t from = ranges ? (asked - 1u) << 20u : 0;
      const auto left = it.layers[0].size() - from;
      to.send((from > 0 ? "HTTP/1.1 206 X\r\nContent-Range: bytes " + std::to_string(from) +
                            "-3145727/3145728\r\n"
                        : "HTTP/1.1 200 X\r\n") +
              std::string{"Content-Length: "} + std::to_string(left) + "\r\n\r\n" +
              it.layers[0].substr(from, 1u << 20u));
      to.close();
      return true;
    }
    if (ranges)
      return false;
    to.answer(200, it.layers[0]);
    return true;
  }};
  it.push(server);
  puller mine{server};
  const auto got = mine.run();
  if (!got)
    FAIL(got.reason().message);
  mine.check_layers(it);
  CHECK(seen[0].empty());
  CHECK(seen[1] == "bytes=1048576-");
  if (ranges) {
    CHECK(seen[2] == "bytes=2097152-");
    CHECK(server.blob_bytes() < (1u << 20) + 1000);
  }
}

TEST_CASE("a pull goes on with what an earlier one has left, once it has read it", "[registry]") {
  registry_server server;
  auto it = image{{noise(1u << 20), noise(1u << 20, 2)}}.push(server);
  puller mine{server};
  const auto prepare = [&](std::size_t which, const std::string& bytes) {
    write_file(mine.part(it, which), bytes);
  };
  SECTION("a right beginning") {
    prepare(0, it.layers[0].substr(0, 1'000'000));
    REQUIRE(mine.run());
    CHECK(server.blob_bytes() < (1u << 20) + 50'000);
  }
  SECTION("a wrong beginning") {
    prepare(0, noise(1'000'000, 9));
    REQUIRE(mine.run());
    CHECK(server.count(it.layer_digest(0)) == 2);
  }
  SECTION("all of it") {
    prepare(0, it.layers[0]);
    prepare(1, it.layers[1]);
    REQUIRE(mine.run());
    CHECK(server.blob_bytes() < 1000);
  }
  SECTION("all of it, and wrong") {
    prepare(0, noise(1u << 20, 9));
    REQUIRE(mine.run());
  }
  SECTION("too much of it") {
    prepare(0, it.layers[0] + "x");
    REQUIRE(mine.run());
  }
  SECTION("under its name, and damaged since") {
    REQUIRE(mine.run());
    auto damaged = it.layers[0];
    damaged[5] ^= 1;
    write_file(mine.where / ("blobs/sha256/" + it.layer_digest(0).substr(7)), damaged);
    REQUIRE(mine.run());
  }
  SECTION("what is of another image") {
    write_file(mine.where / ("blobs/sha256/" + std::string(64, 'a')), "x");
    write_file(mine.where / ("blobs/sha512/" + std::string(128, 'a') + ".part"), "x");
    REQUIRE(mine.run());
    CHECK_FALSE(std::filesystem::exists(mine.where / ("blobs/sha256/" + std::string(64, 'a'))));
    CHECK(std::filesystem::is_empty(mine.where / "blobs/sha512"));
  }
  SECTION("links that lead elsewhere") {
    const temp_dir elsewhere;
    write_file(elsewhere / "victim", "keep");
    std::filesystem::create_directories(mine.where / "blobs/sha256");
    std::filesystem::create_symlink(elsewhere / "victim", mine.part(it, 0));
    mine.reason();
    CHECK(read_file(elsewhere / "victim") == "keep");
    return;
  }
  mine.check_layers(it);
}

TEST_CASE("a redirect is followed, and nobody there hears who asks", "[registry]") {
  auto it = image{{noise(100'000)}};
  registry_server store{[&](const registry_server::request&, registry_server::client& to) {
    to.answer(200, it.layers[0]);
    return true;
  }};
  guarded rules;
  const int status = GENERATE(301, 302, 303, 307, 308);
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    if (rules(what, to))
      return true;
    if (!is_blob(what, it.layer_digest(0)))
      return false;
    to.answer(status, "", "Location: http://" + store.host() + "/there?signature=x\r\n");
    return true;
  }};
  it.push(server);
  puller mine{server};
  const auto got = mine.run();
  if (!got)
    FAIL(got.reason().message);
  mine.check_layers(it);
  REQUIRE(store.requests().size() == 1);
  CHECK(store.requests()[0].field("authorization").empty());
  CHECK(store.requests()[0].target == "/there?signature=x");
}

TEST_CASE("redirects end, and lead to no other protocol", "[registry]") {
  std::string to_where;
  auto it = image{{noise(1000)}};
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    if (what.target == "/v2/" || what.target.find("/manifests/") != std::string::npos)
      return false;
    to.answer(302, "", "Location: " + to_where + "\r\n");
    return true;
  }};
  it.push(server);
  to_where = "/again";
  has(puller{server}.reason(), "leads on more than 5 times");
  CHECK(server.count("/again") == 5);
  for (const char* each : {"file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1:1/x"}) {
    to_where = each;
    has(puller{server}.reason(), "where nobody goes for it");
  }
}

TEST_CASE("an address that was good for a time is asked for again", "[registry]") {
  auto it = image{{noise(1000)}};
  std::atomic<int> asked = 0;
  registry_server store{[&](const registry_server::request&, registry_server::client& to) {
    if (++asked == 1)
      to.answer(403, "<Error>Request has expired</Error>");
    else
      to.answer(200, it.layers[0]);
    return true;
  }};
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    if (!is_blob(what, it.layer_digest(0)))
      return false;
    to.answer(307, "", "Location: http://" + store.host() + "/x\r\n");
    return true;
  }};
  it.push(server);
  puller mine{server};
  REQUIRE(mine.run());
  mine.check_layers(it);
}

TEST_CASE("whatever goes wrong on the way, an image is whole or not there", "[registry]") {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mutex guard;
    std::mt19937 random{seed};
    const auto below = [&](unsigned most) {
      const std::lock_guard hold{guard};
      return random() % most;
    };
    std::map<std::string, std::string> blobs;
    image it;
    for (unsigned i = 0, count = 1 + below(5); i < count; ++i)
      it.layers.push_back(noise(below(300'000), seed * 10 + i));
    for (const auto& each : it.layers)
      blobs[sha256(each)] = each;
    // A part of a blob, by the rules or not, and perhaps no more than a beginning of that.
    const auto send = [&](const registry_server::request& what, registry_server::client& to,
                          const std::string& bytes) {
      const auto range = what.field("range");
      std::size_t from = range.empty() || below(4) == 0 ? 0 : std::stoul(range.substr(6));
      const auto part = bytes.substr(from);
      const auto head = from > 0 ? "HTTP/1.1 206 X\r\nContent-Range: bytes " +
                                     std::to_string(from) + "-" + std::to_string(bytes.size() - 1) +
                                     "/" + std::to_string(bytes.size()) + "\r\n"
                                 : std::string{"HTTP/1.1 200 X\r\n"};
      const auto sent = below(2) == 0 ? part.substr(0, below(300'000)) : part;
      to.send(head + "Content-Length: " + std::to_string(part.size()) + "\r\n\r\n" + sent);
      if (sent.size() < part.size())
        to.close();
    };
    registry_server store{[&](const registry_server::request& what, registry_server::client& to) {
      if (below(4) == 0)
        to.answer(below(2) == 0 ? 403 : 500);
      else
        send(what, to, blobs.at(what.target.substr(1)));
      return true;
    }};
    std::atomic<unsigned> token = 1;
    registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
      const guarded rules{"token-" + std::to_string(token)};
      if (below(10) == 0)
        return to.answer(below(2) == 0 ? 429 : 503), true;
      if (below(10) == 0)
        return to.close(), true;
      if (rules(what, to))
        return true;
      if (below(10) == 0)
        ++token; // From the next request on.
      const auto at = blobs.find(what.target.substr(what.target.rfind('/') + 1));
      if (at == blobs.end())
        return false;
      if (below(2) == 0)
        to.answer(307, "", "Location: http://" + store.host() + "/" + at->first + "\r\n");
      else
        send(what, to, at->second);
      return true;
    }};
    it.push(server);
    puller mine{server};
    mine.client.tries = 6;
    bool done = false;
    for (int tries = 0; tries < 50 && !done; ++tries) {
      const auto got = mine.run();
      done = static_cast<bool>(got);
      CHECK(std::filesystem::exists(mine.where / "index.json") == done);
      if (!got) {
        INFO(got.reason().message);
        CHECK((got.reason().code == errc::io_failed || got.reason().code == errc::limit_reached ||
               got.reason().code == errc::unauthorized));
      }
    }
    REQUIRE(done);
    mine.check_layers(it);
  }
}

TEST_CASE("a manifest and a header without an end are left", "[registry]") {
  const bool head = GENERATE(false, true);
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    if (what.target == "/v2/")
      return false;
    if (head) {
      to.send("HTTP/1.1 200 OK\r\n");
      for (int i = 0; to.send("X-" + std::to_string(i) + ": " + std::string(1000, 'x') + "\r\n");
           ++i) {
      }
      return true;
    }
    to.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    while (to.send("10000\r\n" + std::string(0x10000, ' ') + "\r\n")) {
    }
    return true;
  }};
  puller mine{server};
  has(mine.reason(), head ? "a header without an end" : "a document of more than 8388608 bytes");
  CHECK(mine.code == errc::payload_too_large);
}

TEST_CASE("what is too large is refused before it comes", "[registry]") {
  registry_server server;
  auto it = image{{noise(1000), noise(1000, 2)}}.push(server);
  puller mine{server};
  mine.how.max_bytes = 2000;
  has(mine.reason(), "more than the 1 MiB that are allowed");
  CHECK(mine.code == errc::payload_too_large);
  CHECK(server.count("/blobs/") == 0);
  // Sizes whose sum is small again, as numbers go.
  const std::string huge = "18446744073709551615";
  server.put_manifest("1",
                      R"({"schemaVersion":2,"config":)" +
                        described("application/vnd.oci.image.config.v1+json", sha256("{}"), 2) +
                        R"(,"layers":[{"digest":")" + sha256("a") + R"(","size":)" + huge +
                        R"(},{"digest":")" + sha256("b") + R"(","size":)" + huge + "}]}",
                      manifest_type);
  puller again{server};
  has(again.reason(), "that are allowed");
  again.how.max_bytes = ~0ull;
  again.reason();
  // A disk that has no room for it.
  server.put_manifest("1",
                      R"({"schemaVersion":2,"config":)" +
                        described("application/vnd.oci.image.config.v1+json", sha256("{}"), 2) +
                        R"(,"layers":[{"digest":")" + sha256("a") + R"(","size":)" +
                        std::to_string(1ull << 60) + "}]}",
                      manifest_type);
  has(again.reason(), "on the node's disk");
  CHECK(again.code == errc::disk_full);
  // Too many layers.
  std::string many;
  for (int i = 0; i < 513; ++i)
    many += (i == 0 ? "" : ",") + described("x", sha256(std::to_string(i)), 1);
  server.put_manifest("1",
                      R"({"schemaVersion":2,"config":)" +
                        described("application/vnd.oci.image.config.v1+json", sha256("{}"), 2) +
                        R"(,"layers":[)" + many + "]}",
                      manifest_type);
  has(again.reason(), "more than 512 layers");
}

TEST_CASE("three layers come at a time, and one that cannot be had ends the others", "[registry]") {
  auto it = image{{noise(1000), noise(1000, 2), noise(1000, 3), noise(1000, 4)}};
  std::mutex guard;
  std::condition_variable changed;
  int here = 0;
  bool fails = false;
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    const bool layer = std::any_of(it.layers.begin(), it.layers.end(),
                                   [&](auto& each) { return is_blob(what, sha256(each)); });
    if (!layer)
      return false;
    std::unique_lock hold{guard};
    ++here;
    changed.notify_all();
    if (!fails) // Nobody is answered before three have asked.
      return changed.wait_for(hold, 60s, [&] { return here >= 3; }), false;
    const bool mine = is_blob(what, it.layer_digest(0));
    hold.unlock();
    if (mine) {
      std::unique_lock again{guard};
      changed.wait_for(again, 60s, [&] { return here >= 3; });
      to.answer(404);
    } else {
      to.hang();
    }
    return true;
  }};
  it.push(server);
  SECTION("three at a time") {
    puller mine{server};
    REQUIRE(mine.run());
    mine.check_layers(it);
  }
  SECTION("one fails") {
    fails = true;
    puller mine{server};
    mine.client.silence_patience = 60s;
    const auto began = std::chrono::steady_clock::now();
    mine.reason();
    CHECK(mine.code == errc::not_found);
    CHECK(std::chrono::steady_clock::now() - began < 20s);
    CHECK(here == 3);
  }
}

TEST_CASE("an image that is here already costs its manifest alone", "[registry]") {
  registry_server server;
  auto it = image{{noise(1000)}}.push(server);
  puller mine{server};
  mine.how.is_here = [&](const std::string& digest) { return digest == it.digest; };
  const auto got = mine.run();
  REQUIRE(got);
  CHECK(got->was_here);
  CHECK(got->digest == it.digest);
  CHECK(server.count("/blobs/") == 0);
}

TEST_CASE("a certificate that is not good ends the pull, unless that is said", "[registry]") {
  made_authority authority;
  const auto files = authority.issue("somebody else");
  const registry_server::tls_files tls{files.certificate, files.key};
  registry_server server{{}, &tls};
  auto it = image{{noise(1000)}}.push(server);
  SECTION("of an unknown authority") {
    puller mine{server};
    has(mine.reason(), "its certificate cannot be verified");
  }
  SECTION("for another name") {
    puller mine{server};
    mine.client.authorities = read_file(authority.file());
    has(mine.reason(), "its certificate cannot be verified");
  }
  SECTION("no matter") {
    puller mine{server};
    mine.client.insecure = true;
    const auto got = mine.run();
    if (!got)
      FAIL(got.reason().message);
    mine.check_layers(it);
  }
  CHECK(server.count("/manifests/") <= 1);
}

TEST_CASE("with TLS a redirect or a token service without TLS is refused", "[registry]") {
  made_authority authority;
  const auto files = authority.issue("localhost");
  const registry_server::tls_files tls{files.certificate, files.key};
  registry_server plain{guarded{}};
  guarded rules;
  rules.realm_of = [&](auto&) { return "http://" + plain.host() + "/token"; };
  bool redirects = false;
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
                           if (!redirects)
                             return rules(what, to);
                           if (what.target == "/v2/")
                             return false;
                           to.answer(302, "", "Location: http://" + plain.host() + "/x\r\n");
                           return true;
                         },
                         &tls};
  const auto reference = parse_reference("localhost:" + std::to_string(server.port()) + "/thing:1");
  puller mine{server};
  mine.reference = *reference;
  mine.client.authorities = read_file(authority.file());
  mine.client.who = {"me", "pw", ""};
  has(mine.reason(), "is no place to ask");
  redirects = true;
  has(mine.reason(), "where nobody goes for it");
  CHECK(plain.requests().empty());
}

TEST_CASE("nobody there is said at once", "[registry]") {
  std::optional<registry_server> gone{std::in_place};
  puller mine{*gone};
  gone.reset();
  mine.client.first_pause = 10s;
  const auto began = std::chrono::steady_clock::now();
  has(mine.reason(), "127.0.0.1");
  CHECK(mine.code == errc::io_failed);
  CHECK(std::chrono::steady_clock::now() - began < 10s);
}

TEST_CASE("a pull takes no memory for what it fetches", "[registry]") {
  constexpr std::size_t size = 400u << 20;
  const std::string piece = noise(1u << 20);
  images::hasher all;
  for (std::size_t at = 0; at < size; at += piece.size())
    all.add(piece.data(), piece.size());
  const auto digest = all.digest();
  registry_server server{[&](const registry_server::request& what, registry_server::client& to) {
    if (!is_blob(what, digest))
      return false;
    to.send("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(size) + "\r\n\r\n");
    for (std::size_t at = 0; at < size && to.send(piece); at += piece.size()) {
    }
    return true;
  }};
  const auto config = R"({"os":"linux","architecture":")" + images::machine_architecture() +
                      R"(","rootfs":{"type":"layers","diff_ids":[")" + digest + "\"]}}";
  server.put_manifest("1",
                      R"({"schemaVersion":2,"config":)" +
                        described("application/vnd.oci.image.config.v1+json",
                                  server.put_blob(config), config.size()) +
                        R"(,"layers":[)" + described("application/x", digest, size) + "]}",
                      manifest_type);
  const auto peak = [] {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return used.ru_maxrss; // KiB
  };
  puller mine{server};
  const auto before = peak();
  REQUIRE(mine.run());
#ifdef __SANITIZE_THREAD__ // It remembers each access, in some four times as much memory.
  constexpr long most = 128 * 1024;
#else
  constexpr long most = 32 * 1024;
#endif
  CHECK(peak() - before < most);
}
