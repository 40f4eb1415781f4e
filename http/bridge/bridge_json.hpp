#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"
#include "http/sandboxes/cluster_control.hpp"
#include "http/sandboxes/node_images.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// JSON texts of the bridge, each struct's reader and writer side by side. Readers refuse what
/// nests deeper than limits::json_depth and never recurse.
namespace insula::http::bridge {

/// Body of POST .../exec. Errors: invalid_request, with the text the contract gives.
struct exec_body {
  std::vector<std::string> argv;    ///< At least one.
  std::optional<double> timeout_ms; ///< Zero and less: over at once.
  std::optional<std::string> cwd;
};
result<exec_body> read_exec_body(std::string_view text);

/// Body of POST .../session. What is no JSON object says nothing, nor does a member of another
/// kind.
struct session_body {
  std::optional<std::string> id;
  std::optional<std::string> cwd;
  std::map<std::string, std::string> env;
  std::optional<double> command_timeout_ms;
};
session_body read_session_body(std::string_view text);
/// A control message of a terminal's client.
struct terminal_control {
  enum class kind : std::uint8_t { ignored, resize, malformed };
  kind what = kind::ignored;
  double columns = 0; ///< Of a resize: any number.
  double rows = 0;
};
terminal_control read_terminal_control(std::string_view text);

/// {"type":"ready"}
std::string write_terminal_ready();

/// {"type":"exit","code":0}, with "signal":"SIGTERM" unless `signal` is empty.
std::string write_terminal_exit(int code, std::string_view signal);

/// {"type":"error","message":"…"}
std::string write_terminal_error(std::string_view message);

/// {"id":"…"}
std::string write_id(std::string_view id);

/// {"id":"…","state":"running","image":"host","privileges":"none","user":{"uid":1000,"gid":1000},
///  "cwd":"/workspace","limits":{"memory_bytes":…,"cpu_percent":…,"processes":…,"disk_bytes":…},
///  "created_ms":…}; with "home", "expires_ms" and "snapshot" where there are any.
std::string write_description(std::string_view id, const sandbox_description& is);

/// {"running":true}
std::string write_running(bool running);

/// {"ok":false,"errors":["…"]}
std::string write_missing_parts(const std::vector<std::string>& errors);

/// {"self":"n1","nodes":[{"name":"n1",…}],"sandboxes":[{"id":"…","node":"n1","epoch":1}]}
std::string write_cluster(const cluster_status& seen);

/// {"images":[{"name":"debian-12",…}],"pulling":[{"reference":"…","bytes":0,"total_bytes":0}]}
std::string write_images(const node_images& all);
std::string write_image(const node_image& is);
std::string write_pull(const image_on_its_way& is);

/// {"warm":0,"assigned":0,"total":0,"config":{…},"maxInstances":1000}
std::string write_pool_stats(const pool_stats& of);

/// {"exit_code":0}
std::string write_exit_code(int exit_code);

} // namespace insula::http::bridge
