#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace insula::storage {

struct blob_info {
  std::string name;
  std::uint64_t bytes = 0;
  std::int64_t modified_ms = 0; ///< Unix time, by the store's clock.
};

/// Objects by name, in a place that several nodes share: each is written as a whole and read as a
/// whole.
///
/// Threads: any. Every call waits for the disk or the network, within limits of time: not for an
///          actor's thread or HTTP's.
/// Names:   1 to max_name_bytes of [a-zA-Z0-9._=-] in parts with '/' between them; no part is
///          empty or begins with a dot.
/// Whole:   who reads sees an object as one of those who wrote it wrote it, or none. It is durable
///          when put() has answered.
/// Errors:  invalid_request (a malformed name, too many bytes), not_found, store_failed, in words
///          that an operator can use and with no secret in them; sandbox_not_running: after
///          close().
class blob_store {
public:
  static constexpr std::size_t max_name_bytes = 512;

  virtual ~blob_store() = default;

  /// In place of what is there by that name. At most limits::blob_bytes.
  virtual result<void> put(const std::string& name, std::string_view bytes) = 0;

  /// Also payload_too_large: it is larger than `max_bytes`, at most limits::blob_bytes.
  virtual result<std::string> get(const std::string& name, std::size_t max_bytes) = 0;

  virtual result<bool> exists(const std::string& name) = 0;

  /// Removing what is not there succeeds.
  virtual result<void> remove(const std::string& name) = 0;

  /// Tells of every object whose name begins with `prefix` (a name, or with a '/' at its end, or
  /// empty), until `tell` returns false. By name in S3, in any order in a directory. What is put or
  /// removed meanwhile is told of or not.
  virtual result<void> list(const std::string& prefix,
                            const std::function<bool(const blob_info&)>& tell) = 0;

  /// What goes on ends soon, and nothing begins any more.
  virtual void close() = 0;
};

/// What every store refuses without looking.
bool is_blob_name(std::string_view name);

} // namespace insula::storage
