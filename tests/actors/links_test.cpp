// Links between nodes that are actor systems of one process: real sockets, real time.
#include "actors/cluster/links.hpp"

#include "actors/cluster/greeting.hpp"
#include "actors/pool_scheduler.hpp"
#include "base/limits.hpp"
#include "base/unique_fd.hpp"
#include "tests/actors/relay.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/events.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/made_authority.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <caf/all.hpp>

#include <atomic>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <future>
#include <optional>
#include <poll.h>
#include <sstream>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;
using namespace std::string_literals;
namespace cluster = insula::actors::cluster;
namespace asio = boost::asio;
using tcp = asio::ip::tcp;

namespace {

using answer = result<std::string>;
using reply = std::function<void(answer)>;

constexpr auto long_time = 60s;

made_authority& authority() {
  static made_authority one;
  return one;
}

/// A member that listens where it likes.
cluster::member listener(const std::string& name, std::uint16_t port = 0) {
  return {name, "127.0.0.1", port};
}

/// An actor system with its links, as a node has them.
class node {
public:
  using tune = std::function<void(cluster::link_options&)>;

  node(std::string name, std::vector<cluster::member> members, const tune& change = {})
      : name_(std::move(name)) {
    actors::run_actors_on(pool_, settings_);
    cluster::load_links(settings_);
    system_.emplace(settings_);
    const auto own = authority().issue(name_);
    cluster::link_options options{.self = name_,
                                  .members = std::move(members),
                                  .authority = authority().file(),
                                  .certificate = own.certificate,
                                  .key = own.key,
                                  .build = "build-of-" + name_};
    if (change)
      change(options);
    links_.emplace(
      *system_, pool_, std::move(options),
      [this](const std::string& from, const std::string& what, std::string text, reply to) {
        answer_peer(from, what, std::move(text), std::move(to));
      },
      [this](const std::string& peer, bool up) {
        changes.tell({peer, up});
      });
  }

  std::uint16_t start() {
    const auto started = links_->start();
    if (!started)
      throw std::runtime_error(started.reason().message);
    return links_->port();
  }

  std::future<answer> ask(const std::string& whom, const std::string& what, std::string text = {},
                          std::chrono::milliseconds patience = long_time) {
    const auto promised = std::make_shared<std::promise<answer>>();
    links_->ask(whom, what, std::move(text), patience,
                [promised](answer how) { promised->set_value(std::move(how)); });
    return promised->get_future();
  }

  void await_up(const std::string& peer) { await(peer, true); }
  void await_down(const std::string& peer) { await(peer, false); }

  void end_links() { links_.reset(); }

  cluster::links& links() { return *links_; }
  caf::actor_system& system() { return *system_; }

  events<std::pair<std::string, bool>> changes;
  events<reply> held; ///< Questions that wait for the test to answer.

private:
  /// The next that is told of any peer.
  void await(const std::string& peer, bool up) {
    const auto next = changes.next();
    CHECK(next.first == peer);
    CHECK(next.second == up);
  }

  void answer_peer(const std::string& from, const std::string& what, std::string text, reply to) {
    if (what == "echo")
      to(std::move(text));
    else if (what == "from")
      to(from);
    else if (what == "fail")
      to(error{errc::stale_epoch, "somebody else: " + text});
    else if (what == "large")
      to(std::string(limits::link_text_bytes + 1, 'x'));
    else if (what == "hold")
      held.tell(std::move(to));
  }

  std::string name_;
  io_pool pool_{2};
  caf::actor_system_config settings_;
  std::optional<caf::actor_system> system_;
  std::optional<cluster::links> links_;
};

answer get(std::future<answer> from) {
  if (from.wait_for(long_time) != std::future_status::ready)
    throw std::runtime_error("a question was not answered");
  return from.get();
}

errc code_of(std::future<answer> from) {
  const auto got = get(std::move(from));
  REQUIRE_FALSE(got);
  return got.reason().code;
}

/// Node a dials b, through a wire that can be cut.
struct two_nodes {
  explicit two_nodes(const node::tune& of_a = {}, const node::tune& of_b = {})
      : b("b", {listener("a"), listener("b")}, of_b)
      , b_port(b.start())
      , wire(b_port)
      , a("a", {listener("a"), listener("b", wire.port())}, of_a) {
    a.start();
  }
  void await_up() {
    a.await_up("b");
    b.await_up("a");
  }

