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

/// Packets that the broker has not read, from which on it gets no more clients.
constexpr std::size_t most_waiting = limits::gateway_connections;
/// Addresses that are remembered; before there are more, all connections to servers end.
constexpr std::size_t most_reached = 4096;

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
    case word::changed:
    case word::cut: break;
  }
  return false;
}

void broker_link::dial(std::uint64_t id, const std::string& host, std::uint16_t port) {
  const auto answer = [this, self = weak_from_this(), id](unique_fd connected,
                                                          const egress::ip_address* where,
                                                          const std::string& why_not) {
    const auto me = self.lock();
    if (!me || !tenant_)
      return;
    --dials_;
    gateway_packet said{word::dialled};
    said.id = id;
    said.error = connected ? 0 : 1;
    if (connected && where != nullptr) {
      if (reached_.size() >= most_reached)
        end_reached();
      reached_.insert(*where);
    }
    if (tenant_ && !say(said, why_not, connected))
      close();
  };
  ++dials_;
  const auto name = egress::plain_name(host);
  if (name.empty() || port == 0)
    return answer({}, nullptr, "it is no name of a host");
  if (dials_ > limits::gateway_connections)
    return answer({}, nullptr, "too many connections at once");
  if (auto rule = tenant_->why_not_for_broker(name, port); !rule.empty()) {
    tenant_->refused({.name = name, .port = port, .rule = rule});
    return answer({}, nullptr, "it may not be reached (" + rule + ")");
  }
  std::make_shared<outbound>(tenant_, name, port, answer)->start();
}

/// One address would do to end them, and the broker tells them apart as little as its client does.
void broker_link::judge_again() {
  const auto& policy = tenant_ ? tenant_->policy() : nullptr;
  if (!policy || policy->dry_run() ||
      std::none_of(reached_.begin(), reached_.end(),
                   [&](const auto& each) { return !policy->denies(each).empty(); }))
    return;
  end_reached();
}

void broker_link::end_reached() {
  reached_.clear();
  if (!say({word::changed}))
    close();
}

std::uint64_t broker_link::give(unique_fd& client, const std::string& name, std::uint16_t port,
                                over_function over) {
  if (!tenant_ || waiting_.size() >= most_waiting)
    return 0;
  gateway_packet said{word::client};
  said.id = ++last_;
  said.port = port;
  if (!say(said, name, client)) {
    close();
    return 0;
  }
  clients_.emplace(said.id, std::move(over));
  return said.id;
}

void broker_link::cut(std::uint64_t number) {
  if (!clients_.contains(number))
    return;
  gateway_packet said{word::cut};
  said.id = number;
  if (tenant_ && !say(said))
    close();
}

bool broker_link::say(const gateway_packet& said) {
  unique_fd none;
  return say(said, {}, none);
}

/// False: it takes nothing any more, and the descriptor stays where it is.
bool broker_link::say(const gateway_packet& said, const std::string& text, unique_fd& fd) {
  if (waiting_.empty() && send(said, text, fd)) {
    fd.reset();
    return true;
  }
  if ((waiting_.empty() && errno != EAGAIN) || waiting_.size() >= 2 * most_waiting)
    return false;
  waiting_.push_back({said, text, std::move(fd)});
  if (waiting_.size() == 1)
    send_later();
  return true;
}

bool broker_link::send(const gateway_packet& said, const std::string& text, const unique_fd& fd) {
  auto head = said;
  iovec parts[2] = {{&head, sizeof head},
                    {const_cast<char*>(text.data()), std::min(text.size(), broker::max_text)}};
  const int which = fd.get();
  return send_packet<1>(way_.native_handle(), parts, 2, &which, fd ? 1 : 0) >= 0;
}

void broker_link::send_later() {
  way_.async_wait(socket_stream::wait_write,
                  tenant_->time().wrap([self = shared_from_this()](const error_code& failed) {
                    if (failed || !self->tenant_)
                      return;
                    while (!self->waiting_.empty()) {
                      const auto& next = self->waiting_.front();
                      if (!self->send(next.said, next.text, next.fd))
                        return errno == EAGAIN ? self->send_later() : self->close();
                      self->waiting_.pop_front();
                    }
                  }));
}

void broker_link::close() {
  if (!std::exchange(tenant_, nullptr))
    return;
  error_code ignored;
  way_.close(ignored);
  waiting_.clear();
  for (const auto& [number, tell] : std::exchange(clients_, {}))
    tell(0, 0);
}

} // namespace insula::runtime::gateway
