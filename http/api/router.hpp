#pragma once

#include "http/transport/exchange.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

/// Who may use a route. own_page: a page that this node has sent, with or without a key.
/// open_sandbox_key: who shows the key in the header of OpenSandbox's clients, or as everywhere.
/// lifecycle: the same, with its own words for who does not. execd: the same, or in that of execd's
/// clients, or a token for it.
enum class access : std::uint8_t {
  everybody,
  key,
  key_or_token,
  own_page,
  open_sandbox_key,
  lifecycle,
  execd
};

/// What happens to a request's body. Ignored: read and thrown away, however large.
enum class body_use : std::uint8_t { ignored, buffered, streamed };

/// What a route is told about a request. Values: it outlives the request's header.
struct call {
  std::string id;         ///< The segment that `:id` stands for.
  std::string sid;        ///< The one that `:sid` stands for, nothing decoded.
  std::string port;       ///< The same for `:port`.
  std::string node = {};  ///< The same for `:node`.
  std::string tail;       ///< What `*` stands for, nothing decoded.
  std::string query;      ///< After the first '?', nothing decoded.
  std::string session_id; ///< The header, as it is.
  std::optional<std::string> idempotency_key = {}; ///< The header, as it is; none: there is none.
  std::optional<std::string> last_event_id = {};   ///< The same.
  std::string ends_with_shell = {};                ///< The header Insula-End-With-Shell, as it is.
  std::string for_hydrate = {};                    ///< The header Insula-For-Hydrate, as it is.
  bool takes_gzip = false;           ///< By its Accept-Encoding, an answer may be compressed.
  web_socket_offer offer = {};       ///< To become a WebSocket.
  std::string host, origin, cookies; ///< Headers: Host, and what only browsers send.
  std::string network =
    {};                   ///< That the client is in; only for what every page of this node's asks.
  std::string user_agent; ///< The header. So are the next.
  std::string content_type = {};
  std::string range = {}, if_range = {}; ///< Of a GET, and no HEAD.
};

// ---- For the document ----

struct parameter {
  std::string_view name;
  std::string_view in; ///< path, query or header.
  std::string_view description;
  bool required = false;
  std::string_view example = {}; ///< What a page fills in at first; empty: nothing.
  std::string_view schema = {};  ///< JSON; empty: a string.
};

struct documented_answer {
  std::string_view status;
  std::string_view description;
  std::string_view content_type = {}; ///< Empty: no body.
  std::string_view schema = {};       ///< A name from the document's schemas; empty: bytes.
};

struct operation {
  /// Public: generated clients name their functions after it. Empty: the route is not listed.
  std::string_view id = {};
  std::string_view summary = {};
  std::vector<parameter> parameters = {}; ///< Those of the path go without saying.
  std::string_view body_type = {};        ///< Content type of the request's body; empty: none.
  std::string_view body_schema = {};      ///< As above.
  std::vector<documented_answer> answers = {};
  std::string_view tag = {};  ///< The group that it is shown in; one of the document's.
  bool body_optional = false; ///< A request may come without one.
  bool own = false;           ///< Insula's alone: no contract of a public API says how it fails.
};

/// One row of the table. Pattern: literal segments, `:id`, `:sid`, `:port`, and `*` at the end for
/// the rest.
struct route {
  verb method;
  std::string pattern;
  access who;
  body_use body;
  std::uint64_t body_limit; ///< Bytes, inclusive. For an ignored body: 0.
  std::function<admission(const call&)> admit;
  operation document;
  /// What is said of a body beyond the limit, if not what the API says everywhere.
  response (*too_large)(std::uint64_t bytes, std::uint64_t limit) = nullptr;

  // ---- Where there are several nodes ----

  /// Which sandbox a request is about whose path names none; empty: one that has no id yet. Null:
  /// it is about none, unless the path has an `:id`.
  std::function<std::string(const call&)> about = nullptr;
  /// What is said where no node has that sandbox. Null: one of them has it from then on.
  std::function<response(const call&)> unknown = nullptr;
  /// The node that `:node` stands for answers, and no other.
  bool at_node = false;
};

struct matched_route {
  const route* row;
  call what;
};

/// Whether an Accept-Encoding field names gzip, and not with a weight of 0.
bool accepts_gzip(std::string_view accept_encoding);

/// Whether a row of this pattern is for this path.
bool fits(std::string_view pattern, std::string_view path);

/// The row for a request, found by comparing raw segments; none if there is no such route.
std::optional<matched_route> find_route(const std::vector<route>& table, const request_head& head);

} // namespace insula::http
