#pragma once

#include "tests/simulation/history.hpp"

#include <set>

namespace insula::simulation {

/// Of nodes whose activations are callbacks: what is done to an id is numbered as it is begun, and
/// comes in that order.
class plain_history final : public history {
public:
  explicit plain_history(std::uint64_t seed);
  ~plain_history() override { end_all(); }

  // ---- What nodes tell

  /// Numbers what is done to an id, in the order in which it is begun.
  std::uint64_t begun(const std::string& id, bool is_delete);
  void done(const std::string& id, std::uint64_t number, bool is_delete);
  /// Who has begun it was told that it is not so, or that nobody knows.
  void failed(const std::string& id, std::uint64_t number);

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
  };

  std::unique_ptr<node> make_node(std::string name) override;
  std::uint64_t progress(const std::string& id) const override;
  void check_end() override;

  void changed(const storage::etcd::event& what);
  void applied(deeds& of, std::uint64_t number, bool is_delete);

  std::map<std::string, deeds> deeds_;
};

} // namespace insula::simulation
