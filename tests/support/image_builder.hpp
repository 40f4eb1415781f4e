#pragma once

#include "tests/support/temp_dir.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace insula::test {

/// One member of a tar, as hostile as a test wants it.
struct tar_member {
  std::string path;
  char kind =
    'f'; ///< f file, d directory, l symlink, h hard link, p FIFO, c and b devices, s socket.
  std::string content; ///< Or the target of a link.
  unsigned mode = 0;   ///< 0: 0755 for directories, 0644 for others.
  std::int64_t uid = 0, gid = 0;
  std::int64_t mtime = 1'600'000'000;
  std::vector<std::pair<std::string, std::string>> attributes = {};
  std::uint64_t hole = 0; ///< So much of nothing before the content.
};

std::string make_tar(const std::vector<tar_member>& members);

enum class packing { plain, gzip, zstd };
std::string pack(const std::string& bytes, packing how);

std::string sha256(const std::string& bytes);
void write_file(const std::filesystem::path& to, const std::string& bytes);
std::string read_file(const std::filesystem::path& from);

/// An OCI layout in a directory, put together part by part, with digests and sizes that are right
/// unless a test changes them before write().
struct layout_builder {
  struct layer {
    std::string blob; ///< As it is written.
    std::string media_type;
    std::string digest;
    std::uint64_t size;
    std::string diff_id;
  };

  void add(const std::vector<tar_member>& members, packing how = packing::plain);
  void add_tar(const std::string& tar, packing how = packing::plain);

  /// Writes everything but the index; answers the manifest's descriptor. `more` stands in it too.
  std::string write_manifest(const std::string& more = "");
  /// With one manifest, or with these descriptors.
  void write();
  void write_index(const std::string& descriptors);
  /// The same as docker save writes it, with plain layers.
  std::string docker_tar() const;
  std::string config() const;

  std::string path() const { return where.path().string(); }
  std::filesystem::path blob(const std::string& digest) const;

  temp_dir where;
  std::vector<layer> layers;
  std::string os = "linux", architecture; ///< Empty: this machine's.
  std::string run = R"({"Env":["PATH=/bin"]})";
};

} // namespace insula::test
