#include "runtime/broker/broker.hpp"

#include "base/log.hpp"
#include "runtime/broker/condition.hpp"
#include "runtime/broker/http1.hpp"
#include "runtime/broker/http2.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

namespace insula::runtime::broker {

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::seconds tls_patience = 10s, client_idle = 5min, server_idle = 30s;
constexpr auto end_of_old_rules = 900ms;
constexpr std::size_t most_clients = 10'000, most_idle = 8;
constexpr std::size_t most_servers = 1024, most_of_a_host = 128;
constexpr std::uint16_t https_port = 443;
constexpr std::size_t most_logged = 256; ///< Bytes of a path.

constexpr const char* forwarded_host = "vercel-forwarded-host";
constexpr const char* forwarded_scheme = "vercel-forwarded-scheme";
constexpr const char* forwarded_port = "vercel-forwarded-port";
constexpr const char* forwarded_path = "vercel-forwarded-path";
constexpr const char* identity_token = "vercel-sandbox-oidc-token";
const std::vector<std::string> words_of_forward{forwarded_host, forwarded_scheme, forwarded_port,
                                                forwarded_path, identity_token};

std::int64_t unix_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
           std::chrono::system_clock::now().time_since_epoch())
    .count();
}

/// How many connections to servers there are, with those under way.
struct server_count {
  std::size_t all = 0;
  std::map<std::string, std::size_t> of_host;

  bool has_room(const std::string& host) const {
    const auto at = of_host.find(host);
    return all < most_servers && (at == of_host.end() || at->second < most_of_a_host);
  }
};

/// One of them.
class server_place {
public:
  server_place(std::shared_ptr<server_count> of, std::string host)
      : of_(std::move(of))
      , host_(std::move(host)) {
    ++of_->of_host[host_];
    ++of_->all;
  }
  ~server_place() {
    --of_->all;
    if (const auto at = of_->of_host.find(host_); --at->second == 0)
      of_->of_host.erase(at);
  }
  server_place(const server_place&) = delete;
  server_place& operator=(const server_place&) = delete;

private:
  std::shared_ptr<server_count> of_;
  std::string host_;
};

/// A connection to a server, with one request after the other or with many at once.
struct server_connection {
  server_connection(boost::asio::io_context& io, unique_fd socket, std::unique_ptr<server_place> at)
      : place(std::move(at))
      , way(io, std::move(socket)) {}

  std::unique_ptr<server_place> place;
  stream way;
  std::unique_ptr<outgoing> single;
  std::unique_ptr<http2_connection> shared;
  std::chrono::steady_clock::time_point idle_since{};
  std::uint64_t generation = 0;
  bool was_used = false;
};
using connection_pointer = std::shared_ptr<server_connection>;

/// A connection to a server that is under way. Requests for the same server wait for what comes of
/// it: they may share it.
struct dial_under_way {
  explicit dial_under_way(boost::asio::io_context& io)
      : changed(io.get_executor()) {}

  condition changed;
  bool is_over = false, is_shared = false;
  std::optional<error> failed;
};

/// What is passed on is counted. `set`: headers that a rule has set, which no trailer says again.
class counted_source final : public incoming {
public:
  counted_source(incoming& of, rule_figures& by, std::vector<std::string> set = {})
      : of_(&of)
      , by_(&by)
      , set_(std::move(set)) {
    head = of.head;
  }
  task<result<piece>> body() override {
    auto next = co_await of_->body();
    if (next && *next)
      by_->bytes_out += (*next)->size();
    co_return next;
  }
  const fields& trailers() const override {
    trailers_ = of_->trailers();
    for (const auto& name : set_)
      remove_field(trailers_, name);
    return trailers_;
  }
  task<result<void>> answer(const response_head& with) override {
    by_->last_status = with.status;
    co_return co_await of_->answer(with);
  }
  task<result<void>> send(std::string_view some) override {
    by_->bytes_in += some.size();
    co_return co_await of_->send(some);
  }
  task<result<void>> end(const fields& trailers) override { co_return co_await of_->end(trailers); }
  stream* tunnel() override { return of_->tunnel(); }
  std::string_view early() const override { return of_->early(); }
  void cut_reading() override { of_->cut_reading(); }
  void resume_reading() override { of_->resume_reading(); }
  task<bool> wait_until_gone() override { co_return co_await of_->wait_until_gone(); }
  void cut() override { of_->cut(); }

private:
  incoming* of_;
  rule_figures* by_;
  std::vector<std::string> set_;
  mutable fields trailers_;
};

} // namespace

