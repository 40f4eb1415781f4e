#pragma once

#include "base/error.hpp"
#include "base/unique_fd.hpp"
#include "storage/images/digest.hpp"
#include "storage/registry/client.hpp"

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace insula::storage::registry {

/// A directory that becomes an OCI layout, document by document and blob by blob. A blob has its
/// name only when it has its digest; before, it is "<digits>.part". index.json comes last: without
/// it there is no layout. What is there when a spool is opened is a beginning, and nothing that is
/// believed: each blob's bytes are read again before more come behind them.
///
/// Owner: one pull at a time. Threads: any. Errors: io_failed; disk_full.
class spool {
public:
  /// `path` is there, and belongs to this process's user.
  static result<spool> open(const std::string& path);

  /// Removes the index, and every blob that is not `wanted`.
  result<void> begin(const std::set<std::string>& wanted);
  /// A document whose digest has been verified.
  result<void> put(const std::string& digest, std::string_view text);
  result<std::string> get(const std::string& digest, std::size_t most) const;
  /// With a descriptor, as JSON, of the one manifest.
  result<void> finish(const std::string& descriptor);

  std::uint64_t free_bytes() const;
  /// Of what is wanted, so much is there, believed or not.
  std::uint64_t bytes_of(const std::string& digest) const;
  int directory() const { return top_.get(); }

private:
  explicit spool(unique_fd top)
      : top_(std::move(top)) {}

  unique_fd top_;
};

/// One blob of a spool.
class spooled_blob final : public blob_sink {
public:
  /// What is there is hashed; `unwanted` ends that. `moved`: by how much the blob has become
  /// longer, or shorter.
  spooled_blob(const spool& in, std::string digest, std::uint64_t size,
               std::function<void(std::int64_t)> moved, std::function<bool()> unwanted);

  result<void> open();
  std::uint64_t size() const override { return size_; }
  std::uint64_t whole_size() const override { return whole_; }
  result<void> add(const char* bytes, std::size_t count) override;
  result<void> start_over() override;
  bool unwanted() const override { return unwanted_(); }
  /// Gives it its name, if it has its digest. Else it starts over, and the answer is false.
  result<bool> finish();

private:
  std::string name() const;
  std::string part_name() const { return name() + ".part"; }

  const int directory_;
  const std::string digest_;
  const std::uint64_t whole_;
  const std::function<void(std::int64_t)> moved_;
  const std::function<bool()> unwanted_;
  unique_fd file_;
  std::uint64_t size_ = 0;
  images::hasher hasher_;
};

} // namespace insula::storage::registry
