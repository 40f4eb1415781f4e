#pragma once

#include "apps/image_room.hpp"
#include "apps/room_protocol.hpp"
#include "base/error.hpp"
#include "storage/images/image_record.hpp"
#include "tests/support/must.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <utility>

namespace insula::test {

/// The other end of an image room's socket: it takes orders when a test asks for them, and says
/// what the test has it say.
///
/// Threads: one.
class scripted_room {
public:
  struct order {
    room_task task{};
    std::uint64_t number = 0;
    std::string text;
  };

  scripted_room() {
    int ends[2];
    must(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    servers_.reset(ends[0]);
    mine_.reset(ends[1]);
  }

  /// The server's end, once.
  image_room room() { return image_room::on(std::move(servers_)); }

  /// Before the server has its end: no order fits in any more, until one is taken.
  int fill() const {
    int orders = 0;
    while (room_protocol::send_packet(servers_.get(), room_order{room_task::used}, "filler",
                                      MSG_DONTWAIT))
      ++orders;
    return orders;
  }

  /// Waits for an order. None: there is none in time.
  std::optional<order> next_within(std::chrono::milliseconds patience) const {
    pollfd way{mine_.get(), POLLIN, 0};
    if (::poll(&way, 1, static_cast<int>(patience.count())) != 1)
      return std::nullopt;
    auto got = room_protocol::receive_packet<room_order>(mine_.get());
    must(got.has_value());
    return order{got->first.task, got->first.number, std::move(got->second)};
  }
  /// Waits a minute at most, and the test fails then.
  order next() const {
    auto got = next_within(std::chrono::minutes{1});
    must(got.has_value());
    return std::move(*got);
  }
  bool has_order() const {
    pollfd way{mine_.get(), POLLIN, 0};
    return ::poll(&way, 1, 0) == 1;
  }

  void tell(const room_head& head, std::string_view text = {}) const {
    must(room_protocol::send_packet(mine_.get(), head, text));
  }
  /// Bytes that need be no packet.
  void tell_bytes(std::string_view bytes) const {
    must(::send(mine_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0);
  }

  void image(const storage::images::image_record& is, const std::string& tree) const {
    const std::string end(1, '\0');
    tell({room_news::image}, storage::images::to_json(is) + end + tree + end + end);
  }
  void gone(const std::string& name, bool ours) const {
    tell({room_news::gone, 0, 0, 0, 0, ours ? 1u : 0u}, name);
  }
  void progress(const order& of, std::uint64_t bytes, std::uint64_t total_bytes) const {
    tell({room_news::progress, 0, of.number, bytes, total_bytes});
  }
  void done(const order& what, const std::string& name) const {
    tell({room_news::done, 0, what.number}, name);
  }
  void fail(const order& what, errc code, const std::string& message) const {
    tell({room_news::failed, static_cast<std::uint32_t>(code), what.number}, message);
  }

  /// The process ends.
  void die() { mine_.reset(); }

private:
  unique_fd servers_, mine_;
};

} // namespace insula::test
