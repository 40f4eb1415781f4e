#include "storage/images/tree_writer.hpp"

#include "base/limits.hpp"
#include "storage/images/beneath.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace insula::storage::images {

namespace {

constexpr std::string_view whiteout_prefix = ".wh.", meta_prefix = ".wh..wh.",
                           opaque_name = ".wh..wh..opq";
constexpr std::int64_t last_owner = 65'535;

error refused(const std::string& member, const std::string& why) {
  constexpr std::size_t enough = 200; // Of a name in an error.
  return {errc::invalid_request,
          (member.size() > enough ? member.substr(0, enough) + "…" : member) + ": " + why};
}

error failed(const std::string& member) {
  return {errc::io_failed, member + ": " + std::strerror(errno)};
}

/// A directory that could not be entered, in words.
error blocked(const std::string& directory) {
  if (errno == ELOOP)
    return refused(directory, "the way there is a symlink, and nothing is written through those");
  if (errno == ENOTDIR)
    return refused(directory, "it is no directory, and should have something in it");
  return failed(directory);
}

bool kept(const std::string& attribute) {
  return attribute == "security.capability" ||
         (attribute.starts_with("user.") && !attribute.starts_with("user.overlay."));
}

void remove_attributes(int file) {
  std::array<char, 64 << 10> names{}; // The kernel's own ceiling.
  const auto bytes = ::flistxattr(file, names.data(), names.size());
  for (ssize_t at = 0; at < bytes;) {
    const std::string name = names.data() + at;
    if (kept(name))
      ::fremovexattr(file, name.c_str());
    at += static_cast<ssize_t>(name.size()) + 1;
  }
}

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string{} : path.substr(0, slash);
}

/// "./a//b/" as "a/b"; the root as "". `what` it is, for the error.
result<std::string> normal(const std::string& path, const char* what) {
  if (path.empty())
    return refused("(empty)", std::string{"a member's "} + what + " is empty");
  if (path.front() == '/')
    return refused(path, std::string{"its "} + what + " is absolute");
  if (path.size() > limits::image_path_bytes)
    return refused(path, std::string{"its "} + what + " is longer than " +
                           std::to_string(limits::image_path_bytes) + " bytes");
  std::string made;
  std::size_t depth = 0;
  for (std::size_t at = 0; at < path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    const auto part = path.substr(at, end - at);
    at = end + 1;
    if (part.empty() || part == ".")
      continue;
    if (part == "..")
      return refused(path, std::string{"its "} + what + " has a \"..\" in it");
    if (part.size() > NAME_MAX)
      return refused(path, "a part of its " + std::string{what} + " is longer than 255 bytes");
    if (++depth > limits::image_path_depth)
      return refused(path, "it is deeper than " + std::to_string(limits::image_path_depth) +
                             " directories");
    made += (made.empty() ? "" : "/") + part;
  }
  return made;
}

} // namespace

tree_writer::tree_writer(unique_fd root)
    : root_(std::move(root)) {}

void tree_writer::begin_layer() {
  first_layer_ = !started_;
  started_ = true;
  upper_.clear();
}

result<void> tree_writer::make_parents(const std::string& directory) {
  for (std::size_t slash = 0; slash != std::string::npos;) {
    slash = directory.find('/', slash + 1);
    const auto path = directory.substr(0, slash);
    const auto above = open_beneath(root_.get(), parent_of(path), O_PATH | O_DIRECTORY);
    if (!above)
      return {blocked(parent_of(path))};
    const auto name = path.substr(path.rfind('/') + 1);
    if (::mkdirat(above.get(), name.c_str(), 0755) == 0) {
      if (::fchmodat(above.get(), name.c_str(), 0755, 0) != 0)
        return {failed(path)};
    } else if (errno != EEXIST) {
      return {failed(path)};
    }
  }
  return {};
}

/// Makes `parent_` that directory.
result<void> tree_writer::enter(const std::string& directory, bool make) {
  if (parent_ && entered_ == directory)
    return {};
  parent_ = open_beneath(root_.get(), directory, O_PATH | O_DIRECTORY);
  if (!parent_ && errno == ENOENT && make) {
    if (auto ok = make_parents(directory); !ok)
      return ok;
    parent_ = open_beneath(root_.get(), directory, O_PATH | O_DIRECTORY);
  }
  if (!parent_)
    return {errno == ENOENT ? error{errc::not_found, directory} : blocked(directory)};
  entered_ = directory;
  return {};
}

result<tree_writer::place> tree_writer::find(const std::string& path, bool make_parents) {
  const auto above = parent_of(path);
  if (auto ok = enter(above, make_parents); !ok)
    return ok.reason();
  return place{parent_.get(), path.substr(above.empty() ? 0 : above.size() + 1), path};
}

void tree_writer::remember(const std::string& path) {
  if (first_layer_)
    return; // There is nothing below it that a whiteout could mean.
  for (auto each = path; !each.empty() && upper_.insert(each).second;)
    each = parent_of(each);
}

