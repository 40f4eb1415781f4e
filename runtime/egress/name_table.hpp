#pragma once

#include "runtime/egress/address.hpp"

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace insula::runtime::egress {

/// Addresses that stand for names inside of one sandbox: 198.18.0.0/15 and a range of IPv6. A name
/// keeps its own as long as it is among the `most` that were last asked for.
class name_table {
public:
  static constexpr std::size_t most = 16'384;

  struct addresses {
    ip_address ipv4, ipv6;
  };

  addresses address_of(std::string_view name);
  /// None: it stands for no name. A pointer into the table.
  const std::string* name_of(const ip_address& address);

  static bool is_inner(const ip_address& address);

private:
  using order = std::list<std::uint32_t>; ///< Numbers, the one that was used last in front.
  struct entry {
    std::string name;
    order::iterator place;
  };

  void use(entry& which);

  order order_;
  std::unordered_map<std::uint32_t, entry> by_number_;
  std::unordered_map<std::string, std::uint32_t> by_name_;
};

} // namespace insula::runtime::egress
