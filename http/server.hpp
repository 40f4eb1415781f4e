#pragma once

#include "actors/protocol/interfaces.hpp"
#include "base/error.hpp"
#include "base/io_pool.hpp"
#include "base/limits.hpp"
#include "base/metrics.hpp"
#include "base/secret_box.hpp"
#include "http/api/auth.hpp"
#include "http/cluster/routing.hpp"
#include "http/sandboxes/cluster_control.hpp"
#include "http/sandboxes/node_images.hpp"
#include "http/sandboxes/session_id.hpp"
#include "http/transport/front_door.hpp"

#include <caf/fwd.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::http::oidc {
class issuer;
} // namespace insula::http::oidc

namespace insula::http {

struct server_options {
  std::string address = "127.0.0.1";
  std::uint16_t port = 8787;         ///< 0: any free one; see server::port().
  std::string api_key;               ///< Empty: nobody is asked for a key.
  std::vector<named_key> named_keys; ///< Beside it. None where it is empty.
  /// Without a key: names by which clients may call this server, besides localhost.
  std::vector<std::string> allowed_hosts;
  std::optional<tls_files> tls;    ///< None: plain HTTP.
  unsigned max_connections = 8192; ///< At once. Further ones wait in the kernel's queue.
  /// Sockets that listen already, of a server before this one. Those of its addresses are used.
  std::vector<int> inherited;
  time_limits time; ///< For what a client may take.
  /// In memory at once, of all requests together.
  std::uint64_t buffered_body_bytes = limits::buffered_body_bytes;
  /// Where bodies that are too large for memory wait, without a name. On a disk.
  std::string spool_directory = "/var/tmp";
  /// Silence on an event stream before a comment is sent.
  std::chrono::milliseconds heartbeat = limits::stream_heartbeat;
  std::shared_ptr<const secret_box> secrets = nullptr; ///< As of services.
  std::string secret = "none";  ///< Nobody else's, and the same after each start: ids of sandboxes
                                ///< are made with it, from clients' keys.
  bool default_session = false; ///< Commands without a session's id run in the default one.
  std::vector<std::string> projects;       ///< Of the Vercel API. Empty: any.
  std::uint64_t drive_bytes = 10ull << 30; ///< The usual size of a drive of it, and the largest.
  bool any_image = false; ///< An image that is not here is replaced by what the node starts from.
  /// For a sandbox to be found and to say that it runs; one that has been found and does not say so
  /// by then counts as not running. A little longer than a start may take.
  std::chrono::milliseconds probe_patience = limits::create_patience + std::chrono::seconds{10};
  /// For the first message of a terminal's client, where that says what is started.
  std::chrono::milliseconds start_message_patience = limits::start_message_patience;
  /// Where /metrics is served as well, and nothing else.
  struct metrics_listener {
    std::string address;
    std::uint16_t port = 0;
    bool asks_key = true; ///< And speaks TLS if the other does. False: neither.
  };
  std::optional<metrics_listener> metrics;
  /// Where execd is served for one sandbox, which is made with its first use.
  struct execd_listener {
    std::string address;
    std::uint16_t port = 0;
  };
  std::optional<execd_listener> execd;
  /// Of several nodes, which answer as one.
  struct cluster_member {
    std::shared_ptr<cluster::routing> routing; ///< It is asked for as long as the server is there.
    tls_files tls;       ///< Shown to other nodes. `authority` has signed those of all members.
    std::string address; ///< Where other nodes' requests are served. No key is asked there.
    std::uint16_t port = 0;
    cluster_control* control = nullptr; ///< Outlives the server. Null: nothing can be seen.
  };
  std::optional<cluster_member> cluster; ///< None: one node, which has all.
  /// Below it, each port of each sandbox has a name: `<port>-<sandbox>.<domain>`.
  std::string preview_domain = "localhost";
  bool previews_public = false;  ///< Nobody is asked for a key or a token there.
  pool_actor pool;               ///< Of warm sandboxes.
  node_images* images = nullptr; ///< Outlives the server. Null: nothing is told of them.
  bool keeps_snapshots = false;  ///< Clients may ask for sandboxes whose files outlive the node.
  std::shared_ptr<const oidc::issuer> issuer; ///< Of tokens. Null: there are no routes of one.
  /// Adds what the rest of the node counts to /metrics. Any thread; it may wait for a disk.
  std::function<void(metrics::text&)> more_figures;
};

/// The OpenAPI document of every API of a node.
std::string openapi_document();

/// What /health says: the essential parts that are missing, in words; empty when all is well. Any
/// thread, quick.
using health_probe = std::function<std::vector<std::string>()>;

/// The gateway: HTTP in, messages to actors, answers back.
///
/// Threads: those of `io`, besides a few of its own for the disk; the functions here are called
/// from one
///          thread that is none of them.
/// Owner:   the caller; `io` and `system` must outlive it, and `io` runs until it has gone.
class server {
public:
  server(io_pool& io, caf::actor_system& system, server_options options, directory_actor directory,
         health_probe health);
  ~server();

  /// Binds and listens. Errors: io_failed, naming address and reason; invalid_request for unusable
  /// TLS files.
  result<void> start();

  /// The ports in use, after start(). 0: there is no such listener.
  std::uint16_t port() const;
  std::uint16_t metrics_port() const;
  std::uint16_t execd_port() const;
  std::uint16_t internal_port() const; ///< For other nodes.

  /// That node is lost: whatever waits for it ends, and what it was in the middle of. Or, if not
  /// `all`, it is not heard of: only what waits for its first word ends. Any thread.
  void break_off(const std::string& node, bool all = true);

  /// Takes other keys, and the certificate of `text` (none: as it was), for requests and
  /// connections from now on; those that are there go on. With another main key browsers have to
  /// sign in again. No key stays no key. Errors: invalid_request, naming the file; everything is as
  /// before then. Any thread, after start().
  result<void> renew(const std::string& api_key, const std::vector<named_key>& named_keys,
                     const std::optional<tls_text>& text);

  /// Who connects from now on waits for the next server; whoever is there is served as ever.
  void stop_accepting();

  /// Accepts nothing more and gives open requests up to `patience` to end; then cuts them.
  void stop(std::chrono::milliseconds patience);

private:
  class impl;
  std::unique_ptr<impl> impl_;
};

} // namespace insula::http
