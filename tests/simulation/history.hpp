#pragma once

#include "tests/simulation/node.hpp"
#include "tests/simulation/world.hpp"

#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace insula::simulation {

struct violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The first of a history. Actors keep what is thrown in them to themselves.
inline std::string first_violation;

inline void demand(bool holds, const std::string& what) {
  if (holds)
    return;
  if (first_violation.empty())
    first_violation = what;
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
  virtual ~history() = default;

  void play();

  world time;
  engine decides;
  std::vector<std::unique_ptr<node>> all;
  counts seen;
  /// Of the stores: what belongs to alarms first.
  std::vector<std::string> found_by{"@"};

  /// Nodes do not end what they have, and say so: that has to be found.
  bool mistake = false;
  /// A snapshot whose request has failed is asked for again at any node, by the same name.
  bool repeats_anywhere = false;
  /// Clients have desks as well: see actor_node::use_desk.
  bool has_runs = false;

  void count(const std::string& what) { ++seen.of[what]; }

  /// To be called whenever a node may have come to act for it: never do two.
  void check(const std::string& id) const;
  void check_all() const;

  // ---- What nodes tell

  void held(const std::string& id, storage::epoch now, const std::string& by);
  /// A client was told that this is the object of its key.
  void made(const std::string& id, const std::string& object);
  std::string new_object() { return "object" + std::to_string(++objects_made_); }

protected:
  static constexpr std::size_t nodes = 3;
  static constexpr std::size_t ids = 5;
  static constexpr std::size_t sleepers = 2; ///< Of these: nobody asks for them after a while.
  static constexpr std::size_t keys_of_clients = 2;
  static std::string id_of(std::size_t number) {
    return {'i', 'd', static_cast<char>('a' + number)};
  }
  static std::string key_of(std::size_t number) {
    return {'k', 'e', 'y', static_cast<char>('a' + number)};
  }

  virtual std::unique_ptr<node> make_node(std::string name) = 0;
  /// Between two uses of something.
  virtual std::pair<nanoseconds, nanoseconds> pauses() const { return {5ms, 80ms}; }
  virtual void more_trouble() {}
  virtual void heal();
  /// What is done to an id that has been acknowledged: grows as long as that goes on.
  virtual std::uint64_t progress(const std::string& id) const = 0;
  virtual void check_end() = 0;
  /// The objects of clients' keys, as they were told.
  const std::map<std::string, std::string>& objects() const { return objects_; }
  void end_all();

private:
  struct tenure {
    storage::epoch last = 0;
    std::string node;
  };

  void trouble();
  bool ended_early() const;

  std::map<std::string, tenure> tenures_;
  std::map<std::string, std::string> objects_; ///< As clients know them.
  std::uint64_t objects_made_ = 0;
};

} // namespace insula::simulation