/// Lines of the log: so many in a second, and the number of those that were left out before one.
class line_allowance {
public:
  /// None: this one is left out.
  std::optional<std::uint64_t> take() {
    const auto now = std::chrono::steady_clock::now();
    if (now - since_ >= 1s) {
      since_ = now;
      count_ = 0;
    }
    if (count_ >= most_lines) {
      ++left_out_;
      return std::nullopt;
    }
    ++count_;
    return std::exchange(left_out_, 0);
  }

private:
  static constexpr unsigned most_lines = 20;

  std::chrono::steady_clock::time_point since_{};
  unsigned count_ = 0;
  std::uint64_t left_out_ = 0;
};

class broker::impl : public std::enable_shared_from_this<impl> {
public:
  impl(boost::asio::io_context& io, surroundings& around, std::shared_ptr<SSL_CTX> trusted,
       std::string sandbox)
      : io_(io)
      , around_(around)
      , sandbox_(std::move(sandbox))
      , trusted_(std::move(trusted))
      , sweep_(io) {}

  void use(std::shared_ptr<const rule_set> rules, std::shared_ptr<authority> of_sandbox) {
    rules_ = std::move(rules);
    authority_ = std::move(of_sandbox);
    figures_ = std::make_shared<std::vector<rule_figures>>(rules_ ? rules_->size() : 0);
    end_servers();
  }
  void end_servers() {
    ++generation_;
    let_go_of(drops::all);
    // What goes on may have a moment to end.
    auto old = std::exchange(clients_, {});
    if (old.empty())
      return;
    const auto timer = std::make_shared<boost::asio::steady_timer>(io_, end_of_old_rules);
    timer->async_wait([timer, old = std::move(old)](const boost::system::error_code&) {
      for (const auto& each : old)
        if (const auto there = each.lock())
          there->cut();
    });
  }
  std::vector<rule_figures> figures() const {
    return figures_ ? *figures_ : std::vector<rule_figures>{};
  }
  std::size_t open() const { return open_; }
  std::pair<std::uint64_t, std::uint64_t> open_bytes() const {
    std::pair<std::uint64_t, std::uint64_t> all;
    for (const auto& each : served_) {
      all.first += each->bytes_read();
      all.second += each->bytes_written();
    }
    return all;
  }
  void end() {
    ends_ = true;
    let_go_of(drops::all);
    sweep_.cancel();
    for (const auto& each : std::exchange(clients_, {}))
      if (const auto there = each.lock())
        there->cut();
  }

  task<void> serve(unique_fd socket, std::string name, std::uint16_t port, served& told) {
    const auto me = shared_from_this();
    if (ends_ || !authority_ || open_ >= most_clients)
      co_return;
    const auto client = std::make_shared<stream>(io_, std::move(socket));
    clients_.insert(client);
    served_.insert(client.get());
    ++open_;
    const at_end leaves{[&] {
      told.from_client = client->bytes_read();
      told.to_client = client->bytes_written();
      --open_;
      clients_.erase(client);
      served_.erase(client.get());
      client->cut();
    }};
    told.cut = [which = std::weak_ptr<stream>{client}] {
      if (const auto there = which.lock())
        there->cut();
    };
    const auto context = authority_->context_for(name, unix_s());
    if (!context)
      co_return;
    // Tasks of requests may outlive this one, so they have all of their own.
    const request_handler handle = [me, name, port, rules = rules_,
                                    figures = figures_](incoming& in) -> task<exchanged> {
      co_return co_await me->pass(in, name, port, rules, figures);
    };
    const auto secured = co_await client->accept_tls(**context, tls_patience);
    if (secured && client->protocol() == "h2")
      co_await serve_http2(*client, handle, client_idle);
    else if (secured)
      co_await serve_http1(*client, handle, client_idle);
  }

private:
  using shared_figures = std::shared_ptr<std::vector<rule_figures>>;

  enum class drops : std::uint8_t { old, unused, all };

