#pragma once

#include "tests/simulation/node.hpp"
#include "tests/simulation/world.hpp"

#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace insula::simulation {

struct violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline void demand(bool holds, const std::string& what) {
  if (!holds)
    throw violation{what};
}

/// How often what is to be seen has been there. A run that has not seen all of it shows nothing.
struct counts {
  std::map<std::string, std::size_t> of;
  void add(const counts& more) {
    for (const auto& [what, often] : more.of)
      of[what] += often;
  }
};

/// What happens to a cluster, from a seed. What is true all the time is checked whenever it can
/// have come to be otherwise, and what has to be true in the end when all faults are over.
class history {
public:
  explicit history(std::uint64_t seed);
  ~history();

  void play();

  world time;
  engine decides;
  std::vector<std::unique_ptr<node>> all;
  counts seen;

  void count(const std::string& what) { ++seen.of[what]; }

  /// To be called whenever a node may have come to act for it: never do two.
  void check(const std::string& id) const;
  void check_all() const;

  // ---- What nodes tell

  /// Numbers what is done to an id, in the order in which it is begun.
  std::uint64_t begun(const std::string& id, bool is_delete);
  void done(const std::string& id, std::uint64_t number, bool is_delete);
  /// Who has begun it was told that it is not so, or that nobody knows.
  void failed(const std::string& id, std::uint64_t number);
  void held(const std::string& id, storage::epoch now, const std::string& by);
  /// A client was told that this is the object of its key.
  void made(const std::string& id, const std::string& object);
  std::string new_object() { return "object" + std::to_string(++objects_made_); }

private:
  /// What has been done to an id.
  struct deeds {
    std::uint64_t begun = 0;
    std::uint64_t applied = 0;        ///< The last that took place,
    bool is_gone = true;              ///< and what it left.
    std::set<std::uint64_t> deletes;  ///< Begun, and not known to have taken place.
    std::set<std::uint64_t> in_doubt; ///< Told as failed.
    bool found_out = false; ///< One of these has taken place, and nothing was acknowledged since.
    std::uint64_t acknowledged = 0;
    storage::epoch last_epoch = 0;
    std::string last_node;
  };

  void changed(const storage::etcd::event& what);
  void applied(deeds& of, std::uint64_t number, bool is_delete);
  void check_end();
  void trouble();
  void heal();

  std::map<std::string, deeds> deeds_;
  std::map<std::string, std::string> objects_; ///< As clients know them.
  std::uint64_t objects_made_ = 0;
};

} // namespace insula::simulation
