#pragma once

#include "storage/store.hpp"

#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace insula::test {

/// The shape in which models keep what an owner has.
using contents = std::map<std::string, std::string>;

inline contents as_map(const std::vector<storage::entry>& entries) {
  contents all;
  for (const auto& [key, value] : entries)
    all[key] = value;
  return all;
}

/// Commits, and hands out what on_durable will be told.
inline std::future<result<void>> commit_async(storage::store& where, storage::write_batch batch) {
  auto told = std::make_shared<std::promise<result<void>>>();
  auto outcome = told->get_future();
  where.commit(std::move(batch), [told](result<void> r) { told->set_value(std::move(r)); });
  return outcome;
}

/// Commits and waits for the answer.
inline result<void> commit_now(storage::store& where, storage::write_batch batch) {
  return commit_async(where, std::move(batch)).get();
}

/// Keeps a store busy: its thread stands in an answer until this is released, so that what is
/// committed meanwhile certainly waits together. Also for stores that answer inside commit().
class busy_store {
public:
  busy_store(storage::store& where, storage::write_batch batch) {
    auto entered = std::make_shared<std::promise<result<void>>>();
    auto left = std::make_shared<std::promise<void>>();
    auto answered = entered->get_future();
    auto answer = [entered, left, go = go_.get_future().share()](result<void> r) {
      entered->set_value(std::move(r));
      go.wait();
      left->set_value();
    };
    thread_ = std::async(std::launch::async, [&where, batch = std::move(batch), answer, left] {
      auto gone = left->get_future();
      where.commit(batch, answer);
      gone.wait();
    });
    outcome = std::make_unique<result<void>>(answered.get());
  }
  ~busy_store() { release(); }

  void release() {
    if (!std::exchange(released_, true))
      go_.set_value();
    if (thread_.valid())
      thread_.get();
  }

  std::unique_ptr<const result<void>> outcome; ///< Of the batch that keeps it busy.

private:
  std::promise<void> go_;
  std::future<void> thread_;
  bool released_ = false;
};

} // namespace insula::test
