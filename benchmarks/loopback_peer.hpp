#pragma once

#include "base/unique_fd.hpp"

#include <cstdint>
#include <string_view>
#include <thread>
#include <vector>

namespace insula::bench {

/// A thread at the other end of a TCP connection over loopback that takes and gives bytes and does
/// nothing else: the floor under every transfer.
class loopback_peer {
public:
  loopback_peer();
  ~loopback_peer();
  loopback_peer(const loopback_peer&) = delete;
  loopback_peer& operator=(const loopback_peer&) = delete;

  /// Sends the bytes and waits until the other end has them all.
  void write(std::string_view bytes);

  /// Asks for so many bytes and takes them.
  void read(std::uint64_t count);

private:
  void serve();

  unique_fd mine_;
  unique_fd other_;
  std::vector<char> buffer_;
  std::thread thread_;
};

} // namespace insula::bench
