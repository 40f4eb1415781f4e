#pragma once

#include "base/unique_fd.hpp"
#include "storage/blobs/blob_store.hpp"

#include <atomic>
#include <memory>
#include <optional>

namespace insula::storage {

/// Blobs as files below one directory: for one node, or for several that mount the same file
/// system.
class directory_blobs final : public blob_store {
public:
  /// `directory` is open, and stays its owner's to name: `shown` is for messages. What interrupted
  /// writers have left there for more than a day is removed.
  directory_blobs(unique_fd directory, std::string shown);

  result<void> put(const std::string& name, std::string_view bytes) override;
  result<std::string> get(const std::string& name, std::size_t max_bytes) override;
  result<bool> exists(const std::string& name) override;
  result<void> remove(const std::string& name) override;
  result<void> list(const std::string& prefix,
                    const std::function<bool(const blob_info&)>& tell) override;
  void close() override { closed_ = true; }

private:
  error failed(const std::string& what, int code) const;
  std::optional<error> refusal(const std::string& name) const;
  result<void> move_to(const std::string& draft, const std::string& name);
  result<unique_fd> open_parent(const std::string& name, bool make);
  result<bool> list_below(int directory, const std::string& above, const std::string& prefix,
                          const std::function<bool(const blob_info&)>& tell);
  void remove_leftovers();

  const unique_fd directory_;
  const std::string shown_;
  std::atomic<bool> closed_ = false;
};

} // namespace insula::storage