  node b;
  std::uint16_t b_port;
  relay wire;
  node a;
};

/// One end of a connection that is no node's.
class raw_end {
public:
  explicit raw_end(std::uint16_t port) {
    socket().connect({asio::ip::address_v4::loopback(), port});
    set_patience();
  }
  raw_end(std::uint16_t port, const std::string& name, made_authority& by)
      : raw_end(port) {
    handshake(by.issue(name), asio::ssl::stream_base::client);
  }
  /// The other end dials.
  raw_end(tcp::acceptor& at, const std::string& name, made_authority& by) {
    at.accept(socket());
    set_patience();
    handshake(by.issue(name), asio::ssl::stream_base::server);
  }

  tcp::socket& socket() { return stream_.next_layer(); }

  bool write(const std::string& bytes) {
    boost::system::error_code failed;
    asio::write(stream_, asio::buffer(bytes), failed);
    return !failed;
  }
  bool write_plainly(const std::string& bytes) {
    boost::system::error_code failed;
    asio::write(socket(), asio::buffer(bytes), failed);
    return !failed;
  }
  std::string read(std::size_t count) {
    std::string bytes(count, '\0');
    boost::system::error_code failed;
    bytes.resize(asio::read(stream_, asio::buffer(bytes), failed));
    return bytes;
  }
  /// What else comes until the connection ends, which it has to.
  std::string read_to_end() { return to_end(stream_); }
  std::string read_plainly_to_end() { return to_end(socket()); }

  bool shaken() const { return shaken_; }

