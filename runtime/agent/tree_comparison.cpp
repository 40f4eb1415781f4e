#include "runtime/agent/tree_comparison.hpp"

#include "base/disk_changes.hpp"
#include "base/tree_frames.hpp"
#include "base/unique_fd.hpp"
#include "runtime/agent/channel.hpp"
#include "runtime/agent/directory_entries.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <vector>

namespace insula::runtime::agent {

namespace {

constexpr int directory_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
/// Three descriptors and a frame each.
constexpr std::size_t max_depth = 1'000;
/// What is further below is not told of: a client must be able to ask for what comes behind it.
constexpr std::size_t max_path = 4'096;

/// As a byte of the order: what is in a directory comes right behind it.
int rank(char letter) {
  return letter == '/' ? 0 : static_cast<unsigned char>(letter) + 1;
}

bool comes_before(std::string_view a, std::string_view b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      [](char x, char y) { return rank(x) < rank(y); });
}

bool is_whiteout(const struct stat& info) {
  return S_ISCHR(info.st_mode) && info.st_rdev == makedev(0, 0);
}

bool same_time(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

char letter_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG: return '-';
    case S_IFDIR: return 'd';
    case S_IFLNK: return 'l';
    case S_IFIFO: return 'p';
    case S_IFSOCK: return 's';
    case S_IFCHR: return 'c';
    default: return 'b';
  }
}

/// One of the two disks, in some directory.
struct side {
  unique_fd layer;          ///< What the disk has of it. None: nothing.
  bool shows_image = false; ///< What the image has of it is seen, where the layer has nothing.
};

/// What a disk has by some name.
struct entry {
  enum class place : std::uint8_t { none, layer, image } where = place::none;
  struct stat info {};

  bool there() const { return where != place::none; }
  bool is_directory() const { return there() && S_ISDIR(info.st_mode); }
};

class comparison {
public:
  comparison(int channel, int newer, int older, const char* after, std::uint32_t limit)
      : channel_(channel)
      , newer_(newer)
      , older_(older)
      , after_(after)
      , limit_(limit) {}

  void run() {
    compare_layers("u", "/");
    std::string_view last = full_ ? "+" : ".";
    if (failed())
      last = failure_;
    text_.append(last).push_back('\0');
    send_all(channel_, text_.data(), text_.size());
  }

private:
  bool failed() const { return !failure_.empty(); }
  void fail(std::string_view what, int why) {
    if (failed())
      return;
    failure_ = "!/" + name_.substr(0, 100) + ": " + std::string{what};
    if (why != 0)
      failure_.append(": ").append(std::strerror(why));
  }

  // ---- Directories

  void compare_layers(const char* layer, const char* image) {
    const auto open_side = [&](int disk) {
      return side{unique_fd{disk < 0 ? -1 : ::openat(disk, layer, directory_flags)}, true};
    };
    const auto before = open_side(older_), now = open_side(newer_);
    if (!now.layer || (older_ >= 0 && !before.layer))
      return fail("opening the disk", errno);
    const unique_fd below{::open(image, directory_flags)};
    compare(before, now, below.get());
  }

  void compare(const side& before, const side& now, int image) {
    if (!before.layer && !now.layer && before.shows_image == now.shows_image)
      return;
    if (depth_ > max_depth)
      return fail("too deep to be compared", 0);
    std::set<std::string> names;
    if (!list(before.layer.get(), names) || !list(now.layer.get(), names) ||
        (before.shows_image != now.shows_image && !list(image, names)))
      return fail("reading", errno);
    if (depth_ == 0)
      names.emplace(own_layer);
    for (auto at = names.begin(); at != names.end() && !full_ && !failed(); at = names.erase(at)) {
      const auto length = name_.size();
      if (length > 0)
        name_ += '/';
      name_ += *at;
      if (name_.size() <= max_path && is_wanted() && !is_below_mounts(name_))
        compare_entry(before, now, image, at->c_str());
      if (depth_ == 0 && *at == own_layer && is_wanted()) {
        ++depth_; // Nothing is in it unless the machine's /usr is over that of the image.
        compare_layers("uu", "/usr");
        --depth_;
      }
      name_.resize(length);
    }
  }

