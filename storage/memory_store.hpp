#pragma once

#include "storage/store.hpp"

#include <deque>
#include <map>
#include <mutex>

namespace insula::storage {

/// A store for tests: nothing outlives it. It has no thread; on_durable runs inside commit(),
/// either the caller's own or that of a thread that is answering already.
class memory_store final : public store {
public:
  void commit(write_batch batch, std::function<void(result<void>)> on_durable) override;
  result<std::vector<entry>> read(std::string_view owner, std::string_view prefix = {}) override;
  result<std::vector<owned_entry>> find(std::string_view prefix) override;
  result<std::vector<std::string>> owners() override;

private:
  struct waiting_batch {
    write_batch batch;
    std::function<void(result<void>)> on_durable;
  };
  struct owned {
    epoch newest = 0;
    std::map<std::string, std::string> entries;
  };

  result<void> apply(const write_batch& batch);

  std::mutex mutex_;
  std::map<std::string, owned, std::less<>> owned_;
  std::deque<waiting_batch> waiting_;
  std::size_t waiting_bytes_ = 0;
  bool answering_ = false; ///< Some thread is in the loop of commit() and will take what waits.
};

} // namespace insula::storage
