#include "http/server.hpp"

#include "base/clock.hpp"
#include "base/log.hpp"
#include "http/api/dispatcher.hpp"
#include "http/api/openapi.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/idempotency.hpp"
#include "http/cluster/gateway.hpp"
#include "http/console/console.hpp"
#include "http/oidc/api.hpp"
#include "http/opensandbox/access.hpp"
#include "http/opensandbox/api.hpp"
#include "http/preview/door.hpp"
#include "http/preview/links.hpp"
#include "http/sandboxes/keyed_id.hpp"
#include "http/sandboxes/services.hpp"
#include "http/sandboxes/session_id.hpp"
#include "http/transport/node_fields.hpp"
#include "http/vercel/api.hpp"
#include "http/vercel/login.hpp"
#include "http/vercel/port_names.hpp"

#include <algorithm>
#include <functional>
#include <vector>

namespace insula::http {

class server::impl {
public:
  impl(io_pool& io, caf::actor_system& system, server_options options, directory_actor directory,
       health_probe health)
      : io_(io)
      , key_(options.api_key, options.named_keys)
      , browsers_(std::make_shared<sign_ins>(options.tls.has_value()))
      , forwarder_(forwarder_of(io, options))
      , links_(links_of(options))
      , with_(services_of(system, options, std::move(directory), std::move(health)))
      , door_(io,
              {options.address, options.port, options.tls, options.max_connections,
               options.buffered_body_bytes, options.time, counts_, options.inherited},
              asking({.known = credentials{key_, browsers_, links_},
                      .pages = page_guard{options.allowed_hosts},
                      .apis = all_apis(options),
                      .counts = counts_,
                      .claims = previews(options),
                      .others = others(options),
                      .keeps_snapshots = options.keeps_snapshots,
                      .wrong_keys = wrong_keys_,
                      .sign_in_page = &console::page}))
      , address_(options.address)
      , encrypted_(options.tls.has_value()) {
    if (options.metrics)
      add_metrics(options);
    if (options.execd)
      add_execd(options);
    if (options.cluster)
      add_internal(options);
  }

  result<void> start() {
    if (forwarder_)
      if (auto ready = forwarder_->prepare(); !ready)
        return ready;
    auto started = door_.start();
    if (!started)
      return started;
    log::info("http.listening",
              {{"address", address_}, {"port", door_.port()}, {"tls", encrypted_ ? "yes" : "no"}});
    if (key_.open())
      log::warning("http.no_key",
                   {{"what", "no API key is set: whoever reaches this port may use it"}});
    for (auto* each : {&metrics_, &execd_, &internal_})
      if (*each)
        if (auto also = (*each)->start(); !also)
          return also;
    return started;
  }

  ~impl() {
    stop({});
    if (forwarder_)
      forwarder_->stop();
    io_.settle();    // What requests had begun has been handed to the workers,
    workers_->end(); // and has been done,
    io_.settle();    // and is over: whoever asks now asks nobody.
  }