  static bool list(int directory, std::set<std::string>& into) {
    return directory < 0 || for_each_entry(directory, [&](std::string_view name, unsigned char) {
             into.emplace(name);
           });
  }

  /// Of a page that begins later: neither it nor what is in it.
  bool is_wanted() const {
    return after_.empty() || comes_before(after_, name_) ||
           (after_.starts_with(name_) &&
            (after_.size() == name_.size() || after_[name_.size()] == '/'));
  }

  // ---- Entries

  entry look(const side& at, int image, const char* name) {
    entry is;
    if (at.layer && ::fstatat(at.layer.get(), name, &is.info, AT_SYMLINK_NOFOLLOW) == 0) {
      is.where = is_whiteout(is.info) ? entry::place::none : entry::place::layer;
      return is;
    }
    if (at.shows_image && is_of_image(image, name, is.info))
      is.where = entry::place::image;
    return is;
  }

  /// What is mounted in the sandbox is not the image's.
  static bool is_of_image(int image, const char* name, struct stat& info) {
    struct statx here {
    }, there{};
    constexpr int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
    return image >= 0 && ::statx(image, "", flags | AT_EMPTY_PATH, STATX_MNT_ID, &here) == 0 &&
           ::statx(image, name, flags, STATX_MNT_ID, &there) == 0 &&
           here.stx_mnt_id == there.stx_mnt_id &&
           ::fstatat(image, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
  }

  void compare_entry(const side& before, const side& now, int image, const char* name) {
    const auto was = look(before, image, name), is = look(now, image, name);
    if (!was.there() && !is.there())
      return;
    if (!is.there())
      return say('D', was.info);
    if (!was.there())
      say('A', is.info);
    else if (differs(directory_of(was, before, image), was, directory_of(is, now, image), is, name))
      say('M', is.info);
    if (!is.is_directory() || full_)
      return;
    const unique_fd of_image{image < 0 ? -1 : ::openat(image, name, directory_flags)};
    const auto below = [&](const side& of, const entry& here) {
      side next;
      if (here.where == entry::place::layer && here.is_directory())
        next.layer.reset(::openat(of.layer.get(), name, directory_flags));
      next.shows_image = of.shows_image && here.is_directory() && of_image &&
                         (here.where == entry::place::image || !is_opaque(next.layer.get()));
      return next;
    };
    const auto before_below = below(before, was), now_below = below(now, is);
    if ((is.where == entry::place::layer && !now_below.layer) ||
        (was.where == entry::place::layer && was.is_directory() && !before_below.layer))
      return fail("opening", errno);
    ++depth_;
    compare(before_below, now_below, of_image.get());
    --depth_;
  }

  static int directory_of(const entry& is, const side& of, int image) {
    return is.where == entry::place::image ? image : of.layer.get();
  }

  static bool is_opaque(int directory) {
    char value = 0;
    return directory >= 0 && ::fgetxattr(directory, "user.overlay.opaque", &value, 1) == 1 &&
           value == 'y';
  }

  // ---- Do they differ?

  bool differs(int old_in, const entry& was, int new_in, const entry& is, const char* name) const {
    const auto &a = was.info, &b = is.info;
    // A snapshot keeps the numbers of files.
    if (was.where == is.where && a.st_ino == b.st_ino && same_time(a.st_ctim, b.st_ctim))
      return false;
    if (a.st_mode != b.st_mode || a.st_uid != b.st_uid || a.st_gid != b.st_gid)
      return true;
    if (S_ISREG(a.st_mode))
      return a.st_size != b.st_size || !same_time(a.st_mtim, b.st_mtim) ||
             !same_file(old_in, new_in, name);
    if (S_ISLNK(a.st_mode))
      return target_of(old_in, name) != target_of(new_in, name);
    if (S_ISDIR(a.st_mode))
      return !same_attributes(open_below(old_in, name, O_DIRECTORY),
                              open_below(new_in, name, O_DIRECTORY));
    return a.st_rdev != b.st_rdev;
  }

  static std::string target_of(int directory, const char* name) {
    char target[PATH_MAX];
    const auto length = ::readlinkat(directory, name, target, sizeof target);
    return {target, length < 0 ? 0 : static_cast<std::size_t>(length)};
  }

  static unique_fd open_below(int directory, const char* name, int also = 0) {
    constexpr int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    return unique_fd{::openat(directory, name, flags | also)};
  }
  static bool same_attributes(const unique_fd& a, const unique_fd& b) {
    return a && b && attributes_of(a.get()) == attributes_of(b.get());
  }
  static bool same_file(int old_in, int new_in, const char* name) {
    const auto a = open_below(old_in, name), b = open_below(new_in, name);
    return a && b && same_bytes(a.get(), b.get()) && same_attributes(a, b);
  }

  static ssize_t read_some(int file, char* into, std::size_t size) {
    std::size_t have = 0;
    while (have < size) {
      const auto n = ::read(file, into + have, size - have);
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0)
        return -1;
      if (n == 0)
        break;
      have += static_cast<std::size_t>(n);
    }
    return static_cast<ssize_t>(have);
  }

