#include "runtime/agent/terminal.hpp"

#include <cstring>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

namespace insula::runtime::agent {

namespace {

bool send_descriptor(int channel, int what) {
  char byte = 't';
  iovec data{&byte, 1};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof what)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  auto* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof what);
  std::memcpy(CMSG_DATA(part), &what, sizeof what);
  return ::sendmsg(channel, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
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
