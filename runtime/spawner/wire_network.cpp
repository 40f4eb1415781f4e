#include "runtime/spawner/wire_network.hpp"

#include "base/inner_network.hpp"
#include "base/log.hpp"
#include "runtime/spawner/network_visit.hpp"

#include <arpa/inet.h>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace insula::runtime::spawner {

namespace {

constexpr int loopback = 1; ///< Its index, in every network.

/// Several netlink messages that are sent together. The kernel does what they say, and answers,
/// before send() returns.
class netlink_batch {
public:
  explicit netlink_batch(int protocol)
      : socket_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol)) {}

  template <class Head>
  void begin(std::uint16_t type, std::uint16_t flags, const Head& head) {
    message_ = bytes_.size();
    append(nlmsghdr{0, type, static_cast<std::uint16_t>(NLM_F_REQUEST | flags), ++sequence_, 0});
    append(head);
  }
  void end() {
    const auto size = static_cast<std::uint32_t>(bytes_.size() - message_);
    std::memcpy(bytes_.data() + message_ + offsetof(nlmsghdr, nlmsg_len), &size, sizeof size);
  }

  std::size_t open(std::uint16_t type) {
    const auto at = bytes_.size();
    append(nlattr{0, static_cast<std::uint16_t>(type | NLA_F_NESTED)});
    return at;
  }
  void close(std::size_t at) {
    const auto size = static_cast<std::uint16_t>(bytes_.size() - at);
    std::memcpy(bytes_.data() + at, &size, sizeof size);
  }
  void add(std::uint16_t type, const void* value, std::size_t size) {
    append(nlattr{static_cast<std::uint16_t>(sizeof(nlattr) + size), type});
    const auto* from = static_cast<const char*>(value);
    bytes_.insert(bytes_.end(), from, from + size);
    bytes_.resize(NLA_ALIGN(bytes_.size()));
  }
  void add_text(std::uint16_t type, const char* text) { add(type, text, std::strlen(text) + 1); }
  /// As nf_tables wants its numbers.
  void add_number(std::uint16_t type, std::uint32_t number) {
    const auto value = htonl(number);
    add(type, &value, sizeof value);
  }

  /// Answers the errno of the first message that failed, else 0.
  int send() {
    if (!socket_ || ::send(socket_.get(), bytes_.data(), bytes_.size(), 0) < 0)
      return errno;
    bytes_.clear();
    int first = 0;
    alignas(nlmsghdr) char answers[8192];
    for (ssize_t n; (n = ::recv(socket_.get(), answers, sizeof answers, MSG_DONTWAIT)) > 0;) {
      auto left = static_cast<std::uint32_t>(n);
      for (auto* each = reinterpret_cast<nlmsghdr*>(answers); NLMSG_OK(each, left);
           each = NLMSG_NEXT(each, left))
        if (each->nlmsg_type == NLMSG_ERROR && first == 0)
          first = -static_cast<const nlmsgerr*>(NLMSG_DATA(each))->error;
    }
    return first;
  }

  /// What it has set up for its socket holds as long as that is open.
  unique_fd take_socket() { return std::move(socket_); }

private:
  template <class Part>
  void append(const Part& part) {
    static_assert(sizeof part % NLA_ALIGNTO == 0);
    const auto* from = reinterpret_cast<const char*>(&part);
    bytes_.insert(bytes_.end(), from, from + sizeof part);
  }

  unique_fd socket_;
  std::vector<char> bytes_;
  std::size_t message_ = 0;
  std::uint32_t sequence_ = 0;
};

// ---- Addresses and routes

/// Its own address, and every other one as if it were.
void add_addresses(netlink_batch& to, int family, const char* own) {
  std::array<unsigned char, 16> address{};
  ::inet_pton(family, own, address.data());
  const auto size = family == AF_INET ? 4u : 16u;
  constexpr auto makes = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;

  ifaddrmsg mine{};
  mine.ifa_family = static_cast<unsigned char>(family);
  mine.ifa_prefixlen = static_cast<unsigned char>(size * 8);
  mine.ifa_index = loopback;
  mine.ifa_flags = IFA_F_NODAD; // Else it is not there yet when the route comes.
  to.begin(RTM_NEWADDR, makes, mine);
  to.add(IFA_LOCAL, address.data(), size);
  to.add(IFA_ADDRESS, address.data(), size);
  to.end();

  rtmsg all{};
  all.rtm_family = static_cast<unsigned char>(family);
  all.rtm_table = RT_TABLE_LOCAL;
  all.rtm_protocol = RTPROT_BOOT;
  all.rtm_scope = family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
  all.rtm_type = RTN_LOCAL;
  to.begin(RTM_NEWROUTE, makes, all);
  const std::uint32_t device = loopback;
  to.add(RTA_OIF, &device, sizeof device);
  to.add(RTA_PREFSRC, address.data(), size);
  to.end();
}

