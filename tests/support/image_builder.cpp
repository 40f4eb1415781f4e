#include "tests/support/image_builder.hpp"

#include "storage/images/digest.hpp"
#include "storage/images/image_source.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <fstream>
#include <map>
#include <memory>

namespace insula::test {

namespace {

la_ssize_t append(archive*, void* to, const void* bytes, std::size_t count) {
  static_cast<std::string*>(to)->append(static_cast<const char*>(bytes), count);
  return static_cast<la_ssize_t>(count);
}

void need(int outcome, archive* of) {
  if (outcome < ARCHIVE_WARN)
    throw std::runtime_error(std::string{"libarchive: "} + ::archive_error_string(of));
}

unsigned type_of(char kind) {
  static const std::map<char, unsigned> types{{'f', AE_IFREG}, {'d', AE_IFDIR}, {'l', AE_IFLNK},
                                              {'h', AE_IFREG}, {'p', AE_IFIFO}, {'c', AE_IFCHR},
                                              {'b', AE_IFBLK}, {'s', AE_IFSOCK}};
  return types.at(kind);
}

} // namespace

std::string make_tar(const std::vector<tar_member>& members) {
  std::string bytes;
  archive* to = ::archive_write_new();
  ::archive_write_set_format_pax_restricted(to);
  // Names are bytes, whatever a locale says.
  ::archive_write_set_options(to, "hdrcharset=BINARY");
  ::archive_write_set_bytes_per_block(to, 512);
  need(::archive_write_open(to, &bytes, nullptr, append, nullptr), to);
  for (const auto& each : members) {
    archive_entry* entry = ::archive_entry_new();
    ::archive_entry_set_pathname(entry, each.path.c_str());
    ::archive_entry_set_filetype(entry, type_of(each.kind));
    ::archive_entry_set_perm(entry, each.mode != 0 ? each.mode : each.kind == 'd' ? 0755 : 0644);
    ::archive_entry_set_uid(entry, each.uid);
    ::archive_entry_set_gid(entry, each.gid);
    ::archive_entry_set_mtime(entry, each.mtime, 0);
    if (each.kind == 'l')
      ::archive_entry_set_symlink(entry, each.content.c_str());
    if (each.kind == 'h')
      ::archive_entry_set_hardlink(entry, each.content.c_str());
    if (each.kind == 'c' || each.kind == 'b')
      ::archive_entry_set_rdev(entry, 0x0103);
    const bool has_content = each.kind == 'f';
    ::archive_entry_set_size(
      entry, has_content ? static_cast<la_int64_t>(each.hole + each.content.size()) : 0);
    if (each.hole > 0)
      ::archive_entry_sparse_add_entry(entry, static_cast<la_int64_t>(each.hole),
                                       static_cast<la_int64_t>(each.content.size()));
    for (const auto& [name, value] : each.attributes)
      ::archive_entry_xattr_add_entry(entry, name.c_str(), value.data(), value.size());
    need(::archive_write_header(to, entry), to);
    if (has_content) {
      const std::string nothing(64 << 10, '\0');
      for (auto left = each.hole; left > 0;) {
        const auto part = std::min<std::uint64_t>(left, nothing.size());
        if (::archive_write_data(to, nothing.data(), part) < 0)
          need(ARCHIVE_FATAL, to);
        left -= part;
      }
      if (::archive_write_data(to, each.content.data(), each.content.size()) < 0)
        need(ARCHIVE_FATAL, to);
    }
    ::archive_entry_free(entry);
  }
  need(::archive_write_close(to), to);
  ::archive_write_free(to);
  return bytes;
}

std::string pack(const std::string& bytes, packing how) {
  if (how == packing::plain)
    return bytes;
  std::string packed;
  archive* to = ::archive_write_new();
  ::archive_write_set_format_raw(to);
  if (how == packing::gzip)
    ::archive_write_add_filter_gzip(to);
  else
    ::archive_write_add_filter_zstd(to);
  ::archive_write_set_bytes_per_block(to, 0);
  need(::archive_write_open(to, &packed, nullptr, append, nullptr), to);
  archive_entry* entry = ::archive_entry_new();
  ::archive_entry_set_filetype(entry, AE_IFREG);
  need(::archive_write_header(to, entry), to);
  if (::archive_write_data(to, bytes.data(), bytes.size()) < 0)
    need(ARCHIVE_FATAL, to);
  ::archive_entry_free(entry);
  need(::archive_write_close(to), to);
  ::archive_write_free(to);
  return packed;
}

std::string sha256(const std::string& bytes) {
  return storage::images::digest_of(bytes);
}

void write_file(const std::filesystem::path& to, const std::string& bytes) {
  std::filesystem::create_directories(to.parent_path());
  std::ofstream file{to, std::ios::binary};
  file << bytes;
  if (!file.flush())
    throw std::runtime_error("cannot write " + to.string());
}

std::string read_file(const std::filesystem::path& from) {
  std::ifstream file{from, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

void layout_builder::add(const std::vector<tar_member>& members, packing how) {
  add_tar(make_tar(members), how);
}

void layout_builder::add_tar(const std::string& tar, packing how) {
  static const std::map<packing, std::string> suffix{
    {packing::plain, ""}, {packing::gzip, "+gzip"}, {packing::zstd, "+zstd"}};
  const auto blob = pack(tar, how);
  layers.push_back({blob, "application/vnd.oci.image.layer.v1.tar" + suffix.at(how), sha256(blob),
                    blob.size(), sha256(tar)});
}

std::filesystem::path layout_builder::blob(const std::string& digest) const {
  return where / ("blobs/sha256/" + digest.substr(digest.find(':') + 1));
}

std::string layout_builder::config() const {
  std::string ids;
  for (const auto& each : layers)
    ids += (ids.empty() ? "\"" : ",\"") + each.diff_id + "\"";
  return R"({"os":")" + os + R"(","architecture":")" +
         (architecture.empty() ? storage::images::machine_architecture() : architecture) +
         R"(","config":)" + run + R"(,"rootfs":{"type":"layers","diff_ids":[)" + ids + "]}}";
}

