#pragma once

#include <sys/types.h>

namespace insula::runtime::gateway {

/// Gives up whatever the gateway does not need: it becomes this user without capabilities, sees an
/// empty directory as the root of all files, cannot be traced, and has the system calls that it
/// makes and no others: all else fails with EPERM, and the kernel's log names it. It ends with its
/// parent. False: errno says why.
bool give_up_rights(uid_t user);

} // namespace insula::runtime::gateway
