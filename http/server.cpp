#include "http/server.hpp"

#include "base/log.hpp"
#include "http/bridge/api.hpp"

namespace insula::http {

class server::impl {
public:
  impl(io_pool& io, caf::actor_system& system, server_options options, directory_actor directory,
       health_probe health)
      : open_(options.api_key.empty())
      , door_(
          io,
          {options.address, options.port, options.tls, options.max_connections,
           options.buffered_body_bytes, options.time},
          [api = std::make_shared<const bridge::api>(
             key_check{std::move(options.api_key)}, page_guard{std::move(options.allowed_hosts)},
             bridge::routes(services(system, options, std::move(directory), std::move(health),
                                     workers_)))](const request_head& head) {
            return api->admit(head);
          })
      , address_(options.address)
      , encrypted_(options.tls.has_value()) {}

  result<void> start() {
    auto started = door_.start();
    if (!started)
      return started;
    log::info("http.listening",
              {{"address", address_}, {"port", door_.port()}, {"tls", encrypted_ ? "yes" : "no"}});
    if (open_)
      log::warning("http.no_key",
                   {{"what", "no API key is set: whoever reaches this port may use it"}});
    return started;
  }

  ~impl() {
    door_.stop({});
    workers_.join(); // They work for requests.
  }

  std::uint16_t port() const { return door_.port(); }
  void stop(std::chrono::milliseconds patience) { door_.stop(patience); }

private:
  static std::shared_ptr<const bridge::services>
  services(caf::actor_system& system, const server_options& options, directory_actor directory,
           health_probe health, boost::asio::thread_pool& workers) {
    bridge::services with;
    with.system = &system;
    with.directory = std::move(directory);
    with.missing_parts = std::move(health);
    with.heartbeat = options.heartbeat;
    with.probe_patience = options.probe_patience;
    with.spool_directory = options.spool_directory;
    with.spooled = std::make_shared<body_budget>(limits::spooled_body_bytes);
    with.decompressors = std::make_shared<body_budget>(limits::open_decompressors);
    with.workers = &workers;
    return std::make_shared<const bridge::services>(std::move(with));
  }

  boost::asio::thread_pool workers_{limits::http_workers};
  const bool open_;
  front_door door_;
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

void server::stop(std::chrono::milliseconds patience) {
  impl_->stop(patience);
}

} // namespace insula::http
