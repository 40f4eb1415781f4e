#include "tests/runtime/probe/probe.hpp"

#include <cstdlib>
#include <sys/ioctl.h>

namespace insula::probe {

namespace {

/// Its own, which it controls: one that nobody else has, and where the kernel's rights are enough.
int real_terminal() {
  const int master = ::open("/dev/ptmx", O_RDWR | O_NOCTTY);
  ::setsid();
  if (master < 0 || ::grantpt(master) != 0 || ::unlockpt(master) != 0)
    return -1;
  const int slave = ::open(::ptsname(master), O_RDWR | O_NOCTTY);
  return slave >= 0 && ::ioctl(slave, TIOCSCTTY, 0) == 0 ? slave : -1;
}

void real_terminals() {
  const auto control = [](const char* name, long request, void* value) {
    attempt(name, [=] { return call(SYS_ioctl, real_terminal(), request, value); });
  };
  static int plain = 0, serial_line = 1;
  static char paste = 3;
  static char letter[] = "x";
  static winsize size{};
  control("terminal_types", TIOCSTI, letter);
  control("terminal_types_high_bits", TIOCSTI | 1L << 32, letter);
  control("terminal_pastes", TIOCLINUX, &paste);
  control("terminal_discipline", TIOCSETD, &serial_line);
  control("terminal_discipline_plain", TIOCSETD, &plain);
  control("terminal_is_console", TIOCCONS, nullptr);
  control("terminal_hangs_up", TIOCVHANGUP, nullptr);
  control("terminal_size", TIOCGWINSZ, &size);
}

} // namespace

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
  real_terminals();
  attempt("own_terminal", [] { return ::open("/dev/ptmx", O_RDWR | O_NOCTTY); });
}

} // namespace insula::probe