  /// Nothing of a header, a query or a body is logged: they have keys in them.
  task<exchanged> pass(incoming& in, const std::string& name, std::uint16_t port,
                       std::shared_ptr<const rule_set> rules, shared_figures figures) {
    const auto method = in.head.method;
    const std::string path{in.head.path().substr(0, most_logged)};
    const auto done = co_await carry_out(in, name, port, std::move(rules), std::move(figures));
    if (const auto left_out = lines_.take())
      log::info("broker.request", {{"sandbox", sandbox_},
                                   {"name", name},
                                   {"method", method},
                                   {"path", path},
                                   {"status", done.status},
                                   {"left_out", *left_out}});
    co_return done;
  }

  task<exchanged> carry_out(incoming& in, const std::string& name, std::uint16_t port,
                            std::shared_ptr<const rule_set> rules, shared_figures figures) {
    const auto host = host_of(in.head.authority);
    if (host != name || port_of(in.head.authority, https_port) != port) {
      around_.refused(host, port, "a request for another host than its connection is for");
      co_return co_await refuse(in, 421, "This connection is for " + name + " alone.");
    }
    if (!rules->covers(name)) // Others are the broker's until the gateway has heard of new rules.
      co_return co_await refuse(in, 503,
                                "There are no rules for " + name + " any more; ask again.");
    if (in.head.target != "*" && rules->looks_at_paths(name))
      if (const auto why = why_unclear(in.head.path()); !why.empty())
        co_return co_await refuse(in, 400, why);
    auto head = in.head;
    const auto at = rules->find(name, head);
    if (!at)
      co_return co_await to_server(in, head, name, port);
    auto& by = (*figures)[*at];
    ++by.requests;
    const auto& action = (*rules)[*at].action;
    const auto* const set_headers = std::get_if<transform_action>(&action);
    auto names = words_of_forward;
    if (set_headers != nullptr) {
      names.clear();
      for (const auto& [field_name, value] : set_headers->headers)
        names.push_back(lower_case(field_name));
    }
    counted_source counted{in, by, std::move(names)};
    if (const auto* said = std::get_if<respond_action>(&action)) {
      response_head own;
      own.status = said->status;
      for (const auto& [field_name, value] : said->headers)
        own.rest.push_back({lower_case(field_name), value});
      co_return co_await answer(counted, std::move(own), said->body);
    }
    if (set_headers != nullptr) {
      for (const auto& [field_name, value] : set_headers->headers)
        set(head.rest, lower_case(field_name), value);
      co_return co_await to_server(counted, head, name, port);
    }
    co_return co_await forward(counted, std::move(head), std::get<forward_action>(action), name,
                               port);
  }

  task<exchanged> forward(incoming& in, request_head head, const forward_action& to,
                          const std::string& name, std::uint16_t port) {
    const auto place = place_of(to);
    if (in.head.target != "*") // The path goes below that of the URL.
      if (const auto why = why_unclear(in.head.path()); !why.empty())
        co_return co_await refuse(in, 400, why);
    const auto token = co_await around_.token(to.url);
    if (!token)
      co_return co_await refuse(in, 502,
                                "The request was not forwarded: " + token.reason().message);
    for (const auto& own : words_of_forward)
      remove_field(head.rest, own);
    const auto target = head.target == "*" ? std::string{"/"} : head.target;
    head.rest.push_back({forwarded_host, name});
    head.rest.push_back({forwarded_scheme, "https"});
    head.rest.push_back({forwarded_port, std::to_string(port)});
    head.rest.push_back({forwarded_path, target});
    head.rest.push_back({identity_token, *token});
    head.authority = place.authority;
    head.target = place.path + target;
    co_return co_await to_server(in, head, place.host, place.port);
  }

