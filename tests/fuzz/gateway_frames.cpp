// What the gateway reads: the spawner's packets, a server's frames in odd pieces, and what comes
// out of a sandbox: datagrams to the DNS and the first bytes of a connection. All that in a network
// of this process's own, which leads nowhere.
#include "base/network.hpp"
#include "runtime/descriptors.hpp"
#include "runtime/egress/policy.hpp"
#include "runtime/gateway/connection.hpp"
#include "runtime/gateway/gateway.hpp"
#include "tests/fuzz/bytes.hpp"

#include <array>
#include <fcntl.h>
#include <map>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <vector>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::runtime;

namespace {

constexpr std::uint32_t slots = 3;

/// Whatever an input names as a resolver, no packet leaves.
bool own_network() {
  if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0)
    return false;
  const unique_fd socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP;
  return ::ioctl(socket.get(), SIOCSIFFLAGS, &loopback) == 0;
}

struct ends {
  unique_fd ours, theirs;
};

ends pair(int type) {
  int made[2];
  must(::socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, made) == 0,
       "there are sockets");
  return {unique_fd{made[0]}, unique_fd{made[1]}};
}

/// A socket on loopback at a port of its own.
unique_fd on_loopback(int type, sockaddr_in& where) {
  unique_fd made{::socket(AF_INET, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  where = {};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  must(::bind(made.get(), reinterpret_cast<sockaddr*>(&where), size) == 0 &&
         ::getsockname(made.get(), reinterpret_cast<sockaddr*>(&where), &size) == 0,
       "loopback is there");
  return made;
}

/// What a gateway has to answer to a server's bytes, in plain words.
class model {
public:
  std::map<std::uint32_t, std::uint64_t> epochs; ///< Of the slots that are there.

  /// Takes whole frames off the stream. None: it is dropped here.
  bool hear(std::string_view bytes, std::vector<gateway::frame>& answers) {
    stream_ += bytes;
    while (stream_.size() >= sizeof(gateway::frame)) {
      gateway::frame head{};
      std::memcpy(&head, stream_.data(), sizeof head);
      if (head.bytes > gateway::max_frame)
        return false;
      if (stream_.size() < sizeof head + head.bytes)
        return true;
      const auto text = stream_.substr(sizeof head, head.bytes);
      stream_.erase(0, sizeof head + head.bytes);
      head.error = error_of(head, text);
      answers.push_back(head);
    }
    return true;
  }
  void begin() { stream_.clear(); }

private:
  std::int32_t error_of(const gateway::frame& head, const std::string& text) {
    if (head.what == gateway::question::settings)
      return anything;
    if (head.what == gateway::question::totals)
      return 0;
    const auto at = epochs.find(head.slot);
    if (at == epochs.end())
      return ESRCH;
    if (head.what == gateway::question::figures)
      return 0;
    std::string_view left = text;
    const bool sets = head.what == gateway::question::policy && gateway::take_carried(left) &&
                      policy_from_text(left);
    if (!sets)
      return EINVAL;
    if (head.epoch < at->second)
      return ESTALE;
    at->second = head.epoch;
    return 0;
  }

  std::string stream_;

public:
  static constexpr std::int32_t anything = -1; ///< 0 or EINVAL.
};

class played {
public:
  played()
      : spawner_(pair(SOCK_SEQPACKET))
      , world_(io_)
      , gateway_(io_, std::move(spawner_.theirs)) {
    resolver_ = on_loopback(SOCK_DGRAM, resolver_address_);
    world_.names.use(
      {{*egress::ip_address::parse("127.0.0.1"), ntohs(resolver_address_.sin_port)}});
    gateway_.begin();
    serve();
  }

  void serve() {
    auto [ours, theirs] = pair(SOCK_STREAM);
    tell({gateway::op::serve, 0}, {theirs.get()});
    server_ = std::move(ours);
    model_.begin();
    dropped_ = false;
    turn();
  }

  void add(std::uint32_t slot) {
    sockaddr_in stream{}, datagram{};
    const auto listener = on_loopback(SOCK_STREAM, stream);
    must(::listen(listener.get(), 8) == 0, "it listens");
    const auto names = on_loopback(SOCK_DGRAM, datagram);
    tell({gateway::op::add, slot}, {listener.get(), names.get()});
    model_.epochs[slot] = 0;
    datagrams_[slot] = datagram;
    streams_[slot] = stream;
    turn();
  }

  void remove(std::uint32_t slot) {
    tell({gateway::op::remove, slot}, {});
    model_.epochs.erase(slot);
    turn();
  }

  /// The spawner is trusted, but not to have a size.
  void odd_packet(std::string_view bytes) {
    const auto least = sizeof(gateway::request);
    if (bytes.empty() || (bytes.size() >= least && bytes.size() <= least + gateway::max_reach))
      return;
    must(::send(spawner_.ours.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) >= 0, "it is told");
    turn();
    must(io_.stopped(), "who says something else has gone");
    over = true;
  }

  void say(std::string_view bytes) {
    if (dropped_)
      return;
    std::vector<gateway::frame> expected;
    while (!bytes.empty()) {
      const auto n = ::send(server_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      must(n > 0, "a server is read from");
      dropped_ = !model_.hear(bytes.substr(0, static_cast<std::size_t>(n)), expected);
      bytes.remove_prefix(static_cast<std::size_t>(n));
      turn();
      hear_answers(expected);
      if (dropped_)
        return;
    }
  }

  /// Out of a sandbox.
  void ask(std::uint32_t slot, std::string_view bytes) {
    if (!model_.epochs.contains(slot))
      return;
    sockaddr_in mine{};
    const auto asker = on_loopback(SOCK_DGRAM, mine);
    const auto& to = datagrams_[slot];
    ::sendto(asker.get(), bytes.data(), std::min<std::size_t>(bytes.size(), 4096), MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&to), sizeof to);
    turn();
    std::array<char, 65'536> said;
    const auto n = ::recv(asker.get(), said.data(), said.size(), 0);
    if (n > 0)
      must(n >= 12 && static_cast<std::size_t>(n) <= egress::dns::largest_udp &&
             (static_cast<unsigned char>(said[2]) & 0x80) != 0,
           "what is answered is an answer");
  }

  void connect(std::uint32_t slot, std::string_view bytes) {
    if (!model_.epochs.contains(slot))
      return;
    const unique_fd client{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
    const auto& to = streams_[slot];
    static_cast<void>(::connect(client.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to));
    turn();
    if (::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 && errno == ECONNRESET)
      return; // That was told once, and then it is the end.
    // Nobody has redirected it, so the gateway itself is what it wants.
    pollfd refused{client.get(), POLLIN, 0};
    for (int i = 0; i < 1000 && ::poll(&refused, 1, 10) <= 0; ++i)
      turn();
    char byte = 0;
    must(::recv(client.get(), &byte, 1, 0) < 0 && errno != EAGAIN, "it is refused");
  }

  /// A connection as it comes behind the redirection, to a public address.
  void hello(const egress_policy& policy, std::uint16_t port, std::string_view bytes,
             std::size_t piece) {
    auto [ours, theirs] = pair(SOCK_STREAM);
    const auto of = std::make_shared<gateway::tenant>(world_, std::vector<unique_fd>{});
    of->set_policy(policy, 1);
    // Reserved: if it may pass, it is refused for that.
    const gateway::socket_address wanted{*egress::ip_address::parse("10.1.2.3"), port};
    std::make_shared<gateway::connection>(of, std::move(theirs), wanted)->start();
    turn();
    for (auto left = bytes.substr(0, egress_bytes); !left.empty();) {
      const auto part = left.substr(0, piece);
      left.remove_prefix(part.size());
      if (::send(ours.get(), part.data(), part.size(), MSG_NOSIGNAL) < 0)
        break; // It has been cut.
      turn();
    }
    must(of->figures().connections == 0, "nothing leads there");
    of->close();
    turn();
  }

  bool over = false;

private:
  static constexpr std::size_t egress_bytes = 20'000;

  void tell(gateway::request what, const std::vector<int>& fds) {
    iovec part{&what, sizeof what};
    must(send_packet<gateway::max_fds>(spawner_.ours.get(), &part, 1, fds.data(),
                                       static_cast<int>(fds.size())) > 0,
         "the spawner is heard");
  }

  /// All that is to be done at once.
  void turn() {
    while (!io_.stopped() && io_.poll() > 0)
      ;
  }

  void hear_answers(std::vector<gateway::frame>& expected) {
    std::array<char, 65'536> bytes;
    for (ssize_t n = 0; (n = ::recv(server_.get(), bytes.data(), bytes.size(), 0)) > 0; turn())
      answers_.append(bytes.data(), static_cast<std::size_t>(n));
    std::size_t at = 0;
    for (const auto& each : expected) {
      must(answers_.size() - at >= sizeof each, "each frame is answered");
      gateway::frame got{};
      std::memcpy(&got, answers_.data() + at, sizeof got);
      must(answers_.size() - at - sizeof got >= got.bytes, "an answer is whole");
      const auto text = std::string_view{answers_}.substr(at + sizeof got, got.bytes);
      at += sizeof got + got.bytes;
      must(got.id == each.id && got.slot == each.slot && got.what == each.what,
           "an answer is to its question, in order");
      must(each.error == got.error ||
             (each.error == model::anything && (got.error == 0 || got.error == EINVAL)),
           "it says how it went");
      if (got.what == gateway::question::figures && got.error == 0)
        must(static_cast<bool>(figures_from_text(text)), "figures are figures");
      else if (got.what == gateway::question::totals)
        must(static_cast<bool>(totals_from_text(text)), "totals are totals");
      else
        must(text.empty(), "nothing else has a text");
    }
    must(at == answers_.size(), "nothing is answered that was not asked");
    answers_.clear();
    expected.clear();
  }

  boost::asio::io_context io_{1};
  ends spawner_;
  gateway::world world_; ///< Of connections alone.
  gateway::gateway gateway_;
  unique_fd server_, resolver_;
  sockaddr_in resolver_address_{};
  std::map<std::uint32_t, sockaddr_in> datagrams_, streams_;
  model model_;
  std::string answers_;
  bool dropped_ = false;
};

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool is_alone = own_network();
  must(is_alone, "there is a network of its own");
  byte_source from{data, size};
  played at;
  constexpr int most_steps = 64;
  for (int step = 0; step < most_steps && !from.empty() && !at.over; ++step) {
    const auto what = from.plain<std::uint8_t>();
    const std::uint32_t slot = what / 16u % slots;
    const auto some = [&] { return from.take(from.plain<std::uint16_t>()); };
    switch (what % 8) {
      case 0: at.add(slot); break;
      case 1: at.remove(slot); break;
      case 2: at.serve(); break;
      case 3: at.say(some()); break;
      case 4: { // A frame that is one.
        gateway::frame head{};
        head.what = static_cast<gateway::question>(from.plain<std::uint8_t>() % 6);
        head.slot = slot;
        head.epoch = from.plain<std::uint8_t>();
        head.id = static_cast<std::uint64_t>(step);
        const auto text = some();
        head.bytes = static_cast<std::uint32_t>(text.size());
        std::string bytes(sizeof head, '\0');
        std::memcpy(bytes.data(), &head, sizeof head);
        at.say(bytes.append(text));
        break;
      }
      case 5: at.ask(slot, some()); break;
      case 6: {
        const auto port = from.plain<std::uint16_t>();
        const std::size_t piece = 1 + from.plain<std::uint8_t>();
        const auto policy = policy_from_text(some());
        const auto bytes = some();
        if (what >= 128)
          at.connect(slot, bytes);
        else
          at.hello(policy ? *policy : egress_policy::allow_all(), port, bytes, piece);
        break;
      }
      default: at.odd_packet(some());
    }
  }
  return 0;
}