int raise_loopback() {
  netlink_batch batch{NETLINK_ROUTE};
  ifinfomsg up{};
  up.ifi_index = loopback;
  up.ifi_flags = up.ifi_change = IFF_UP;
  batch.begin(RTM_NEWLINK, NLM_F_ACK, up);
  batch.end();
  add_addresses(batch, AF_INET, inner_ipv4);
  return batch.send();
}

/// False: there is no IPv6 here.
bool have_ipv6() {
  netlink_batch batch{NETLINK_ROUTE};
  add_addresses(batch, AF_INET6, inner_ipv6);
  return batch.send() == 0;
}

/// Any user may listen at any port of this network, which nobody else has a part in.
bool open_low_ports() {
  const unique_fd first{
    ::open("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_WRONLY | O_CLOEXEC)};
  return first && ::write(first.get(), "0", 1) == 1;
}

// ---- Rules

constexpr const char* table = "insula";

/// By which the gateway is shown what asks for a connection, and what it sends itself is known.
constexpr std::uint16_t log_group = 1;
constexpr std::uint32_t gateway_mark = 1;

/// One rule of a chain: tests, then what is done with what passes them.
class rule {
public:
  rule(netlink_batch& to, const char* chain)
      : to_(to) {
    to_.begin(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND,
              nfgenmsg{NFPROTO_INET, NFNETLINK_V0, 0});
    to_.add_text(NFTA_RULE_TABLE, table);
    to_.add_text(NFTA_RULE_CHAIN, chain);
    all_ = to_.open(NFTA_RULE_EXPRESSIONS);
  }
  ~rule() {
    to_.close(all_);
    to_.end();
  }
  rule(const rule&) = delete;
  rule& operator=(const rule&) = delete;

  rule& meta_is(std::uint32_t key, std::uint8_t value) {
    begin("meta");
    to_.add_number(NFTA_META_DREG, NFT_REG_1);
    to_.add_number(NFTA_META_KEY, key);
    end();
    return compare(&value, sizeof value);
  }
  rule& mark_is(std::uint32_t value) {
    begin("meta");
    to_.add_number(NFTA_META_DREG, NFT_REG_1);
    to_.add_number(NFTA_META_KEY, NFT_META_MARK);
    end();
    return compare(&value, sizeof value);
  }
  /// Of TCP: it asks for a connection.
  rule& is_opening() {
    constexpr std::uint32_t flags_offset = 13;
    constexpr std::uint8_t asked = TH_SYN | TH_ACK | TH_RST | TH_FIN, none = 0, only_syn = TH_SYN;
    meta_is(NFT_META_L4PROTO, IPPROTO_TCP);
    load(NFT_PAYLOAD_TRANSPORT_HEADER, flags_offset, sizeof asked);
    begin("bitwise");
    to_.add_number(NFTA_BITWISE_SREG, NFT_REG_1);
    to_.add_number(NFTA_BITWISE_DREG, NFT_REG_1);
    to_.add_number(NFTA_BITWISE_LEN, sizeof asked);
    for (const auto& [kind, value] :
         {std::pair{NFTA_BITWISE_MASK, &asked}, {NFTA_BITWISE_XOR, &none}}) {
      const auto data = to_.open(static_cast<std::uint16_t>(kind));
      to_.add(NFTA_DATA_VALUE, value, sizeof *value);
      to_.close(data);
    }
    end();
    return compare(&only_syn, sizeof only_syn);
  }
  rule& bytes_are(std::uint32_t base, std::uint32_t offset, const void* value, std::size_t size) {
    load(base, offset, size);
    return compare(value, size);
  }
  /// To an address that begins so.
  rule& to_address(std::uint8_t family, const void* address, std::size_t size) {
    constexpr std::uint32_t ipv4_destination = 16, ipv6_destination = 24;
    meta_is(NFT_META_NFPROTO, family);
    return bytes_are(NFT_PAYLOAD_NETWORK_HEADER,
                     family == NFPROTO_IPV4 ? ipv4_destination : ipv6_destination, address, size);
  }

  /// From that address and port, by a protocol that has ports.
  rule& from(std::uint8_t family, const void* address, std::size_t size, std::uint8_t protocol,
             std::uint16_t port) {
    constexpr std::uint32_t ipv4_source = 12, ipv6_source = 8, source_port = 0;
    meta_is(NFT_META_NFPROTO, family);
    bytes_are(NFT_PAYLOAD_NETWORK_HEADER, family == NFPROTO_IPV4 ? ipv4_source : ipv6_source,
              address, size);
    meta_is(NFT_META_L4PROTO, protocol);
    const auto number = htons(port);
    return bytes_are(NFT_PAYLOAD_TRANSPORT_HEADER, source_port, &number, sizeof number);
  }

  void accept() { end_with(NF_ACCEPT); }
  void drop() { end_with(NF_DROP); }
  /// Whoever has bound the group is sent a copy.
  rule& show(std::uint16_t group) {
    const auto number = htons(group);
    begin("log");
    to_.add(NFTA_LOG_GROUP, &number, sizeof number);
    end();
    return *this;
  }
  void redirect(std::uint16_t port) {
    const auto number = htons(port);
    begin("immediate");
    to_.add_number(NFTA_IMMEDIATE_DREG, NFT_REG_1);
    const auto data = to_.open(NFTA_IMMEDIATE_DATA);
    to_.add(NFTA_DATA_VALUE, &number, sizeof number);
    to_.close(data);
    end();
    begin("redir");
    to_.add_number(NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
    end();
  }
  /// The kernel keeps no record of its connection.
  rule& leave_untracked() {
    begin("notrack");
    end();
    return *this;
  }
  void reject() {
    constexpr std::uint8_t code = NFT_REJECT_ICMPX_ADMIN_PROHIBITED;
    begin("reject");
    to_.add_number(NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH);
    to_.add(NFTA_REJECT_ICMP_CODE, &code, sizeof code);
    end();
  }

private:
  void load(std::uint32_t base, std::uint32_t offset, std::size_t size) {
    begin("payload");
    to_.add_number(NFTA_PAYLOAD_DREG, NFT_REG_1);
    to_.add_number(NFTA_PAYLOAD_BASE, base);
    to_.add_number(NFTA_PAYLOAD_OFFSET, offset);
    to_.add_number(NFTA_PAYLOAD_LEN, static_cast<std::uint32_t>(size));
    end();
  }
  void end_with(std::uint32_t verdict_code) {
    begin("immediate");
    to_.add_number(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    const auto data = to_.open(NFTA_IMMEDIATE_DATA);
    const auto verdict = to_.open(NFTA_DATA_VERDICT);
    to_.add_number(NFTA_VERDICT_CODE, verdict_code);
    to_.close(verdict);
    to_.close(data);
    end();
  }
  rule& compare(const void* value, std::size_t size) {
    begin("cmp");
    to_.add_number(NFTA_CMP_SREG, NFT_REG_1);
    to_.add_number(NFTA_CMP_OP, NFT_CMP_EQ);
    const auto data = to_.open(NFTA_CMP_DATA);
    to_.add(NFTA_DATA_VALUE, value, size);
    to_.close(data);
    end();
    return *this;
  }
  void begin(const char* name) {
    element_ = to_.open(NFTA_LIST_ELEM);
    to_.add_text(NFTA_EXPR_NAME, name);
    data_ = to_.open(NFTA_EXPR_DATA);
  }
  void end() {
    to_.close(data_);
    to_.close(element_);
  }

  netlink_batch& to_;
  std::size_t all_ = 0, element_ = 0, data_ = 0;
};

void add_chain(netlink_batch& to, const char* name, const char* type, std::int32_t priority) {
  to.begin(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWCHAIN, NLM_F_CREATE,
           nfgenmsg{NFPROTO_INET, NFNETLINK_V0, 0});
  to.add_text(NFTA_CHAIN_TABLE, table);
  to.add_text(NFTA_CHAIN_NAME, name);
  const auto hook = to.open(NFTA_CHAIN_HOOK);
  to.add_number(NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
  to.add_number(NFTA_HOOK_PRIORITY, static_cast<std::uint32_t>(priority));
  to.close(hook);
  to.add_text(NFTA_CHAIN_TYPE, type);
  to.end();
}

/// Rules of a chain for what is sent to itself, each with `then` as its end.
template <class Then>
void for_own(netlink_batch& to, const char* chain, Then then) {
  constexpr std::uint8_t loopback_net = 127; // Its first byte.
  then(rule{to, chain}.to_address(NFPROTO_IPV4, &loopback_net, sizeof loopback_net));
  in_addr own{};
  ::inet_pton(AF_INET, inner_ipv4, &own);
  then(rule{to, chain}.to_address(NFPROTO_IPV4, &own, sizeof own));
  for (const char* each : {"::1", inner_ipv6}) {
    in6_addr address{};
    ::inet_pton(AF_INET6, each, &address);
    then(rule{to, chain}.to_address(NFPROTO_IPV6, &address, sizeof address));
  }
}

/// What is sent to itself is its own business.
void accept_own(netlink_batch& to, const char* chain) {
  for_own(to, chain, [](rule& each) { each.accept(); });
}

/// Nor does the kernel record its connections, which nobody would be charged for. An answer of the
/// gateway's listeners is sent to itself as well, and needs the record of what has been redirected.
void leave_own_untracked(netlink_batch& to, const char* chain) {
  for (const auto& [protocol, port] :
       {std::pair{IPPROTO_TCP, gateway::tcp_port}, {IPPROTO_UDP, gateway::dns_port}}) {
    const auto number = static_cast<std::uint8_t>(protocol);
    const auto ipv4 = htonl(INADDR_LOOPBACK);
    rule{to, chain}.from(NFPROTO_IPV4, &ipv4, sizeof ipv4, number, port).accept();
    rule{to, chain}
      .from(NFPROTO_IPV6, &in6addr_loopback, sizeof in6addr_loopback, number, port)
      .accept();
  }
  for_own(to, chain, [](rule& each) { each.leave_untracked().accept(); });
}

/// What asks for a connection is shown to the gateway and goes no further. What the gateway sends
/// on does.
void hold_openings(netlink_batch& to, const char* chain) {
  rule{to, chain}.mark_is(gateway_mark).accept();
  rule{to, chain}.is_opening().show(log_group).drop();
}

int add_rules(wired_for whom, bool held) {
  netlink_batch batch{NETLINK_NETFILTER};
  const nfgenmsg tables{AF_UNSPEC, NFNETLINK_V0, htons(NFNL_SUBSYS_NFTABLES)};
  const auto bracket = [&](std::uint16_t type) {
    batch.begin(type, 0, tables);
    batch.end();
  };
  bracket(NFNL_MSG_BATCH_BEGIN);
  batch.begin(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE, NLM_F_CREATE,
              nfgenmsg{NFPROTO_INET, NFNETLINK_V0, 0});
  batch.add_text(NFTA_TABLE_NAME, table);
  batch.end();

  constexpr std::int32_t before_records = -300;
  add_chain(batch, "raw", "filter", before_records);
  if (whom == wired_for::sandbox)
    leave_own_untracked(batch, "raw");
  if (held)
    hold_openings(batch, "raw");

  constexpr std::int32_t before_filters = -100;
  add_chain(batch, "nat", "nat", before_filters);
  if (whom == wired_for::sandbox)
    accept_own(batch, "nat");
  rule{batch, "nat"}.meta_is(NFT_META_L4PROTO, IPPROTO_TCP).redirect(gateway::tcp_port);
  constexpr std::uint32_t destination_port = 2; // Where it is in the header.
  const auto dns = htons(gateway::dns_port);
  rule{batch, "nat"}
    .meta_is(NFT_META_L4PROTO, IPPROTO_UDP)
    .bytes_are(NFT_PAYLOAD_TRANSPORT_HEADER, destination_port, &dns, sizeof dns)
    .redirect(gateway::dns_port);

  // What has been sent to the listeners goes to this network's own addresses by now.
  add_chain(batch, "filter", "filter", 0);
  accept_own(batch, "filter");
  rule{batch, "filter"}.reject();
  bracket(NFNL_MSG_BATCH_END);
  return batch.send(); // Only what fails is answered.
}

// ---- Sockets

unique_fd bound(int family, int type, std::uint16_t port) {
  unique_fd made{::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  const int yes = 1;
  // Not for datagrams: another socket could be bound beside it, and would get the questions.
  if (type == SOCK_STREAM)
    ::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(port);
  ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_port = htons(port);
  ipv6.sin6_addr = in6addr_loopback;
  if (family == AF_INET6)
    ::setsockopt(made.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  const auto* where = family == AF_INET ? reinterpret_cast<const sockaddr*>(&ipv4)
                                        : reinterpret_cast<const sockaddr*>(&ipv6);
  constexpr int waiting = 1024;
  if (::bind(made.get(), where, family == AF_INET ? sizeof ipv4 : sizeof ipv6) != 0 ||
      (type == SOCK_STREAM && ::listen(made.get(), waiting) != 0))
    return {};
  return made;
}

/// What hears of each opening, as NFLOG tells it. None: the kernel has no such thing.
unique_fd listen_to_openings() {
  netlink_batch batch{NETLINK_NETFILTER};
  batch.begin(NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG, NLM_F_ACK,
              nfgenmsg{AF_UNSPEC, NFNETLINK_V0, htons(log_group)});
  const nfulnl_msg_config_cmd bind{NFULNL_CFG_CMD_BIND};
  batch.add(NFULA_CFG_CMD, &bind, sizeof bind);
  const nfulnl_msg_config_mode headers{htonl(gateway::opening_bytes), NFULNL_COPY_PACKET, 0};
  batch.add(NFULA_CFG_MODE, &headers, sizeof headers);
  batch.add_number(NFULA_CFG_NLBUFSIZ, gateway::opening_message);
  batch.add_number(NFULA_CFG_QTHRESH, 1); // At once.
  batch.end();
  if (batch.send() != 0)
    return {};
  auto made = batch.take_socket();
  const int yes = 1;
  ::setsockopt(made.get(), SOL_NETLINK, NETLINK_NO_ENOBUFS, &yes, sizeof yes);
  ::setsockopt(made.get(), SOL_SOCKET, SO_RCVBUFFORCE, &gateway::openings_buffer,
               sizeof gateway::openings_buffer);
  ::fcntl(made.get(), F_SETFL, O_NONBLOCK);
  return made;
}

/// What sends whole packets in this network, past what holds openings.
unique_fd packet_sender(int family) {
  unique_fd made{::socket(family, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_RAW)};
  const int nothing = 0; // That it could receive.
  if (!made ||
      ::setsockopt(made.get(), SOL_SOCKET, SO_MARK, &gateway_mark, sizeof gateway_mark) != 0)
    return {};
  ::setsockopt(made.get(), SOL_SOCKET, SO_RCVBUF, &nothing, sizeof nothing);
  return made;
}

/// False: openings cannot be held here.
bool make_holders(network_sockets& made, bool ipv6) {
  auto hears = listen_to_openings();
  auto sends = packet_sender(AF_INET), sends6 = ipv6 ? packet_sender(AF_INET6) : unique_fd{};
  if (!hears || !sends || (ipv6 && !sends6))
    return false;
  made[4] = std::move(hears);
  made[5] = std::move(sends);
  made[6] = std::move(sends6);
  return true;
}

} // namespace

bool wire_network(int process, network_sockets& made, wired_for whom) {
  const network_visit there{process};
  if (!there)
    return false;
  if (const int why = raise_loopback(); why != 0) {
    errno = why;
    return false;
  }
  if (whom == wired_for::sandbox && !open_low_ports()) {
    static bool told = false;
    if (!std::exchange(told, true))
      log::warning("spawner.low_ports",
                   {{"reason", std::strerror(errno)},
                    {"consequence", "only root inside may listen at ports below 1024"}});
  }
  const bool ipv6 = have_ipv6();
  bool held = make_holders(made, ipv6);
  int why = add_rules(whom, held);
  if (held && why != 0) { // The kernel has no rule that shows a packet.
    held = false;
    for (auto* each : {&made[4], &made[5], &made[6]})
      each->reset();
    why = add_rules(whom, false);
  }
  if (static bool told = false; !held && !std::exchange(told, true))
    log::warning("spawner.openings",
                 {{"consequence", "connections out of sandboxes are accepted before it is known "
                                  "whether there is anything at the other end"}});
  if (why != 0) {
    errno = why;
    return false;
  }
  made[0] = bound(AF_INET, SOCK_STREAM, gateway::tcp_port);
  made[2] = bound(AF_INET, SOCK_DGRAM, gateway::dns_port);
  if (ipv6) {
    made[1] = bound(AF_INET6, SOCK_STREAM, gateway::tcp_port);
    made[3] = bound(AF_INET6, SOCK_DGRAM, gateway::dns_port);
  }
  return made[0] && made[2] && (!ipv6 || (made[1] && made[3]));
}

} // namespace insula::runtime::spawner
