#include "runtime/broker/broker.hpp"

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
constexpr std::uint16_t https_port = 443;

constexpr const char* forwarded_host = "vercel-forwarded-host";
constexpr const char* forwarded_scheme = "vercel-forwarded-scheme";
constexpr const char* forwarded_port = "vercel-forwarded-port";
constexpr const char* forwarded_path = "vercel-forwarded-path";
constexpr const char* identity_token = "vercel-sandbox-oidc-token";

std::int64_t unix_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
           std::chrono::system_clock::now().time_since_epoch())
    .count();
}

/// "https://HOST[:PORT]/PATH", as normalise_forward_url() gives it.
struct forward_url {
  std::string authority, path;

  explicit forward_url(const std::string& url) {
    constexpr std::string_view scheme = "https://";
    const auto rest = std::string_view{url}.substr(scheme.size());
    const auto slash = rest.find('/');
    authority = rest.substr(0, slash);
    if (slash != std::string_view::npos)
      path = rest.substr(slash);
  }
};

/// A connection to a server, with one request after the other or with many at once.
struct server_connection {
  explicit server_connection(boost::asio::io_context& io, unique_fd socket)
      : way(io, std::move(socket)) {}

  stream way;
  std::unique_ptr<outgoing> single;
  std::unique_ptr<http2_connection> shared;
  std::chrono::steady_clock::time_point idle_since{};
  bool was_used = false;
};
using connection_pointer = std::shared_ptr<server_connection>;

/// What is passed on is counted.
class counted_source final : public incoming {
public:
  counted_source(incoming& of, rule_figures& by)
      : of_(&of)
      , by_(&by) {
    head = of.head;
  }
  task<result<piece>> body() override {
    auto next = co_await of_->body();
    if (next && *next)
      by_->bytes_out += (*next)->size();
    co_return next;
  }
  const fields& trailers() const override { return of_->trailers(); }
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
  void cut() override { of_->cut(); }

private:
  incoming* of_;
  rule_figures* by_;
};

} // namespace

class broker::impl : public std::enable_shared_from_this<impl> {
public:
  impl(boost::asio::io_context& io, surroundings& around, std::shared_ptr<SSL_CTX> trusted)
      : io_(io)
      , around_(around)
      , trusted_(std::move(trusted))
      , sweep_(io) {}

