#include "storage/registry/spool.hpp"

#include "storage/images/beneath.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <vector>

namespace insula::storage::registry {

namespace {

constexpr auto index_file = "index.json";
constexpr std::string_view part = ".part";

error failed(const std::string& what) {
  const int why = errno;
  return {why == ENOSPC || why == EDQUOT ? errc::disk_full : errc::io_failed,
          what + ": " + std::strerror(why)};
}

std::string file_of(const std::string& digest) {
  const auto colon = digest.find(':');
  return "blobs/" + digest.substr(0, colon) + "/" + digest.substr(colon + 1);
}

bool make_directory(int in, const char* name) {
  return ::mkdirat(in, name, 0755) == 0 || errno == EEXIST;
}

/// Beside its place first, then in it: a file of that name is whole.
result<void> write_whole(int in, const std::string& name, std::string_view text) {
  const auto fresh = name + ".new";
  ::unlinkat(in, fresh.c_str(), 0);
  const unique_fd file{
    ::openat(in, fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644)};
  if (!file || !images::write_all(file.get(), text.data(), text.size()) ||
      ::renameat(in, fresh.c_str(), in, name.c_str()) != 0)
    return failed(name);
  return {};
}

} // namespace

result<spool> spool::open(const std::string& path) {
  unique_fd top{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!top || !make_directory(top.get(), "blobs") || !make_directory(top.get(), "blobs/sha256") ||
      !make_directory(top.get(), "blobs/sha512"))
    return failed(path);
  return spool{std::move(top)};
}

result<void> spool::begin(const std::set<std::string>& wanted) {
  if (::unlinkat(top_.get(), index_file, 0) != 0 && errno != ENOENT)
    return failed(index_file);
  for (const std::string algorithm : {"sha256", "sha512"}) {
    const auto where = "blobs/" + algorithm;
    const unique_fd here{
      ::openat(top_.get(), where.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    const auto keep = [&](const std::string& name) {
      const auto digits = name.ends_with(part) ? name.substr(0, name.size() - part.size()) : name;
      return wanted.contains(algorithm + ":" + digits) ||
             images::remove_all_at(here.get(), name.c_str());
    };
    if (!here || !images::for_each_name(here.get(), keep))
      return failed(where);
  }
  return {};
}

result<void> spool::put(const std::string& digest, std::string_view text) {
  return write_whole(top_.get(), file_of(digest), text);
}

result<std::string> spool::get(const std::string& digest, std::size_t most) const {
  const auto name = file_of(digest);
  const unique_fd file{::openat(top_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC)};
  std::string text(most, '\0');
  std::size_t size = 0;
  ssize_t n = file ? 1 : -1;
  while (n > 0 && size < most) {
    n = ::read(file.get(), text.data() + size, most - size);
    size += n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  if (n < 0)
    return failed(name);
  text.resize(size);
  return text;
}

result<void> spool::finish(const std::string& descriptor) {
  if (auto ok = write_whole(top_.get(), "oci-layout", R"({"imageLayoutVersion":"1.0.0"})"); !ok)
    return ok;
  return write_whole(top_.get(), index_file,
                     R"({"schemaVersion":2,"manifests":[)" + descriptor + "]}");
}

std::uint64_t spool::free_bytes() const {
  struct statvfs said {};
  if (::fstatvfs(top_.get(), &said) != 0)
    return ~std::uint64_t{0};
  return std::uint64_t{said.f_bavail} * said.f_frsize;
}

std::uint64_t spool::bytes_of(const std::string& digest) const {
  struct stat info {};
  for (const auto& name : {file_of(digest), file_of(digest) + std::string{part}})
    if (::fstatat(top_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
      return static_cast<std::uint64_t>(info.st_size);
  return 0;
}

spooled_blob::spooled_blob(const spool& in, std::string digest, std::uint64_t size,
                           std::function<void(std::int64_t)> moved, std::function<bool()> unwanted)
    : directory_(in.directory())
    , digest_(std::move(digest))
    , whole_(size)
    , moved_(std::move(moved))
    , unwanted_(std::move(unwanted))
    , hasher_(digest_) {}

std::string spooled_blob::name() const {
  return file_of(digest_);
}

result<void> spooled_blob::open() {
  // One that is whole is no more than a beginning either, until it has been read again.
  if (::renameat(directory_, name().c_str(), directory_, part_name().c_str()) != 0 &&
      errno != ENOENT)
    return failed(name());
  file_.reset(::openat(directory_, part_name().c_str(),
                       O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644));
  struct stat info {};
  if (!file_ || ::fstat(file_.get(), &info) != 0)
    return failed(name());
  if (static_cast<std::uint64_t>(info.st_size) > whole_ && ::ftruncate(file_.get(), 0) != 0)
    return failed(name());
  std::vector<char> piece(256u << 10);
  ssize_t n = 0;
  while ((n = ::read(file_.get(), piece.data(), piece.size())) > 0) {
    hasher_.add(piece.data(), static_cast<std::size_t>(n));
    size_ += static_cast<std::uint64_t>(n);
    moved_(n);
    if (unwanted_())
      return {{errc::deadline_exceeded, "the pull was cancelled"}};
  }
  if (n < 0)
    return failed(name());
  return {};
}

result<void> spooled_blob::add(const char* bytes, std::size_t count) {
  if (!images::write_all(file_.get(), bytes, count))
    return failed("writing " + digest_);
  hasher_.add(bytes, count);
  size_ += count;
  moved_(static_cast<std::int64_t>(count));
  return {};
}

result<void> spooled_blob::start_over() {
  if (::ftruncate(file_.get(), 0) != 0)
    return failed(name());
  moved_(-static_cast<std::int64_t>(size_));
  size_ = 0;
  hasher_ = images::hasher{digest_};
  return {};
}

result<bool> spooled_blob::finish() {
  if (size_ != whole_ || hasher_.digest() != digest_) {
    if (auto ok = start_over(); !ok)
      return ok.reason();
    return false;
  }
  if (::renameat(directory_, part_name().c_str(), directory_, name().c_str()) != 0)
    return failed(name());
  return true;
}

} // namespace insula::storage::registry
