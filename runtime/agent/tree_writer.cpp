// A tree that comes into the sandbox, put over what is there.

#include "base/stream_frames.hpp"
#include "base/tree_frames.hpp"
#include "runtime/agent/channel.hpp"
#include "runtime/agent/tree_operations.hpp"
#include "runtime/agent/tree_text.hpp"

#include <algorithm>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
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

bool has_parent_reference(std::string_view path) {
  for (std::size_t at = 0; at <= path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    if (path.substr(at, end - at) == "..")
      return true;
    at = end + 1;
  }
  return false;
}

class tree_writer {
public:
  tree_writer(int channel, bool exact)
      : channel_(channel)
      , kept_(exact ? exactly : ordinary)
      , from_(channel) {}

  void run(const char* path) {
    if (::mkdir(path, 0777) != 0 && errno != EEXIST)
      text_.add(path, "Cannot mkdir", errno);
    top_ = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top_ < 0)
      text_.add(path, "Cannot open", errno);
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
  /// One whole entry, in place or accounted for. False: the asker is gone.
  bool take(entry& next) {
    auto& head = next.head;
    if (!from_.read(&head, sizeof head) || head.name_bytes > max_entry_name ||
        head.target_bytes > max_entry_name)
      return false;
    next.name.resize(head.name_bytes);
    next.target.resize(head.target_bytes);
    if (!from_.read(next.name.data(), head.name_bytes) ||
        !from_.read(next.target.data(), head.target_bytes))
      return false;
    if (head.kind == entry_kind::file)
      return take_file(next);
    if (head.kind != entry_kind::end && top_ >= 0)
      make(next);
    return true;
  }

  void make(const entry& what) {
    switch (what.head.kind) {
      case entry_kind::directory: return make_directory(what);
      case entry_kind::symlink: return make_symlink(what);
      case entry_kind::hard_link: return make_hard_link(what);
      case entry_kind::fifo:
        if (!placed(what.name, [&](const char* name) {
              return ::mkfifoat(top_, name, what.head.mode & kept_);
            }))
          text_.add(what.name, "Cannot mkfifo", errno);
        return;
      case entry_kind::special: return text_.add(what.name, "Cannot mknod", EPERM);
      case entry_kind::file:
      case entry_kind::end: return;
    }
  }

  // ---- Files

  bool take_file(const entry& what) {
    int file = -1;
    if (top_ >= 0 && !placed(what.name, [&](const char* name) {
          file = ::openat(top_, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
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
    ::unlinkat(top_, what.name.c_str(), 0);
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
    const auto name = what.name.c_str();
    struct stat info {};
    const bool there =
      ::fstatat(top_, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
    if (!there && !placed(what.name, [&](const char* path) {
          return ::mkdirat(top_, path, (what.head.mode & kept_) | 0700);
        }))
      return text_.add(what.name, "Cannot mkdir", errno);
    directories_.push_back({what.name, what.head.mode & kept_, what.modified()});
  }

  void finish_directories() {
    for (auto at = directories_.rbegin(); at != directories_.rend(); ++at) {
      const int directory =
        ::openat(top_, at->name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (directory < 0) {
        if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP) // A later entry took its place.
          text_.add(at->name, "Cannot change mode", errno);
        continue;
      }
      const timespec times[2] = {{0, UTIME_OMIT}, at->modified};
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
      return keep_place(what.name, what.target, what.modified());
    if (!placed(what.name,
                [&](const char* name) { return ::symlinkat(what.target.c_str(), top_, name); }))
      return text_.add(what.name, "Cannot create symlink to '" + what.target + "'", errno);
    set_link_time(what.name, what.modified());
  }

  void keep_place(const std::string& name, const std::string& target, timespec modified) {
    int file = -1;
    if (!placed(name, [&](const char* path) {
          file = ::openat(top_, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
          return file < 0 ? -1 : 0;
        }))
      return text_.add(name, "Cannot create symlink to '" + target + "'", errno);
    struct stat info {};
    ::fstat(file, &info);
    ::close(file);
    symlinks_[name] = {target, modified, info.st_dev, info.st_ino};
  }

  void make_symlinks() {
    for (const auto& [name, link] : symlinks_) {
      struct stat info {};
      if (::fstatat(top_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0 ||
          info.st_ino != link.inode || info.st_dev != link.device)
        continue; // A later entry took its place.
      if (::unlinkat(top_, name.c_str(), 0) != 0 ||
          ::symlinkat(link.target.c_str(), top_, name.c_str()) != 0)
        text_.add(name, "Cannot create symlink to '" + link.target + "'", errno);
      else
        set_link_time(name, link.modified);
    }
  }

  void set_link_time(const std::string& name, timespec modified) const {
    const timespec times[2] = {{0, UTIME_OMIT}, modified};
    ::utimensat(top_, name.c_str(), times, AT_SYMLINK_NOFOLLOW);
  }

  void make_hard_link(const entry& what) {
    if (const auto kept = symlinks_.find(what.target); kept != symlinks_.end()) {
      const auto like = kept->second;
      return keep_place(what.name, like.target, like.modified);
    }
    if (what.name == what.target)
      return;
    if (!placed(what.name, [&](const char* name) {
          return ::linkat(top_, what.target.c_str(), top_, name, 0);
        }))
      text_.add(what.name, "Cannot hard link to '" + what.target + "'", errno);
  }

  // ---- Places

  /// Calls `make(name)` until it works: directories above are made, and what is in the way goes if
  /// it is no directory with something in it. False: errno says why.
  template <class Make>
  bool placed(const std::string& name, Make make) {
    bool cleared = false;
    bool parents = false;
    while (make(name.c_str()) != 0) {
      if (errno == EEXIST && !std::exchange(cleared, true) && clear(name))
        continue;
      if (errno == ENOENT && !std::exchange(parents, true) && make_parents(name))
        continue;
      return false;
    }
    return true;
  }

  bool clear(const std::string& name) const {
    if (::unlinkat(top_, name.c_str(), 0) == 0)
      return true;
    if (errno == EISDIR && ::unlinkat(top_, name.c_str(), AT_REMOVEDIR) == 0)
      return true;
    if (errno == ENOTEMPTY)
      errno = EEXIST;
    return false;
  }

  bool make_parents(const std::string& name) const {
    for (std::size_t slash = 0; (slash = name.find('/', slash + 1)) != std::string::npos;)
      if (::mkdirat(top_, name.substr(0, slash).c_str(), ordinary) != 0 && errno != EEXIST)
        return false;
    errno = ENOENT;
    return name.find('/') != std::string::npos;
  }

  struct finished_later {
    std::string name;
    mode_t mode;
    timespec modified;
  };
  struct link_to_be {
    std::string target;
    timespec modified;
    dev_t device;
    ino_t inode;
  };

  const int channel_;
  const mode_t kept_; ///< Of the permissions that it is told.
  buffered_channel from_;
  int top_ = -1;
  std::vector<finished_later> directories_;
  std::unordered_map<std::string, link_to_be> symlinks_;
  tree_text text_;
};

} // namespace

void receive_tree(int channel, const char* path, bool exact) {
  static tree_writer writer{channel, exact};
  writer.run(path);
}

} // namespace insula::runtime::agent
