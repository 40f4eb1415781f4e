#include "runtime/agent/terminal.hpp"

#include "runtime/descriptors.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace insula::runtime::agent {

namespace {

bool send_descriptor(int channel, int what) {
  char byte = 't';
  iovec data{&byte, 1};
  return send_packet<1>(channel, &data, 1, &what, 1) == 1;
}

/// As every terminal program sets it: erasing takes a whole character.
bool speak_utf8(int terminal) {
  termios modes{};
  if (::tcgetattr(terminal, &modes) != 0)
    return false;
  modes.c_iflag |= IUTF8;
  return ::tcsetattr(terminal, TCSANOW, &modes) == 0;
}

} // namespace

bool enter_terminal(int channel, std::uint32_t size) {
  const int master = ::open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
  int locked = 0;
  if (master < 0 || ::ioctl(master, TIOCSPTLCK, &locked) != 0)
    return false;
  const int terminal = ::ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  winsize window{};
  window.ws_col = static_cast<unsigned short>(size);
  window.ws_row = static_cast<unsigned short>(size >> 16);
  if (terminal < 0 || ::ioctl(terminal, TIOCSWINSZ, &window) != 0 || !speak_utf8(terminal) ||
      ::ioctl(terminal, TIOCSCTTY, 0) != 0 || !send_descriptor(channel, master))
    return false;
  for (int target = 0; target < 3; ++target)
    if (::dup2(terminal, target) < 0)
      return false;
  return true;
}

} // namespace insula::runtime::agent