bool tree_writer::clear(const place& at) {
  if (!remove_all_at(at.directory, at.name.c_str()))
    return false;
  // What was below may have been the directory that is remembered.
  if (entered_.starts_with(at.path + "/") || entered_ == at.path)
    parent_.reset();
  return true;
}

/// Removes what is there from layers before this one, and leaves what this one has made.
bool tree_writer::remove_lower(int directory, const std::string& name, const std::string& path) {
  if (!upper_.contains(path))
    return remove_all_at(directory, name.c_str());
  const unique_fd inside{
    ::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  if (!inside)
    return errno == ENOTDIR || errno == ELOOP || errno == ENOENT;
  return for_each_name(inside.get(), [&](const std::string& each) {
    return remove_lower(inside.get(), each, path + "/" + each);
  });
}

result<void> tree_writer::whiteout(const std::string& path) {
  const auto above = parent_of(path);
  const auto marker = path.substr(above.empty() ? 0 : above.size() + 1);
  const bool opaque = marker == opaque_name;
  if (!opaque && marker.starts_with(meta_prefix))
    return {}; // Bookkeeping of a file system that had these layers once.
  const auto hidden = marker.substr(whiteout_prefix.size());
  if (!opaque && (hidden.empty() || hidden == "." || hidden == ".."))
    return {refused(path, "a whiteout that hides nothing that could be there")};
  if (first_layer_)
    return {};
  if (auto ok = enter(above, false); !ok) {
    // Where the directory has gone there is nothing to hide; also where this layer has put
    // something else in its place, as umoci writes it.
    if (ok.reason().code == errc::not_found)
      return {};
    for (auto each = above; !each.empty(); each = parent_of(each)) {
      const auto is = open_beneath(root_.get(), each, O_PATH | O_NOFOLLOW);
      struct stat info {};
      if (is && ::fstat(is.get(), &info) == 0 && !S_ISDIR(info.st_mode))
        return !S_ISLNK(info.st_mode) || upper_.contains(each) ? result<void>{} : ok;
    }
    return ok;
  }
  const auto in = above.empty() ? above : above + "/";
  const bool gone = opaque ? for_each_name(parent_.get(),
                                           [&](const std::string& each) {
                                             return remove_lower(parent_.get(), each, in + each);
                                           })
                           : remove_lower(parent_.get(), hidden, in + hidden);
  if (!gone)
    return {failed(path)};
  return {};
}

result<void> tree_writer::finish_file(int file, const place& at, const layer_entry& entry) {
  if (::fchown(file, static_cast<uid_t>(entry.uid), static_cast<gid_t>(entry.gid)) != 0 ||
      ::fchmod(file, entry.mode) != 0)
    return {failed(at.path)};
  for (const auto& [name, value] : entry.attributes)
    // A file system without attributes of users can hold the image all the same.
    if (kept(name) && ::fsetxattr(file, name.c_str(), value.data(), value.size(), 0) != 0 &&
        errno != ENOTSUP)
      return {failed(at.path + ", attribute " + name)};
  return {};
}

result<void> tree_writer::make_directory(const place& at, const layer_entry& entry) {
  unique_fd made;
  if (at.path.empty()) {
    made.reset(::openat(root_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  } else {
    struct stat info {};
    const bool there = ::fstatat(at.directory, at.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && !S_ISDIR(info.st_mode) && !clear(at))
      return {failed(at.path)};
    if ((!there || !S_ISDIR(info.st_mode)) && ::mkdirat(at.directory, at.name.c_str(), 0700) != 0)
      return {failed(at.path)};
    made.reset(
      ::openat(at.directory, at.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  if (!made)
    return {failed(at.path)};
  remove_attributes(made.get());
  directory_times_[at.path] = entry.modified;
  return finish_file(made.get(), at, entry);
}

result<void> tree_writer::make_file(const place& at, const layer_entry& entry,
                                    const std::function<result<data_block>()>& data) {
  constexpr int flags = O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC;
  unique_fd file{::openat(at.directory, at.name.c_str(), flags, 0600)};
  if (!file && errno == EEXIST) {
    if (!clear(at))
      return {failed(at.path)};
    file.reset(::openat(at.directory, at.name.c_str(), flags, 0600));
  }
  if (!file)
    return {failed(at.path)};
  std::uint64_t end = 0;
  for (;;) {
    const auto block = data();
    if (!block)
      return block.reason();
    if (block->bytes == nullptr)
      break;
    // Where there is a hole, nothing is written.
    if (block->offset != end &&
        ::lseek(file.get(), static_cast<off_t>(block->offset), SEEK_SET) < 0)
      return {failed(at.path)};
    if (!write_all(file.get(), block->bytes, block->count))
      return {failed(at.path)};
    end = block->offset + block->count;
  }
  if (end < entry.size && ::ftruncate(file.get(), static_cast<off_t>(entry.size)) != 0)
    return {failed(at.path)};
  if (auto ok = finish_file(file.get(), at, entry); !ok)
    return ok;
  const std::array<timespec, 2> times{entry.modified, entry.modified};
  if (::futimens(file.get(), times.data()) != 0)
    return {failed(at.path)};
  return {};
}

result<void> tree_writer::make_link(const place& at, const layer_entry& entry) {
  auto target = normal(entry.target, "target");
  if (!target)
    return refused(at.path, "a hard link: " + target.reason().message);
  const auto above = open_beneath(root_.get(), parent_of(*target), O_PATH | O_DIRECTORY);
  const auto name = target->substr(target->rfind('/') + 1);
  struct stat info {};
  if (!above || name.empty() ||
      ::fstatat(above.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
      S_ISDIR(info.st_mode))
    return refused(at.path, "a hard link to \"" + *target + "\", which is no file of the image");
  if (*target == at.path)
    return {};
  if (::linkat(above.get(), name.c_str(), at.directory, at.name.c_str(), 0) == 0)
    return {};
  if (errno != EEXIST)
    return {failed(at.path)};
  if (!clear(at) || ::linkat(above.get(), name.c_str(), at.directory, at.name.c_str(), 0) != 0)
    return refused(at.path, "a hard link to \"" + *target + "\" in its own place");
  return {};
}

result<void> tree_writer::make_special(const place& at, const layer_entry& entry) {
  const auto make = [&] {
    return entry.kind == entry_kind::symlink
             ? ::symlinkat(entry.target.c_str(), at.directory, at.name.c_str())
             : ::mkfifoat(at.directory, at.name.c_str(), 0600);
  };
  if (entry.kind == entry_kind::symlink &&
      (entry.target.empty() || entry.target.size() > limits::image_path_bytes))
    return {refused(at.path, "a symlink whose target is empty or longer than " +
                               std::to_string(limits::image_path_bytes) + " bytes")};
  if (make() != 0 && (errno != EEXIST || !clear(at) || make() != 0))
    return {failed(at.path)};
  const auto* name = at.name.c_str();
  const std::array<timespec, 2> times{entry.modified, entry.modified};
  if (::fchownat(at.directory, name, static_cast<uid_t>(entry.uid), static_cast<gid_t>(entry.gid),
                 AT_SYMLINK_NOFOLLOW) != 0 ||
      (entry.kind == entry_kind::fifo && ::fchmodat(at.directory, name, entry.mode, 0) != 0) ||
      ::utimensat(at.directory, name, times.data(), AT_SYMLINK_NOFOLLOW) != 0)
    return {failed(at.path)};
  return {};
}

result<void> tree_writer::apply(const layer_entry& entry,
                                const std::function<result<data_block>()>& data) {
  const auto path = normal(entry.path, "name");
  if (!path)
    return path.reason();
  if (entry.kind == entry_kind::device)
    return {refused(*path,
                    "a device; sandboxes have a /dev of their own, so make the image without "
                    "(mmdebstrap: --skip=output/dev)")};
  if (entry.kind == entry_kind::unknown)
    return {refused(*path, "of a kind that an image cannot have")};
  if (entry.uid < 0 || entry.uid > last_owner || entry.gid < 0 || entry.gid > last_owner)
    return {refused(*path, "its owner " + std::to_string(entry.uid) + ":" +
                             std::to_string(entry.gid) + " is not between 0 and 65535")};
  for (std::size_t at = 0; at < path->size();) {
    const auto end = std::min(path->find('/', at), path->size());
    if (path->compare(at, whiteout_prefix.size(), whiteout_prefix) == 0) {
      if (end == path->size())
        return whiteout(*path);
      return {refused(*path, "something below a whiteout")};
    }
    at = end + 1;
  }
  if (path->empty() && entry.kind != entry_kind::directory)
    return {refused("./", "the root of the image is no directory")};
  auto at = path->empty() ? result<place>{place{root_.get(), "", ""}} : find(*path, true);
  if (!at)
    return at.reason();
  remember(*path);
  switch (entry.kind) {
    case entry_kind::directory: return make_directory(*at, entry);
    case entry_kind::file: return make_file(*at, entry, data);
    case entry_kind::hard_link: return make_link(*at, entry);
    case entry_kind::symlink:
    case entry_kind::fifo: return make_special(*at, entry);
    case entry_kind::device:
    case entry_kind::unknown: break;
  }
  return {};
}

result<void> tree_writer::finish() {
  parent_.reset();
  upper_.clear();
  for (const auto& [path, modified] : directory_times_) {
    // What has become something else, or has gone, has no time to be given.
    const auto directory = open_beneath(root_.get(), path, O_RDONLY | O_DIRECTORY);
    const std::array<timespec, 2> times{modified, modified};
    if (directory && ::futimens(directory.get(), times.data()) != 0)
      return {failed(path)};
  }
  return {};
}

} // namespace insula::storage::images