  void use(std::shared_ptr<const rule_set> rules, std::shared_ptr<authority> of_sandbox) {
    rules_ = std::move(rules);
    authority_ = std::move(of_sandbox);
    figures_ = std::make_shared<std::vector<rule_figures>>(rules_ ? rules_->size() : 0);
    end_servers();
  }
  void end_servers() {
    let_go_of_idle(true);
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
  void end() {
    ends_ = true;
    let_go_of_idle(true);
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
    told.cut = [which = std::weak_ptr<stream>{client}] {
      if (const auto there = which.lock())
        there->cut();
    };
    ++open_;
    const auto rules = rules_;
    const auto figures = figures_;
    const auto context = authority_->context_for(name, unix_s());
    if (context) {
      const auto secured = co_await client->accept_tls(**context, tls_patience);
      const request_handler handle = [&](incoming& in) -> task<exchanged> {
        co_return co_await pass(in, name, port, rules, figures);
      };
      if (secured && client->protocol() == "h2")
        co_await serve_http2(*client, handle, client_idle);
      else if (secured)
        co_await serve_http1(*client, handle, client_idle);
    }
    told.from_client = client->bytes_read();
    told.to_client = client->bytes_written();
    --open_;
    clients_.erase(client);
    client->cut();
  }

private:
  using shared_figures = std::shared_ptr<std::vector<rule_figures>>;

  task<exchanged> pass(incoming& in, const std::string& name, std::uint16_t port,
                       std::shared_ptr<const rule_set> rules, shared_figures figures) {
    const auto host = host_of(in.head.authority);
    if (host != name || port_of(in.head.authority, https_port) != port) {
      around_.refused(host, port, "a request for another host than its connection is for");
      co_return co_await refuse(in, 421, "This connection is for " + name + " alone.");
    }
    auto head = in.head;
    const auto at = rules->find(name, head);
    if (!at)
      co_return co_await to_server(in, head, name, port);
    auto& by = (*figures)[*at];
    ++by.requests;
    counted_source counted{in, by};
    const auto& action = (*rules)[*at].action;
    if (const auto* said = std::get_if<respond_action>(&action)) {
      response_head own;
      own.status = said->status;
      for (const auto& [field_name, value] : said->headers)
        own.rest.push_back({lower_case(field_name), value});
      co_return co_await answer(counted, std::move(own), said->body);
    }
    if (const auto* set_headers = std::get_if<transform_action>(&action)) {
      for (const auto& [field_name, value] : set_headers->headers)
        set(head.rest, lower_case(field_name), value);
      co_return co_await to_server(counted, head, name, port);
    }
    co_return co_await forward(counted, std::move(head), std::get<forward_action>(action), name,
                               port);
  }

  task<exchanged> forward(incoming& in, request_head head, const forward_action& to,
                          const std::string& name, std::uint16_t port) {
    const forward_url url{to.url};
    const auto token = co_await around_.token(to.url);
    if (!token)
      co_return co_await refuse(in, 502,
                                "The request was not forwarded: " + token.reason().message);
    for (const auto* own :
         {forwarded_host, forwarded_scheme, forwarded_port, forwarded_path, identity_token})
      remove_field(head.rest, own);
    const auto target = head.target == "*" ? std::string{"/"} : head.target;
    head.rest.push_back({forwarded_host, name});
    head.rest.push_back({forwarded_scheme, "https"});
    head.rest.push_back({forwarded_port, std::to_string(port)});
    head.rest.push_back({forwarded_path, target});
    head.rest.push_back({identity_token, *token});
    head.authority = url.authority;
    head.target = url.path + target;
    co_return co_await to_server(in, head, host_of(url.authority),
                                 port_of(url.authority, https_port).value_or(https_port));
  }

  task<exchanged> to_server(incoming& in, const request_head& head, const std::string& host,
                            std::uint16_t port) {
    const bool can_repeat = head.body_bytes == std::optional<std::uint64_t>{0};
    for (bool again = false;; again = true) {
      auto got = co_await connect(host, port, !head.upgrade.empty(), again);
      if (!got)
        co_return co_await refuse(in, 502, got.reason().message);
      const auto with = *got;
      std::unique_ptr<outgoing> one;
      if (with->shared)
        one = with->shared->begin();
      outgoing* const out = with->shared ? one.get() : with->single.get();
      result<exchanged> done = error{errc::io_failed, "the server takes no more requests"};
      if (out != nullptr)
        done = co_await exchange(in, head, *out);
      if (done) {
        if (!with->shared && out->can_be_used_again())
          keep(host, port, with);
        co_return *done;
      }
      // One that was kept may have ended meanwhile, before it had this request.
      if (again || !with->was_used || !can_repeat)
        co_return co_await refuse(in, 502, host + ": " + done.reason().message);
    }
  }

  /// `fresh`: none that was kept.
  task<result<connection_pointer>> connect(const std::string& host, std::uint16_t port,
                                           bool upgrades, bool fresh) {
    let_go_of_idle(false);
    auto& kept = idle_[key_of(host, port)];
    if (!fresh && !upgrades)
      for (auto at = kept.begin(); at != kept.end(); ++at) {
        const auto found = *at;
        found->was_used = true;
        if (found->shared) {
          found->idle_since = std::chrono::steady_clock::now();
          co_return found;
        }
        kept.erase(at);
        co_return found;
      }
    auto socket = co_await around_.dial(host, port);
    if (!socket)
      co_return error{socket.reason().code, host + ": " + socket.reason().message};
    const auto made = std::make_shared<server_connection>(io_, std::move(*socket));
    const auto secured = co_await made->way.connect_tls(*trusted_, host, tls_patience, !upgrades);
    if (!secured)
      co_return error{secured.reason().code, host + ": " + secured.reason().message};
    if (made->way.protocol() == "h2") {
      made->shared = std::make_unique<http2_connection>(made->way);
      made->idle_since = std::chrono::steady_clock::now();
      boost::asio::co_spawn(
        io_,
        [made, me = shared_from_this(), key = key_of(host, port)]() -> task<void> {
          co_await made->shared->run();
          me->forget(key, made);
        },
        boost::asio::detached);
      if (ends_)
        made->shared->cut();
      else
        idle_[key_of(host, port)].push_back(made);
      sweep_later();
    } else {
      made->single = make_http1_outgoing(made->way);
    }
    co_return made;
  }

  void keep(const std::string& host, std::uint16_t port, const connection_pointer& which) {
    auto& kept = idle_[key_of(host, port)];
    if (ends_ || kept.size() >= most_idle)
      return;
    which->idle_since = std::chrono::steady_clock::now();
    kept.push_front(which);
    sweep_later();
  }
  void let_go_of_idle(bool all) {
    const auto now = std::chrono::steady_clock::now();
    for (auto at = idle_.begin(); at != idle_.end();) {
      at->second.remove_if([&](const connection_pointer& each) {
        const bool is_used = each->shared && each->shared->open_requests() > 0;
        if (is_used || (!all && now - each->idle_since < server_idle))
          return all; // One that is used goes on for those who use it.
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
      me->let_go_of_idle(false);
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
  const std::shared_ptr<SSL_CTX> trusted_;
  std::shared_ptr<const rule_set> rules_;
  std::shared_ptr<authority> authority_;
  shared_figures figures_;
  std::set<std::weak_ptr<stream>, std::owner_less<>> clients_;
  std::map<std::string, std::list<connection_pointer>> idle_;
  boost::asio::steady_timer sweep_;
  std::size_t open_ = 0;
  bool ends_ = false, sweeps_ = false;
};

broker::broker(boost::asio::io_context& io, surroundings& around, std::shared_ptr<SSL_CTX> trusted)
    : impl_(std::make_shared<impl>(io, around, std::move(trusted))) {}

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

std::size_t broker::open_connections() const {
  return impl_->open();
}

void broker::end() {
  impl_->end();
}

} // namespace insula::runtime::broker
