#pragma once

#include <sys/types.h>

namespace insula::runtime::broker {

/// Gives up whatever a broker does not need: as the gateway does, and it opens no sockets. False:
/// errno says why.
bool give_up_rights(uid_t user);

} // namespace insula::runtime::broker
