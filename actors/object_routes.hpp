#pragma once

#include "base/error.hpp"

#include <functional>
#include <string>

namespace insula::actors {

/// The objects of a cluster, wherever they live.
///
/// Threads: any. Answers come on any thread, each once, possibly inside the call: be quick there.
/// Owner:   outlives the actors that use it.
class object_routes {
public:
  virtual ~object_routes() = default;

  /// Which node owns the object; empty: this one. `make`: this node owns it from now on if none
  /// does, also while it is drained: what a sandbox keeps before it leaves has its object here.
  /// Otherwise not_found where there is no record of it. Errors: node_unreachable (this node is cut
  /// off, or has lost its spawner).
  virtual void locate(const std::string& owner, bool make,
                      std::function<void(result<std::string>)> then) = 0;

  /// That node has said that the object is not there.
  virtual void doubt(const std::string& owner, const std::string& node) = 0;

  /// Asks the node's directory what a peer_question says. Errors: those of cluster::links::ask()
  /// and of the directory.
  virtual void ask_object(const std::string& node, std::string question,
                          std::function<void(result<std::string>)> then) = 0;

  /// This node has what the object needs, so it is to live here: another owner lets it go. Errors:
  /// node_unreachable.
  virtual void claim(const std::string& owner, std::function<void(result<void>)> then) = 0;

  /// It is to live here, with what another owner has kept of it. Errors: node_unreachable; what the
  /// object says that does not leave now.
  virtual void bring(const std::string& owner, std::function<void(result<void>)> then) = 0;
};

/// `here` is called if the object lives at this node, or `then` with what another node answers to
/// the question. A node that says that the object is not there is asked once.
inline void ask_owner(object_routes& routes, const std::string& owner, const std::string& question,
                      const std::function<void()>& here,
                      const std::function<void(result<std::string>)>& then, bool again = false) {
  routes.locate(owner, false, [=, &routes](const result<std::string>& node) {
    if (!node)
      return then(node.reason());
    if (node->empty())
      return here();
    routes.ask_object(*node, question, [=, &routes, at = *node](result<std::string> told) {
      if (told || told.reason().code != errc::stale_epoch)
        return then(std::move(told));
      routes.doubt(owner, at);
      again ? then(error{errc::node_unreachable, "it is not known which node has " + owner})
            : ask_owner(routes, owner, question, here, then, true);
    });
  });
}

} // namespace insula::actors
