#pragma once

#include "base/error.hpp"

namespace insula {

/// From here on, this process makes no other system call than those by which an image is unpacked,
/// also with the rights of root: it works on files and answers on sockets that it has. It makes no
/// process, no socket and no device, changes no user, and cannot mount, trace or signal. A call
/// that is not allowed fails as those of call_filter do, and the import with it.
///
/// Threads: it holds for all of them, and no further one can be made. Errors: io_failed.
result<void> allow_only_import_calls();

} // namespace insula
