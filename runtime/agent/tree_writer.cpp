// A tree that comes into the sandbox, put over what is there.

#include "base/stream_frames.hpp"
#include "base/tree_attributes.hpp"
#include "base/tree_frames.hpp"
#include "runtime/agent/channel.hpp"
#include "runtime/agent/identity.hpp"
#include "runtime/agent/tree_operations.hpp"
#include "runtime/agent/tree_text.hpp"

#include <algorithm>
#include <climits>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <unordered_map>
#include <utility>
#include <vector>

namespace insula::runtime::agent {

namespace {

/// An ordinary user's tar applies its umask, and keeps no special bits.
constexpr mode_t ordinary = 0777 & ~022u, exactly = 07777;

/// With as few system calls as the many small entries of a tree want.
class buffered_channel {
public:
  explicit buffered_channel(int channel)
      : channel_(channel) {}

  /// The next `count` bytes, in pieces as they come.
  template <class Take>
  bool read(std::uint64_t count, Take take) {
    while (count > 0) {
      if (begin_ == end_ && !refill())
        return false;
      const auto n = static_cast<std::size_t>(std::min<std::uint64_t>(count, end_ - begin_));
      take(std::string_view{buffer_ + begin_, n});
      begin_ += n;
      count -= n;
    }
    return true;
  }

  bool read(void* into, std::size_t count) {
    auto* at = static_cast<char*>(into);
    return read(count, [&at](std::string_view piece) {
      std::memcpy(at, piece.data(), piece.size());
      at += piece.size();
    });
  }

private:
  bool refill() {
    ssize_t n = 0;
    do
      n = ::recv(channel_, buffer_, sizeof buffer_, 0);
    while (n < 0 && errno == EINTR);
    begin_ = 0;
    end_ = n > 0 ? static_cast<std::size_t>(n) : 0;
    return n > 0;
  }

  const int channel_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  char buffer_[256 * 1024];
};

struct entry {
  entry_head head;
  std::string name;
  std::string target;

  timespec modified() const { return {head.modified_s, head.modified_ns}; }
};

/// A name below a directory, as the kernel takes it: of one that is too long for it the first parts
/// are gone down.
class place {
public:
  place(int top, const std::string& name)
      : at_(top)
      , name_(name.c_str()) {
    for (std::string_view left = name; left.size() >= PATH_MAX;) {
      const auto cut = left.rfind('/', PATH_MAX - 1);
      const int next = cut == left.npos ? -1
                                        : ::openat(at_, std::string{left.substr(0, cut)}.c_str(),
                                                   O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (next < 0)
        return; // Whatever is done there is told that.
      close();
      at_ = opened_ = next;
      left.remove_prefix(cut + 1);
      name_ = left.data();
    }
  }
  ~place() { close(); }
  place(const place&) = delete;
  place& operator=(const place&) = delete;

  int at() const { return at_; }
  const char* name() const { return name_; }

private:
  void close() const {
    const int kept = errno;
    if (opened_ >= 0)
      ::close(opened_);
    errno = kept;
  }

  int at_;
  int opened_ = -1;
  const char* name_;
};

/// All below it, but nothing in another file system. False: errno says why.
bool remove_below(int directory, dev_t device) {
  std::vector<std::string> names;
  const int copy = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const open = copy < 0 ? nullptr : ::fdopendir(copy);
  if (open == nullptr)
    return false; // Who has asked ends then.
  while (const dirent* each = ::readdir(open))
    if (const std::string_view name = each->d_name; name != "." && name != "..")
      names.emplace_back(name);
  ::closedir(open);
  for (const auto& name : names) {
    if (::unlinkat(directory, name.c_str(), 0) == 0)
      continue;
    const int below =
      ::openat(directory, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info {};
    const bool empty = below >= 0 && ::fstat(below, &info) == 0 && info.st_dev == device &&
                       remove_below(below, device);
    if (below >= 0)
      ::close(below);
    if (!empty || ::unlinkat(directory, name.c_str(), AT_REMOVEDIR) != 0)
      return false;
  }
  return true;
}

bool has_parent_reference(std::string_view path) {
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    if (path.substr(at, end - at) == "..")
      return true;
    at = end + 1;
  }
  return false;
}

/// What an entry of a whole tree has beside its mode and times.
struct attributes : tree_attributes {
  bool told = false;

