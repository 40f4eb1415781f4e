#pragma once

#include "actors/workspaces.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace insula::test {

/// Snapshots as the test wants them. Everything happens in the calling thread.
class fake_workspaces final : public actors::workspaces {
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
    static_cast<void>(each.what.open());
    if (failure)
      each.answer(*failure);
    else
      each.answer("place" + std::to_string(which + 1));
  }
  void finish_back() {
    const auto& last = back.back();
    static_cast<void>(last.what.open());
    last.answer(failure ? result<void>{*failure} : result<void>{});
  }

  std::vector<keeping> kept;
  std::vector<putting_back> back;
  std::vector<std::string> forgotten;
  bool hold = false;
  std::optional<error> failure;
};

} // namespace insula::test