  std::uint16_t port() const { return door_.port(); }
  std::uint16_t metrics_port() const { return metrics_ ? metrics_->port() : 0; }
  std::uint16_t execd_port() const { return execd_ ? execd_->port() : 0; }
  std::uint16_t internal_port() const { return internal_ ? internal_->port() : 0; }
  void break_off(const std::string& node, bool all) {
    if (forwarder_)
      forwarder_->break_off(node, all);
  }
  result<void> renew(const std::string& api_key, const std::vector<named_key>& named_keys,
                     const std::optional<tls_text>& text) {
    std::vector<std::function<void()>> renewals; // All doors have theirs, or none has.
    if (text) {
      std::vector<front_door*> doors{&door_};
      for (auto* each : {&metrics_, &execd_})
        if (*each)
          doors.push_back(&(*each)->door());
      for (auto* each : doors) {
        auto next = each->next_certificate(*text);
        if (!next)
          return next.reason();
        renewals.push_back(std::move(*next));
      }
    }
    for (const auto& each : renewals)
      each();
    if (key_.open())
      return {};
    const bool is_other = !key_.is_key(api_key);
    key_.replace(api_key, named_keys);
    if (is_other) {
      browsers_->close_all();
      device_codes_->clear();
    }
    return {};
  }
  void stop_accepting() {
    door_.stop_accepting();
    for (auto* each : {&metrics_, &execd_, &internal_})
      if (*each)
        (*each)->stop_accepting();
  }
  void stop(std::chrono::milliseconds patience) {
    using clock = std::chrono::steady_clock;
    const auto until = clock::now() + patience;
    door_.stop(patience);
    if (execd_)
      execd_->stop(patience);
    if (internal_) // Other nodes' clients have had as long.
      internal_->stop(std::chrono::floor<std::chrono::milliseconds>(
        std::max(until - clock::now(), clock::duration::zero())));
    if (metrics_)
      metrics_->stop({});
  }

private:
  /// The door and its connections keep the dispatcher.
  static front_door::admit_fn asking(dispatcher::options is) {
    return [kept = std::make_shared<const dispatcher>(std::move(is))](const request_head& head) {
      return kept->admit(head);
    };
  }

  /// A further door, for some routes alone.
  class side_door {
  public:
    side_door(io_pool& io, front_door_options where, front_door::admit_fn admit, std::string event)
        : event_(std::move(event))
        , address_(where.address)
        , door_(io, std::move(where), std::move(admit)) {}

    result<void> start() {
      auto started = door_.start();
      if (started)
        log::info(event_, {{"address", address_}, {"port", door_.port()}});
      return started;
    }
    std::uint16_t port() const { return door_.port(); }
    front_door& door() { return door_; }
    void stop_accepting() { door_.stop_accepting(); }
    void stop(std::chrono::milliseconds patience) { door_.stop(patience); }

  private:
    const std::string event_;
    const std::string address_;
    front_door door_;
  };

  /// For a network that only those who watch can reach.
  void add_metrics(const server_options& options) {
    const auto& where = *options.metrics;
    metrics_.emplace(io_,
                     front_door_options{where.address, where.port,
                                        where.asks_key ? options.tls : std::nullopt,
                                        limits::metrics_connections, options.buffered_body_bytes,
                                        options.time, counts_, options.inherited},
                     asking({.known = credentials{where.asks_key ? key_ : key_check{{}}},
                             .pages = page_guard{options.allowed_hosts},
                             .apis = {bridge::make_metrics_api(with_)},
                             .counts = counts_,
                             .wrong_keys = wrong_keys_}),
                     "http.metrics_listening");
  }

  /// For one sandbox: no client can have its id made by a key of its own.
  void add_execd(const server_options& options) {
    const auto id = keyed_id(options.secret, "\nexecd");
    execd_.emplace(io_,
                   front_door_options{options.execd->address, options.execd->port, options.tls,
                                      options.max_connections, options.buffered_body_bytes,
                                      options.time, counts_, options.inherited},
                   asking({.known = credentials{key_, nullptr, links_},
                           .pages = page_guard{options.allowed_hosts},
                           .apis = {opensandbox::make_execd_api(with_, id)},
                           .counts = counts_,
                           .claims = previews(options, id),
                           .others = others(options, node_fields::execd_door),
                           .keeps_snapshots = options.keeps_snapshots,
                           .wrong_keys = wrong_keys_}),
                   "http.execd_listening");
  }

