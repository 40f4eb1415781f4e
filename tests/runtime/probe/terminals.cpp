#include "tests/runtime/probe/probe.hpp"

#include <sys/ioctl.h>

namespace insula::probe {

/// What a terminal could be abused for: typing on behalf of whoever reads it.
void terminals() {
  attempt("tiocsti_stdin", [] { return ::ioctl(0, TIOCSTI, "x"); });
  attempt("tioclinux_stdin", [] {
    char paste = 3; // TIOCL_PASTESEL: types the selection.
    return ::ioctl(0, TIOCLINUX, &paste);
  });
  attempt("controlling_terminal", [] { return ::open("/dev/tty", O_RDWR); });
  attempt("steal_terminal", [] { return ::ioctl(0, TIOCSCTTY, 1); });
  attempt("console_ioctl", [] { return ::ioctl(0, TIOCCONS); });
  attempt("other_terminals", [] {
    const long names = list("/dev/pts"); // Its own ptmx is one.
    errno = ENODATA;
    return names > 1 ? names : -1;
  });
  attempt("own_terminal", [] { return ::open("/dev/ptmx", O_RDWR | O_NOCTTY); });
}

} // namespace insula::probe
