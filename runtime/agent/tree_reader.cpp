// A directory and all below it, on its way out of the sandbox.

#include "base/tar_size.hpp"
#include "base/tree_attributes.hpp"
#include "base/tree_frames.hpp"
#include "runtime/agent/channel.hpp"
#include "runtime/agent/directory_entries.hpp"
#include "runtime/agent/tree_operations.hpp"
#include "runtime/agent/tree_text.hpp"

#include <algorithm>
#include <climits>
#include <clocale>
#include <dirent.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <map>
#include <string>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <vector>

namespace insula::runtime::agent {

namespace {

constexpr int open_flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

/// For the names of what has several: of what is too much for that each name gets a file.
constexpr std::size_t max_link_bytes = 64u << 20;

struct named_entry {
  std::string name;
  unsigned char type;
};

bool list(int directory, std::vector<named_entry>& into) {
  return for_each_entry(directory, [&](std::string_view name, unsigned char type) {
    into.push_back({std::string{name}, type});
  });
}

unsigned char type_of(int directory, const named_entry& entry) {
  if (entry.type != DT_UNKNOWN)
    return entry.type;
  struct stat info {};
  if (::fstatat(directory, entry.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return DT_UNKNOWN;
  return static_cast<unsigned char>(IFTODT(info.st_mode));
}

/// Which mount it is in. Nobody else is asked: what is behind a mount may never answer.
std::uint64_t mount_of(int directory, const char* name) {
  constexpr int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;
  struct statx info {};
  if (::statx(directory, name, flags, STATX_MNT_ID, &info) != 0)
    return 0;
  return (info.stx_mask & STATX_MNT_ID) != 0 ? info.stx_mnt_id
                                             : makedev(info.stx_dev_major, info.stx_dev_minor);
}

bool same_time(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

class tree_reader {
public:
  tree_reader(int channel, char** excludes, std::int32_t reading)
      : channel_(channel)
      , excludes_(excludes)
      , exact_((reading & tree_exact) != 0)
      , measured_((reading & tree_measured) != 0)
      , compact_((reading & tree_compact) != 0)
      , whole_((reading & tree_whole) != 0) {}

  /// What a disk has, but for the groups that the asker has.
  void run_disk(int disk) {
    if (!hear_known())
      return;
    const int root = ::openat(disk, "u", open_flags | O_DIRECTORY);
    const int usr = ::openat(disk, "uu", open_flags | O_DIRECTORY);
    if (root < 0 || usr < 0)
      text_.add("The disk", "Cannot open", errno);
    std::vector<named_entry> of_usr;
    const bool has_usr = usr >= 0 && list(usr, of_usr) && !of_usr.empty();
    const auto in_usr = [&](auto what) {
      if (!has_usr)
        return true;
      const auto before = enter("usr");
      const bool good = what();
      name_.resize(before);
      return good;
    };
    const auto check = [&](int directory) {
      struct stat info {};
      if (::fstat(directory, &info) == 0)
        note(info, {});
      check_below(directory);
      return true;
    };
    if (root >= 0 && usr >= 0) {
      check(root);
      in_usr([&] { return check(usr); });
      end_group();
    }
    const auto result = text_.result();
    if (!put(&result, sizeof result) || !put(text_.text().data(), text_.text().size()) ||
        !flush() || result.exit_code != 0)
      return;
    forget_names();
    const auto send = [&](int directory) {
      struct stat info {};
      if (::fstat(directory, &info) != 0 || !turn())
        return false;
      return (passes_ ||
              (put_attributes(info, directory) && put_entry(entry_kind::directory, info, {}))) &&
             send_below(directory);
    };
    const entry_head end{};
    if (send(root) && in_usr([&] { return send(usr); }) && put(&end, sizeof end))
      flush();
  }

  void run(const char* path) {
    const int top = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
      text_.add(path, "Cannot open", errno);
    else if (exact_ && (mount_ = mount_of(top, ".")) != mount_of(top, ".."))
      text_.add(path, "Something is mounted there");
    else
      check_below(top);
    const auto result = text_.result();
    if (!put(&result, sizeof result) || !put(text_.text().data(), text_.text().size()) ||
        !flush() || result.exit_code != 0)
      return;
    if (measured_ && !put_measure())
      return;
    forget_names();
    struct stat info {};
    if (::fstat(top, &info) != 0 || !put_entry(entry_kind::directory, info, {}) || !send_below(top))
      return;
    const entry_head end{};
    if (put(&end, sizeof end))
      flush();
  }

private:
  /// All is met again now, and gets the same numbers.
  void forget_names() {
    sent_.clear();
    link_bytes_ = 0;
    numbers_ = 0;
  }

  // ---- Groups of a disk, which does not change: both walks meet the same ones

  bool hear_known() {
    groups_head head{};
    if (!receive_all(channel_, &head, sizeof head) || head.count > max_known_groups)
      return false;
    known_.resize(head.count);
    return receive_all(channel_, known_.data(), known_.size() * sizeof(group_key));
  }

  bool is_known(const group_key& key) const {
    return std::binary_search(known_.begin(), known_.end(), key);
  }

  static group_hash& add_to(group_hash& hash, const struct stat& info) {
    return hash.add(info.st_ino)
      .add(static_cast<std::uint64_t>(info.st_size))
      .add(static_cast<std::uint64_t>(info.st_mtim.tv_sec))
      .add(static_cast<std::uint64_t>(info.st_mtim.tv_nsec))
      .add(static_cast<std::uint64_t>(info.st_ctim.tv_sec))
      .add(static_cast<std::uint64_t>(info.st_ctim.tv_nsec));
  }

  /// The first walk meets an entry. `link`: the name of the file that it is, too.
  void note(const struct stat& info, std::string_view link) {
    if (!whole_)
      return;
    if (keys_.empty() || begins_group(shown_name())) {
      end_group();
      keys_.emplace_back();
      hash_ = {};
      hash_.add(static_cast<std::uint64_t>(entry_kind::group));
    }
    add_to(hash_, info).add(info.st_mode).add(shown_name()).add(link);
  }
  void end_group() {
    if (!keys_.empty())
      keys_.back() = hash_.key();
  }

  /// The second walk meets it. Then it is known whether it is passed by.
  bool turn() {
    if (!whole_ || (next_ > 0 && !begins_group(shown_name())))
      return true;
    if (next_ == keys_.size())
      return false; // It has changed, after all.
    const auto& key = keys_[next_++];
    passes_ = is_known(key);
    return put_group(entry_kind::group, key, passes_);
  }

  bool put_group(entry_kind kind, const group_key& key, bool known) {
    const group_head said{key, known ? 1u : 0u, 0};
    entry_head head{};
    head.kind = kind;
    head.target_bytes = sizeof said;
    return put(&head, sizeof head) && put(&said, sizeof said);
  }

  /// Of a large file of a disk, before its head. `known`: its content is not sent.
  bool put_content_group(const struct stat& info, bool& known) {
    if (!whole_ || static_cast<std::uint64_t>(info.st_size) < large_file_bytes)
      return true;
    group_hash hash;
    hash.add(static_cast<std::uint64_t>(entry_kind::content));
    const auto key = add_to(hash, info).key();
    known = is_known(key);
    return put_group(entry_kind::content, key, known);
  }

  /// An entry of a group that the asker has: nothing of it is sent but what is below it and in
  /// another group. Its name counts for files that have several.
  bool pass(int directory, const named_entry& entry) {
    const auto type = type_of(directory, entry);
    struct stat info {};
    std::uint32_t number = 0;
    if (type == DT_REG && ::fstatat(directory, entry.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0)
      static_cast<void>(sent_as(info, number));
    if (type != DT_DIR)
      return true;
    const int below = ::openat(directory, entry.name.c_str(), open_flags | O_DIRECTORY);
    if (below < 0)
      return gone();
    const bool sent = send_below(below);
    ::close(below);
    return sent;
  }

  // ---- Before anything is sent: what would make it fail, so that it can be told

  void check_below(int directory) {
    std::vector<named_entry> entries;
    if (!list(directory, entries))
      return text_.add(shown(), "Cannot read", errno);
    for (const auto& entry : entries) {
      const auto before = enter(entry.name);
      if (!excluded() && !is_mounted(directory, entry))
        check(directory, entry);
      name_.resize(before);
    }
  }

  void check(int directory, const named_entry& entry) {
    if (name_.size() > max_entry_name)
      return text_.add(shown().substr(0, 100) + "...", "Cannot archive", ENAMETOOLONG);
    const auto type = type_of(directory, entry);
    if (whole_)
      note_entry(directory, entry.name.c_str(), type);
    if (type == DT_REG)
      check_file(directory, entry.name.c_str());
    if (whole_ && (type == DT_REG || type == DT_DIR))
      check_attributes(directory, entry.name.c_str());
    if (type == DT_LNK && measured_)
      measure_symlink(directory, entry.name.c_str());
    if (type != DT_DIR)
      return;
    size_.add(entry_kind::directory, name_, {}, 0);
    const int below = ::openat(directory, entry.name.c_str(), open_flags | O_DIRECTORY);
    if (below < 0) {
      if (errno != ENOENT && errno != ENOTDIR)
        text_.add(shown(), "Cannot open", errno);
      return;
    }
    if (::faccessat(below, ".", X_OK, 0) != 0)
      text_.add(shown(), "Cannot open", errno);
    else
      check_below(below);
    ::close(below);
  }

  void note_entry(int directory, const char* name, unsigned char type) {
    struct stat info {};
    if (!is_sent(type))
      return;
    if (::fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      return text_.add(shown(), "Cannot stat", errno);
    std::uint32_t number = 0;
    const auto* const first = type == DT_REG ? sent_as(info, number) : nullptr;
    note(info, first == nullptr ? std::string_view{} : *first);
  }

  void check_file(int directory, const char* name) {
    struct stat info {};
    if (::faccessat(directory, name, R_OK, 0) != 0) {
      if (errno != ENOENT)
        text_.add(shown(), "Cannot open", errno);
    } else if (::fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return;
    } else if (static_cast<std::uint64_t>(info.st_size) > max_entry_size) {
      text_.add(shown(), "Larger than the 8 GiB that an archive can take");
    } else if (measured_) {
      measure_file(directory, name, info);
    }
  }

  void check_attributes(int directory, const char* name) {
    const int file = ::openat(directory, name, open_flags);
    attributes_text all{attributes_head{}};
    if (file >= 0 && !read_attributes(file, all))
      text_.add(shown(), "Has too many attributes", errno);
    if (file >= 0)
      ::close(file);
  }

  void measure_file(int directory, const char* name, const struct stat& info) {
    std::uint32_t number = 0;
    const auto size = static_cast<std::uint64_t>(info.st_size);
    if (const auto* const first = sent_as(info, number))
      return size_.add(entry_kind::hard_link, name_, *first, 0);
    std::vector<extent> extents;
    bool has_holes = false;
    if (may_have_holes(info))
      if (const int file = ::openat(directory, name, open_flags); file >= 0) {
        has_holes = find_extents(file, info.st_size, extents);
        ::close(file);
      }
    size_.add(entry_kind::file, name_, {}, size, number, has_holes ? &extents : nullptr);
  }

  void measure_symlink(int directory, const char* name) {
    char target[PATH_MAX];
    const ssize_t length = ::readlinkat(directory, name, target, sizeof target);
    if (length >= 0)
      size_.add(entry_kind::symlink, name_, {target, static_cast<std::size_t>(length)}, 0);
  }

  bool put_measure() {
    size_.add(entry_kind::directory, ".", {}, 0);
    entry_head head{};
    head.kind = entry_kind::measure;
    head.size = size_.bytes();
    return put(&head, sizeof head);
  }

  // ---- Holes

  bool may_have_holes(const struct stat& info) const {
    return compact_ && tar_size::takes_map(name_) &&
           static_cast<std::uint64_t>(info.st_blocks) * 512 + least_holes <=
             static_cast<std::uint64_t>(info.st_size);
  }

  /// False: it has none that are worth a map. Of too many parts the last one goes on to the end.
  static bool find_extents(int file, off_t size, std::vector<extent>& into) {
    std::uint64_t bytes = 0;
    for (off_t at = 0; at < size;) {
      const off_t begin = ::lseek(file, at, SEEK_DATA);
      if (begin < 0 && errno != ENXIO)
        return false;
      if (begin < 0 || begin >= size)
        break;
      const off_t hole = into.size() + 1 == max_extents ? size : ::lseek(file, begin, SEEK_HOLE);
      const off_t end = hole < 0 ? size : std::min(hole, size);
      if (end <= begin)
        break; // It has changed meanwhile.
      if (!into.empty() && into.back().bytes % extent_block != 0)
        return false;
      into.push_back({static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end - begin)});
      bytes += into.back().bytes;
      at = end;
    }
    return bytes + least_holes <= static_cast<std::uint64_t>(size);
  }

  // ---- Sending. What has gone since it was listed is left out; false: no more can be sent.

  bool send_below(int directory) {
    std::vector<named_entry> entries;
    if (!list(directory, entries))
      return false;
    for (const auto& entry : entries) {
      const auto before = enter(entry.name);
      if (!excluded() && !is_mounted(directory, entry) && !send_entry(directory, entry))
        return false;
      name_.resize(before);
    }
    return true;
  }

  /// There are no others in an archive, or on a disk.
  static bool is_sent(unsigned char type) {
    return type == DT_REG || type == DT_DIR || type == DT_LNK || type == DT_FIFO || type == DT_CHR;
  }

  bool send_entry(int directory, const named_entry& entry) {
    const auto type = type_of(directory, entry);
    if (whole_ && is_sent(type)) {
      if (!turn())
        return false;
      if (passes_)
        return pass(directory, entry);
    }
    switch (type) {
      case DT_REG: return send_file(directory, entry.name.c_str());
      case DT_DIR: return send_directory(directory, entry.name.c_str());
      case DT_LNK: return send_symlink(directory, entry.name.c_str());
      case DT_FIFO:
      case DT_CHR: return !whole_ || send_without_content(directory, entry.name.c_str());
      default: return true;
    }
  }

  /// A FIFO, or overlayfs's mark of what is absent. There are no other devices.
  bool send_without_content(int parent, const char* name) {
    struct stat info {};
    if (::fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      return gone();
    if (S_ISCHR(info.st_mode))
      return info.st_rdev != makedev(0, 0) || put_entry(entry_kind::absent, info, {});
    return put_attributes(info, -1) && put_entry(entry_kind::fifo, info, {});
  }

  static bool gone() { return errno == ENOENT || errno == ENOTDIR || errno == ELOOP; }

  bool send_directory(int parent, const char* name) {
    const int directory = ::openat(parent, name, open_flags | O_DIRECTORY);
    if (directory < 0)
      return gone();
    struct stat info {};
    const bool sent = ::fstat(directory, &info) == 0 && put_attributes(info, directory) &&
                      put_entry(entry_kind::directory, info, {}) && send_below(directory);
    ::close(directory);
    return sent;
  }

  bool send_symlink(int parent, const char* name) {
    char target[PATH_MAX];
    struct stat info {};
    const ssize_t length = ::readlinkat(parent, name, target, sizeof target);
    if (length < 0 || ::fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      return gone() || errno == EINVAL;
    return put_attributes(info, -1) &&
           put_entry(entry_kind::symlink, info, {target, static_cast<std::size_t>(length)});
  }

  bool send_file(int parent, const char* name) {
    const int file = ::openat(parent, name, open_flags);
    if (file < 0)
      return gone() || errno == ENXIO;
    struct stat info {};
    bool sent = ::fstat(file, &info) == 0;
    if (sent && S_ISREG(info.st_mode)) {
      std::uint32_t number = 0;
      std::vector<extent> extents;
      if (const auto* const first = sent_as(info, number))
        sent = put_entry(entry_kind::hard_link, info, *first);
      else if (may_have_holes(info) && find_extents(file, info.st_size, extents))
        sent = put_with_holes(file, info, extents);
      else {
        bool known = false;
        sent = put_content_group(info, known) && put_attributes(info, file) &&
               put_entry(entry_kind::file, info, {}, number) &&
               (known || put_content(file, 0, info.st_size));
      }
    }
    ::close(file);
    return sent;
  }

  /// By what other name this file was sent, where names are sent as links. Null: by none so far, or
  /// it has changed since. Where they are not, it has a number from its first name on.
  const std::string* sent_as(const struct stat& info, std::uint32_t& number) {
    if ((!exact_ && !measured_ && !whole_) || info.st_nlink < 2)
      return nullptr;
    const bool as_links = exact_ || compact_ || whole_;
    const auto at = sent_.find({info.st_dev, info.st_ino});
    if (at != sent_.end()) {
      const auto& known = at->second;
      const bool same = known.size == info.st_size && same_time(known.modified, info.st_mtim);
      if (same && !as_links)
        number = known.number;
      return same && as_links ? &known.name : nullptr;
    }
    link_bytes_ += name_.size() + sizeof(sent_file) + 64; // And what a map takes for each.
    if (link_bytes_ > max_link_bytes)
      return nullptr;
    ++numbers_;
    sent_.insert({{info.st_dev, info.st_ino}, {name_, info.st_size, info.st_mtim, numbers_}});
    if (!as_links)
      number = numbers_;
    return nullptr;
  }

  bool put_with_holes(int file, const struct stat& info, const std::vector<extent>& extents) {
    const auto* const bytes = reinterpret_cast<const char*>(extents.data());
    bool sent = put_entry(entry_kind::map, info, {bytes, extents.size() * sizeof(extent)}) &&
                put_entry(entry_kind::file, info, {});
    for (const auto& each : extents)
      sent =
        sent && put_content(file, static_cast<off_t>(each.offset), static_cast<off_t>(each.bytes));
    return sent;
  }

  /// As much as the head has promised: a file that grows meanwhile ends there, one that shrinks is
  /// filled with zeros.
  bool put_content(int file, off_t at, off_t size) {
    for (off_t left = size; left > 0;) {
      if (used_ == sizeof buffer_ && !flush())
        return false;
      const auto room = std::min<off_t>(left, static_cast<off_t>(sizeof buffer_ - used_));
      ssize_t n = ::pread(file, buffer_ + used_, static_cast<std::size_t>(room), at);
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        return false;
      if (n == 0) {
        n = room;
        std::memset(buffer_ + used_, 0, static_cast<std::size_t>(room));
      }
      used_ += static_cast<std::size_t>(n);
      left -= n;
      at += n;
    }
    return true;
  }

  // ---- Attributes

  /// Of an open file, or of one that can have none (-1). False: there are too many.
  static bool read_attributes(int file, attributes_text& all) {
    static char names[64 * 1024], value[64 * 1024];
    const ssize_t length = file < 0 ? 0 : ::flistxattr(file, names, sizeof names);
    if (length < 0)
      return errno == ENOTSUP;
    for (const char* name = names; name < names + length; name += std::strlen(name) + 1) {
      const std::string_view called = name;
      if (called.starts_with("user.overlay.") && called != opaque_attribute)
        continue; // Of this machine's layers alone.
      const ssize_t n = ::fgetxattr(file, name, value, sizeof value);
      if (n < 0)
        continue; // It has gone, or is of no effect in the sandbox.
      all.add(called, {value, static_cast<std::size_t>(n)});
      if (!all.fits()) {
        errno = E2BIG;
        return false;
      }
    }
    return true;
  }

  bool put_attributes(const struct stat& info, int file) {
    if (!whole_)
      return true;
    attributes_text all{{info.st_uid, info.st_gid}};
    if (!read_attributes(file, all))
      return false; // They have become too many since.
    entry_head head{};
    head.kind = entry_kind::attributes;
    head.target_bytes = static_cast<std::uint32_t>(all.str().size());
    return put(&head, sizeof head) && put(all.str().data(), all.str().size());
  }

  bool put_entry(entry_kind kind, const struct stat& info, std::string_view target,
                 std::uint32_t number = 0) {
    const auto name = shown_name();
    entry_head head{};
    head.kind = kind;
    head.mode = info.st_mode & 07777;
    head.size = kind == entry_kind::file ? static_cast<std::uint64_t>(info.st_size) : 0;
    head.modified_s = info.st_mtim.tv_sec;
    head.modified_ns = static_cast<std::uint32_t>(info.st_mtim.tv_nsec);
    head.name_bytes = static_cast<std::uint32_t>(name.size());
    head.target_bytes = static_cast<std::uint32_t>(target.size());
    head.number = number;
    return put(&head, sizeof head) && put(name.data(), name.size()) &&
           put(target.data(), target.size());
  }

  bool put(const void* data, std::size_t count) {
    const auto* at = static_cast<const char*>(data);
    while (count > 0) {
      if (used_ == sizeof buffer_ && !flush())
        return false;
      const auto n = std::min(count, sizeof buffer_ - used_);
      std::memcpy(buffer_ + used_, at, n);
      used_ += n;
      at += n;
      count -= n;
    }
    return true;
  }

  bool flush() {
    const bool sent = send_all(channel_, buffer_, used_);
    used_ = 0;
    return sent;
  }

  // ---- Names

  /// Appends a component; gives back how long the name was.
  std::size_t enter(const std::string& component) {
    const auto before = name_.size();
    if (before > 0)
      name_ += '/';
    name_ += component;
    return before;
  }

  std::string_view shown_name() const { return name_.empty() ? "." : std::string_view{name_}; }
  std::string shown() const { return name_.empty() ? "." : "./" + name_; }

  bool excluded() const {
    if (whole_ && is_below_mounts(name_))
      return true;
    const auto name = shown();
    for (char** each = excludes_; *each != nullptr; ++each)
      if (::fnmatch(*each, name.c_str(), FNM_LEADING_DIR) == 0)
        return true;
    return false;
  }

  /// Its files are not the sandbox's.
  bool is_mounted(int directory, const named_entry& entry) const {
    return exact_ && (entry.type == DT_DIR || entry.type == DT_UNKNOWN) &&
           mount_of(directory, entry.name.c_str()) != mount_;
  }

  struct sent_file {
    std::string name;
    off_t size;
    timespec modified;
    std::uint32_t number;
  };

  const int channel_;
  char** const excludes_;
  const bool exact_, measured_, compact_, whole_;
  std::uint64_t mount_ = 0;
  std::map<std::pair<dev_t, ino_t>, sent_file> sent_; ///< Of those that have several names.
  std::size_t link_bytes_ = 0;
  std::uint32_t numbers_ = 0;
  std::vector<group_key> known_; ///< By the asker, in order.
  std::vector<group_key> keys_;  ///< Of the groups of the disk.
  group_hash hash_;              ///< Of the group that the first walk is in.
  std::size_t next_ = 0;         ///< The second one comes to this group next,
  bool passes_ = false;          ///< and passes by what is in the one before.
  tar_size size_;                ///< Of all that has been looked at.
  tree_text text_;
  std::string name_;
  std::size_t used_ = 0;
  char buffer_[256 * 1024];
};

} // namespace

void send_tree(int channel, const char* path, char** excludes, std::int32_t reading) {
  std::setlocale(LC_CTYPE, "C.UTF-8"); // `?` is a character, as for the tar of the image.
  static tree_reader reader{channel, excludes, reading};
  reader.run(path);
}

void send_disk(int channel, int disk) {
  static char* no_excludes[] = {nullptr};
  static tree_reader reader{channel, no_excludes, tree_whole};
  reader.run_disk(disk);
}

} // namespace insula::runtime::agent