  /// False: it makes no sense.
  bool read(std::string_view text) { return told = tree_attributes::read(text); }
  bool is_opaque() const {
    return std::any_of(extended.begin(), extended.end(), [](const auto& each) {
      return each.first == opaque_attribute && each.second == "y";
    });
  }
  /// To an open file, before its mode, which a change of its owner changes. 0, or errno.
  int give_to(int file) const {
    if (!told)
      return 0;
    if (::fchown(file, owners.owner, owners.group) != 0)
      return errno;
    for (const auto& [name, value] : extended)
      if (name != opaque_attribute &&
          ::fsetxattr(file, name.c_str(), value.data(), value.size(), 0) != 0)
        return errno;
    return 0;
  }
};

class tree_writer {
public:
  tree_writer(int channel, tree_writing how)
      : channel_(channel)
      , exact_(how == tree_writing::exact)
      , whole_(how == tree_writing::whole)
      , kept_(how == tree_writing::ordinary ? ordinary : exactly)
      , from_(channel) {}

  void run(const char* path) {
    if (::mkdir(path, 0777) != 0 && errno != EEXIST)
      text_.add(path, "Cannot mkdir", errno);
    top_ = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top_ < 0)
      text_.add(path, "Cannot open", errno);
    else if (exact_ && !begin_anew()) {
      text_.add(path, "Cannot be emptied", errno);
      top_ = -1;
    }
    entry next;
    do {
      if (!take(next))
        return make_symlinks(); // Cut: what else it was to become is not known.
    } while (next.head.kind != entry_kind::end);
    make_symlinks();
    finish_directories();
    const auto result = text_.result();
    if (send_all(channel_, &result, sizeof result))
      send_all(channel_, text_.text().data(), text_.text().size());
  }

private:
  /// What an image has there may be somebody else's than the top, who could not write over it: it
  /// goes, and what comes is written as that owner. False: errno says why.
  bool begin_anew() const {
    struct stat info {};
    return ::fstat(top_, &info) == 0 && remove_below(top_, info.st_dev) &&
           (info.st_uid == ::geteuid() || become_user(info.st_uid, info.st_gid));
  }

  /// One whole entry, in place or accounted for. False: the asker is gone.
  bool take(entry& next) {
    auto& head = next.head;
    if (!from_.read(&head, sizeof head) || head.name_bytes > max_entry_name ||
        head.target_bytes > max_target_bytes(head.kind))
      return false;
    next.name.resize(head.name_bytes);
    next.target.resize(head.target_bytes);
    if (!from_.read(next.name.data(), head.name_bytes) ||
        !from_.read(next.target.data(), head.target_bytes))
      return false;
    if (head.kind == entry_kind::attributes)
      return !whole_ || next_has_.read(next.target);
    const bool good = head.kind != entry_kind::file || take_file(next);
    const bool is_left_out = whole_ && is_below_mounts(next.name);
    if (head.kind != entry_kind::file && head.kind != entry_kind::end && top_ >= 0 && !is_left_out)
      make(next);
    next_has_ = {};
    return good;
  }

  void make(const entry& what) {
    switch (what.head.kind) {
      case entry_kind::directory: return make_directory(what);
      case entry_kind::symlink: return make_symlink(what);
      case entry_kind::hard_link: return make_hard_link(what);
      case entry_kind::fifo: return make_fifo(what);
      case entry_kind::absent: return make_absent(what);
      case entry_kind::special: return text_.add(what.name, "Cannot mknod", EPERM);
      case entry_kind::same: return make_same(what);
      case entry_kind::file:
      case entry_kind::measure:
      case entry_kind::map:
      case entry_kind::attributes:
      case entry_kind::group:
      case entry_kind::content:
      case entry_kind::end: return;
    }
  }

  void make_fifo(const entry& what) {
    const auto mode = what.head.mode & kept_;
    if (!placed(what.name, [&](int at, const char* name) { return ::mkfifoat(at, name, mode); }))
      return text_.add(what.name, "Cannot mkfifo", errno);
    if (!whole_)
      return;
    const place there{top_, what.name};
    own(there, next_has_);
    ::fchmodat(there.at(), there.name(), mode, 0); // It is no link: it has just been made.
    set_link_time(what.name, what.modified());
  }

  /// Of what cannot be opened, or is a link.
  static void own(const place& what, const attributes& has) {
    if (has.told) [[maybe_unused]]
      const int done =
        ::fchownat(what.at(), what.name(), has.owners.owner, has.owners.group, AT_SYMLINK_NOFOLLOW);
  }

  void make_absent(const entry& what) {
    const place there{top_, what.name};
    if (whole_ && !clear(there) && errno != ENOENT)
      text_.add(what.name, "Cannot be removed", errno);
  }

  // ---- Files

