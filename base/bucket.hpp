#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace insula {

/// What a request to an S3 service is signed with. Never written to a log or an error.
struct bucket_credentials {
  std::string access_key_id;
  std::string secret_access_key;

  bool operator==(const bucket_credentials&) const = default;
};

/// A bucket that the operator of a node lends to its sandboxes, by a name.
struct bucket_binding {
  std::string endpoint; ///< http://host[:port] or https://host[:port].
  std::string bucket;
  bool read_only = false;                          ///< Whatever the mount asks for.
  std::optional<bucket_credentials> credentials{}; ///< None: the node's own.
};

/// How a node mounts buckets.
struct bucket_settings {
  std::map<std::string, bucket_binding> bindings; ///< By name: [A-Za-z_][A-Za-z0-9_]*.
  std::optional<bucket_credentials> credentials;  ///< For a mount that brings none and is of a
                                                  ///< binding, or of one of the next.
  std::vector<std::string> credentials_for;       ///< Endpoints, as of a binding.
  std::vector<std::string> allowed_private;       ///< Normal subnets in which an endpoint may be
                                                  ///< although they are private or the node's own.
  std::string driver = "s3fs";                    ///< Or "rclone".
  std::uint64_t cache_bytes = 256ull
                              << 20; ///< Of memory, for the files of one mount; at least 64 MiB.
};

/// A part of a bucket, and all that is needed to reach it. Everything in it has been checked.
struct bucket_source {
  std::string endpoint; ///< http://host[:port] or https://host[:port].
  std::string bucket;
  std::string prefix; ///< Empty, or begins with a slash and does not end with one.
  bool read_only = false;
  bucket_credentials credentials;
  std::vector<std::string> options; ///< Of s3fs: "name" or "name=value".
  bool signed_by_node = false; ///< The credentials are the operator's, of the environment or of
                               ///< a binding: a signature must be good at the endpoint alone.
};

} // namespace insula
