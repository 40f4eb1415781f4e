#include "runtime/gateway/openings.hpp"

#include "runtime/gateway/protocol.hpp"
#include "runtime/gateway/sockets.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>

namespace insula::runtime::gateway {

namespace {

template <class Head>
bool take(std::string_view& from, Head& head) {
  if (from.size() < sizeof head)
    return false;
  std::memcpy(&head, from.data(), sizeof head);
  return true;
}

std::string_view cut(std::string_view& from, std::size_t size) {
  const auto part = from.substr(0, size);
  from.remove_prefix(std::min<std::size_t>(NLMSG_ALIGN(size), from.size()));
  return part;
}

/// The packet in a message's attributes. Empty: there is none.
std::string_view payload_of(std::string_view attributes) {
  nlattr head;
  while (take(attributes, head) && head.nla_len >= sizeof head &&
         head.nla_len <= attributes.size()) {
    const auto one = cut(attributes, head.nla_len);
    if ((head.nla_type & NLA_TYPE_MASK) == NFULA_PAYLOAD)
      return one.substr(sizeof head);
  }
  return {};
}

} // namespace

openings::openings(boost::asio::io_context& io, unique_fd hears, unique_fd sends,
                   unique_fd sends_ipv6)
    : hears_(io, hears.release())
    , sends_(std::move(sends))
    , sends_ipv6_(std::move(sends_ipv6)) {}

bool openings::read(const std::function<void(const egress::opening&)>& take_one) {
  alignas(nlmsghdr) std::array<char, 8 * opening_message> bytes;
  const auto n = ::recv(hears_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n <= 0)
    return false;
  std::string_view left{bytes.data(), static_cast<std::size_t>(n)};
  nlmsghdr head;
  while (take(left, head) && head.nlmsg_len >= sizeof head && head.nlmsg_len <= left.size()) {
    auto message = cut(left, head.nlmsg_len).substr(sizeof head);
    constexpr int packet = NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET;
    if (head.nlmsg_type != packet || message.size() < sizeof(nfgenmsg))
      continue;
    cut(message, sizeof(nfgenmsg));
    if (const auto found = egress::opening::read(payload_of(message)))
      take_one(*found);
  }
  return true;
}

void openings::answer(const egress::opening& to, const std::string& packet) const {
  send(to.flow().from, packet);
}

void openings::send_on(const egress::opening& which) {
  send(which.flow().to, which.again());
}

void openings::send(const egress::ip_address& to, const std::string& packet) const {
  const socket_address where{to, 0};
  const auto& by = to.is_ipv4() ? sends_ : sends_ipv6_;
  if (by)
    ::sendto(by.get(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL, where.get(),
             where.size());
}

void openings::close() {
  boost::system::error_code ignored;
  hears_.close(ignored);
  sends_.reset();
  sends_ipv6_.reset();
}

} // namespace insula::runtime::gateway
