#pragma once

#include "http/transport/exchange.hpp"

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace insula::http {

class connection;

/// The connections of one door, each by what its client has shown, and which of them goes when
/// there is one too many. A stranger goes first, the oldest of all; then a visitor that waits
/// between two requests. A holder never goes, so clients that show nothing keep none out.
///
/// Threads: any.
/// Owner:   a door, which outlives its connections.
class places {
public:
  struct ceilings {
    std::size_t all = 0;       ///< Connections at once.
    std::size_t strangers = 0; ///< Of them.
    std::size_t visitors = 0;  ///< Of them: the rest is kept for holders and for newcomers.
    /// Strangers of one network. Another one takes the place of the oldest of that network, so that
    /// a proxy, whose clients all seem to be in one network, is always let in.
    std::size_t of_network = 0;
  };
  using one = std::shared_ptr<connection>;

  explicit places(ceilings most)
      : most_(most) {}

  /// Whether another connection may be accepted now. If not, leave() makes it so, or a visitor that
  /// has been answered.
  bool has_room() const;
  /// has_room() may be false. An upper bound: it asks no visitor.
  bool is_full() const;
  /// A stranger comes. The answer is the one that has to go for it, or none: to be closed on its
  /// strand, if goes() still says so there.
  one enter(const one& newcomer, std::string network);

  struct rise {
    bool granted = true;
    one goes = nullptr; ///< For it.
  };
  /// Its client has shown so much. Not granted: there are too many visitors already.
  rise rise_to(connection* who, caller shown);

  /// Its client has shown no key since it was sent away.
  bool goes(connection* who) const;

  /// The connection is closed. True: has_room() may have become true by that.
  bool leave(connection* who);

  bool is_empty() const;
  /// Those that are alive.
  std::vector<one> all() const;

private:
  using row = std::list<connection*>;
  struct place {
    std::weak_ptr<connection> who;
    caller shown = caller::stranger;
    std::string network;
    row::iterator at;         ///< In strangers_ or visitors_.
    row::iterator in_network; ///< A stranger's.
    bool goes = false;        ///< It is in no row any more.
  };
  using table = std::unordered_map<connection*, place>;

  void take_out(place& of);
  one send_away(connection* who);
  connection* idle_visitor() const;

  const ceilings most_;
  mutable std::mutex mutex_;
  table places_;  ///< Guarded by mutex_. So are the next:
  row strangers_; ///< The oldest first.
  row visitors_;  ///< The same.
  std::size_t going_ = 0;
  std::unordered_map<std::string, row> of_network_; ///< Strangers.
};

} // namespace insula::http
