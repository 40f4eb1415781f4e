#pragma once

#include "storage/memory_store.hpp"
#include "storage/sqlite_store.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace insula::test {

/// A memory_store as the contract sees it. It has no life beyond its process: reopening is nothing.
class in_memory {
public:
  storage::store& open() { return store_; }
  storage::store& reopen() { return store_; }
  storage::epoch may_write(const std::string&) const { return 2; }
  std::uint64_t lines_read() const { return store_.lines_read(); }

private:
  storage::memory_store store_;
};

/// A sqlite_store on a file of its own.
template <storage::survives what>
class sqlite_that {
public:
  storage::store& open() {
    auto opened = storage::sqlite_store::open((where_ / "insula.db").string(), "", what);
    if (!opened)
      FAIL(opened.reason().message);
    store_ = std::move(*opened);
    return *store_;
  }
  storage::store& reopen() {
    store_.reset();
    return open();
  }
  storage::epoch may_write(const std::string&) const { return 2; }
  std::uint64_t lines_read() const { return store_->figures().scanned.value(); }

private:
  temp_dir where_;
  std::unique_ptr<storage::sqlite_store> store_;
};

using sqlite = sqlite_that<storage::survives::power_cut>;        ///< As the cluster's store is.
using node_sqlite = sqlite_that<storage::survives::process_end>; ///< As the node's is.

} // namespace insula::test