  bool take_file(const entry& what) {
    int file = -1;
    if (top_ >= 0 && !placed(what.name, [&](int at, const char* name) {
          file = ::openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
          return file < 0 ? -1 : 0;
        }))
      text_.add(what.name, "Cannot open", errno);
    int failed = 0;
    for (piece_head piece{}; from_.read(&piece, sizeof piece);) {
      if (piece.bytes > max_frame_bytes)
        break;
      if (piece.bytes == 0) {
        if (piece.offset == no_content)
          drop(what, file);
        else
          finish_file(what, file, failed);
        return true;
      }
      auto offset = static_cast<off_t>(piece.offset);
      if (!from_.read(piece.bytes, [&](std::string_view bytes) {
            if (file >= 0 && failed == 0)
              failed = write(file, bytes, offset);
            offset += static_cast<off_t>(bytes.size());
          }))
        break;
    }
    drop(what, file);
    return false;
  }

  /// Half a file would look like a whole one.
  void drop(const entry& what, int file) const {
    if (file < 0)
      return;
    ::close(file);
    const place there{top_, what.name};
    ::unlinkat(there.at(), there.name(), 0);
  }

  static int write(int file, std::string_view bytes, off_t offset) {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(file, bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return n == 0 ? EIO : errno;
      bytes.remove_prefix(static_cast<std::size_t>(n));
      offset += n;
    }
    return 0;
  }

  void finish_file(const entry& what, int file, int failed) {
    if (file < 0)
      return;
    const timespec times[2] = {{0, UTIME_OMIT}, what.modified()};
    if (failed == 0 && ::ftruncate(file, static_cast<off_t>(what.head.size)) != 0)
      failed = errno;
    if (failed == 0)
      failed = next_has_.give_to(file);
    if (failed == 0 && ::fchmod(file, what.head.mode & kept_) != 0)
      failed = errno;
    if (failed == 0) {
      ::futimens(file, times);
      ::close(file);
      return;
    }
    drop(what, file);
    text_.add(what.name, "Cannot write", failed);
  }

  // ---- Directories: made at once, and given their modes and times when nothing more comes into
  // them

  void make_directory(const entry& what) {
    const bool is_there = is_directory(what.name);
    if (is_there && next_has_.is_opaque() && !empty({top_, what.name}))
      return text_.add(what.name, "Cannot be emptied", errno);
    if (!is_there && !placed(what.name, [&](int at, const char* name) {
          return ::mkdirat(at, name, (what.head.mode & kept_) | 0700);
        }))
      return text_.add(what.name, "Cannot mkdir", errno);
    directories_.push_back({what.name, what.head.mode & kept_, what.modified(), next_has_});
  }

