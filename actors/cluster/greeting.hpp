#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace insula::actors::cluster {

/// Of what nodes say to each other on a link, and of what they keep in records. It grows when a
/// node of the version before would get a message or a record wrong. Each node's record in etcd has
/// it, so that such a node does not start beside.
inline constexpr std::uint32_t link_version = 5;

/// The first that each end of a link says: a line of always the same length, in all versions.
struct greeting {
  static constexpr std::size_t bytes = 64;

  std::uint32_t version = 0;
  std::string build; ///< What does not fit is cut; what is not printable is a question mark.

  std::string line() const;

  /// None: it is no such line.
  static std::optional<greeting> parse(std::string_view line);
};

} // namespace insula::actors::cluster
