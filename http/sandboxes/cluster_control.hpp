#pragma once

#include "base/error.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace insula::http {

/// A node as those who look after the cluster see it.
struct cluster_node_status {
  std::string name;
  std::string address;    ///< Of its internal listener.
  std::string state;      ///< member, draining or away.
  std::string version;    ///< Empty: not known.
  std::int64_t lease = 0; ///< etcd's number of it; 0: it has none.
  // As it last said; 0 if it is away.
  std::uint32_t sandboxes = 0;
  std::uint32_t capacity = 0; ///< Of sandboxes.
  std::uint32_t warm = 0;
  std::int64_t clock_ahead_ms = 0; ///< Of this node's, as far as that can be told.
};

struct cluster_sandbox {
  std::string id;
  std::string node;
  std::int64_t epoch = 0;
};

struct cluster_status {
  std::string self;
  std::vector<cluster_node_status> nodes; ///< By name.
  std::vector<cluster_sandbox> sandboxes; ///< By id.
};

/// The other nodes' warm sandboxes, and those that somebody has.
struct cluster_pool_totals {
  std::uint32_t warm = 0;
  std::uint32_t assigned = 0;
  std::uint32_t limit = 0;
  std::uint32_t target = 0;
};

/// What can be seen and told of a cluster.
///
/// Threads: any; answers come on any.
class cluster_control {
public:
  virtual ~cluster_control() = default;
  virtual cluster_status look() const = 0;
  virtual cluster_pool_totals others() const = 0;
  /// The node hands over what it has, and takes nothing new until it is started again. Answered
  /// when it has begun. Errors: not_found, node_unreachable.
  virtual void drain(std::string node, std::function<void(result<void>)> then) = 0;
};

} // namespace insula::http
