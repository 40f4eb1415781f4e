#pragma once

#include "actors/protocol/messages.hpp"
#include "base/bucket.hpp"
#include "base/error.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace insula::actors {

/// A mount as it stands in its sandbox's record. What it says of a binding, or of credentials that
/// it does not bring, is looked up each time that it is mounted.
struct bucket_mount {
  std::string path; ///< Normalised.
  std::string binding;
  std::string endpoint, bucket; ///< Of one without a binding.
  std::string prefix;           ///< As of bucket_source.
  bool read_only = false;
  std::optional<bucket_credentials> credentials;
  std::vector<std::string> options;

  /// For the record. Has the credentials in it.
  std::string text() const;
  /// None: another version has written it.
  static std::optional<bucket_mount> read(std::string_view path, std::string_view text);
};

/// With its slashes and dots resolved: "/a//b/../c/" is "/a/c".
std::string normalised_path(std::string_view path);

/// What is asked for, as far as that makes sense by itself. Errors: io_failed, in words.
result<bucket_mount> read_mount(const mount_bucket_request& wanted);

/// With all that the node adds. Errors: io_failed, not_found, in words.
result<bucket_source> source_of(const bucket_mount& mount, const bucket_settings& node);

/// Why it did not work, in one sentence of our own, by what its program has said: of that itself,
/// which may be whatever a service has answered, nothing is for an API client. None: that does not
/// tell.
std::optional<std::string_view> mount_trouble(std::string_view said);

/// For the node's log: what a program has said, without what it was told in confidence and what is
/// no fault, and not more than its last 20 lines.
std::string without_secrets(std::string_view said, const bucket_credentials& of);

} // namespace insula::actors