  bool is_directory(const std::string& name) const {
    const place there{top_, name};
    struct stat info {};
    return ::fstatat(there.at(), there.name(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(info.st_mode);
  }

  void finish_directories() {
    for (auto at = directories_.rbegin(); at != directories_.rend(); ++at) {
      const place there{top_, at->name};
      const int directory =
        ::openat(there.at(), there.name(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (directory < 0) {
        if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP) // A later entry took its place.
          text_.add(at->name, "Cannot change mode", errno);
        continue;
      }
      const timespec times[2] = {{0, UTIME_OMIT}, at->modified};
      if (const int why = at->has.give_to(directory); why != 0)
        text_.add(at->name, "Cannot be given its attributes", why);
      if (::futimens(directory, times) != 0)
        text_.add(at->name, "Cannot utime", errno);
      if (::fchmod(directory, at->mode) != 0)
        text_.add(at->name, "Cannot change mode", errno);
      ::close(directory);
    }
  }

  // ---- Links. A symlink that leads out of the tree is made last, so that no entry goes through it

  void make_symlink(const entry& what) {
    if (!what.target.empty() && (what.target[0] == '/' || has_parent_reference(what.target)))
      return keep_place(what.name, what.target, what.modified(), next_has_);
    if (!placed(what.name, [&](int at, const char* name) {
          return ::symlinkat(what.target.c_str(), at, name);
        }))
      return text_.add(what.name, "Cannot create symlink to '" + what.target + "'", errno);
    own({top_, what.name}, next_has_);
    set_link_time(what.name, what.modified());
  }

  void keep_place(const std::string& name, const std::string& target, timespec modified,
                  const attributes& has) {
    int file = -1;
    if (!placed(name, [&](int at, const char* path) {
          file = ::openat(at, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
          return file < 0 ? -1 : 0;
        }))
      return text_.add(name, "Cannot create symlink to '" + target + "'", errno);
    struct stat info {};
    ::fstat(file, &info);
    ::close(file);
    symlinks_[name] = {target, modified, info.st_dev, info.st_ino, has};
  }

  void make_symlinks() {
    for (const auto& [name, link] : symlinks_) {
      const place there{top_, name};
      struct stat info {};
      if (::fstatat(there.at(), there.name(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
          info.st_ino != link.inode || info.st_dev != link.device)
        continue; // A later entry took its place.
      if (::unlinkat(there.at(), there.name(), 0) != 0 ||
          ::symlinkat(link.target.c_str(), there.at(), there.name()) != 0)
        text_.add(name, "Cannot create symlink to '" + link.target + "'", errno);
      else {
        own(there, link.has);
        set_link_time(name, link.modified);
      }
    }
  }

  void set_link_time(const std::string& name, timespec modified) const {
    const timespec times[2] = {{0, UTIME_OMIT}, modified};
    const place there{top_, name};
    ::utimensat(there.at(), there.name(), times, AT_SYMLINK_NOFOLLOW);
  }

  void make_hard_link(const entry& what) {
    if (const auto kept = symlinks_.find(what.target); kept != symlinks_.end()) {
      const auto like = kept->second;
      return keep_place(what.name, like.target, like.modified, like.has);
    }
    if (what.name == what.target)
      return;
    const place first{top_, what.target};
    if (!placed(what.name, [&](int at, const char* name) {
          return ::linkat(first.at(), first.name(), at, name, 0);
        }))
      text_.add(what.name, "Cannot hard link to '" + what.target + "'", errno);
  }

  /// The file stays one of its own where there cannot be a link. Each name is there all the time.
  void make_same(const entry& what) const {
    const auto cut = what.name.rfind('/');
    const std::string beside = what.name.substr(0, cut == what.name.npos ? 0 : cut + 1) +
                               ".insula-" + std::to_string(::getpid());
    const place first{top_, what.target}, there{top_, what.name}, next{top_, beside};
    if (::linkat(first.at(), first.name(), next.at(), next.name(), 0) != 0)
      return;
    [[maybe_unused]] const int moved = ::renameat(next.at(), next.name(), there.at(), there.name());
    ::unlinkat(next.at(), next.name(), 0); // It is still there if both were one already.
  }

  // ---- Places

  /// Calls `make(at, name)` until it works: directories above are made, and what is in the way goes
  /// if it is no directory with something in it. False: errno says why.
  template <class Make>
  bool placed(const std::string& name, Make make) {
    bool cleared = false;
    bool parents = false;
    while (true) {
      const place there{top_, name};
      if (make(there.at(), there.name()) == 0)
        return true;
      if (errno == EEXIST && !std::exchange(cleared, true) && clear(there))
        continue;
      if (errno == ENOENT && !std::exchange(parents, true) && make_parents(name))
        continue;
      return false;
    }
  }

  static bool empty(const place& what) {
    const int directory =
      ::openat(what.at(), what.name(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info {};
    const bool is_empty =
      directory >= 0 && ::fstat(directory, &info) == 0 && remove_below(directory, info.st_dev);
    const int why = errno;
    if (directory >= 0)
      ::close(directory);
    errno = why;
    return is_empty;
  }

  /// Of a whole tree, with all that is in it.
  bool clear(const place& what) const {
    if (::unlinkat(what.at(), what.name(), 0) == 0)
      return true;
    if (errno == EISDIR && ::unlinkat(what.at(), what.name(), AT_REMOVEDIR) == 0)
      return true;
    if (errno == ENOTEMPTY && whole_)
      return empty(what) && ::unlinkat(what.at(), what.name(), AT_REMOVEDIR) == 0;
    if (errno == ENOTEMPTY)
      errno = EEXIST;
    return false;
  }

  bool make_parents(const std::string& name) const {
    for (std::size_t slash = 0; (slash = name.find('/', slash + 1)) != std::string::npos;) {
      const auto above = name.substr(0, slash);
      const place there{top_, above};
      if (::mkdirat(there.at(), there.name(), ordinary) != 0 && errno != EEXIST)
        return false;
    }
    errno = ENOENT;
    return name.find('/') != std::string::npos;
  }

  struct finished_later {
    std::string name;
    mode_t mode;
    timespec modified;
    attributes has;
  };
  struct link_to_be {
    std::string target;
    timespec modified;
    dev_t device;
    ino_t inode;
    attributes has;
  };

  const int channel_;
  const bool exact_, whole_;
  const mode_t kept_; ///< Of the permissions that it is told.
  buffered_channel from_;
  int top_ = -1;
  attributes next_has_; ///< The next entry.
  std::vector<finished_later> directories_;
  std::unordered_map<std::string, link_to_be> symlinks_;
  tree_text text_;
};

} // namespace

void receive_tree(int channel, const char* path, tree_writing how) {
  static tree_writer writer{channel, how};
  writer.run(path);
}

} // namespace insula::runtime::agent
