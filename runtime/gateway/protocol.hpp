#pragma once

#include <cstddef>
#include <cstdint>

/// What the egress gateway is told. By the spawner, its parent: one struct per packet of a
/// SOCK_SEQPACKET socket, with descriptors beside it. By a server: frames in a stream, each with a
/// text behind its head. Both trust each other; all that comes out of a sandbox is untrusted.
namespace insula::runtime::gateway {

/// Where the gateway finds the spawner's socket.
inline constexpr int spawner_fd = 3;

/// Where it listens in a sandbox's network: what wants to leave is sent there by a rule of that
/// network's own.
inline constexpr std::uint16_t tcp_port = 1;
inline constexpr std::uint16_t dns_port = 53;

/// What asks for a connection is held on its way there: the kernel shows it to the gateway by NFLOG
/// and drops it, and the gateway sends it again when the far side has answered.
inline constexpr std::uint32_t opening_bytes = 256;   ///< Of each, more than its heads ever have.
inline constexpr std::uint32_t opening_message = 512; ///< That it comes in.
/// For those that wait: some 800, as the kernel counts, which doubles it. What finds no room comes
/// again in a second.
inline constexpr int openings_buffer = 512 << 10;

// ---- From the spawner

enum class op : std::uint32_t {
  add = 1, ///< A sandbox, all of which is refused until a server gives it a policy. Descriptors,
           ///< all non-blocking: two that listen for TCP (IPv4, IPv6) and two for the DNS (UDP over
           ///< IPv4, and over IPv6); where openings are held, one that hears them, and two that
           ///< send packets (IPv4, IPv6). A slot that is there already is taken to be another
           ///< one's. A text behind it makes it the program of a mount: "port N", the only one at
           ///< which it may connect; lines "host NAME ADDRESS" for names of which the DNS is not
           ///< asked; and its policy, as insula::to_text() writes it, which no server changes. Its
           ///< own loopback addresses are the machine's.
  remove,  ///< Its connections are cut, and it is forgotten.
  serve,   ///< One descriptor: the way to a server, in place of the one before. Policies stay.
  broker, ///< One descriptor: the way to the broker of a sandbox (broker::gateway_packet), in place
          ///< of the one before. None: it has none any more. What that had is over.
  name,   ///< Of a sandbox: the text is its host name, in place of the one before. To the DNS
          ///< inside, that name is the sandbox, under every policy.
};

inline constexpr std::uint32_t nobody = ~0u;

struct request {
  op what;
  std::uint32_t slot;
  std::uint32_t pays = nobody; ///< add: the slot with which it shares what a sandbox may have. One
                               ///< that is not there: it has a share of its own.
};

inline constexpr std::size_t max_fds = 7;
inline constexpr std::size_t max_reach = 8192; ///< Text behind a request, in bytes.

/// What stands for a slot where a mount's program is meant; those of sandboxes are below.
constexpr std::uint32_t slot_of_mount(std::uint32_t number) {
  return 1u << 31 | number;
}

// ---- From and to a server

/// A frame's text is at most this: 4,096 rules with names of 253 bytes.
inline constexpr std::size_t max_frame = 2u << 20;

enum class question : std::uint32_t {
  settings = 1, ///< Lines "resolver ADDRESS" (of port 53, or "resolver ADDRESS PORT"), in the order
                ///< in which they are asked, and "allow SUBNET": addresses that are refused under
                ///< every policy but for this.
  policy, ///< Of `slot`: lines "carry DOMAIN", whose requests its broker carries, and "forward HOST
          ///< PORT", to which the broker may also connect, if there are any; then the policy, as
          ///< insula::to_text() writes it. What either forbids of what is open is cut before it is
          ///< answered: what goes to such a domain otherwise, or to the broker without being for
          ///< one any more, is forbidden. Not one with an older epoch than that of the last one.
  figures, ///< Of `slot`. The answer's text is as insula::to_text(network_figures) writes it.
  totals,  ///< The same of network_totals, of all slots.
};

/// Each is answered with its own id, in any order: `error` is 0; ESRCH, there is no such slot;
/// EINVAL, the text is none; or ESTALE, the asker does not hold the sandbox any more.
struct frame {
  std::uint32_t bytes; ///< Of the text behind it.
  question what;
  std::uint64_t id;
  std::uint64_t epoch; ///< Of a policy: under which its sandbox is held.
  std::uint32_t slot;
  std::int32_t error;
};

} // namespace insula::runtime::gateway
