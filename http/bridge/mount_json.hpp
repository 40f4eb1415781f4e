#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"

#include <string>
#include <string_view>
#include <vector>

/// Mounts of buckets as JSON. Of several things that are wrong the first of the contract's order is
/// told; members that are not known are ignored, since clients send some that mean nothing here.
namespace insula::http::json {

/// Body of POST .../mount:
///   {"bucket":"…","mountPath":"/…","options":{"endpoint":"https://…","readOnly":false,
///    "prefix":"/…","credentials":{"accessKeyId":"…","secretAccessKey":"…"},
///    "s3fsOptions":["…"],"credentialProxy":false}}
/// Without an endpoint: of the node's bucket that "binding" names, or else "bucket". Errors:
/// invalid_request.
result<mount_bucket_request> read_mount_body(std::string_view text);

/// {"mountPath":"/…"}. The same errors.
result<unmount_bucket_request> read_unmount_body(std::string_view text);

/// {"mounts":[{"mountPath":"/…","bucket":"…","readOnly":false,"mounted":true}]}, with "binding",
/// "endpoint" and "prefix" where there are some.
std::string write_mounts(const std::vector<mounted_bucket>& mounts);

} // namespace insula::http::json