std::string layout_builder::write_manifest(const std::string& more) {
  const auto settings = config();
  write_file(blob(sha256(settings)), settings);
  std::string described;
  for (const auto& each : layers) {
    write_file(blob(each.digest), each.blob);
    described += std::string{described.empty() ? "" : ","} + R"({"mediaType":")" + each.media_type +
                 R"(","digest":")" + each.digest + R"(","size":)" + std::to_string(each.size) + "}";
  }
  const auto manifest =
    R"({"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":")" +
    sha256(settings) + R"(","size":)" + std::to_string(settings.size()) + R"(},"layers":[)" +
    described + "]}";
  write_file(blob(sha256(manifest)), manifest);
  return R"({"mediaType":"application/vnd.oci.image.manifest.v1+json","digest":")" +
         sha256(manifest) + R"(","size":)" + std::to_string(manifest.size()) + more + "}";
}

void layout_builder::write_index(const std::string& descriptors) {
  write_file(where / "oci-layout", R"({"imageLayoutVersion":"1.0.0"})");
  write_file(where / "index.json", R"({"schemaVersion":2,"manifests":[)" + descriptors + "]}");
}

void layout_builder::write() {
  write_index(write_manifest());
}

std::string layout_builder::docker_tar() const {
  const auto settings = config();
  const auto config_name = sha256(settings).substr(7) + ".json";
  std::vector<tar_member> members{{config_name, 'f', settings}};
  std::string names;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto name = "layer" + std::to_string(i) + "/layer.tar";
    names += (names.empty() ? "\"" : ",\"") + name + "\"";
    members.push_back({name, 'f', layers[i].blob});
  }
  members.push_back(
    {"manifest.json", 'f',
     R"([{"Config":")" + config_name + R"(","RepoTags":["thing:1"],"Layers":[)" + names + "]}]"});
  return make_tar(members);
}

} // namespace insula::test
