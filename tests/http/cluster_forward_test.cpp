#include "base/clock.hpp"
#include "base/limits.hpp"
#include "http/cluster/routing.hpp"
#include "http/proxy/frame_walk.hpp"
#include "http/vercel/ids.hpp"
#include "http/vercel/port_names.hpp"
#include "http/vercel/settings.hpp"
#include "http/vercel/tokens.hpp"
#include "tests/http/client.hpp"
#include "tests/http/fakes.hpp"
#include "tests/http/inner_server.hpp"
#include "tests/http/web_socket_client.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/events.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/made_authority.hpp"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <thread>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;
namespace cluster = insula::http::cluster;

namespace {

/// A member's files, issued by the authority beside it.
struct authority {
  http::tls_files issue(const std::string& name) const {
    const auto made = by_.issue(name);
    return {made.certificate, made.key, by_.file()};
  }

private:
  mutable made_authority by_; // It counts.
};

/// What all nodes would agree on.
struct town {
  std::mutex mutex; ///< Of all that follows.
  std::map<std::string, std::string> owners;
  std::map<std::string, cluster::peer> members;
  std::string next_owner; ///< Of what nobody has.

  void give(const std::string& id, const std::string& to) {
    const std::lock_guard hold{mutex};
    owners[id] = to;
  }
  std::string owner(const std::string& id) {
    const std::lock_guard hold{mutex};
    return owners.contains(id) ? owners.at(id) : std::string{};
  }
  void add(const std::string& name, std::uint16_t port) {
    const std::lock_guard hold{mutex};
    members[name] = {name, "127.0.0.1", port};
  }
};

/// One node's view of it.
class played_routing : public cluster::routing {
public:
  played_routing(std::shared_ptr<town> all, std::string self)
      : all_(std::move(all))
      , self_(std::move(self)) {}

  bool is_here(std::string_view id) const override {
    const std::lock_guard hold{all_->mutex};
    const auto at = all_->owners.find(std::string{id});
    return sure_ && may_serve_ && at != all_->owners.end() && at->second == self_;
  }
  void find(std::string id, bool make, const insula::actors::image_wish& image,
            std::function<void(result<std::optional<cluster::peer>>)> then) override {
    asked.tell(id);
    if (!image.text.empty())
      wishes.tell(image.text);
    if (held_) {
      waiting.tell([this, id, make, then] { then(owner_of(id, make)); });
      return;
    }
    then(owner_of(id, make));
  }
  void doubt(const std::string& id, const std::string& node) override {
    {
      const std::lock_guard hold{all_->mutex};
      beliefs_.erase(id);
    }
    doubts.tell(id + " at " + node);
  }
  std::optional<cluster::peer> place(const insula::actors::image_wish& image) override {
    if (!image.text.empty())
      wishes.tell(image.text);
    const std::lock_guard hold{all_->mutex};
    return place_.empty() ? std::nullopt : std::optional{all_->members.at(place_)};
  }
  bool starts_differ() const override { return starts_differ_; }
  bool may_serve() const override { return may_serve_; }
  std::string self() const override { return self_; }
  std::string member(std::string_view name) const override {
    const std::lock_guard hold{all_->mutex};
    return all_->members.contains(std::string{name}) ? std::string{name} : std::string{};
  }
  std::optional<cluster::peer> node(const std::string& name) const override {
    const std::lock_guard hold{all_->mutex};
    const auto at = all_->members.find(name);
    return at == all_->members.end() ? std::nullopt : std::optional{at->second};
  }

  void believe(const std::string& id, const std::string& owner) {
    const std::lock_guard hold{all_->mutex};
    beliefs_[id] = owner;
  }
  void place_at(const std::string& node) {
    const std::lock_guard hold{all_->mutex};
    place_ = node;
  }
  void be_sure(bool sure) { sure_ = sure; }
  void be_member(bool is) { may_serve_ = is; }
  /// What is asked from now on waits, in `waiting`.
  void hold() { held_ = true; }
  void have_other_images() { starts_differ_ = true; }

  events<std::string> asked;
  events<std::string> doubts;
  events<std::string> wishes; ///< Images, by their words.
  events<std::function<void()>> waiting;

private:
  result<std::optional<cluster::peer>> owner_of(const std::string& id, bool make) {
    const std::lock_guard hold{all_->mutex};
    if (!may_serve_)
      return error{errc::node_unreachable, "cut off"};
    auto owner = beliefs_.contains(id) ? beliefs_.at(id) : std::string{};
    if (owner.empty() && all_->owners.contains(id))
      owner = all_->owners.at(id);
    if (owner.empty() && !make)
      return error{errc::not_found, "nobody has it"};
    if (owner.empty())
      owner = all_->owners[id] = all_->next_owner;
    if (owner == self_)
      return std::optional<cluster::peer>{};
    return std::optional{all_->members.at(owner)};
  }

  const std::shared_ptr<town> all_;
  const std::string self_;
  std::map<std::string, std::string> beliefs_; ///< Guarded by the town's mutex, as the next.
  std::string place_;
  std::atomic<bool> sure_ = true;
  std::atomic<bool> may_serve_ = true;
  std::atomic<bool> held_ = false;
  std::atomic<bool> starts_differ_ = false;
};

/// A server, its fakes, and its routing.
struct node {
  node(std::shared_ptr<town> all, const authority& signs, const std::string& name,
       http::server_options options = {})
      : routing(std::make_shared<played_routing>(all, name))
      , house_(std::make_unique<house>(as_member(std::move(options), routing, signs.issue(name)))) {
    all->add(name, inside());
  }

  static http::server_options as_member(http::server_options options,
                                        std::shared_ptr<cluster::routing> way,
                                        http::tls_files files) {
    options.cluster =
      http::server_options::cluster_member{std::move(way), std::move(files), "127.0.0.1", 0};
    return options;
  }

  house& h() { return *house_; }
  std::uint16_t port() { return house_->port(); }
  std::uint16_t inside() { return house_->server().internal_port(); }
  bool is_untouched() { return house_->heard().all().empty(); }
  void end() { house_.reset(); }

  const std::shared_ptr<played_routing> routing;

private:
  std::unique_ptr<house> house_;
};

/// Two nodes. Whatever is asked of the first about `abc`, the second one has.
struct pair_of_nodes {
  explicit pair_of_nodes(http::server_options first = {}, http::server_options second = {})
      : n1(all, signs, "n1", std::move(first))
      , n2(all, signs, "n2", std::move(second)) {
    all->give("abc", "n2");
    all->next_owner = "n2";
  }

  /// A port where nobody listens.
  void add_absent(const std::string& name) { all->add(name, closed_port()); }

  static std::uint16_t closed_port() {
    inner_server gone;
    return gone.port();
  }

