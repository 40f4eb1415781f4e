#pragma once

#include "base/network.hpp"

#include <string>
#include <string_view>

namespace insula::runtime {

/// Where the names are that `reach` allows, as far as this node knows without the DNS: lines "host
/// NAME ADDRESS" as of gateway::op::add. A name of which there is no line is asked of the DNS.
/// `hosts_file`: the text of /etc/hosts, as hosts(5) describes it. "localhost" and the names below
/// it are at the node's own loopback addresses, whatever stands there (RFC 6761). At most 8
/// addresses of a name. What is no line of a hosts file is passed over.
std::string known_hosts(const egress_policy& reach, std::string_view hosts_file);

/// What /etc/hosts says now, up to 1 MiB. Empty: it cannot be read.
std::string read_hosts_file();

} // namespace insula::runtime
