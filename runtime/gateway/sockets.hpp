#pragma once

#include "base/unique_fd.hpp"
#include "runtime/egress/address.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <sys/socket.h>

namespace insula::runtime::gateway {

/// An address with a port, as the kernel takes it. IPv4 is IPv4 there.
class socket_address {
public:
  socket_address() = default;
  socket_address(const egress::ip_address& address, std::uint16_t port);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage_); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  socklen_t* room() {
    size_ = sizeof storage_;
    return &size_;
  }
  int family() const { return storage_.ss_family; }
  egress::ip_address address() const;
  std::uint16_t port() const;

private:
  sockaddr_storage storage_{};
  socklen_t size_ = sizeof storage_;
};

/// Non-blocking, close-on-exec, and on its way: writable once it has worked out or not. None: errno
/// says why.
unique_fd begin_connect(const socket_address& to, int type);
/// How it went: 0, or an errno.
int connect_outcome(int socket);

/// Whom this connection was for before it was sent here. None: it is for the listener itself.
std::optional<socket_address> original_destination(int socket);

/// Small pieces go out at once, a peer that has gone is noticed, and one that takes nothing has
/// limits::gateway_unsent_bytes wait for it.
void tune(int socket);
/// What the receive buffer may hold now, as the kernel counts; and what waits in it, of payload.
std::size_t receive_buffer(int socket);
std::size_t waiting_bytes(int socket);
/// From now on it holds no more than that, and does not grow.
void limit_receive_buffer(int socket, std::size_t bytes);
/// From now on the kernel lets it grow as the connection needs.
void free_receive_buffer(int socket);

/// Has the other end said that nothing more comes, or gone?
bool has_ended(int socket);

/// It ends with a reset instead of an end.
void reset_on_close(int socket);

} // namespace insula::runtime::gateway
