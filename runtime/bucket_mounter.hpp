#pragma once

#include "base/bucket.hpp"
#include "base/error.hpp"
#include "runtime/engine.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace insula::runtime {

/// For whom, and with what, a bucket is mounted.
struct mount_place {
  std::string path; ///< As of mount_spec.
  sandbox_user user;
  std::uint64_t cache_bytes = 0;
  std::vector<std::string> allowed_private{}; ///< As of bucket_settings.
};

/// One way to make a directory of a bucket: a program that the node runs outside of the sandbox,
/// and what it must be told.
///
/// Threads: any; it has no state.
class bucket_mounter {
public:
  virtual ~bucket_mounter() = default;

  virtual std::string_view name() const = 0;

  /// Errors: invalid_request, if an option of the source's makes no sense or is not allowed, or the
  /// endpoint's host is an address that it must not be at, or none that is plain. What a name leads
  /// to is judged by the gateway at each connection.
  virtual result<mount_spec> plan(const bucket_source& from, const mount_place& to) const = 0;
};

/// s3fs: what is written is in the bucket when the file has been closed. Symbolic links, modes and
/// owners are kept. Source: the manual of s3fs 1.90.
std::shared_ptr<const bucket_mounter> make_s3fs_mounter();

/// rclone: quick with many small files; what is written is on its way to the bucket when the file
/// has been closed. Symbolic links and modes do not get there. Source: "rclone mount" of
/// rclone 1.60.
std::shared_ptr<const bucket_mounter> make_rclone_mounter();

/// By its name; null: there is none of that name.
std::shared_ptr<const bucket_mounter> find_bucket_mounter(std::string_view name);

} // namespace insula::runtime
