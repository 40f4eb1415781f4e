#pragma once

#include "storage/store.hpp"

#include <deque>
#include <map>
#include <mutex>
#include <utility>

namespace insula::storage {

/// A store for tests: nothing outlives it. It has no thread; on_durable runs inside commit(),
/// either the caller's own or that of a thread that is answering already.
class memory_store final : public store {
public:
  void commit(write_batch batch, std::function<void(result<void>)> on_durable) override;
  result<std::vector<entry>> read(std::string_view owner, std::string_view prefix = {}) override;
  result<std::vector<owned_entry>> find(std::string_view prefix) override;
  result<mark_page> scan(std::string_view mark, const mark_position& after,
                         std::size_t limit) override;
  result<mark_page> scan_keys(std::string_view mark, const mark_position& after,
                              std::size_t limit) override;
  result<mark_page> read_each(const std::vector<mark_position>& places) override;
  result<std::uint64_t> count(std::string_view mark) override;
  result<std::vector<std::string>> owners() override;

  std::uint64_t lines_read() const; ///< By all calls of scan() and read_each().

private:
  struct waiting_batch {
    write_batch batch;
    std::function<void(result<void>)> on_durable;
  };
  struct owned {
    epoch newest = 0;
    std::map<std::string, std::string> entries;
  };

  using marks = std::map<std::pair<std::string, std::string>, std::string>; ///< By key and owner.

  result<void> apply(const write_batch& batch);
  result<mark_page> scan(std::string_view mark, const mark_position& after, std::size_t limit,
                         bool values);
  marks::const_iterator begin_of(std::string_view mark, const mark_position& after) const;

  mutable std::mutex mutex_;
  std::map<std::string, owned, std::less<>> owned_;
  marks marked_; ///< What is_marked() of `owned_`.
  std::uint64_t lines_read_ = 0;
  std::deque<waiting_batch> waiting_;
  std::size_t waiting_bytes_ = 0;
  bool answering_ = false; ///< Some thread is in the loop of commit() and will take what waits.
};

} // namespace insula::storage
