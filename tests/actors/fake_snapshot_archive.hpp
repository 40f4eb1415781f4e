#pragma once

#include "actors/snapshot_archive.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace insula::test {

/// Snapshots as the test wants them. Everything happens in the calling thread.
class fake_snapshot_archive final : public actors::snapshot_archive {
public:
  struct keeping {
    keep_request what;
    std::function<void(result<std::string>)> answer;
  };
  struct putting_back {
    put_back_request what;
    std::function<void(result<void>)> answer;
  };

  void keep(keep_request what, std::function<void(result<std::string>)> on_kept) override {
    kept.push_back({std::move(what), std::move(on_kept)});
    if (!hold)
      finish_keep();
  }
  void put_back(put_back_request what, std::function<void(result<void>)> on_back) override {
    back.push_back({std::move(what), std::move(on_back)});
    if (!hold)
      finish_back();
  }
  void forget(const std::string& sandbox, storage::epoch, const std::string& newest) override {
    forgotten.push_back(sandbox + " " + newest);
  }

  void finish_keep() { finish_keep(kept.size() - 1); }
  void finish_keep(std::size_t which) {
    const auto each = kept.at(which); // The answer may add more.
    kept[which].answer = nullptr;
    kept[which].what.open = nullptr; // It has its sandbox no longer.
    if (const auto opened = each.what.open(); !opened)
      each.answer(opened.reason());
    else if (failure)
      each.answer(*failure);
    else
      each.answer("place" + std::to_string(which + 1));
  }
  void finish_back() {
    const auto last = back.back(); // The answer may add more.
    back.back().answer = nullptr;
    back.back().what.open = nullptr;
    if (const auto opened = last.what.open(); !opened)
      last.answer(opened.reason());
    else
      last.answer(failure ? result<void>{*failure} : result<void>{});
  }

  std::vector<keeping> kept;
  std::vector<putting_back> back;
  std::vector<std::string> forgotten;
  bool hold = false;
  std::optional<error> failure;
};

} // namespace insula::test
