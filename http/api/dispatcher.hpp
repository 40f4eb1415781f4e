#pragma once

#include "actors/protocol/interfaces.hpp"
#include "base/byte_budget.hpp"
#include "http/api/auth.hpp"
#include "http/api/page_guard.hpp"
#include "http/api/router.hpp"
#include "http/api/sign_ins.hpp"
#include "http/api/wrong_key_log.hpp"
#include "http/sandboxes/disk_workers.hpp"
#include "http/transport/figures.hpp"

#include <caf/fwd.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace insula::http::cluster {
class gateway;
struct concern;
} // namespace insula::http::cluster

namespace insula::http::cluster {
class control;
}

namespace insula::http::preview {
class door;
struct address;
} // namespace insula::http::preview

/// The sandbox bridge: /v1/... and /health.
namespace insula::http::bridge {

/// What the routes work with. Shared by them; nothing in it changes.
struct services {
  caf::actor_system* system = nullptr;
  directory_actor directory;
  pool_actor pool;
  cluster::control* cluster = nullptr; ///< Null: one node, which has all. Outlives the server.
  std::function<std::vector<std::string>()> missing_parts;
  std::chrono::milliseconds heartbeat{};      ///< Silence on an event stream before a comment.
  std::chrono::milliseconds probe_patience{}; ///< For a sandbox to be found and probed.
  std::string spool_directory;                ///< For nameless files.
  std::shared_ptr<byte_budget> spooled;       ///< What they may hold together.
  std::shared_ptr<byte_budget> decompressors; ///< One for each that is open.
  std::shared_ptr<disk_workers> workers;
  std::string secret;           ///< That ids of sandboxes are made with, from clients' keys.
  bool default_session = false; ///< Commands without a session's id run in the default one.
  bool any_image = false; ///< An image that is not here is replaced by what the node starts from.
  std::function<void(metrics::text&)> write_figures; ///< All that /metrics says. May wait.
  std::string preview_domain;                        ///< As of preview::settings.
  bool previews_public = false;
  bool asks_key = false;
  bool encrypted = false; ///< This node speaks TLS.
};

/// Every route of the bridge. Without services they can be listed but not called.
std::vector<route> routes(std::shared_ptr<const services> with);

// One file per group.
void add_sandbox_routes(std::vector<route>& table, std::shared_ptr<const services> with);
void add_exec_routes(std::vector<route>& table, std::shared_ptr<const services> with);
void add_file_routes(std::vector<route>& table, std::shared_ptr<const services> with);
void add_archive_routes(std::vector<route>& table, std::shared_ptr<const services> with);
void add_session_routes(std::vector<route>& table, std::shared_ptr<const services> with);
void add_terminal_routes(std::vector<route>& table, std::shared_ptr<const services> with);
void add_mount_routes(std::vector<route>& table, std::shared_ptr<const services> with);
void add_network_routes(std::vector<route>& table, std::shared_ptr<const services> with);
void add_preview_routes(std::vector<route>& table, std::shared_ptr<const services> with);
void add_pool_routes(std::vector<route>& table, std::shared_ptr<const services> with);
void add_cluster_routes(std::vector<route>& table, std::shared_ptr<const services> with);
void add_service_routes(std::vector<route>& table, std::shared_ptr<const services> with);

/// GET /metrics, which can be had alone as well.
route metrics_route(std::shared_ptr<const services> with);

/// Decides about requests, with the bridge's order of checks: web pages where there is no key, the
/// id's format, the key, the route. A browser that is signed in shows the key by its cookie.
class api {
public:
  /// Every request is counted in `counts`, by its row. `browsers`: who is signed in, if anybody can
  /// be here. `previews`: what goes on to servers in sandboxes, before all else; null: nothing
  /// does. `others`: where there are several nodes, what goes on to them; if requests come from one
  /// of them, whoever asks has been let in there, and there is no key. `keeps_snapshots`: files of
  /// sandboxes can outlive the node, if that is asked for. `wrong_keys`: where those are written.
  api(key_check key, page_guard pages, std::vector<route> table,
      std::shared_ptr<figures> counts = std::make_shared<figures>(),
      std::shared_ptr<const sign_ins> browsers = nullptr,
      std::shared_ptr<const preview::door> previews = nullptr,
      std::shared_ptr<const cluster::gateway> others = nullptr, bool keeps_snapshots = false,
      std::shared_ptr<wrong_key_log> wrong_keys = std::make_shared<wrong_key_log>());

  admission admit(const request_head& head) const;

private:
  request_track track_of(const request_head& head, route_figures& row,
                         std::optional<request_track> decided) const;
  admission decide(const request_head& head, const std::optional<matched_route>& found,
                   const cluster::gateway* others, const request_context& context) const;
  admission plan_of(const request_head& head, const route& row, const call& what,
                    const cluster::gateway* others, const request_context& context) const;
  admission admit_preview(const request_head& head, preview::address to,
                          const cluster::gateway* others, request_track track) const;
  std::optional<response> refusal(const request_head& head, const route* row) const;
  response refused_without_key(const request_head& head, const route* row) const;
  response no_route(const request_head& head) const;
  std::string methods_of(std::string_view path) const;
  void note_wrong_key(const request_head& head, const admission& plan,
                      const route_figures& row) const;
  std::optional<response> objection_to_persistence(const request_head& head) const;
  bool may_use(access needed, const request_head& head, const call& what) const;
  caller caller_of(access needed, const request_head& head) const;
  bool shows_execd_key(const request_head& head) const;
  bool shows_open_sandbox_key(const request_head& head) const;
  bool shows_key(const request_head& head, bool any_case) const;

  key_check key_;
  page_guard pages_;
  std::vector<route> table_;
  std::shared_ptr<figures> counts_;
  std::vector<route_figures*> rows_;         ///< One for each of table_.
  std::shared_ptr<const sign_ins> browsers_; ///< Null: nobody can sign in.
  std::shared_ptr<const preview::door> previews_;
  std::shared_ptr<const cluster::gateway> others_; ///< Null: there are none.
  bool behind_node_ = false;
  const bool keeps_snapshots_;
  const std::shared_ptr<wrong_key_log> wrong_keys_;
  route_figures* previews_by_name_ = nullptr;
  route_figures* previews_by_path_ = nullptr;
};

/// The session that cannot be deleted.
inline constexpr std::string_view default_session = "default";

/// A Session-Id as clients may choose it: 1 to 128 of [a-zA-Z0-9._-] without `..`.
bool is_session_id(std::string_view text);

/// 413. `bytes` as far as known.
response too_large(std::uint64_t bytes, std::uint64_t limit);

} // namespace insula::http::bridge
