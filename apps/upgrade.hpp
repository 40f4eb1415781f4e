#pragma once

#include <string>

namespace insula {

/// Replaces the server of this state directory by one that runs this program, with the same
/// arguments and the sockets it listens on, so that no client is refused; says on stdout how that
/// goes. Needs root. If the new server does not get ready, the old program serves again.
/// Where this program cannot take over the sandboxes of that one, nothing is done unless
/// `end_sandboxes`; nor where it does not take that one's configuration, or could not be a member
/// of its cluster, which it asks etcd about first. Returns the exit status: 0, or 1 when there is
/// another server now than this program's, or none.
int upgrade(const std::string& state_directory, bool end_sandboxes);

} // namespace insula
