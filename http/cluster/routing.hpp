#pragma once

#include "actors/protocol/image_wish.hpp"
#include "base/error.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

/// Several nodes that answer as one: whichever is asked, the request goes to the one that has the
/// sandbox.
namespace insula::http::cluster {

/// A member's internal listener.
struct peer {
  std::string name;
  std::string address;
  std::uint16_t port = 0;
  bool operator==(const peer&) const = default;
};

/// Who has which sandbox, as far as this node knows.
///
/// Threads: any; callbacks come on any thread, exactly once, possibly inside the call.
/// Owner:   shared by the node and its server.
class routing {
public:
  virtual ~routing() = default;

  /// This node is sure to own it, and its lease is good. Quick.
  virtual bool is_here(std::string_view id) const = 0;

  /// Who owns `id`. None: this node does. `make`: if nobody does, a node is chosen and owns it from
  /// now on; otherwise not_found. `image`: what a new sandbox starts from; a node that has it is
  /// preferred. Errors: node_unreachable (this node is cut off, or the chosen one is).
  virtual void find(std::string id, bool make, const actors::image_wish& image,
                    std::function<void(result<std::optional<peer>>)> then) = 0;

  /// That node has said that it is not its.
  virtual void doubt(const std::string& id, const std::string& node) = 0;

  /// Where a new sandbox that has no id yet is best made; none: here. `image`: as above.
  virtual std::optional<peer> place(const actors::image_wish& image) = 0;
  /// Some node has an image, or a snapshot, that another one has not, as far as is known: what is
  /// to start from it is better placed once that is known. Quick.
  virtual bool starts_differ() const = 0;

  /// This node is a member in good standing.
  virtual bool may_serve() const = 0;

  /// This node's own name.
  virtual std::string self() const = 0;

  /// The member whose certificate has that name; empty: there is none.
  virtual std::string member(std::string_view certificate_name) const = 0;

  /// The internal listener of the node with that name, this one's too; none: there is no such node.
  virtual std::optional<peer> node(const std::string& name) const = 0;
};

} // namespace insula::http::cluster
