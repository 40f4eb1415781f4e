#pragma once

#include "actors/snapshot_archive.hpp"
#include "tests/simulation/open_answers.hpp"

#include <map>
#include <optional>
#include <string>

namespace insula::simulation {

/// Where copies of disks go, and whence they come: all nodes reach it, and it outlives them.
class played_place {
public:
  bool away = false;
  nanoseconds slowest = 50ms; ///< For one step of what is asked of it.

  std::string put(const std::string& of, storage::epoch at, std::int64_t taken_ms,
                  std::string text) {
    auto reference = "copy" + std::to_string(++last_);
    copies_[reference] = {of, at, taken_ms, std::move(text)};
    return reference;
  }
  /// None: there is no such copy.
  std::optional<std::string> find(const std::string& reference) const;
  void forget(const std::string& of, storage::epoch last, const std::string& newest);

private:
  struct copy {
    std::string of;
    storage::epoch at = 0;
    std::int64_t taken_ms = 0;
    std::string text;
  };
  std::map<std::string, copy> copies_;
  std::uint64_t last_ = 0;
};

/// A machine's way there.
class played_files final : public actors::snapshot_archive {
public:
  played_files(world& in, played_place& place)
      : world_(in)
      , place_(place)
      , open_(in) {}

  void keep(keep_request what,
            std::function<void(result<actors::snapshot_reference>)> on_kept) override;
  void put_back(put_back_request what, std::function<void(result<void>)> on_back) override;
  void forget(const std::string& sandbox, storage::epoch last,
              const actors::snapshot_reference& newest) override;

  void server_ends() { open_.drop(); }

private:
  nanoseconds takes() {
    return world_.chance(0.05) ? world_.between(0ms, 4s) : world_.between(1ms, place_.slowest);
  }

  world& world_;
  played_place& place_;
  open_answers open_;
};

/// A disk's text as it travels through a file in memory.
unique_fd file_of(const std::string& text);
std::string text_of_file(int file);

} // namespace insula::simulation
