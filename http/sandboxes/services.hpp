#pragma once

#include "actors/protocol/interfaces.hpp"
#include "base/byte_budget.hpp"
#include "base/metrics.hpp"
#include "base/secret_box.hpp"
#include "http/api/auth.hpp"
#include "http/api/port_links.hpp"
#include "http/sandboxes/disk_workers.hpp"
#include "http/sandboxes/session_id.hpp"
#include "http/sandboxes/used_tokens.hpp"

#include <caf/fwd.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace insula::http {

class cluster_control;
class node_images;

/// What the routes of every API work with. Shared by them; nothing in it changes.
struct services {
  caf::actor_system* system = nullptr;
  directory_actor directory;
  pool_actor pool;
  cluster_control* cluster = nullptr; ///< Null: one node, which has all. Outlives the server.
  node_images* images = nullptr;      ///< Null: nothing is told of them. Outlives the server.
  std::function<std::vector<std::string>()> missing_parts;
  std::chrono::milliseconds heartbeat{};      ///< Silence on an event stream before a comment.
  std::chrono::milliseconds probe_patience{}; ///< For a sandbox to be found and probed.
  std::chrono::milliseconds start_message_patience{}; ///< As of limits.
  std::string spool_directory;                        ///< For nameless files.
  std::shared_ptr<byte_budget> spooled;               ///< What they may hold together.
  std::shared_ptr<byte_budget> decompressors;         ///< One for each that is open.
  std::shared_ptr<disk_workers> workers;
  key_check key{{}}; ///< Requests are let in already; it tells how far a token reaches.
  std::shared_ptr<const secret_box> secrets; ///< Seals what records keep. Null: they keep none.
  std::string secret;                ///< That ids of sandboxes are made with, from clients' keys.
  bool default_session = false;      ///< Commands without a session's id run in the default one.
  std::vector<std::string> projects; ///< Of the Vercel API. Empty: any.
  std::uint64_t drive_bytes = 10ull << 30; ///< The usual size of a drive of it, and the largest.
  bool any_image = false; ///< An image that is not here is replaced by what the node starts from.
  std::function<void(metrics::text&)> write_figures; ///< All that /metrics says. May wait.
  std::shared_ptr<const port_links> links;           ///< To servers in sandboxes.
  bool encrypted = false;                            ///< Clients speak TLS to this node.
  std::int64_t started_ms = 0;                       ///< Of the server, since 1970.
  std::shared_ptr<used_tokens> used = std::make_shared<used_tokens>();
};

} // namespace insula::http
