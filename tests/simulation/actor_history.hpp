#pragma once

#include "tests/simulation/history.hpp"
#include "tests/simulation/played_links.hpp"
#include "tests/simulation/played_place.hpp"
#include "tests/simulation/snapshot_book.hpp"

namespace insula::simulation {

class actor_node;

/// Of nodes whose directories, sandboxes, gates, alarms and peers are the real actors, each node on
/// a scheduler that runs what the seed says next. Of what is done to an id at the same time nobody
/// knows what comes first; all that is not at the same time comes in its order.
class actor_history final : public history {
public:
  explicit actor_history(std::uint64_t seed);
  ~actor_history() override;

  played_links links;
  played_place place;
  snapshot_book snapshots;

  // ---- What nodes tell

  /// Of a deed, which gets a number. A write of that number writes text_of() it.
  std::uint64_t begun(const std::string& id, bool is_delete);
  static std::string text_of(std::uint64_t number) { return "w" + std::to_string(number); }
  void done(const std::string& id, std::uint64_t number);
  /// It was not done, or nobody knows; or it has come to nothing.
  void failed(const std::string& id, std::uint64_t number);

  /// Somebody waits for an answer, that has to come.
  void asked() { ++open_; }
  void answered() { --open_; }

private:
  struct deed {
    bool is_delete = false;
    std::uint64_t ended = 0; ///< When its asker heard of it; 0: not yet.
    bool applied = false;
  };
  struct object {
    std::map<std::uint64_t, deed> deeds;
    std::uint64_t there = 0;        ///< The write that it has now. 0: none.
    std::uint64_t last_written = 0; ///< The same, though it may have been deleted since.
    std::uint64_t newest_begun = 0; ///< Of the writes that have taken place.
    std::uint64_t acknowledged = 0; ///< So many.
    struct end {
      std::uint64_t by = 0; ///< The write that has set it.
      std::int64_t expires_ms = 0;
    };
    std::vector<end> ends; ///< Of which its node may go by any.
  };

  std::unique_ptr<node> make_node(std::string name) override;
  std::pair<nanoseconds, nanoseconds> pauses() const override { return {20ms, 400ms}; }
  void more_trouble() override;
  void heal() override;
  std::uint64_t progress(const std::string& id) const override;
  void check_end() override;
  void check_lists() const;
  void check_snapshots();

  void changed(const storage::etcd::event& what);
  void written(const std::string& id, object& of, const std::string& text);
  void removed(const std::string& id, object& of);
  void lose_disk_of(node& whom);
  void note_snapshot(const std::string& id, const std::string& at);
  actor_node& at_node(std::size_t number) const;

  std::map<std::string, object> known_;
  std::uint64_t last_ = 0; ///< Counts deeds and their ends.
  std::int64_t open_ = 0;
};

} // namespace insula::simulation