  void greet(std::uint32_t version = cluster::link_version) {
    write(cluster::greeting{version, "other"}.line());
  }

private:
  void handshake(const made_authority::files& own, asio::ssl::stream_base::handshake_type side) {
    SSL_use_certificate_chain_file(stream_.native_handle(), own.certificate.c_str());
    SSL_use_PrivateKey_file(stream_.native_handle(), own.key.c_str(), SSL_FILETYPE_PEM);
    boost::system::error_code failed;
    stream_.handshake(side, failed);
    shaken_ = !failed;
  }
  void set_patience() {
    const timeval longest{std::chrono::seconds{long_time}.count(), 0};
    ::setsockopt(socket().native_handle(), SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
  }
  template <class From>
  static std::string to_end(From& from) {
    std::string all;
    std::array<char, 4096> bytes;
    boost::system::error_code failed;
    for (;;) {
      const auto count = from.read_some(asio::buffer(bytes), failed);
      if (failed)
        break;
      all.append(bytes.data(), count);
    }
    CHECK(failed != asio::error::would_block);
    CHECK(failed != asio::error::try_again);
    return all;
  }

  asio::io_context io_;
  asio::ssl::context tls_{asio::ssl::context::tls};
  asio::ssl::stream<tcp::socket> stream_{tcp::socket{io_}, tls_};
  bool shaken_ = false;
};

/// What this process writes to its log meanwhile.
class log_lines {
public:
  log_lines() {
    saved_ = ::dup(STDERR_FILENO);
    const unique_fd file{::open(path().c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600)};
    ::dup2(file.get(), STDERR_FILENO);
  }
  ~log_lines() {
    ::dup2(saved_, STDERR_FILENO);
    ::close(saved_);
  }
  bool has(const std::string& words) const {
    return eventually(
      [&] {
        std::stringstream all;
        all << std::ifstream{path()}.rdbuf();
        return all.str().find(words) != std::string::npos;
      },
      long_time);
  }

private:
  std::string path() const { return (at_ / "log").string(); }
  temp_dir at_;
  int saved_ = -1;
};

double cpu_seconds() {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

} // namespace

// ---- Questions and answers

TEST_CASE("two nodes ask each other over one link", "[actors][links]") {
  two_nodes n;
  n.await_up();
  CHECK(n.a.links().up() == std::vector<std::string>{"b"});
  CHECK(n.b.links().up() == std::vector<std::string>{"a"});
  CHECK(*get(n.a.ask("b", "echo", "hello")) == "hello");
  CHECK(*get(n.b.ask("a", "echo", "and back")) == "and back");
  CHECK(*get(n.a.ask("b", "from")) == "a");
  CHECK(*get(n.b.ask("a", "from")) == "b");
  CHECK((*get(n.a.ask("b", "echo", ""))).empty());
  CHECK(n.a.changes.empty());
}

TEST_CASE("each pair of three nodes has a link, in whatever order they start", "[actors][links]") {
  node c{"c", {listener("a"), listener("b"), listener("c")}};
  const auto c_port = c.start();
  node b{"b", {listener("a"), listener("b"), listener("c", c_port)}};
  const auto b_port = b.start();
  node a{"a", {listener("a"), listener("b", b_port), listener("c", c_port)}};
  a.start();
  const auto has = [](node& who, std::vector<std::string> peers) {
    return eventually([&] { return who.links().up() == peers; });
  };
  CHECK(has(a, {"b", "c"}));
  CHECK(has(b, {"a", "c"}));
  CHECK(has(c, {"a", "b"}));
  for (node* who : {&a, &b, &c})
    for (const auto& peer : who->links().up())
      CHECK(*get(who->ask(peer, "echo", "to " + peer)) == "to " + peer);
}

TEST_CASE("what the peer answers is what is told, failures too", "[actors][links]") {
  two_nodes n;
  n.await_up();
  const auto failed = get(n.a.ask("b", "fail", "n3"));
  REQUIRE_FALSE(failed);
  CHECK(failed.reason().code == errc::stale_epoch);
  CHECK(failed.reason().message == "somebody else: n3");
  // Of this nobody keeps the reply: that is an answer as well.
  CHECK(code_of(n.a.ask("b", "nothing")) == errc::internal);
  CHECK(code_of(n.a.ask("b", "large")) == errc::payload_too_large);
  const auto long_sentence = get(n.a.ask("b", "fail", std::string(200'000, 'y')));
  CHECK(long_sentence.reason().message.size() < 10'000);
  CHECK(*get(n.a.ask("b", "echo", "still there")) == "still there");
}

TEST_CASE("texts of 256 KiB travel, longer ones are refused at once", "[actors][links]") {
  two_nodes n;
  n.await_up();
  std::string largest(limits::link_text_bytes, '\0');
  for (std::size_t i = 0; i < largest.size(); ++i)
    largest[i] = static_cast<char>(i * 7 + i / 256);
  CHECK((*get(n.a.ask("b", "echo", largest)) == largest));
  CHECK((*get(n.b.ask("a", "echo", largest)) == largest));
  std::vector<std::future<answer>> many;
  for (int i = 0; i < 40; ++i)
    many.push_back((i % 2 ? n.a : n.b).ask(i % 2 ? "b" : "a", "echo", largest));
  for (auto& each : many)
    CHECK((*get(std::move(each)) == largest));
  CHECK(code_of(n.a.ask("b", "echo", largest + "x")) == errc::payload_too_large);
  CHECK(code_of(n.a.ask("b", "", "x")) == errc::invalid_request);
  CHECK(code_of(n.a.ask("b", std::string(65, 'w'), "x")) == errc::invalid_request);
  CHECK(n.a.links().up().size() == 1);
}

TEST_CASE("256 questions may wait for a peer, and the next is refused", "[actors][links]") {
  two_nodes n;
  n.await_up();
  std::vector<std::future<answer>> waiting;
  for (std::size_t i = 0; i < limits::link_calls; ++i)
    waiting.push_back(n.a.ask("b", "hold"));
  CHECK(code_of(n.a.ask("b", "echo")) == errc::limit_reached);
  CHECK(*get(n.b.ask("a", "echo", "the other way")) == "the other way");
  for (std::size_t i = 0; i < limits::link_calls; ++i)
    n.b.held.next()(std::to_string(i));
  for (auto& each : waiting)
    CHECK(get(std::move(each)));
  CHECK(*get(n.a.ask("b", "echo", "room again")) == "room again");
}

TEST_CASE("each question has a deadline of its own", "[actors][links]") {
  two_nodes n;
  n.await_up();
  auto late = n.a.ask("b", "hold", {}, 50s);
  auto soon = n.a.ask("b", "hold", {}, 30ms);
  auto now = n.a.ask("b", "hold", {}, 0ms);
  CHECK(code_of(std::move(now)) == errc::deadline_exceeded);
  CHECK(code_of(std::move(soon)) == errc::deadline_exceeded);
  n.b.held.next()("1"s);
  n.b.held.next()("2"s); // Too late: nobody is there to hear it.
  n.b.held.next()("3"s);
  CHECK(get(std::move(late)));
  CHECK(*get(n.a.ask("b", "echo", "on")) == "on");
}

TEST_CASE("an answer that is given twice counts once", "[actors][links]") {
  two_nodes n;
  n.await_up();
  auto asked = n.a.ask("b", "hold");
  const auto to = n.b.held.next();
  to("first"s);
  to("second"s);
  CHECK(*get(std::move(asked)) == "first");
  CHECK(*get(n.a.ask("b", "echo", "on")) == "on");
}

TEST_CASE("nobody is reached without a link", "[actors][links]") {
  node a{"a", {listener("a"), listener("b", 1)}};
  CHECK(a.links().port() == 0);
  CHECK(code_of(a.ask("b", "echo")) == errc::node_unreachable); // Not even started.
  a.start();
  CHECK(code_of(a.ask("b", "echo")) == errc::node_unreachable);
  CHECK(code_of(a.ask("a", "echo")) == errc::node_unreachable);
  CHECK(code_of(a.ask("x", "echo")) == errc::node_unreachable);
  CHECK(a.links().up().empty());
}

// ---- Links that drop

TEST_CASE("a link that drops fails what waits at once, and comes back", "[actors][links]") {
  two_nodes n;
  n.await_up();
  for (int round = 0; round < 5; ++round) {
    auto from_a = n.a.ask("b", "hold");
    auto from_b = n.b.ask("a", "hold");
    const auto to_a = n.b.held.next();
    const auto to_b = n.a.held.next();
    n.wire.cut();
    const auto cut = std::chrono::steady_clock::now();
    CHECK(code_of(std::move(from_a)) == errc::node_unreachable);
    CHECK(code_of(std::move(from_b)) == errc::node_unreachable);
    CHECK(std::chrono::steady_clock::now() - cut < limits::link_silence);
    n.a.await_down("b");
    n.b.await_down("a");
    n.await_up();
    to_a("of a link that has gone"s);
    to_b("the same"s);
    CHECK(*get(n.a.ask("b", "echo", "again")) == "again");
    CHECK(*get(n.b.ask("a", "echo", "again")) == "again");
  }
}

TEST_CASE("a peer that is away for long is found when it is back", "[actors][links]") {
  two_nodes n;
  n.await_up();
  n.wire.cut(true);
  n.a.await_down("b");
  n.b.await_down("a");
  CHECK(code_of(n.a.ask("b", "echo")) == errc::node_unreachable);
  CHECK(code_of(n.b.ask("a", "echo")) == errc::node_unreachable);
  n.wire.mend();
  n.await_up();
  CHECK(*get(n.a.ask("b", "echo", "back")) == "back");
}

TEST_CASE("a node that starts again has its links again", "[actors][links]") {
  auto b = std::make_unique<node>("b", std::vector{listener("a"), listener("b")});
  const auto port = b->start();
  node a{"a", {listener("a"), listener("b", port)}};
  a.start();
  for (int round = 0; round < 3; ++round) {
    a.await_up("b");
    CHECK(*get(a.ask("b", "echo", "hello")) == "hello");
    auto open = a.ask("b", "hold");
    const auto kept = b->held.next();
    b.reset();
    kept("nobody is there for it"s);
    CHECK(code_of(std::move(open)) == errc::node_unreachable);
    a.await_down("b");
    b = std::make_unique<node>("b", std::vector{listener("a"), listener("b", port)});
    b->start();
  }
  a.await_up("b");
}

TEST_CASE("links go on at the socket of the server before, with the peers that wait there",
          "[actors][links]") {
  asio::io_context io;
  tcp::acceptor before{io, {asio::ip::address_v4::loopback(), 0}};
  const auto port = before.local_endpoint().port();
  node a{"a", {listener("a"), listener("b", port)}};
  a.start();
  pollfd waits{before.native_handle(), POLLIN, 0}; // It dials before there is anybody.
  REQUIRE(::poll(&waits, 1, static_cast<int>(std::chrono::milliseconds{long_time}.count())) == 1);
  const auto inherit = [&](cluster::link_options& options) {
    options.inherited = {before.native_handle()};
  };
  {
    node b{"b", {listener("a"), listener("b", port)}, inherit};
    CHECK(b.start() == port);
    before.close();
    a.await_up("b");
    b.await_up("a");
    CHECK(*get(b.ask("a", "echo", "taken over")) == "taken over");
  }
  a.await_down("b");
  node next{"b", {listener("a"), listener("b", port)}};
  CHECK(next.start() == port);
  a.await_up("b");
}

TEST_CASE("a peer of which nothing is heard has no link", "[actors][links]") {
  two_nodes n;
  n.await_up();
  auto asked = n.a.ask("b", "hold");
  const auto kept = n.b.held.next();
  n.wire.freeze(true);
  CHECK(code_of(std::move(asked)) == errc::node_unreachable);
  n.a.await_down("b");
  n.b.await_down("a");
  n.wire.freeze(false);
  n.await_up();
  CHECK(*get(n.a.ask("b", "echo", "back")) == "back");
}

TEST_CASE("a link on which nobody asks anything stays", "[actors][links]") {
  two_nodes n;
  n.await_up();
  CHECK_THROWS(n.a.changes.next(limits::link_silence + 2s)); // There is nothing to be told.
  CHECK(n.b.changes.empty());
  CHECK(*get(n.a.ask("b", "echo", "still")) == "still");
}

TEST_CASE("every question is answered once, whatever the link does meanwhile", "[actors][links]") {
  two_nodes n;
  n.await_up();
  std::atomic<int> asked = 0;
  std::atomic<int> answered = 0;
  std::atomic<int> in_time = 0;
  std::atomic<bool> enough = false;
  const auto ask_on = [&](node& from, const std::string& to) {
    while (!enough) {
      const int number = ++asked;
      const auto promised = std::make_shared<std::promise<void>>();
      from.links().ask(to, "echo", std::to_string(number), long_time,
                       [&, number, promised](answer how) {
                         if (how && *how == std::to_string(number))
                           ++in_time;
                         ++answered;
                         promised->set_value(); // A second time would throw.
                       });
      if (number % 8 == 0)
        promised->get_future().wait();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] { ask_on(n.a, "b"); });
    threads.emplace_back([&] { ask_on(n.b, "a"); });
  }
  for (int round = 0; round < 10; ++round) {
    const int before = in_time;
    CHECK(eventually([&] { return in_time > before + 50; }));
    n.wire.cut();
  }
  enough = true;
  for (auto& each : threads)
    each.join();
  CHECK(eventually([&] { return answered == asked; }));
}

// ---- The end

TEST_CASE("links that end answer all that is open", "[actors][links]") {
  two_nodes n;
  n.await_up();
  std::vector<std::future<answer>> open;
  for (int i = 0; i < 100; ++i)
    open.push_back(n.a.ask("b", "hold"));
  const auto kept = n.b.held.next();
  n.a.end_links();
  for (auto& each : open)
    CHECK(code_of(std::move(each)) == errc::node_unreachable);
  n.b.await_down("a");
  kept("nobody is there for it"s);
}

TEST_CASE("links end at any time: not started, in the middle of a handshake, while they dial",
          "[actors][links]") {
  SECTION("not started") {
    node a{"a", {listener("a"), listener("b", 1)}};
  }
  SECTION("nobody to dial") {
    node a{"a", {listener("a"), listener("b", 1)}};
    a.start();
  }
  SECTION("with strangers") {
    std::optional<node> b{std::in_place, "b", std::vector{listener("a"), listener("b")}};
    const auto port = b->start();
    raw_end silent{port};
    raw_end shaken{port, "a", authority()};
    CHECK(shaken.shaken());
    b.reset();
    silent.read_plainly_to_end();
    shaken.read_to_end();
  }
  SECTION("somebody who never answers is dialled") {
    asio::io_context io;
    tcp::acceptor at{io, {asio::ip::address_v4::loopback(), 0}};
    std::optional<node> a{std::in_place, "a",
                          std::vector{listener("a"), listener("b", at.local_endpoint().port())}};
    a->start();
    const auto reached = at.accept();
    a.reset();
  }
  SECTION("again and again, with a link that is just made") {
    node b{"b", {listener("a"), listener("b")}};
    const auto port = b.start();
    for (int i = 0; i < 10; ++i) {
      node a{"a", {listener("a"), listener("b", port)}};
      a.start();
      if (i % 2)
        a.await_up("b");
    }
  }
}

TEST_CASE("actor systems of one process have node ids of their own, as those of other machines",
          "[actors][links]") {
  node a{"a", {listener("a")}};
  node b{"b", {listener("b")}};
  const auto host = [](node& of) { return to_string(of.system().node()).substr(0, 38); };
  CHECK(host(a) != host(b)); // CAF itself would count in the last byte, the next two characters.
}

// ---- What cannot work

TEST_CASE("links that cannot be made say why", "[actors][links]") {
  const auto start_with = [](const node::tune& change) {
    node a{"a", {listener("a"), listener("b")}, change};
    const auto started = a.links().start();
    REQUIRE_FALSE(started);
    return started.reason();
  };
  const auto bad_file = [&](std::string cluster::link_options::*which, const std::string& content) {
    temp_dir at;
    std::ofstream{at / "file"} << content;
    return start_with([&](auto& options) { options.*which = (at / "file").string(); });
  };
  for (auto which : {&cluster::link_options::authority, &cluster::link_options::certificate,
                     &cluster::link_options::key}) {
    CHECK(bad_file(which, "nonsense").code == errc::invalid_request);
    const auto missing = start_with([&](auto& options) { options.*which = "/nowhere/file.pem"; });
    CHECK(missing.code == errc::invalid_request);
    CHECK(missing.message.find("/nowhere/file.pem") != std::string::npos);
  }
  CHECK(start_with([](auto& options) { options.key = authority().issue("a").key; }).code ==
        errc::invalid_request);
  const auto of_other = start_with([](auto& options) {
    const auto other = authority().issue("b");
    options.certificate = other.certificate;
    options.key = other.key;
  });
  CHECK(of_other.code == errc::invalid_request);
  CHECK(of_other.message.find("'b'") != std::string::npos);
  CHECK(start_with([](auto& options) { options.members[0].name = "x"; }).code ==
        errc::invalid_request);
  CHECK(start_with([](auto& options) { options.members[1].address = "a.name"; }).code ==
        errc::invalid_request);

  asio::io_context io;
  tcp::acceptor taken{io, {asio::ip::address_v4::loopback(), 0}};
  const auto port = taken.local_endpoint().port();
  CHECK(start_with([&](auto& options) { options.members[0].port = port; }).code == errc::io_failed);
}

// ---- Strangers

TEST_CASE("who is no node of the cluster gets nothing", "[actors][links][strangers]") {
  node b{"b", {listener("a"), listener("b"), listener("c")}};
  const auto port = b.start();
  SECTION("no TLS") {
    raw_end one{port};
    one.write_plainly("GET / HTTP/1.1\r\nHost: b\r\n\r\n");
    CHECK(one.read_plainly_to_end().size() < 16); // An alert.
  }
  SECTION("garbage") {
    raw_end one{port};
    one.write_plainly(std::string(100'000, '\x16'));
    CHECK(one.read_plainly_to_end().size() < 16);
  }
  SECTION("silence") {
    raw_end one{port};
    CHECK(one.read_plainly_to_end().empty());
  }
  SECTION("the beginning of a handshake") {
    raw_end one{port};
    one.write_plainly(std::string{"\x16\x03\x01\x02\x00\x01", 6});
    CHECK(one.read_plainly_to_end().empty());
  }
  SECTION("no certificate") {
    raw_end one{port};
    asio::io_context io;
    asio::ssl::context tls{asio::ssl::context::tls};
    asio::ssl::stream<tcp::socket&> stream{one.socket(), tls};
    boost::system::error_code failed;
    stream.handshake(asio::ssl::stream_base::client, failed);
    std::array<char, 64> bytes;
    CHECK(stream.read_some(asio::buffer(bytes), failed) == 0);
    CHECK(failed);
    CHECK(failed != asio::error::try_again);
  }
  SECTION("TLS 1.2") {
    raw_end one{port};
    asio::ssl::context tls{asio::ssl::context::tlsv12};
    asio::ssl::stream<tcp::socket&> stream{one.socket(), tls};
    boost::system::error_code failed;
    stream.handshake(asio::ssl::stream_base::client, failed);
    CHECK(failed);
  }
  SECTION("a certificate of another authority") {
    made_authority other;
    raw_end one{port, "a", other};
    one.greet();
    CHECK(one.read_to_end().empty());
  }
  SECTION("a certificate for nobody that is a member") {
    raw_end one{port, "z", authority()};
    one.greet();
    CHECK(one.read_to_end().empty());
  }
  SECTION("a certificate with the node's own name") {
    raw_end one{port, "b", authority()};
    one.greet();
    CHECK(one.read_to_end().empty());
  }
  SECTION("a member that is to be dialled") {
    raw_end one{port, "c", authority()};
    one.greet();
    CHECK(one.read_to_end().size() == cluster::greeting::bytes);
  }
  SECTION("a member that does not speak as one") {
    raw_end one{port, "a", authority()};
    one.write("GET / HTTP/1.1\r\nHost: b.example.test\r\nAccept: application/json\r\n\r\n");
    CHECK(one.read_to_end().size() == cluster::greeting::bytes);
  }
  SECTION("a member that says nothing more") {
    raw_end one{port, "a", authority()};
    CHECK(one.read_to_end().size() == cluster::greeting::bytes);
  }
  SECTION("a member that is greeted, and says nothing more") {
    raw_end one{port, "a", authority()};
    one.greet();
    CHECK(one.read_to_end().size() > cluster::greeting::bytes); // And CAF's handshake.
  }
  SECTION("a member that sends a frame that is too large") {
    raw_end one{port, "a", authority()};
    one.greet();
    std::string header(32, '\0');
    header[0] = 1;
    header[4] = '\x7f';
    one.write(header);
    one.read_to_end();
  }
  CHECK(b.changes.empty()); // There was no link.
  node a{"a", {listener("a"), listener("b", port), listener("c")}};
  a.start();
  b.await_up("a");
  CHECK(*get(b.ask("a", "echo", "all is well")) == "all is well");
}

TEST_CASE("a hundred who say nothing keep nobody out, and cost nothing",
          "[actors][links][strangers]") {
  node b{"b", {listener("a"), listener("b")}};
  const auto port = b.start();
  std::vector<std::unique_ptr<raw_end>> silent;
  for (int i = 0; i < 100; ++i)
    silent.push_back(std::make_unique<raw_end>(port));
  const auto before = cpu_seconds();
  node a{"a", {listener("a"), listener("b", port)}};
  a.start();
  a.await_up("b");
  b.await_up("a");
  for (const auto& each : silent)
    CHECK(each->read_plainly_to_end().empty());
  CHECK(cpu_seconds() - before < 2);
  CHECK(*get(a.ask("b", "echo", "hello")) == "hello");
}

TEST_CASE("a node without descriptors waits for better times", "[actors][links][strangers]") {
  node b{"b", {listener("a"), listener("b")}};
  const auto port = b.start();
  asio::io_context io;
  tcp::socket first{io, tcp::v4()};
  rlimit usual{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &usual) == 0);
  {
    const log_lines log;
    const unique_fd free{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    rlimit none = usual;
    none.rlim_cur = static_cast<rlim_t>(free.get());
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const auto before = cpu_seconds();
    first.connect({asio::ip::address_v4::loopback(), port});
    // It cannot be closed, since nobody has accepted it.
    pollfd end{first.native_handle(), POLLIN, 0};
    CHECK(::poll(&end, 1, 1000) == 0);
    CHECK(cpu_seconds() - before < 0.7);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &usual) == 0);
    CHECK(log.has("link.accept_failed"));
  }
  node a{"a", {listener("a"), listener("b", port)}};
  a.start();
  a.await_up("b");
}

TEST_CASE("another version is refused, and both say so", "[actors][links]") {
  const log_lines log;
  SECTION("by the one that is dialled") {
    node b{"b", {listener("a"), listener("b")}};
    raw_end one{b.start(), "a", authority()};
    one.greet(77);
    const auto said = cluster::greeting::parse(one.read_to_end());
    REQUIRE(said); // And nothing behind it.
    CHECK(said->version == cluster::link_version);
    CHECK(said->build == "build-of-b");
    CHECK(log.has("link.refused peer=a why=\"it speaks version 77 of links (build other), this "
                  "node version " +
                  std::to_string(cluster::link_version) + " (build build-of-b)\""));
    CHECK(b.changes.empty());
  }
  SECTION("by the one that dials") {
    asio::io_context io;
    tcp::acceptor at{io, {asio::ip::address_v4::loopback(), 0}};
    node a{"a", {listener("a"), listener("b", at.local_endpoint().port())}};
    a.start();
    for (int i = 0; i < 3; ++i) { // It goes on.
      raw_end one{at, "b", authority()};
      one.greet(77);
      CHECK(cluster::greeting::parse(one.read_to_end()));
    }
    CHECK(log.has("link.not_made peer=b why=\"it speaks version 77 of links (build other)"));
    CHECK(a.changes.empty());
  }
}

TEST_CASE("who dials makes sure of whom it reaches", "[actors][links][strangers]") {
  made_authority other;
  asio::io_context io;
  tcp::acceptor at{io, {asio::ip::address_v4::loopback(), 0}};
  node a{"a", {listener("a"), listener("b", at.local_endpoint().port()), listener("c", 1)}};
  a.start();
  SECTION("somebody of another authority") {
    raw_end one{at, "b", other};
    CHECK_FALSE(one.shaken());
  }
  SECTION("another member") {
    raw_end one{at, "c", authority()};
    one.greet();
    CHECK(one.read_to_end().size() == cluster::greeting::bytes);
  }
  SECTION("nobody that may have a link") {
    raw_end one{at, "z", authority()};
    one.greet();
    CHECK(one.read_to_end().empty());
  }
  CHECK(a.changes.empty());
}

TEST_CASE("the newest connection of a node takes the place of the one before", "[actors][links]") {
  two_nodes n;
  n.await_up();
  auto open = n.a.ask("b", "hold");
  const auto kept = n.b.held.next();
  {
    raw_end one{n.b_port, "a", authority()};
    one.greet();
    CHECK(one.read(cluster::greeting::bytes).size() == cluster::greeting::bytes);
    n.b.await_down("a");
    CHECK(code_of(std::move(open)) == errc::node_unreachable);
  }
  n.a.await_down("b");
  n.await_up(); // That one has never said hello.
  CHECK(*get(n.a.ask("b", "echo", "back")) == "back");
}

TEST_CASE("who may have a link is asked each time", "[actors][links]") {
  std::atomic<bool> open = false;
  const log_lines log; // The refusal is told once.
  two_nodes n{{}, [&](auto& options) {
                options.may_enter = [&](const std::string& name) { return open && name == "a"; };
              }};
  CHECK(log.has("link.refused peer=a why=\"it may not have a link\""));
  CHECK(n.b.changes.empty());
  open = true;
  n.await_up();
  open = false; // It stays.
  CHECK(*get(n.a.ask("b", "echo", "hello")) == "hello");
}