  task<exchanged> to_server(incoming& in, const request_head& head, const std::string& host,
                            std::uint16_t port) {
    connection_pointer before;
    for (;;) {
      auto got = co_await connect(host, port, !head.upgrade.empty(), before);
      if (!got) {
        const unsigned status = got.reason().code == errc::limit_reached ? 503 : 502;
        co_return co_await refuse(in, status, got.reason().message);
      }
      const auto with = *got;
      std::unique_ptr<outgoing> one;
      if (with->shared)
        one = with->shared->begin();
      outgoing* const out = with->shared ? one.get() : with->single.get();
      result<exchanged> done = error{errc::io_failed, "the server takes no more requests"};
      attempt how;
      how.was_not_begun = out == nullptr;
      if (out != nullptr)
        done = co_await exchange(in, head, *out, &how);
      if (done) {
        if (!with->shared && out->can_be_used_again())
          keep(host, port, with);
        co_return *done;
      }
      if (how.client_is_gone)
        co_return exchanged{};
      // One that was kept may have ended meanwhile, before it had this request.
      const bool can_repeat = how.was_not_begun || (with->was_used && is_idempotent(head.method));
      if (before || !can_repeat || how.was_answered || how.body_was_taken)
        co_return co_await refuse(in, status_of(done.reason()),
                                  host + ": " + done.reason().message);
      before = with;
    }
  }

  static unsigned status_of(const error& why) {
    switch (why.code) {
      case errc::invalid_request: return 400; // The client's body.
      case errc::limit_reached: return 431;   // Its head, with what rules set.
      default: return 502;
    }
  }

  /// One that was kept, and takes a request. `before`: it has failed, so none that was kept like it
  /// is taken. Null: there is none.
  connection_pointer take_kept(const std::string& key, const connection_pointer& before) {
    const auto at = idle_.find(key);
    if (at == idle_.end())
      return nullptr;
    auto& kept = at->second;
    for (auto each = kept.begin(); each != kept.end();) {
      auto found = *each;
      if (found->shared && (found == before || !found->shared->takes_more())) {
        ++each; // It goes when its requests have ended.
        continue;
      }
      if (!found->shared)
        each = kept.erase(each);
      if (!found->shared && (before || !found->way.is_quiet()))
        continue;
      found->was_used = true;
      found->idle_since = std::chrono::steady_clock::now();
      return found;
    }
    return nullptr;
  }

  /// `before`: one with which the request has failed.
  task<result<connection_pointer>> connect(const std::string& host, std::uint16_t port,
                                           bool upgrades, const connection_pointer& before) {
    const auto key = key_of(host, port);
    std::shared_ptr<dial_under_way> own;
    // An upgrade has a connection to itself, and so has each request to a server of HTTP/1.1.
    while (!upgrades) {
      let_go_of(drops::old);
      if (auto found = take_kept(key, before))
        co_return found;
      const auto other = dials_.find(key);
      if (other == dials_.end()) {
        own = dials_[key] = std::make_shared<dial_under_way>(io_);
        break;
      }
      const auto joined = other->second;
      while (!joined->is_over)
        co_await joined->changed.wait();
      if (joined->failed)
        co_return *joined->failed;
      if (!joined->is_shared)
        break;
    }
    const at_end tells{[&] {
      if (!own)
        return;
      dials_.erase(key);
      own->is_over = true;
      own->changed.tell();
    }};
    auto made = co_await dial(host, port, upgrades, key);
    if (own && !made)
      own->failed = made.reason();
    if (own && made)
      own->is_shared = (*made)->shared != nullptr;
    co_return made;
  }

  task<result<connection_pointer>> dial(const std::string& host, std::uint16_t port, bool upgrades,
                                        const std::string& key) {
    if (!servers_->has_room(key))
      let_go_of(drops::unused);
    if (!servers_->has_room(key))
      co_return error{errc::limit_reached,
                      host + ": there are too many connections to it, or to " + "all servers"};
    auto place = std::make_unique<server_place>(servers_, key);
    const auto generation = generation_;
    auto socket = co_await around_.dial(host, port);
    if (!socket)
      co_return error{errc::io_failed, host + ": " + socket.reason().message};
    const auto made =
      std::make_shared<server_connection>(io_, std::move(*socket), std::move(place));
    const auto secured = co_await made->way.connect_tls(*trusted_, host, tls_patience, !upgrades);
    if (!secured)
      co_return error{errc::io_failed, host + ": " + secured.reason().message};
    if (generation != generation_) // Where it leads may be denied by now.
      co_return error{errc::io_failed, host + ": what it may reach has changed; ask again"};
    made->generation = generation;
    if (made->way.protocol() != "h2") {
      made->single = make_http1_outgoing(made->way);
      co_return made;
    }
    made->shared = std::make_unique<http2_connection>(made->way);
    made->idle_since = std::chrono::steady_clock::now();
    boost::asio::co_spawn(
      io_,
      [made, me = shared_from_this(), key]() -> task<void> {
        const at_end leaves{[&] { me->forget(key, made); }};
        co_await made->shared->run();
      },
      boost::asio::detached);
    if (ends_)
      made->shared->cut();
    else
      idle_[key].push_back(made);
    sweep_later();
    co_return made;
  }

