#pragma once

#include "actors/protocol/image_wish.hpp"
#include "http/api/auth.hpp"
#include "http/transport/exchange.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace insula::http {

/// What the body of a request says of the sandbox that it makes.
struct told_by_body {
  std::string id; ///< Empty: the sandbox has no id yet.
  /// What the sandbox starts from. No text: the default, or the body is malformed.
  actors::image_wish image;
};

/// What a request is about.
struct concern {
  std::string id; ///< Empty: a sandbox that has no id yet, if no node is named.
  /// What is answered where no node has the sandbox; null: one of them has it from then on.
  std::function<response()> unknown = nullptr;
  std::string node = {}; ///< The request is about this node, and no sandbox.
  /// What a sandbox that it makes starts from. No text: the default, or it is in the body.
  actors::image_wish image = {};
  /// Reads its body; null: that says nothing of this.
  std::function<told_by_body(std::string_view body)> in_body = nullptr;
  bool id_in_body = false;           ///< Else the image alone.
  response (*no_length)() = nullptr; ///< As the route's.
  std::string key = {};              ///< The name of the named key that its client has shown.
};

/// The other nodes, as one of this node's doors has them: says of each request whether it is served
/// here. Any thread.
class other_nodes {
public:
  virtual ~other_nodes() = default;

  /// Requests come from another node, which has let their clients in.
  virtual bool is_behind_node() const = 0;

  /// What becomes of a request that may be served; none: it is served here. `key`: this node's,
  /// where the request is for a server in a sandbox: what shows the key stays here. The other node
  /// may have another key, and asks for none.
  virtual std::optional<admission> admit(const request_head& head, concern about,
                                         const std::string& request_id,
                                         const key_check* key = nullptr) const = 0;
};

} // namespace insula::http
