#pragma once

#include "apps/image_supply.hpp"
#include "base/metrics.hpp"
#include "base/network.hpp"

#include <cstdint>
#include <map>
#include <string>

namespace insula {

/// What does not change while a node runs.
struct node_description {
  std::string version;
  std::string cgroups; ///< v1, v2 or hybrid.
  std::string image;   ///< What new sandboxes start from.
  unsigned max_instances = 0;
  std::uint64_t slots = 0;
};

/// insula_build_info: one sample, 1, with all of it and of the machine as labels.
void write_build_info(metrics::text& into, const node_description& of);

/// The node's images, and what has become of pulls.
void write_image_figures(metrics::text& into, const image_supply::figures& of);

/// The sandboxes of named API keys at this node. None: nothing is written.
void write_key_figures(metrics::text& into, const std::map<std::string, unsigned>& sandboxes);

/// What has not been on the way out of sandboxes.
void write_network_totals(metrics::text& into, const network_totals& of);

/// The conventional process_ names, of this process. Reads /proc; any thread.
void write_process_figures(metrics::text& into);

} // namespace insula