  void keep(const std::string& host, std::uint16_t port, const connection_pointer& which) {
    if (ends_ || which->generation != generation_)
      return;
    auto& kept = idle_[key_of(host, port)];
    if (kept.size() >= most_idle)
      return;
    which->idle_since = std::chrono::steady_clock::now();
    kept.push_front(which);
    sweep_later();
  }
  /// Of connections to servers that no request has. One that is used goes on for those who use it.
  void let_go_of(drops these) {
    const auto now = std::chrono::steady_clock::now();
    for (auto at = idle_.begin(); at != idle_.end();) {
      at->second.remove_if([&](const connection_pointer& each) {
        const bool is_used = each->shared && each->shared->open_requests() > 0;
        if (is_used || (these == drops::old && now - each->idle_since < server_idle))
          return these == drops::all;
        if (each->shared)
          each->shared->cut();
        return true;
      });
      at = at->second.empty() ? idle_.erase(at) : std::next(at);
    }
  }
  void sweep_later() {
    if (std::exchange(sweeps_, true))
      return;
    sweep_.expires_after(server_idle);
    sweep_.async_wait([weak = weak_from_this()](const boost::system::error_code& stopped) {
      const auto me = weak.lock();
      if (!me || stopped)
        return;
      me->sweeps_ = false;
      me->let_go_of(drops::old);
      if (!me->idle_.empty())
        me->sweep_later();
    });
  }
  void forget(const std::string& key, const connection_pointer& which) {
    if (const auto at = idle_.find(key); at != idle_.end())
      at->second.remove(which);
  }
  static std::string key_of(const std::string& host, std::uint16_t port) {
    return host + ':' + std::to_string(port);
  }

  boost::asio::io_context& io_;
  surroundings& around_;
  const std::string sandbox_; ///< For the log.
  line_allowance lines_;
  const std::shared_ptr<SSL_CTX> trusted_;
  std::shared_ptr<const rule_set> rules_;
  std::shared_ptr<authority> authority_;
  shared_figures figures_;
  std::set<std::weak_ptr<stream>, std::owner_less<>> clients_; ///< Of the rules that hold now.
  std::set<const stream*> served_;                             ///< All that are there.
  std::map<std::string, std::list<connection_pointer>> idle_;
  std::map<std::string, std::shared_ptr<dial_under_way>> dials_;
  const std::shared_ptr<server_count> servers_ = std::make_shared<server_count>();
  boost::asio::steady_timer sweep_;
  std::size_t open_ = 0;
  std::uint64_t generation_ = 0; ///< Of connections to servers: those of an earlier one end.
  bool ends_ = false, sweeps_ = false;
};

broker::broker(boost::asio::io_context& io, surroundings& around, std::shared_ptr<SSL_CTX> trusted,
               std::string sandbox)
    : impl_(std::make_shared<impl>(io, around, std::move(trusted), std::move(sandbox))) {}

broker::~broker() {
  impl_->end();
}

void broker::use(std::shared_ptr<const rule_set> rules, std::shared_ptr<authority> of_sandbox) {
  impl_->use(std::move(rules), std::move(of_sandbox));
}

void broker::end_servers() {
  impl_->end_servers();
}

std::vector<rule_figures> broker::figures() const {
  return impl_->figures();
}

task<void> broker::serve(unique_fd client, std::string name, std::uint16_t port, served& told) {
  const auto me = impl_;
  co_await me->serve(std::move(client), std::move(name), port, told);
}

std::pair<std::uint64_t, std::uint64_t> broker::open_bytes() const {
  return impl_->open_bytes();
}

std::size_t broker::open_connections() const {
  return impl_->open();
}

void broker::end() {
  impl_->end();
}

} // namespace insula::runtime::broker
