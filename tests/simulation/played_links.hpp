#pragma once

#include "actors/cluster/basp.hpp"
#include "actors/cluster/peer.hpp"
#include "tests/simulation/world.hpp"

#include <caf/actor.hpp>
#include <caf/message.hpp>

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>

namespace insula::simulation {

class node;

/// The connections between nodes, as actors/cluster/links makes them with sockets: of two names the
/// lower one dials, again and again; what is said comes in its order, late, or not any more; and of
/// a silence each end hears by itself. Who speaks through them is the real actor of each peer.
class played_links {
public:
  explicit played_links(world& in)
      : world_(in) {}

  /// What a server has for a peer of its.
  struct end {
    node* of = nullptr;
    caf::actor peer;
    caf::actor proxy; ///< The peer's actor over there, as this one knows it.
  };

  void add(const std::string& self, const std::string& peer, end with);
  /// The server has gone, with all of its ends. Others are told, or find out.
  void drop(const std::string& self, bool says_so);

  /// From the proxy of `to` at `from`.
  void say(const std::string& from, const std::string& to, caf::message what);

  /// From now on something goes through, or nothing, there and back.
  void cut(const std::string& a, const std::string& b, bool there, bool back);
  void heal() { cut_.clear(); }
  bool passes(const std::string& from, const std::string& to) const {
    return !cut_.contains({from, to});
  }
  nanoseconds delay() {
    return world_.chance(0.02) ? world_.between(0ms, 2s) : world_.between(100us, 5ms);
  }

  /// There is a link between any two of those that are there.
  bool all_up() const;

private:
  using way = std::pair<std::string, std::string>; ///< From, to.
  /// What one of two ends knows.
  struct half {
    std::uint64_t link = 0; ///< 0: none.
    nanoseconds heard{0};   ///< When something last came.
    std::deque<caf::message> coming;
    bool on_its_way = false; ///< The first of these.
  };

  void dial(const way& which);
  void open(const way& which);
  void deliver(const way& which);
  void gone(const way& which, std::uint64_t link, const char* why);
  bool hears(const way& which) const;

  world& world_;
  std::map<way, end> ends_;    ///< By whose, and of whom.
  std::map<way, half> halves_; ///< By from whom, and whose.
  std::set<way> cut_;
  std::set<way> dialling_;
  std::uint64_t last_ = 0;
};

} // namespace insula::simulation
