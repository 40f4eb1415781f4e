#include "runtime/gateway/outbound.hpp"

#include "runtime/gateway/sockets.hpp"
#include "runtime/gateway/tenant.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sys/socket.h>
#include <utility>

namespace insula::runtime::gateway {

namespace {

using boost::system::error_code;
using socket_stream = boost::asio::posix::stream_descriptor;

constexpr std::chrono::seconds outbound_patience{10}; ///< For one address.
constexpr std::size_t most_outbound = 6;

} // namespace

outbound::outbound(std::shared_ptr<tenant> from, std::string host, std::uint16_t port,
                   function tell)
    : tenant_(std::move(from))
    , host_(std::move(host))
    , port_(port)
    , tell_(std::move(tell))
    , server_(tenant_->shared().io)
    , deadline_(tenant_->shared().io) {}

outbound::~outbound() {
  leave_place();
}

void outbound::start() {
  tenant_->resolve(host_, [self = shared_from_this()](const resolver::addresses& found) {
    if (found.too_many)
      return self->end({}, "too many questions to the DNS at once");
    const auto policy = self->tenant_->policy();
    for (const auto& each : found.all) {
      const auto* kind = self->tenant_->shared().reserved().kind_of(each);
      const auto denied = kind != nullptr               ? std::string{kind}
                          : policy && policy->dry_run() ? std::string{}
                          : policy                      ? policy->denies(each)
                                                        : "it is not known yet what it may reach";
      if (!denied.empty())
        self->why_ = "its address is refused (" + denied + ")";
      else if (self->left_.size() < most_outbound)
        self->left_.push_back(each);
    }
    if (self->left_.empty() && self->why_.empty())
      self->why_ = "its name leads nowhere";
    // The first of IPv4 comes first, and the next one is at the end.
    std::stable_partition(self->left_.begin(), self->left_.end(),
                          [](const auto& each) { return each.is_ipv4(); });
    std::reverse(self->left_.begin(), self->left_.end());
    self->dial_next();
  });
}

void outbound::dial_next() {
  error_code ignored;
  server_.close(ignored);
  leave_place();
  ++attempt_;
  if (left_.empty())
    return end({}, why_);
  const bool waits = tenant_->shared().dials.take(
    tenant_->paid_by().number, [self = shared_from_this()](bool has_place) {
      self->has_place_ = has_place;
      self->tenant_->time().add([self, has_place] {
        has_place ? self->begin() : self->end({}, "too many connections that are not there yet");
      });
    });
  if (!waits)
    end({}, "too many connections that are not there yet");
}

void outbound::begin() {
  dialled_ = left_.back();
  left_.pop_back();
  auto made = begin_connect({*dialled_, port_}, SOCK_STREAM);
  if (!made)
    return not_there(std::strerror(errno));
  server_.assign(made.release());
  const auto mine = attempt_;
  deadline_.expires_after(outbound_patience);
  deadline_.async_wait(
    tenant_->time().wrap([self = shared_from_this(), mine](const error_code& stopped) {
      if (!stopped && self->attempt_ == mine && self->has_place_)
        self->not_there("it does not answer");
    }));
  server_.async_wait(
    socket_stream::wait_write,
    tenant_->time().wrap([self = shared_from_this(), mine](const error_code& stopped) {
      if (stopped || self->attempt_ != mine || !self->has_place_)
        return;
      if (const int why = connect_outcome(self->server_.native_handle()); why != 0)
        return self->not_there(why == ECONNREFUSED ? "there is nobody at that port"
                                                   : std::strerror(why));
      self->deadline_.cancel();
      // The policy may be another one by now.
      const auto policy = self->tenant_->policy();
      const bool judges = policy && !policy->dry_run();
      if (const auto denied = judges ? policy->denies(*self->dialled_) : ""; !denied.empty())
        return self->not_there("its address is refused (" + denied + ")");
      unique_fd connected{self->server_.release()};
      tune(connected.get());
      self->end(std::move(connected), {});
    }));
}

void outbound::not_there(const std::string& why) {
  why_ = why;
  deadline_.cancel();
  dial_next();
}

void outbound::end(unique_fd connected, const std::string& why_not) {
  leave_place();
  ++attempt_;
  if (const auto tell = std::exchange(tell_, nullptr))
    tell(std::move(connected), dialled_ ? &*dialled_ : nullptr, why_not);
}

void outbound::leave_place() {
  if (std::exchange(has_place_, false))
    tenant_->shared().dials.give_back(tenant_->paid_by().number);
}

} // namespace insula::runtime::gateway