  const authority signs;
  const std::shared_ptr<town> all = std::make_shared<town>();
  node n1, n2;
};

const std::string running = "/v1/sandbox/abc/running";
const std::string exec = "/v1/sandbox/abc/exec";
const std::string file = "/v1/sandbox/abc/file/workspace/a";
const std::string printed_a =
  "event: stdout\ndata: YQo=\n\nevent: exit\ndata: {\"exit_code\":0}\n\n";

const std::string& five_mebibytes() {
  static const std::string bytes = [] {
    std::string made(5u << 20, '\0');
    std::uint32_t state = 1;
    for (char& each : made)
      each = static_cast<char>((state = state * 1'664'525 + 1'013'904'223) >> 24);
    return made;
  }();
  return bytes;
}

auto reads(const std::string& content) {
  return [content](int fd) {
    write_head(fd, {0, file_kind::regular, 0, 0644, 0});
    for (std::size_t at = 0; at < content.size(); at += max_frame_bytes)
      write_frame(fd, std::string_view{content}.substr(at, max_frame_bytes));
    write_frame(fd, {});
  };
}

auto writes(std::string& to) {
  return [&to](int fd) {
    if (read_frames(fd, to))
      write_head(fd, {});
  };
}

void check_unreachable(const answer& got) {
  CHECK(got.status == 503);
  CHECK(got.fields.at("retry-after") == "1");
  CHECK(got.body.find(R"("code":"node_unreachable")") != std::string::npos);
}

/// What a node's internal listener says to `GET /health`, for whoever shows that. Empty: nothing.
std::string said_to(std::uint16_t port, const http::tls_files* shown) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  if (shown != nullptr) {
    REQUIRE(SSL_CTX_use_certificate_chain_file(context, shown->certificate.c_str()) == 1);
    REQUIRE(SSL_CTX_use_PrivateKey_file(context, shown->key.c_str(), SSL_FILETYPE_PEM) == 1);
  }
  client raw{port};
  SSL* tls = SSL_new(context);
  SSL_set_fd(tls, raw.fd());
  std::string said;
  if (SSL_connect(tls) == 1) {
    const auto asked = request("GET", "/health");
    SSL_write(tls, asked.data(), static_cast<int>(asked.size()));
    std::array<char, 4096> bytes{};
    if (const int n = SSL_read(tls, bytes.data(), bytes.size()); n > 0)
      said.assign(bytes.data(), static_cast<std::size_t>(n));
  }
  SSL_free(tls);
  SSL_CTX_free(context);
  return said;
}

} // namespace

TEST_CASE("a request goes on to the node that has its sandbox", "[http][cluster]") {
  pair_of_nodes both;
  auto& [signs, all, n1, n2] = both;
  n2.h().plays().output = {{output_stream::out, "a\n"}};
  client one{n1.port()};
  SECTION("and its connection goes on") {
    for (int i = 0; i < 3; ++i) {
      one.send(request("GET", running, {}, "X-Request-Id: mine-" + std::to_string(i) + "\r\n"));
      const auto got = one.receive();
      CHECK(got.status == 200);
      CHECK(got.body == R"({"running":true})");
      CHECK(got.fields.at("x-request-id") == "mine-" + std::to_string(i));
      one.send(request("POST", exec, R"({"argv":["echo","a"]})"));
      CHECK(one.receive().body == printed_a);
      one.send(request("GET", "/health"));
      CHECK(one.receive().body == R"({"ok":true})");
    }
    CHECK(n2.h().heard().has("find abc"));
    CHECK(n1.is_untouched());
  }
  SECTION("also of several at once, in their order") {
    one.send(request("GET", running) + request("POST", exec, R"({"argv":["echo","a"]})") +
             request("GET", "/health") + request("GET", running));
    CHECK(one.receive().body == R"({"running":true})");
    CHECK(one.receive().body == printed_a);
    CHECK(one.receive().body == R"({"ok":true})");
    CHECK(one.receive().body == R"({"running":true})");
  }
  SECTION("HEAD has no body") {
    one.send(request("HEAD", running));
    const auto got = one.receive(true);
    CHECK(got.status == 200);
    CHECK(got.fields.at("content-length") == "16");
    one.send(request("GET", running));
    CHECK(one.receive().body == R"({"running":true})");
  }
  SECTION("a client that knows no chunks") {
    one.send("POST " + exec + " HTTP/1.0\r\nContent-Length: 21\r\n\r\n" +
             R"({"argv":["echo","a"]})");
    const auto got = one.receive();
    CHECK(got.fields.count("transfer-encoding") == 0);
    CHECK(got.body == printed_a);
    CHECK(one.at_end());
  }
  SECTION("what is refused there is refused here") {
    const auto got = ask(n1.port(), "POST", exec, "{");
    CHECK(got.status == 400);
    CHECK(got.complete);
    one.send("PUT " + file + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n");
    CHECK(one.receive().status == 413);
    CHECK(n1.is_untouched());
  }
  SECTION("what no route is for goes nowhere") {
    CHECK(ask(n1.port(), "GET", "/v1/sandbox/abc/nothing").status == 404);
    CHECK(ask(n1.port(), "GET", "/v1/sandbox/ABC/running").status == 400);
    CHECK(n1.routing->asked.empty());
  }
  SECTION("the other way round nothing is asked of anybody") {
    CHECK(ask(n2.port(), "GET", running).status == 200);
    CHECK(n2.routing->asked.empty());
  }
}

TEST_CASE("a request whose body names its sandbox goes to the owner of that", "[http][cluster]") {
  pair_of_nodes both;
  auto& [signs, all, n1, n2] = both;
  client one{n1.port()};
  const std::string wrong = R"({"projectId":"p","name":"box","timeout":1})";
  one.send(request("POST", "/v3/sandboxes", wrong));
  CHECK(one.receive().body.find("sandbox_timeout_invalid") != std::string::npos);
  CHECK(all->owners.size() == 2); // One more than abc.
  SECTION("also by the path of the version before") {
    one.send(request("POST", "/v2/sandboxes", wrong));
    CHECK(one.receive().status == 400);
    CHECK(all->owners.size() == 2);
  }
  SECTION("but one that does not say how long it is has to") {
    one.send(
      "POST /v3/sandboxes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    const auto got = one.receive();
    CHECK(got.status == 411);
    CHECK(
      got.body ==
      R"({"error":{"code":"length_required","message":"The request needs a Content-Length."}})");
  }
  CHECK(n1.is_untouched());
}

TEST_CASE("the owner decides by what this node has decided by", "[http][cluster]") {
  http::server_options with_key;
  with_key.api_key = "the key of both nodes";
  pair_of_nodes both{with_key, with_key};
  auto& [signs, all, n1, n2] = both;
  const std::string id(26, 'a');
  all->give(id, "n2");
  client one{n1.port()};
  SECTION("a name of a port opens no route") {
    const auto label = http::vercel::label_of(with_key.secret, id, 3000) + ".vercel.run";
    for (const std::string more :
         {"", "Connection: X-Forwarded-Host\r\n", "Connection: close, x-forwarded-host\r\n"})
      for (const auto& path : {"/v1/sandbox/" + id + "/running", std::string{"/v1/sandboxes"}}) {
        client each{n1.port()};
        each.send(request("GET", path, {}, "X-Forwarded-Host: " + label + "\r\n" + more));
        const auto got = each.receive();
        CAPTURE(path, more, got.body);
        CHECK(got.status >= 400);
        CHECK(got.body.find("SANDBOX_") != std::string::npos);
      }
  }
  SECTION("a token opens one project") {
    const http::key_check key{with_key.api_key};
    const auto ends = system_clock{}.unix_ms() / 1000 + 1000;
    const auto token = http::vercel::make_access_token(key, {"team", "mine"}, 0, ends);
    const auto owned = http::vercel::sandbox_of(with_key.secret, "other", "box");
    all->give(owned, "n2");
    for (const std::string more :
         {"", "Connection: Authorization\r\n", "Connection: close, authorization\r\n"}) {
      client each{n1.port()};
      each.send(request("GET", "/v2/sandboxes/box?projectId=other", {},
                        "Authorization: Bearer " + token + "\r\n" + more));
      const auto got = each.receive();
      CAPTURE(more);
      CHECK(got.status == 404);
      CHECK(got.body.find("The project was not found.") != std::string::npos);
    }
  }
}

TEST_CASE("a named key goes along by its name, and the owner decides by its own of that name",
          "[http][cluster][keys]") {
  http::server_options options;
  options.api_key = "the key of both nodes";
  options.named_keys = {{"ci", "the-key-of-ci-0123456789", {"bridge", "vercel"}, {}, {}},
                        {"web", "the-key-of-web-012345678", {"vercel"}, {}, {"mine"}}};
  pair_of_nodes both{options, options};
  const std::string ci = "Authorization: Bearer the-key-of-ci-0123456789\r\n",
                    web = "Authorization: Bearer the-key-of-web-012345678\r\n",
                    command = R"({"argv":["true"]})";
  const auto owned = http::vercel::sandbox_of(options.secret, "other", "box");
  both.all->give(owned, "n2");
  const auto run = [&](const std::string& fields) {
    return ask(both.n1.port(), "POST", exec, command, fields).status;
  };
  CHECK(run(ci) == 200);
  CHECK(both.n2.h().last_exec().context.key == "ci");
  CHECK(run("Authorization: Bearer " + options.api_key + "\r\nInsula-Node-Key: ci\r\n") == 200);
  CHECK(both.n2.h().last_exec().context.key.empty()); // No client says it.
  CHECK(run(web) == 403);
  const auto of_project = [&](const std::string& project) {
    return ask(both.n1.port(), "GET", "/v2/sandboxes/box?projectId=" + project, {}, web).status;
  };
  CHECK(of_project("other") == 404);
  // The owner has another configuration by now.
  auto& there = both.n2.h().server();
  REQUIRE(there.renew(options.api_key, {{"ci", "another-key-of-that-name", {"vercel"}, {}, {}}},
                      std::nullopt));
  CHECK(run(ci) == 403);
  REQUIRE(there.renew(options.api_key, {}, std::nullopt));
  const auto unknown = ask(both.n1.port(), "POST", exec, command, ci);
  CHECK(unknown.status == 403);
  CHECK(unknown.body.find("The node that has the sandbox does not know the API key.") !=
        std::string::npos);
  CHECK(run("Authorization: Bearer " + options.api_key + "\r\n") == 200);
  CHECK(both.n1.is_untouched());
}

TEST_CASE("previews by a named key are refused by an owner that does not know or allow it",
          "[http][cluster][keys][preview]") {
  http::server_options options;
  options.api_key = "the key of both nodes";
  options.named_keys = {{"ci", "the-key-of-ci-0123456789", {"bridge", "opensandbox"}, {}, {}}};
  pair_of_nodes both{options, options};
  inner_server server;
  const std::string ci = "Authorization: Bearer the-key-of-ci-0123456789\r\n";
  const auto serves = [&](const std::string& fields) {
    client one{both.n1.port()};
    one.send(request("GET", server.prefix() + "/x", {}, fields));
    auto inside = server.accept();
    const auto head = inside.head();
    inside.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    return one.receive().body == "ok" && head.find("the-key-of-ci") == std::string::npos &&
           head.find("nsula-") == std::string::npos;
  };
  CHECK(serves(ci));
  // Nothing listens there: a request that was let in would be told that.
  const auto silent = std::to_string(pair_of_nodes::closed_port());
  const auto by_path = [&] {
    return ask(both.n1.port(), "GET", "/v1/sandbox/abc/port/" + silent + "/x", {}, ci);
  };
  const auto through_execd = [&] {
    return ask(both.n1.port(), "GET", "/sandboxes/abc/proxy/44772/proxy/" + silent + "/x", {}, ci);
  };
  CHECK(by_path().status == 502);
  CHECK(through_execd().status == 502);
  auto& there = both.n2.h().server();
  REQUIRE(there.renew(options.api_key, {{"ci", "another-key-of-that-name", {"vercel"}, {}, {}}},
                      std::nullopt));
  for (const auto& got : {by_path(), through_execd()}) {
    CHECK(got.status == 403);
    CHECK(got.body.find("The API key does not open this.") != std::string::npos);
  }
  REQUIRE(there.renew(options.api_key, {}, std::nullopt));
  for (const auto& got : {by_path(), through_execd()}) {
    CHECK(got.status == 403);
    CHECK(got.body.find("The node that has the sandbox does not know the API key.") !=
          std::string::npos);
  }
  CHECK(serves("Authorization: Bearer " + options.api_key + "\r\nInsula-Node-Key: ci\r\n"));
  CHECK(both.n1.is_untouched());
}

TEST_CASE("who owns it may take a while to be found", "[http][cluster]") {
  pair_of_nodes both;
  both.n1.routing->hold();
  client one{both.n1.port()};
  one.send(request("GET", running));
  const auto found = both.n1.routing->waiting.next();
  SECTION("then it is answered") {
    found();
    CHECK(one.receive().body == R"({"running":true})");
  }
  SECTION("a client that has left by then is no harm, nor is a server") {
    one.close();
    both.n1.end();
    found();
  }
}

TEST_CASE("the first request makes this node the owner, and is served here", "[http][cluster]") {
  std::string content;
  pair_of_nodes both;
  auto& n1 = both.n1;
  both.all->next_owner = "n1";
  n1.h().plays().output = {{output_stream::out, "a\n"}};
  client one{n1.port()};
  one.send(request("POST", "/v1/sandbox/new/exec", R"({"argv":["echo","a"]})") +
           request("GET", "/v1/sandbox/new/running"));
  CHECK(one.receive().body == printed_a);
  CHECK(one.receive().body == R"({"running":true})");
  CHECK(n1.routing->asked.next() == "new");
  CHECK(n1.routing->asked.empty());
  CHECK(both.n2.is_untouched());
  n1.h().plays().file = writes(content);
  n1.routing->be_sure(false); // Also where a body follows that is asked for, or in chunks.
  one.send("PUT /v1/sandbox/new/file/workspace/a HTTP/1.1\r\nHost: localhost\r\nExpect: "
           "100-continue\r\nContent-Length: 5\r\n\r\n");
  CHECK(one.read_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
  one.send("hello");
  CHECK(one.receive().status == 200);
  CHECK(content == "hello");
}

TEST_CASE("bodies go through whole, both ways", "[http][cluster]") {
  std::string content;
  pair_of_nodes both;
  client one{both.n1.port()};
  auto& plays = both.n2.h().plays();
  SECTION("up, of a known length") {
    plays.file = writes(content);
    one.send(request("PUT", file, five_mebibytes()));
    CHECK(one.receive().status == 200);
    CHECK((content == five_mebibytes()));
  }
  SECTION("up, in chunks, with another request behind them") {
    plays.file = writes(content);
    one.send("PUT " + file + " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (std::size_t at = 0; at < five_mebibytes().size(); at += 0x12345) {
      const auto piece = five_mebibytes().substr(at, 0x12345);
      std::array<char, 20> size{};
      std::snprintf(size.data(), size.size(), "%zx\r\n", piece.size());
      one.send(size.data() + piece + "\r\n");
    }
    one.send("0\r\n\r\n" + request("GET", running));
    CHECK(one.receive().status == 200);
    CHECK((content == five_mebibytes()));
    CHECK(one.receive().body == R"({"running":true})");
  }
  SECTION("up, by a client that asks first") {
    plays.file = writes(content);
    one.send("PUT " + file +
             " HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: "
             "5242880\r\n\r\n");
    CHECK(one.read_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
    one.send(five_mebibytes());
    CHECK(one.receive().status == 200);
    CHECK((content == five_mebibytes()));
  }
  SECTION("down") {
    plays.file = reads(five_mebibytes());
    one.send(request("GET", file));
    CHECK((one.receive().body == five_mebibytes()));
    one.send(request("GET", running));
    CHECK(one.receive().body == R"({"running":true})");
  }
  SECTION("chunks that are none are refused") {
    plays.file = writes(content);
    one.send("PUT " + file +
             " HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n");
    CHECK(one.receive().status == 400);
    CHECK(one.at_end());
  }
}

TEST_CASE("a client that does not read holds up the owner, not the gateway", "[http][cluster]") {
  constexpr std::size_t piece = 64 * 1024, pieces = 1024;
  events<std::size_t> held; // After so many.
  pair_of_nodes both;
  both.n2.h().plays().file = [&held](int fd) {
    write_head(fd, {0, file_kind::regular, 0, 0644, 0});
    for (std::size_t i = 0; i < pieces; ++i) {
      pollfd room{fd, POLLOUT, 0};
      if (::poll(&room, 1, 1'000) == 0)
        held.tell(i);
      write_frame(fd, std::string(piece, 'x'));
    }
    write_frame(fd, {});
  };
  client one{both.n1.port()};
  one.send(request("GET", file));
  CHECK(one.read_until("\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(held.next() < pieces / 2); // What the kernel keeps for four sockets is less.
  std::size_t bytes = 0;
  for (auto got = one.chunk(); !got.empty(); got = one.chunk())
    bytes += got.size();
  CHECK(bytes == piece * pieces);
}

TEST_CASE("many clients at once are told nothing of each other", "[http][cluster]") {
  pair_of_nodes both;
  both.n2.h().plays().output = {{output_stream::out, "a\n"}};
  std::atomic<unsigned> right = 0;
  constexpr unsigned clients = 8, rounds = 40;
  std::vector<std::thread> all;
  for (unsigned n = 0; n < clients; ++n)
    all.emplace_back([&, n] {
      client one{(n % 4 == 3 ? both.n2 : both.n1).port()};
      for (unsigned i = 0; i < rounds; ++i) {
        const auto id = std::to_string(n) + "." + std::to_string(i);
        one.send(request("GET", running, {}, "X-Request-Id: " + id + "\r\n") +
                 request("POST", exec, R"({"argv":["echo","a"]})"));
        auto got = one.receive();
        right += got.body == R"({"running":true})" && got.fields["x-request-id"] == id;
        right += one.receive().body == printed_a;
      }
    });
  for (auto& each : all)
    each.join();
  CHECK(right == 2 * clients * rounds);
  CHECK(both.n1.is_untouched());
}

TEST_CASE("an event stream arrives bit by bit", "[http][cluster]") {
  pair_of_nodes both;
  auto& owner = both.n2.h();
  owner.plays().end.reset();
  client one{both.n1.port()};
  one.send(request("POST", exec, R"({"argv":["a"]})"));
  REQUIRE(owner.heard().has("read 0 attached"));
  owner.print(output_stream::out, "a\n");
  CHECK(one.read_until("\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(one.chunk() == "event: stdout\ndata: YQo=\n\n");
  SECTION("to its end") {
    owner.print(output_stream::out, "a\n");
    CHECK(one.chunk() == "event: stdout\ndata: YQo=\n\n");
    owner.end_command({});
    CHECK(one.chunk() == "event: exit\ndata: {\"exit_code\":0}\n\n");
    CHECK(one.chunk().empty());
  }
  SECTION("until the client leaves, which the owner notices") {
    one.close();
    CHECK(owner.heard().has("detached"));
  }
  SECTION("until the owner is lost: what is incomplete does not look complete") {
    both.n1.h().server().break_off("n2");
    CHECK(one.at_end());
    CHECK(owner.heard().has("detached"));
  }
  SECTION("until the owner has gone") {
    both.n2.end();
    CHECK(one.read(1).empty());
  }
}

TEST_CASE("after an upgrade, bytes go both ways between nodes", "[http][cluster]") {
  pair_of_nodes both;
  auto& owner = both.n2.h();
  owner.plays().opens_terminals = true;
  owner.plays().terminal = {true, true, 0};
  const std::string id = "0123456789abcdef0123456789abcdef";
  web_socket_client one{both.n1.port(), "/v1/sandboxes/abc/proxy/44772/pty/" + id + "/ws"};
  REQUIRE(one.head().status == 101);
  CHECK(one.next().bytes.find("connected") != std::string::npos);
  one.type(std::string("\0ls", 3));
  CHECK(owner.heard().has("typed ls"));
  owner.print_terminal("a.txt");
  CHECK(one.next().bytes.find("a.txt") != std::string::npos);
  SECTION("until it ends") {
    owner.end_terminal({});
    CHECK(one.to_end().code == 1000);
  }
  SECTION("until the owner is lost") {
    both.n1.h().server().break_off("n2");
    CHECK(one.to_end().code == 1001);
  }
  SECTION("until the owner's server ends") {
    std::thread stopper{[&] { owner.server().stop(10s); }};
    CHECK(one.to_end().code == 1001);
    one.raw().close();
    stopper.join();
  }
  SECTION("until this node's server ends") {
    std::thread stopper{[&] { both.n1.h().server().stop(10s); }};
    CHECK(one.to_end().code == 1001);
    one.raw().close();
    stopper.join();
  }
}

TEST_CASE("a token for a terminal is good at any node, once", "[http][cluster][vercel]") {
  namespace vercel = http::vercel;
  http::server_options options;
  options.secret = "of all nodes";
  pair_of_nodes both{options, options};
  const vercel::session_id session{std::string(26, 'a'), 1};
  both.all->give(session.sandbox, "n2");
  auto& owner = both.n2.h();
  owner.plays().opens_terminals = true;
  auto& is = owner.plays().description;
  is.exists = true;
  vercel::settings mine;
  mine.project = "prj";
  mine.name = "box";
  is.metadata[vercel::metadata_api] = text_of(mine);
  is.run.emplace();
  is.run->number = session.run;
  is.run->state = run_state::running;
  const std::string path = "/v2/sandboxes/sessions/" + session.text() + "/interactive";
  const auto invite = [&](node& by) {
    const auto got = ask(by.port(), "POST", path, "{}");
    CHECK(got.status == 200);
    CHECK(got.body.find(R"("url":"ws://localhost)" + path + '"') != std::string::npos);
    const auto from = got.body.find(R"("token":")") + 9;
    return path + "?token=" + got.body.substr(from, got.body.find('"', from) - from);
  };
  const auto at = invite(both.n1);
  web_socket_client one{both.n1.port(), at};
  REQUIRE(one.head().status == 101);
  for (auto* each : {&both.n1, &both.n2})
    CHECK(web_socket_client{each->port(), at}.head().status == 401);
  one.tell(R"({"type":"start","command":"sh"})");
  one.type("ls");
  CHECK(owner.heard().has("typed ls"));
  owner.print_terminal("a.txt");
  owner.end_terminal({});
  const auto rest = one.to_end();
  CHECK(rest.printed == "a.txt");
  CHECK(rest.told == "{\"type\":\"exit\",\"code\":0}\n");
  CHECK(rest.code == 1000);
  const auto next = invite(both.n2);
  while (!both.n1.routing->asked.empty())
    both.n1.routing->asked.next(1s);
  CHECK(web_socket_client{both.n1.port(), path + "?token=x"}.head().status == 401);
  CHECK(both.n1.routing->asked.empty()); // Nobody else hears of it.
  CHECK(web_socket_client{both.n1.port(), next}.head().status == 101);
  CHECK(both.n1.is_untouched());
}

TEST_CASE("where a WebSocket may be closed, its frames say", "[http][cluster]") {
  const auto frame = [](std::uint8_t kind, std::size_t size, bool masked = false) {
    const auto length = [&](std::size_t bytes) {
      std::string text;
      for (; bytes-- > 0;)
        text += static_cast<char>(size >> 8 * bytes);
      return text;
    };
    const auto mask = static_cast<std::uint8_t>(masked ? 0x80 : 0);
    std::string all{static_cast<char>(kind)};
    if (size < 126)
      all += static_cast<char>(mask | size);
    else
      all += static_cast<char>(mask | (size < 65536 ? 126 : 127)) + length(size < 65536 ? 2 : 8);
    return all + std::string(masked ? 4 : 0, 'm') + std::string(size, '\x88');
  };
  const auto size = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{125}, std::size_t{126},
                             std::size_t{65'535}, std::size_t{65'536}, std::size_t{100'000});
  const auto step = GENERATE(std::size_t{1}, std::size_t{3}, std::size_t{16'384});
  const auto bytes = frame(0x82, size) + frame(0x01, size, true);
  const std::set<std::size_t> ends{0, frame(0x82, size).size(), bytes.size()};
  http::frame_walk walk;
  CHECK(walk.may_close());
  bool right = true;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto piece = bytes.substr(at, step);
    walk.pass(piece);
    at += piece.size();
    right = right && walk.may_close() == ends.contains(at);
  }
  CHECK(right);
  CHECK(walk.may_close());
  walk.pass(http::going_away_frame());
  CHECK_FALSE(walk.may_close()); // Once is enough.
}

TEST_CASE("clients that speak TLS are served by other nodes as well", "[http][cluster][tls]") {
  const authority others;
  http::server_options encrypted;
  encrypted.tls = others.issue("localhost");
  encrypted.tls->authority.clear(); // Clients show no certificate.
  pair_of_nodes both{encrypted, {}};
  auto& owner = both.n2.h();
  owner.plays().end.reset();
  client one{both.n1.port(), true};
  one.send(request("GET", running) + request("POST", exec, R"({"argv":["a"]})"));
  CHECK(one.receive().body == R"({"running":true})");
  REQUIRE(owner.heard().has("read 0 attached"));
  owner.print(output_stream::out, "a\n");
  CHECK(one.read_until("\r\n\r\n").starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(one.chunk() == "event: stdout\ndata: YQo=\n\n");
  one.close();
  CHECK(owner.heard().has("detached"));
  inner_server server;
  client browser{both.n1.port(), true};
  browser.send(request("GET", server.prefix() + "/"));
  auto inside = server.accept();
  CHECK(inside.head().find("X-Forwarded-Proto: https\r\n") != std::string::npos);
}

TEST_CASE("previews are on the node that has the sandbox", "[http][cluster]") {
  http::server_options with_key;
  with_key.api_key = "s3cret";
  pair_of_nodes both{with_key, with_key};
  inner_server server;
  const std::string key = "Authorization: Bearer s3cret\r\n";
  const std::string ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nInsula-Node-Owner: n1\r\n\r\nok";
  client one{both.n1.port()};
  SECTION("by a path, and nobody is told who they are by a client") {
    one.send(request("GET", server.prefix() + "/x?y=1", {},
                     key + "Insula-Node-Client: 192.0.2.7\r\nInsula-Node-Scheme: https\r\n"
                           "insula-node-door: execd\r\n"));
    auto inside = server.accept();
    const auto head = inside.head();
    CHECK(head.starts_with("GET /x?y=1 HTTP/1.1\r\n"));
    CHECK(head.find("X-Forwarded-For: 127.0.0.1\r\n") != std::string::npos);
    CHECK(head.find("X-Forwarded-Proto: http\r\n") != std::string::npos);
    CHECK(head.find("nsula-") == std::string::npos);
    CHECK(head.find("s3cret") == std::string::npos);
    inside.send(ok);
    const auto got = one.receive();
    CHECK(got.body == "ok");
    CHECK(got.fields.count("insula-node-owner") == 0);
    CHECK(both.n1.is_untouched());
  }
  SECTION("by a name, and a server there cannot say that its node is not the owner") {
    one.send("GET / HTTP/1.1\r\nHost: " + server.host() + "\r\n" + key + "\r\n");
    auto inside = server.accept();
    inside.head();
    inside.send("HTTP/1.1 421 x\r\nInsula-Node-Owner: n1\r\nContent-Length: 2\r\n\r\nno");
    const auto got = one.receive();
    CHECK(got.status == 421);
    CHECK(got.body == "no");
    CHECK(both.n1.routing->doubts.empty());
  }
  SECTION("with an upgrade") {
    one.send("GET " + server.prefix() +
             "/ HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: other\r\n" + key +
             "\r\nearly");
    auto inside = server.accept();
    CHECK(inside.head().find("Upgrade: other\r\n") != std::string::npos);
    inside.send("HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nhello");
    CHECK(one.read_until("\r\n\r\n").starts_with("HTTP/1.1 101 "));
    CHECK(one.read(5) == "hello");
    CHECK(inside.read(5) == "early");
    inside.close();
    CHECK(one.at_end());
  }
  SECTION("only for who has the key") {
    CHECK(ask(both.n1.port(), "GET", server.prefix() + "/").status == 401);
    CHECK(both.n1.routing->asked.empty());
  }
  SECTION("of a sandbox that nobody has, there are none") {
    const auto got = ask(both.n1.port(), "GET", "/v1/sandbox/nobody/port/80/", {}, key);
    CHECK(got.status == 502);
    CHECK(got.body.find(R"("code":"sandbox_not_running")") != std::string::npos);
    CHECK(both.all->owner("nobody").empty());
  }
}

TEST_CASE("the key of the node that was asked goes no further than there", "[http][cluster]") {
  http::server_options first, second;
  first.api_key = "one-0123456789abcdef";
  second.api_key = "another-0123456789ab";
  pair_of_nodes both{first, second};
  inner_server server;
  client one{both.n1.port()};
  one.send(request("GET", server.prefix() + "/x?token=" + first.api_key + "&y=1", {},
                   "Authorization: Bearer " + first.api_key + "\r\nX-Key: " + first.api_key +
                     "\r\nX-Other: " + second.api_key +
                     "\r\nX-Plain: 1\r\nCookie: k=" + first.api_key + "; a=1\r\n"));
  auto inside = server.accept();
  const auto head = inside.head();
  CHECK(head.starts_with("GET /x?y=1 HTTP/1.1\r\n"));
  CHECK(head.find("0123456789") == std::string::npos);
  CHECK(head.find("X-Plain: 1\r\n") != std::string::npos);
  CHECK(head.find("Cookie: a=1\r\n") != std::string::npos);
  inside.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
  CHECK(one.receive().body == "ok");
  // Nor does it behind a body, nor what is for this connection alone.
  inside.close();
  one.send("PUT " + server.prefix() + "/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " +
           first.api_key +
           "\r\nConnection: X-Hop\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-Sum: 1\r\n"
           "X-Key: " +
           first.api_key + "\r\nX-Other: " + second.api_key + "\r\nAuthorization: Bearer " +
           first.api_key + "\r\nCookie: k=" + first.api_key +
           "; a=1\r\nX-Hop: 1\r\nHost: evil\r\nInsula-Node-Client: 6.6.6.6\r\n"
           "X-Forwarded-For: 6.6.6.6\r\n\r\n");
  inside = server.accept();
  inside.head();
  CHECK(inside.read_until("\r\n\r\n") == "2\r\nab\r\n0\r\nX-Sum: 1\r\nCookie: a=1\r\n\r\n");
  inside.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
              "2\r\nok\r\n0\r\nX-Sum: 2\r\nInsula-Node-Owner: n1\r\n\r\n");
  CHECK(one.read_until("ok\r\n0\r\n").ends_with("\r\n\r\n2\r\nok\r\n0\r\n"));
  CHECK(one.read_until("\r\n\r\n") == "X-Sum: 2\r\n\r\n");
}

TEST_CASE("a request that fails while a hint is being written is cut off, in a cluster, too",
          "[http][cluster]") {
  http::server_options options;
  const bool stalls = GENERATE(false, true);
  if (stalls)
    options.time.progress = 3'000ms;
  pair_of_nodes both{options};
  inner_server server;
  client one{both.n1.port()};
  one.send("POST / HTTP/1.1\r\nHost: " + server.host() + "\r\nTransfer-Encoding: chunked\r\n\r\n");
  auto inside = server.accept();
  inside.head();
  const int node_end = other_end(one.fd());
  const int little = 4096;
  REQUIRE(::setsockopt(node_end, SOL_SOCKET, SO_SNDBUF, &little, sizeof little) == 0);
  const auto hints = large_hints();
  std::thread says{[&] { inside.send(hints); }};
  int full = 0; // So often in a row: a hint is on its way, and waits.
  CHECK(eventually([&] { return (full = takes_more(node_end) ? 0 : full + 1) == 25; }));
  one.send(stalls ? "1\r\nx\r\n" : "xyz\r\n");
  says.join();
  inside.read(1u << 20); // Until the request has failed.
  const auto got = one.read(2 * hints.size());
  CHECK(got.size() < hints.size());
  CHECK(is_nothing_but_hints(hints, got));
}

TEST_CASE("the gateway asks for the key, and the owner does not", "[http][cluster]") {
  http::server_options first, second;
  first.api_key = "one";
  second.api_key = "another";
  pair_of_nodes both{first, second};
  CHECK(ask(both.n1.port(), "GET", running).status == 401);
  CHECK(ask(both.n1.port(), "GET", running, {}, "Authorization: Bearer another\r\n").status == 401);
  CHECK(both.n1.routing->asked.empty());
  CHECK(ask(both.n1.port(), "GET", running, {}, "Authorization: Bearer one\r\n").status == 200);
  CHECK(
    ask(both.n1.port(), "GET", "/v1/sandboxes/abc", {}, "OPEN-SANDBOX-API-KEY: one\r\n").status ==
    404); // It is not described.
  CHECK(both.n2.h().heard().has("reach abc"));
}

TEST_CASE("what nobody has is known to nobody", "[http][cluster]") {
  pair_of_nodes both;
  client one{both.n1.port()};
  one.send(request("DELETE", "/v1/sandbox/nobody"));
  CHECK(one.receive().status == 204);
  one.send(request("GET", "/v1/sandboxes/nobody"));
  auto got = one.receive();
  CHECK(got.status == 404);
  CHECK(got.body.find("DOCKER::SANDBOX_NOT_FOUND") != std::string::npos);
  one.send(request("GET", "/sandboxes/nobody/proxy/44772/command/x/logs"));
  CHECK(one.receive().status == 404);
  one.send(request("GET", "/sandboxes/nobody/proxy/18080/policy"));
  CHECK(one.receive().status == 404);
  one.send(request("HEAD", "/v1/sandboxes/nobody"));
  CHECK(one.receive(true).status == 404);
  CHECK(both.all->owner("nobody").empty());
  CHECK(both.n1.is_untouched());
  CHECK(both.n2.is_untouched());
  one.send(request("DELETE", "/v1/sandbox/abc"));
  CHECK(one.receive().status == 204);
  CHECK(both.n2.h().heard().has("delete abc"));
}

TEST_CASE("a new sandbox is made where there is most room", "[http][cluster]") {
  pair_of_nodes both;
  const std::string wanted =
    R"({"image":{"uri":"x"},"entrypoint":["sleep","9"],"resourceLimits":{},"timeout":60})";
  const auto made = [&] { return ask(both.n1.port(), "POST", "/v1/sandboxes", wanted).status; };
  SECTION("which may be here") {
    CHECK(made() == 202);
    CHECK(both.n2.is_untouched());
  }
  SECTION("or elsewhere") {
    both.n1.routing->place_at("n2");
    CHECK(made() == 202);
    CHECK(both.n1.is_untouched());
    CHECK(ask(both.n1.port(), "POST", "/v1/sandbox").status == 200);
  }
  SECTION("and here if that is gone") {
    both.add_absent("n3");
    both.n1.routing->place_at("n3");
    CHECK(made() == 202);
    CHECK_FALSE(both.n1.is_untouched());
  }
  SECTION("one with a key goes where that leads") {
    const auto with_key = [](std::uint16_t port) {
      return ask(port, "POST", "/v1/sandbox", {}, "Idempotency-Key: a\r\n").body;
    };
    const auto first = with_key(both.n1.port());
    const auto id = both.n1.routing->asked.next();
    CHECK(first.find(id) != std::string::npos);
    CHECK(both.all->owner(id) == "n2");
    CHECK(with_key(both.n2.port()) == first);
  }
}

TEST_CASE("where a sandbox is made is asked with its image", "[http][cluster]") {
  pair_of_nodes both;
  auto& routing = *both.n1.routing;
  SECTION("of a header") {
    CHECK(ask(both.n1.port(), "GET", running, {}, "Insula-Image: debian\r\n").status == 200);
    CHECK(routing.wishes.next() == "debian");
    CHECK(ask(both.n1.port(), "POST", "/v1/sandbox", {}, "Insula-Image: node24\r\n").status == 200);
    CHECK(routing.wishes.next() == "node24");
  }
  SECTION("of a body, if that matters") {
    const std::string wanted =
      R"({"image":{"uri":"r.example/acme/x:1"},"entrypoint":["sleep","9"],"resourceLimits":{}})";
    const auto create = request("POST", "/v1/sandboxes", wanted);
    client one{both.n1.port()};
    const auto made_at = [&](node& where) {
      CHECK(one.receive().status == 202);
      CHECK(routing.wishes.next() == "r.example/acme/x:1");
      CHECK_FALSE(where.is_untouched());
      one.send(request("GET", "/health"));
      CHECK(one.receive().body == R"({"ok":true})");
    };
    SECTION("which it does not where all have the same ones") {
      routing.place_at("n2");
      one.send(create);
      CHECK(one.receive().status == 202);
      CHECK(routing.wishes.empty());
      CHECK_FALSE(both.n2.is_untouched());
    }
    routing.have_other_images();
    SECTION("here") {
      one.send(create);
      made_at(both.n1);
    }
    SECTION("elsewhere") {
      routing.place_at("n2");
      one.send(create);
      made_at(both.n2);
      CHECK(both.n1.is_untouched());
    }
    SECTION("here where the other one is gone") {
      both.add_absent("n3");
      routing.place_at("n3");
      one.send(create);
      made_at(both.n1);
    }
    SECTION("with a request behind it") {
      routing.place_at("n2");
      one.send(create + request("GET", running));
      CHECK(one.receive().status == 202);
      CHECK(one.receive().body == R"({"running":true})");
    }
    SECTION("that comes in pieces") {
      routing.place_at("n2");
      const auto half = create.size() - wanted.size() / 2;
      one.send(create.substr(0, half));
      one.send(create.substr(half));
      made_at(both.n2);
    }
    for (const std::string where : {"n1", "n2"})
      SECTION("that is to be asked for, at " + where) {
        if (where == "n2")
          routing.place_at("n2");
        one.send("POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                 "Content-Type: application/json\r\nContent-Length: " +
                 std::to_string(wanted.size()) + "\r\n\r\n");
        CHECK(one.read_until("\r\n\r\n") == "HTTP/1.1 100 Continue\r\n\r\n");
        one.send(wanted);
        made_at(where == "n1" ? both.n1 : both.n2);
      }
    SECTION("that is no JSON") {
      one.send(request("POST", "/v1/sandboxes", "image"));
      CHECK(one.receive().status == 422);
      CHECK(routing.wishes.empty());
    }
  }
}

TEST_CASE("execd's own listener goes on to the node that has its sandbox", "[http][cluster]") {
  http::server_options options;
  options.execd = http::server_options::execd_listener{"127.0.0.1", 0};
  pair_of_nodes both{options, {}};
  both.n2.h().plays().output = {{output_stream::out, "a\n"}};
  const auto got =
    ask(both.n1.h().server().execd_port(), "POST", "/command", R"({"command":"echo a"})");
  CHECK(got.status == 200);
  CHECK(got.body.find("\"text\":\"a") != std::string::npos);
  CHECK(both.n1.is_untouched());
  CHECK(both.n2.h().heard().has("exec echo a"));
}

TEST_CASE("a node that is not the owner says so", "[http][cluster]") {
  std::string content;
  pair_of_nodes both;
  node n3{both.all, both.signs, "n3"};
  both.all->give("abc", "n3");
  both.n1.routing->believe("abc", "n2");
  SECTION("and the owner is looked for again, with nothing lost") {
    n3.h().plays().file = writes(content);
    client one{both.n1.port()};
    one.send(request("PUT", file, five_mebibytes()) + request("GET", running));
    CHECK(one.receive().status == 200);
    CHECK((content == five_mebibytes()));
    CHECK(both.n1.routing->doubts.next() == "abc at n2");
    CHECK(one.receive().body == R"({"running":true})");
    CHECK(both.n2.is_untouched());
    CHECK(both.n1.is_untouched());
  }
  SECTION("but not for ever") {
    both.n2.routing->believe("abc", "n1");
    n3.routing->believe("abc", "n1");
    n3.routing->be_sure(false);
    check_unreachable(ask(both.n1.port(), "GET", running));
    for (int i = 0; i < 3; ++i)
      both.n1.routing->doubts.next();
    CHECK(both.n1.routing->doubts.empty());
    CHECK(n3.is_untouched());
  }
  SECTION("unless it has become that just now") {
    n3.routing->be_sure(false);
    CHECK(ask(both.n1.port(), "POST", exec, R"({"argv":["a"]})").status == 200);
    CHECK(n3.routing->asked.next() == "abc");
    CHECK(n3.h().heard().has("exec a"));
  }
}

TEST_CASE("a node that is away", "[http][cluster]") {
  pair_of_nodes both;
  client one{both.n1.port()};
  SECTION("does not answer, and the connection goes on") {
    both.add_absent("n3");
    both.all->give("far", "n3");
    one.send(request("GET", "/v1/sandbox/far/running"));
    check_unreachable(one.receive());
    one.send(request("GET", running));
    CHECK(one.receive().status == 200);
    one.send(request("POST", "/v1/sandbox/far/exec", R"({"argv":["a"]})"));
    check_unreachable(one.receive());
  }
  SECTION("is no other one that answers in its place") {
    both.all->add("n3", both.n2.inside());
    both.all->give("far", "n3");
    one.send(request("GET", "/v1/sandbox/far/running"));
    check_unreachable(one.receive());
    CHECK(both.n2.is_untouched());
  }
  SECTION("is not waited for once it is lost") {
    const bool all = GENERATE(true, false);
    both.n2.h().plays().hold_find = true;
    one.send(request("GET", running));
    REQUIRE(both.n2.h().heard().has("find abc"));
    both.n1.h().server().break_off("n2", all);
    check_unreachable(one.receive());
  }
  SECTION("and nobody is told to ask again for what it may have done") {
    both.n2.h().plays().hold_find = true;
    one.send(request("POST", exec, R"({"argv":["a"]})"));
    REQUIRE(both.n2.h().heard().has("find abc"));
    both.n1.h().server().break_off("n2");
    const auto got = one.receive();
    CHECK(got.status == 502);
    CHECK(got.fields.count("retry-after") == 0);
    CHECK(got.body.find(R"("code":"node_unreachable")") != std::string::npos);
  }
  SECTION("and back is asked on a new connection") {
    one.send(request("GET", running));
    CHECK(one.receive().status == 200);
    both.n2.end();
    one.send(request("GET", running));
    check_unreachable(one.receive());
    node again{both.all, both.signs, "n2"};
    one.send(request("GET", running));
    CHECK(one.receive().status == 200);
  }
}

TEST_CASE("a node that is cut off serves no sandbox", "[http][cluster]") {
  pair_of_nodes both;
  both.n1.routing->be_member(false);
  both.all->give("own", "n1");
  for (const std::string id : {"own", "abc", "new"}) {
    check_unreachable(ask(both.n1.port(), "GET", "/v1/sandbox/" + id + "/running"));
    check_unreachable(ask(both.n1.port(), "GET", "/v1/sandbox/" + id + "/port/80/"));
  }
  check_unreachable(ask(both.n1.port(), "POST", "/v1/sandbox"));
  CHECK(ask(both.n1.port(), "GET", "/health").status == 503);
  CHECK(ask(both.n1.port(), "GET", "/metrics").status == 200);
  check_unreachable(ask(both.n2.port(), "GET", "/v1/sandbox/own/running"));
  CHECK(both.n1.is_untouched());
}

TEST_CASE("strangers get nothing from a node's internal listener", "[http][cluster]") {
  http::server_options impatient;
  impatient.time.handshake = 500ms;
  pair_of_nodes both{{}, impatient};
  const auto at = both.n2.inside();
  const auto member = both.signs.issue("n1");
  REQUIRE(said_to(at, &member).starts_with("HTTP/1.1 200 OK\r\n"));
  SECTION("without a certificate") {
    CHECK(said_to(at, nullptr).empty());
  }
  SECTION("with another authority's") {
    const authority other;
    const auto theirs = other.issue("n1");
    CHECK(said_to(at, &theirs).empty());
  }
  SECTION("with the name of no member") {
    for (const std::string name : {"n9", "N1", "n1 "}) {
      const auto nobody = both.signs.issue(name);
      CHECK(said_to(at, &nobody).empty());
    }
  }
  SECTION("with plain HTTP, or garbage") {
    for (const auto& bytes : {request("GET", "/health"), std::string(100'000, '\x16')}) {
      client one{at};
      one.send(bytes);
      std::string said = one.read(1'000'000); // An alert of TLS, at most.
      CHECK(said.size() < 100);
      CHECK(said.find("HTTP") == std::string::npos);
    }
  }
  SECTION("with nothing at all") {
    client silent{at};
    CHECK(silent.at_end());
  }
  CHECK(said_to(at, &member).starts_with("HTTP/1.1 200 OK\r\n"));
}

TEST_CASE("strangers who say nothing keep no member out", "[http][cluster]") {
  http::server_options patient;
  patient.time.handshake = 1h;
  patient.max_connections = limits::node_strangers + 8;
  pair_of_nodes both{{}, patient};
  const auto at = both.n2.inside();
  const auto member = both.signs.issue("n1");
  std::vector<std::unique_ptr<client>> silent;
  for (std::size_t i = 0; i < 2 * limits::node_strangers; ++i)
    silent.push_back(std::make_unique<client>(at));
  CHECK(silent.front()->at_end()); // The oldest goes for the newest.
  CHECK(said_to(at, &member).starts_with("HTTP/1.1 200 OK\r\n"));
  CHECK(ask(both.n1.port(), "GET", running).status == 200);
}

TEST_CASE("each node says what lives on it, whichever is asked", "[http][cluster][console]") {
  pair_of_nodes both;
  both.n2.h().plays().list = {{.id = "abc", .state = "running"}};
  const auto list_of = [&](const std::string& name, node& asked) {
    return ask(asked.port(), "GET", "/console/nodes/" + name + "/sandboxes");
  };
  for (auto* asked : {&both.n1, &both.n2}) {
    const auto far = list_of("n2", *asked);
    CHECK(far.status == 200);
    CHECK(far.body.find(R"("node":"n2")") != std::string::npos);
    CHECK(far.body.find(R"("id":"abc")") != std::string::npos);
    const auto here = list_of("n1", *asked);
    CHECK(here.body.find(R"("node":"n1")") != std::string::npos);
    CHECK(here.body.find(R"("sandboxes":[])") != std::string::npos);
  }
  CHECK(list_of("n9", both.n1).status == 404);
  both.add_absent("n3");
  check_unreachable(list_of("n3", both.n1));
}

TEST_CASE("the node that has begun a sign-in has it, whichever is asked",
          "[http][cluster][login]") {
  http::server_options options;
  options.api_key = "the key of both nodes";
  pair_of_nodes both{options, options};
  const auto key = "Authorization: Bearer " + options.api_key + "\r\n";
  const auto text_in = [](const answer& got, const std::string& name) {
    const auto mark = '"' + name + "\":\"";
    const auto at = got.body.find(mark);
    REQUIRE(at != std::string::npos);
    return got.body.substr(at + mark.size(),
                           got.body.find('"', at + mark.size()) - at - mark.size());
  };
  const auto found = ask(both.n1.port(), "GET", "/.well-known/openid-configuration");
  CHECK(text_in(found, "token_endpoint") == "https://vercel.com/oauth/nodes/n1/token");
  const auto begun = ask(both.n2.port(), "POST", "/oauth/nodes/n1/codes", "client_id=cl_1");
  REQUIRE(begun.status == 200);
  CHECK(text_in(begun, "verification_uri") == "http://localhost/device?node=n1");
  const auto code = text_in(begun, "user_code"), sign_in = std::string{"/oauth/nodes/n1/sign-in"};
  CHECK(text_in(begun, "verification_uri_complete") ==
        "http://localhost/device?user_code=" + code + "&node=n1");
  const auto form = "grant_type=urn:ietf:params:oauth:grant-type:device_code&device_code=" +
                    text_in(begun, "device_code");
  const auto poll = [&](node& asked) {
    return ask(asked.port(), "POST", "/oauth/nodes/n1/token", form);
  };
  CHECK(text_in(poll(both.n1), "error") == "authorization_pending");
  for (auto* asked : {&both.n1, &both.n2}) {
    CHECK(ask(asked->port(), "GET", sign_in + "?user_code=" + code).status == 401);
    const auto shown = ask(asked->port(), "GET", sign_in + "?user_code=" + code, {}, key);
    CHECK(shown.status == 200);
    CHECK(text_in(shown, "network").find("127.0.0.") == 0); // The client's.
  }
  const auto body = R"({"user_code":")" + code + R"(","team":"me","project":"prj","days":1})";
  CHECK(ask(both.n2.port(), "POST", sign_in, body).status == 401);
  CHECK(ask(both.n2.port(), "POST", sign_in, body, key).status == 204);
  CHECK(text_in(poll(both.n2), "token_type") == "Bearer");
  CHECK(text_in(poll(both.n1), "error") == "expired_token");
}

TEST_CASE("unusable files of a cluster are an error at the start", "[http][cluster]") {
  const authority signs;
  const auto files = signs.issue("n1");
  const auto refused = [&](http::tls_files wrong) {
    io_pool pool{1};
    caf::actor_system_config config;
    caf::actor_system system{config};
    http::server_options options;
    options.port = 0;
    auto way = std::make_shared<played_routing>(std::make_shared<town>(), "n1");
    http::server unusable{pool, system, node::as_member(options, way, std::move(wrong)),
                          directory_actor{}, nullptr};
    const auto started = unusable.start();
    return started ? std::string{} : started.reason().message;
  };
  CHECK(refused(files).empty());
  for (auto name :
       {&http::tls_files::certificate, &http::tls_files::key, &http::tls_files::authority}) {
    auto wrong = files;
    wrong.*name = "/nowhere/x.pem";
    CHECK(refused(wrong).find("/nowhere/x.pem") != std::string::npos);
  }
}
