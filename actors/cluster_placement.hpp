#pragma once

#include "actors/image_sign.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::actors {

/// What a node says of itself, for those who look for a place.
struct node_load {
  std::string name;
  std::uint32_t used = 0;     ///< Sandboxes, warm ones too.
  std::uint32_t capacity = 0; ///< Of them all.
  std::uint32_t warm = 0;
  bool draining = false;
  bool failing = false;           ///< It could not make or take one a moment ago.
  shared_image_signs images = {}; ///< Null: it does not say.
};

/// So many nodes are looked at for one sandbox: the best of a few is nearly as good as the best of
/// all, and many who choose at the same time do not all choose the same one.
inline constexpr std::size_t looked_at = 3;

inline bool takes_one(const node_load& node) {
  return !node.draining && node.used - node.warm < node.capacity;
}

/// Where a new sandbox goes: of a few nodes, begun at a place that `random` says, one with warm
/// sandboxes if there is any, and then the one with the largest part free. The first in the list
/// is preferred where it is as good. One that fails is taken where there is no other. None: no
/// node takes any.
///
/// `wanted`: the image that the sandbox starts from, by any of its signs. The nodes that have it
/// go before all others, since a pull takes longer than a start on a busy node; they have nothing
/// warm of it. Empty: it is the default image, which all nodes have.
inline std::optional<std::size_t> place_sandbox(const std::vector<node_load>& nodes,
                                                std::uint64_t random,
                                                const image_signs& wanted = {}) {
  const auto has_image = [&](const node_load& node) {
    return node.images && std::any_of(wanted.begin(), wanted.end(), [&](image_sign each) {
             return std::binary_search(node.images->begin(), node.images->end(), each);
           });
  };
  const bool some_have_it = std::any_of(nodes.begin(), nodes.end(), [&](const node_load& each) {
    return takes_one(each) && !each.failing && has_image(each);
  });
  const auto has_room = [&](const node_load& node) {
    return takes_one(node) && (!some_have_it || has_image(node));
  };
  const auto is_better = [&](const node_load& one, const node_load& other) {
    if (one.failing != other.failing)
      return other.failing;
    if (wanted.empty() && (one.warm > 0) != (other.warm > 0))
      return one.warm > 0;
    // By eighths: a difference that does not matter is none.
    const auto free_part = [](const node_load& node) {
      return (8 * std::uint64_t{node.capacity - (node.used - node.warm)}) / node.capacity;
    };
    return free_part(one) > free_part(other);
  };
  std::optional<std::size_t> best;
  std::size_t seen = 0;
  for (std::size_t turn = 0; turn < nodes.size() && seen < looked_at; ++turn) {
    // The first one first, then the others from somewhere on.
    const auto at = turn == 0 ? 0 : 1 + (turn - 1 + random) % (nodes.size() - 1);
    if (!has_room(nodes[at]))
      continue;
    seen += nodes[at].failing ? 0 : 1;
    if (!best || is_better(nodes[at], nodes[*best]))
      best = at;
  }
  return best;
}

} // namespace insula::actors
