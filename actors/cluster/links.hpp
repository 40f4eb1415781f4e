#pragma once

#include "base/error.hpp"
#include "base/io_pool.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace caf {
class actor_system;
class actor_system_config;
} // namespace caf

/// How the nodes of a cluster talk to each other: actor messages over one authenticated connection
/// per pair of nodes.
namespace insula::actors::cluster {

/// A node of the cluster, and where it listens for links.
struct member {
  std::string name;    ///< Also the common name of its certificate.
  std::string address; ///< Numeric.
  std::uint16_t port = 0;
};

struct link_options {
  std::string self;
  std::vector<member> members; ///< `self` among them. Port 0 of its own: any that is free.
  // PEM files. Certificates are for both ends of a connection: if they have an extended key usage,
  // then it is clientAuth and serverAuth.
  std::string authority;
  std::string certificate;
  std::string key;
  /// Whether a node whose certificate has this name may have a link. Asked each time that one is
  /// made, on any thread. None: the members other than `self` may.
  std::function<bool(const std::string& name)> may_enter = {};
  std::string build = {}; ///< Of this program: for the log of a peer that speaks otherwise.
  /// Sockets that listen, of the server before. The one at the address of `self` is taken, with the
  /// peers that wait in its queue. The caller's, and open until start() has returned.
  std::vector<int> inherited = {};
};

/// Answers what a peer asks: a short word, and a text of at most limits::link_text_bytes. What they
/// mean is a matter of those who use them.
///
/// Threads: any. Be quick, and throw nothing. `reply` is called once, at any time, on any thread;
///          that it is dropped is told the peer as a failure.
using answer_fn =
  std::function<void(const std::string& from, const std::string& what, std::string text,
                     std::function<void(result<std::string>)> reply)>;

/// The links of a node. Of two nodes the one whose name is lower dials, again and again until there
/// is a link. A link is TLS 1.3 between two certificates of the cluster's authority, and then
/// actor messages. Peers that do not speak the same version are refused, and both say so in their
/// logs. A link on which nothing is heard for limits::link_silence has dropped: peers say every
/// second that they are there.
///
/// Threads: all may be called on any; the constructor, start() and the destructor on none of the
///          pool's.
/// Owner:   ends before the actor system and the pool, which run its actors and connections.
class links {
public:
  /// `changed` is told of each link that is there or has gone, for one peer in order; on any
  /// thread: be quick. The actor system's configuration has seen load_links().
  links(caf::actor_system& system, io_pool& pool, link_options options, answer_fn answers,
        std::function<void(const std::string& name, bool up)> changed);

  /// Ends all links, and answers all open calls by node_unreachable.
  ~links();

  links(const links&) = delete;
  links& operator=(const links&) = delete;

  /// Listens, and begins to dial. Once. Errors: io_failed if it cannot listen; invalid_request for
  /// TLS files that are of no use, and members that make no sense.
  result<void> start();

  /// Asks a peer. `then` is called exactly once, on any thread: be quick there, and throw nothing.
  ///
  /// Errors: node_unreachable (there is no link, or it dropped meanwhile: it is not known whether
  ///         the peer has heard), deadline_exceeded, limit_reached (limits::link_calls wait for
  ///         this peer), payload_too_large, invalid_request (`what` is no word), and whatever the
  ///         peer has answered.
  void ask(const std::string& name, std::string what, std::string text,
           std::chrono::milliseconds patience, std::function<void(result<std::string>)> then);

  /// To whom there is a link now, in order.
  std::vector<std::string> up() const;

  /// At which it listens; 0 before start().
  std::uint16_t port() const;

private:
  class core;
  std::shared_ptr<core> core_;
};

/// What the actor system of a node in a cluster needs over that of a lone one: CAF's middleman,
/// without a port. It has threads of its own, which take over the blocked signals of the thread
/// that makes the actor system.
///
/// A program that calls this gets node ids of its own, new for each actor system: what CAF makes of
/// the machine's addresses and the process id is the same in two containers.
void load_links(caf::actor_system_config& settings);

} // namespace insula::actors::cluster
