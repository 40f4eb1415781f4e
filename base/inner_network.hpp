#pragma once

#include <string_view>

/// A sandbox's network, as it sees it: what the spawner gives it and its image says of it.
namespace insula {

/// Its own address, from which it believes to send.
inline constexpr const char* inner_ipv4 = "10.0.0.1";
inline constexpr const char* inner_ipv6 = "fd00:10::1";

/// /etc/resolv.conf. Whatever address is asked, the egress gateway answers; this one is nobody's.
inline constexpr std::string_view inner_resolv_conf = "nameserver 10.0.0.53\n";

} // namespace insula
