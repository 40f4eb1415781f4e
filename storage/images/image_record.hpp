#pragma once

#include "base/error.hpp"
#include "storage/images/documents.hpp"
#include "storage/images/furnish.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace insula::storage::images {

/// What is known of an image. All but `root` and `used_ms` stands in image.json beside its tree.
struct image_record {
  std::string name;
  std::string root;      ///< Its tree, by a path that never leads to another one.
  std::string format;    ///< What it was made from: "oci", "docker" or "host".
  std::string digest;    ///< What it was made from, as the image's makers call it.
  std::string reference; ///< In a registry, from where it came first. Empty: from none.
  std::string base;      ///< In words for people, such as "Debian GNU/Linux 12 (bookworm)".
  std::string architecture;
  std::int64_t created_ms = 0;  ///< When it came here; Unix time.
  bool by_node = false;         ///< A server has fetched it, and removes it when nobody uses it.
  std::int64_t used_ms = 0;     ///< When a sandbox last started from it. 0: never, or not known.
  std::uint64_t size_bytes = 0; ///< Of its files. 0: not known.
  std::uint64_t entries = 0;    ///< Files and directories. 0: not known.
  image_account account;
  image_settings settings; ///< As the image's makers want it run.

  bool operator==(const image_record&) const = default;
};

/// Is it a name for an image: 1 to 63 of a-z, 0-9, '.', '_' and '-', the first a letter or digit?
bool is_image_name(std::string_view name);

std::string to_json(const image_record& from);
/// One JSON list of all of them.
std::string to_json(const std::vector<image_record>& all);
/// Errors: invalid_request.
result<image_record> read_image_record(std::string_view json);

} // namespace insula::storage::images