  static bool same_bytes(int a, int b) {
    static char of_a[128 * 1024], of_b[sizeof of_a];
    for (;;) {
      const auto n = read_some(a, of_a, sizeof of_a);
      if (n < 0 || read_some(b, of_b, sizeof of_b) != n ||
          std::memcmp(of_a, of_b, static_cast<std::size_t>(n)) != 0)
        return false;
      if (n == 0)
        return true;
    }
  }

  /// Names and values, but for overlayfs's own.
  static std::set<std::string> attributes_of(int file) {
    std::set<std::string> all;
    std::vector<char> names(64 * 1024), value(64 * 1024);
    const auto length = ::flistxattr(file, names.data(), names.size());
    for (ssize_t at = 0; at < length;) {
      const std::string name = names.data() + at;
      at += static_cast<ssize_t>(name.size()) + 1;
      if (name.starts_with("user.overlay."))
        continue;
      const auto n = ::fgetxattr(file, name.c_str(), value.data(), value.size());
      all.insert(name + '\0' + std::string(value.data(), n < 0 ? 0 : static_cast<std::size_t>(n)));
    }
    return all;
  }

  // ---- What is said

  void say(char what, const struct stat& about) {
    if (!after_.empty() && !comes_before(after_, name_))
      return;
    const auto bytes = S_ISREG(about.st_mode) ? static_cast<std::uint64_t>(about.st_size) : 0;
    const auto head = std::string{what, letter_of(about.st_mode)} + std::to_string(bytes) + ' ';
    constexpr std::size_t last_record = 1'024;
    if (said_ == limit_ ||
        text_.size() + head.size() + name_.size() + 1 + last_record > max_changes_bytes) {
      full_ = true;
      return;
    }
    ++said_;
    text_.append(head).append(name_).push_back('\0');
  }

  static constexpr const char* own_layer = "usr";

  const int channel_, newer_, older_;
  const std::string after_;
  const std::uint32_t limit_;
  std::uint32_t said_ = 0;
  bool full_ = false;
  std::size_t depth_ = 0;
  std::string name_; ///< Of what is looked at, without a leading slash.
  std::string text_, failure_;
};

} // namespace

void compare_trees(int channel, int newer, int older, const char* after, std::int32_t limit) {
  const std::string_view from = after;
  comparison{channel, newer, older, from.starts_with('/') ? after + 1 : after,
             static_cast<std::uint32_t>(std::max(limit, 1))}
    .run();
}

} // namespace insula::runtime::agent
