#pragma once

#include "tests/support/child_program.hpp"
#include "tests/support/driven_gateway.hpp"

#include <string>

namespace insula::test {

/// What the gateway says to a question for the IPv4 address of a name, asked in that network.
inline std::string inner_address(const wired_process& box, const std::string& name) {
  return output_of(
    box.with({"/usr/bin/python3", "-c",
              "import socket,sys\nq=socket.socket(type=socket.SOCK_DGRAM); q.settimeout(20)\n"
              "l=b''.join(bytes([len(w)])+w.encode() for w in sys.argv[1].split('.'))\n"
              "q.sendto(b'\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0'+l+b'\\0\\0\\1\\0\\1',"
              "('9.9.9.9',53))\n"
              "print(socket.inet_ntoa(q.recv(512)[-4:]),end='')",
              name}));
}

} // namespace insula::test
