#include "runtime/gateway/broker_link.hpp"

#include "base/limits.hpp"
#include "runtime/descriptors.hpp"
#include "runtime/egress/policy.hpp"
#include "runtime/gateway/outbound.hpp"
#include "runtime/gateway/tenant.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace insula::runtime::gateway {

namespace {

using boost::system::error_code;
using socket_stream = boost::asio::posix::stream_descriptor;
using broker::gateway_packet;
using broker::word;

} // namespace

broker_link::broker_link(std::shared_ptr<tenant> of, unique_fd way)
    : tenant_(std::move(of))
    , way_(tenant_->shared().io, way.release()) {}

void broker_link::listen() {
  hear();
}

void broker_link::hear() {
  way_.async_wait(socket_stream::wait_read, tenant_->time().wrap([self = shared_from_this()](
                                                                   const error_code& failed) {
    if (failed || !self->tenant_)
      return;
    for (int i = 0; i < 64; ++i) { // Its turn is over sooner or later.
      struct {
        gateway_packet said;
        char text[broker::max_text];
      } packet;
      int fds[1], count = 0;
      const auto n = receive_packet(self->way_.native_handle(), {&packet, sizeof packet}, fds,
                                    count, MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN)
        return self->hear();
      if (count > 0) // It has none to give.
        const unique_fd unwanted{fds[0]};
      const bool is_whole = n >= static_cast<ssize_t>(sizeof packet.said);
      if (!is_whole ||
          !self->take(packet.said, {packet.text, static_cast<std::size_t>(n) - sizeof packet.said}))
        return self->close();
      if (!self->tenant_)
        return;
    }
    self->hear();
  }));
}

bool broker_link::take(const gateway_packet& said, std::string text) {
  const auto port = static_cast<std::uint16_t>(said.port);
  switch (said.what) {
    case word::over:
      if (const auto gone = clients_.extract(said.id))
        gone.mapped()(said.from_client, said.to_client);
      return true;
    case word::dial: dial(said.id, text, port); return true;
    case word::refused:
      tenant_->refused({.name = egress::plain_name(text),
                        .port = port,
                        .rule = "a request for another host than its connection is for"});
      return true;
    case word::client:
    case word::dialled:
    case word::cut: break;
  }
  return false;
}

void broker_link::dial(std::uint64_t id, const std::string& host, std::uint16_t port) {
  const auto answer = [this, self = weak_from_this(), id](const unique_fd& connected,
                                                          const std::string& why_not) {
    const auto me = self.lock();
    if (!me || !tenant_)
      return;
    --dials_;
    gateway_packet said{word::dialled};
    said.id = id;
    said.error = connected ? 0 : 1;
    say(said, why_not, connected.get());
  };
  ++dials_;
  const auto name = egress::plain_name(host);
  if (name.empty() || port == 0 || dials_ > limits::gateway_connections)
    return answer({}, name.empty() ? "it is no name of a host" : "too many connections at once");
  std::make_shared<outbound>(
    tenant_, name, port,
    [answer](unique_fd connected, const std::string& why_not) { answer(connected, why_not); })
    ->start();
}

std::uint64_t broker_link::give(const unique_fd& client, const std::string& name,
                                std::uint16_t port, over_function over) {
  if (!tenant_)
    return 0;
  gateway_packet said{word::client};
  said.id = ++last_;
  said.port = port;
  if (!say(said, name, client.get()))
    return 0;
  clients_.emplace(said.id, std::move(over));
  return said.id;
}

void broker_link::cut(std::uint64_t number) {
  if (!clients_.contains(number))
    return;
  gateway_packet said{word::cut};
  said.id = number;
  if (tenant_ && !say(said, {}, -1))
    close();
}

bool broker_link::say(const gateway_packet& said, const std::string& text, int fd) {
  auto head = said;
  iovec parts[2] = {{&head, sizeof head},
                    {const_cast<char*>(text.data()), std::min(text.size(), broker::max_text)}};
  return send_packet<1>(way_.native_handle(), parts, 2, &fd, fd < 0 ? 0 : 1) >= 0;
}

void broker_link::close() {
  if (!std::exchange(tenant_, nullptr))
    return;
  error_code ignored;
  way_.close(ignored);
  for (const auto& [number, tell] : std::exchange(clients_, {}))
    tell(0, 0);
}

} // namespace insula::runtime::gateway