  /// For other nodes, which have let in whoever asks: the main door's routes, and execd's for what
  /// has come by that door.
  void add_internal(const server_options& options) {
    const auto& where = *options.cluster;
    const auto of_node =
      std::make_shared<const cluster::gateway>(forwarder_, cluster::gateway::door::node);
    using apis = std::vector<std::shared_ptr<const public_api>>;
    const auto inside = [&](apis served, std::string execd_of) {
      return asking({.known = credentials{key_check{{}}, nullptr, links_},
                     .keys = key_,
                     .apis = std::move(served),
                     .counts = counts_,
                     .claims = previews(options, std::move(execd_of), true),
                     .others = of_node,
                     .keeps_snapshots = options.keeps_snapshots});
    };
    const auto id = keyed_id(options.secret, "\nexecd");
    front_door_options how{where.address,
                           where.port,
                           where.tls,
                           options.max_connections,
                           options.buffered_body_bytes,
                           options.time,
                           counts_,
                           options.inherited};
    how.knows = [way = where.routing](std::string_view name) {
      return !name.empty() && !way->member(name).empty();
    };
    internal_.emplace(
      io_, std::move(how),
      [main = inside(all_apis(options, true), {}),
       execd = inside({opensandbox::make_execd_api(with_, id)}, id)](const request_head& head) {
        const bool by_execd = head.field(node_fields::door_field) == node_fields::execd_door;
        return (by_execd ? execd : main)(head);
      },
      "http.internal_listening");
  }

  static std::shared_ptr<cluster::forwarder> forwarder_of(io_pool& io,
                                                          const server_options& options) {
    return options.cluster ? std::make_shared<cluster::forwarder>(io, options.cluster->routing,
                                                                  options.cluster->tls)
                           : nullptr;
  }

  /// Null: there are no other nodes.
  std::shared_ptr<const cluster::gateway> others(const server_options& options,
                                                 std::string_view door = {}) const {
    return forwarder_
             ? std::make_shared<const cluster::gateway>(forwarder_, cluster::gateway::door::own,
                                                        options.tls.has_value(), std::string{door})
             : nullptr;
  }

  std::shared_ptr<const services> services_of(caf::actor_system& system,
                                              const server_options& options,
                                              directory_actor directory, health_probe health) {
    services with;
    with.system = &system;
    with.directory = std::move(directory);
    with.pool = options.pool;
    with.images = options.images;
    if (options.cluster)
      with.cluster = options.cluster->control;
    with.missing_parts = std::move(health);
    if (options.cluster)
      with.missing_parts = [parts = std::move(with.missing_parts), way = options.cluster->routing] {
        auto missing = parts ? parts() : std::vector<std::string>{};
        if (!way->may_serve())
          missing.push_back("this node is cut off from the others");
        return missing;
      };
    with.heartbeat = options.heartbeat;
    with.key = key_;
    with.secrets = options.secrets;
    with.secret = options.secret;
    with.default_session = options.default_session;
    with.projects = options.projects;
    with.drive_bytes = options.drive_bytes;
    with.any_image = options.any_image;
    with.probe_patience = options.probe_patience;
    with.start_message_patience = options.start_message_patience;
    with.spool_directory = options.spool_directory;
    with.spooled = std::make_shared<byte_budget>(limits::spooled_body_bytes);
    with.decompressors = std::make_shared<byte_budget>(limits::open_decompressors);
    with.workers = workers_;
    with.links = links_;
    with.encrypted = options.tls.has_value();
    with.started_ms = system_clock{}.unix_ms();
    with.write_figures = [counts = counts_, more = options.more_figures](metrics::text& into) {
      counts->write(into);
      if (more)
        more(into);
    };
    return std::make_shared<const services>(std::move(with));
  }

  /// Ports of sandboxes that OpenSandbox's API serves itself.
  static std::vector<preview::served_port> served_ports() {
    return {{opensandbox::execd_port, opensandbox::access::execd},
            {opensandbox::egress_port, nullptr}};
  }

  static std::shared_ptr<const preview::links> links_of(const server_options& options) {
    return std::make_shared<const preview::links>(preview::links::settings{
      options.preview_domain,
      options.secret,
      options.tls.has_value(),
      !options.api_key.empty(),
      options.previews_public,
      {{opensandbox::execd_port, "port " + std::to_string(opensandbox::execd_port) +
                                   " is execd's: a token for it would run commands; ask for it as "
                                   "OpenSandbox's endpoint"}}});
  }

  std::shared_ptr<const preview::door> previews(const server_options& options,
                                                std::string execd_of = {},
                                                bool behind_node = false) const {
    return std::make_shared<const preview::door>(preview::settings{options.preview_domain,
                                                                   options.previews_public,
                                                                   options.secret,
                                                                   options.tls.has_value(),
                                                                   behind_node,
                                                                   opensandbox::access::key,
                                                                   {"bridge", "opensandbox"},
                                                                   {"opensandbox"},
                                                                   served_ports(),
                                                                   {vercel::make_port_names(with_)},
                                                                   std::move(execd_of)},
                                                 with_, links_, key_,
                                                 page_guard{options.allowed_hosts});
  }

  /// Of two that have a path the first says what is wrong with it.
  std::vector<std::shared_ptr<const public_api>> all_apis(const server_options& options,
                                                          bool behind_node = false) const {
    std::vector<std::shared_ptr<const public_api>> all{
      opensandbox::make_api(with_), vercel::make_api(with_),
      console::make_api(std::make_shared<const console::services>(
        console::services{with_, key_, browsers_, wrong_keys_,
                          options.cluster ? options.cluster->routing->self() : std::string{}}))};
    all.push_back(vercel::make_login_api(
      with_, {.node = options.cluster ? options.cluster->routing->self() : std::string{},
              .behind_node = behind_node,
              .codes = device_codes_}));
    if (options.issuer)
      all.push_back(oidc::make_api(options.issuer));
    all.push_back(bridge::make_api(with_, &openapi_document));
    return all;
  }

  io_pool& io_;
  const std::shared_ptr<disk_workers> workers_ =
    std::make_shared<disk_workers>(limits::http_workers);
  const std::shared_ptr<figures> counts_ = std::make_shared<figures>();
  key_check key_; ///< All others here are copies.
  const std::shared_ptr<sign_ins> browsers_;
  const std::shared_ptr<wrong_key_log> wrong_keys_ = std::make_shared<wrong_key_log>();
  const std::shared_ptr<vercel::device_codes> device_codes_ =
    std::make_shared<vercel::device_codes>();
  const std::shared_ptr<cluster::forwarder> forwarder_; ///< Null: there are no other nodes.
  const std::shared_ptr<const preview::links> links_;
  const std::shared_ptr<const services> with_;
  front_door door_;
  std::optional<side_door> metrics_;
  std::optional<side_door> execd_;
  std::optional<side_door> internal_;
  const std::string address_;
  const bool encrypted_;
};

server::server(io_pool& io, caf::actor_system& system, server_options options,
               directory_actor directory, health_probe health)
    : impl_(std::make_unique<impl>(io, system, std::move(options), std::move(directory),
                                   std::move(health))) {}

server::~server() = default;

result<void> server::start() {
  return impl_->start();
}

std::uint16_t server::port() const {
  return impl_->port();
}

std::uint16_t server::metrics_port() const {
  return impl_->metrics_port();
}

std::uint16_t server::execd_port() const {
  return impl_->execd_port();
}

std::uint16_t server::internal_port() const {
  return impl_->internal_port();
}

void server::break_off(const std::string& node, bool all) {
  impl_->break_off(node, all);
}

result<void> server::renew(const std::string& api_key, const std::vector<named_key>& named_keys,
                           const std::optional<tls_text>& text) {
  return impl_->renew(api_key, named_keys, text);
}

void server::stop_accepting() {
  impl_->stop_accepting();
}

void server::stop(std::chrono::milliseconds patience) {
  impl_->stop(patience);
}

std::string openapi_document() {
  return openapi_text({bridge::make_api(nullptr), opensandbox::make_api(nullptr),
                       vercel::make_api(nullptr), oidc::make_api(nullptr)});
}

} // namespace insula::http
