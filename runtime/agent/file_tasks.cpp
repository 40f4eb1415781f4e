#include "runtime/agent/file_tasks.hpp"

#include "runtime/agent/channel.hpp"
#include "runtime/agent/file_operations.hpp"
#include "runtime/agent/identity.hpp"
#include "runtime/agent/new_file.hpp"
#include "runtime/agent/trust.hpp"
#include "runtime/agent/user_name.hpp"

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fnmatch.h>
#include <fts.h>
#include <grp.h>
#include <initializer_list>
#include <limits.h>
#include <pwd.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::runtime::agent {

namespace {

void answer(int channel, std::uint64_t group, int error, file_step step) {
  file_head head{};
  head.error = error;
  head.step = static_cast<std::uint32_t>(step);
  head.size = group;
  send_all(channel, &head, sizeof head);
}

/// False: there is nobody to tell any more.
bool send_frame(int channel, const void* bytes, std::size_t count) {
  const frame_head frame{static_cast<std::uint32_t>(count)};
  return send_all(channel, &frame, sizeof frame, count > 0 ? MSG_MORE : 0) &&
         send_all(channel, bytes, count);
}

// ---- Who owns what

/// Calls `tell` for each line of a file of the sandbox's; until that answers true.
template <class Read, class Tell>
bool find_line(const char* path, Read read, Tell tell) {
  std::FILE* all = std::fopen(path, "re");
  if (all == nullptr)
    return false;
  bool found = false;
  while (const auto* each = read(all))
    if ((found = tell(*each)))
      break;
  std::fclose(all);
  return found;
}

bool number_from(const char* text, std::uint32_t& into) {
  char* end = nullptr;
  errno = 0;
  const auto number = std::strtoul(text, &end, 10);
  if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || number >= UINT32_MAX)
    return false;
  into = static_cast<std::uint32_t>(number);
  return true;
}

/// False as well for an id that the sandbox has not got: -1 would leave the owner as it is.
bool id_from(const char* text, std::uint32_t& into) {
  return number_from(text, into) && into < ids_of_sandbox;
}

bool find_user(const char* name, uid_t& into) {
  return find_line("/etc/passwd", ::fgetpwent,
                   [&](const passwd& each) {
                     if (std::strcmp(each.pw_name, name) != 0)
                       return false;
                     into = each.pw_uid;
                     return into < ids_of_sandbox;
                   }) ||
         id_from(name, into);
}

bool find_group(const char* name, gid_t& into) {
  return find_line("/etc/group", ::fgetgrent,
                   [&](const group& each) {
                     if (std::strcmp(each.gr_name, name) != 0)
                       return false;
                     into = each.gr_gid;
                     return into < ids_of_sandbox;
                   }) ||
         id_from(name, into);
}

/// The name that was asked for last: most files of a directory are one's.
template <class Id, class Read, class Line>
class name_of {
public:
  name_of(const char* path, Read read, Id Line::*id, char* Line::*name)
      : path_(path)
      , read_(read)
      , id_(id)
      , text_(name) {}

  const std::string& operator()(Id wanted) {
    if (known_ && last_ == wanted)
      return name_;
    known_ = true;
    last_ = wanted;
    name_ = std::to_string(wanted);
    find_line(path_, read_, [&](const Line& each) {
      if (each.*id_ != wanted)
        return false;
      name_ = each.*text_;
      return true;
    });
    return name_;
  }

private:
  const char* path_;
  Read read_;
  Id Line::*id_;
  char* Line::*text_;
  bool known_ = false;
  Id last_ = 0;
  std::string name_;
};

/// What words say of a mode and of owners. What makes no sense, or none.
file_step read_wishes(char** words, file_wishes& into) {
  const auto &mode = words[0], &owner = words[1], &group = words[2];
  if (*mode != '\0') {
    char* end = nullptr;
    const auto bits = std::strtoul(mode, &end, 8);
    if (*end != '\0' || bits > 07777)
      return file_step::mode;
    into.mode = static_cast<int>(bits);
  }
  if (*owner != '\0' && !find_user(owner, into.owner))
    return file_step::owner;
  if (*group != '\0' && !find_group(group, into.group))
    return file_step::group;
  return file_step::none;
}

/// Follows links. What failed, with errno, or none.
file_step grant(const char* path, const file_wishes& wishes) {
  struct stat is {};
  if (::stat(path, &is) != 0)
    return file_step::open;
  const auto nobody = static_cast<uid_t>(-1);
  const bool owner_changes = wishes.owner != nobody && wishes.owner != is.st_uid;
  const bool group_changes = wishes.group != nobody && wishes.group != is.st_gid;
  if ((owner_changes || group_changes) && ::chown(path, wishes.owner, wishes.group) != 0)
    return file_step::owner;
  if (wishes.mode >= 0 && ::chmod(path, static_cast<mode_t>(wishes.mode)) != 0)
    return file_step::mode;
  return file_step::none;
}

// ---- Entries

file_kind kind_of(const struct stat& info) {
  switch (info.st_mode & S_IFMT) {
    case S_IFREG: return file_kind::regular;
    case S_IFDIR: return file_kind::directory;
    case S_IFLNK: return file_kind::link;
    default: return file_kind::other;
  }
}

/// As far as 64 bits can tell: files may be of any year.
std::int64_t nanoseconds(const timespec& time) {
  constexpr std::int64_t most = INT64_MAX / 1'000'000'000 - 1;
  return std::clamp<std::int64_t>(time.tv_sec, -most, most) * 1'000'000'000 + time.tv_nsec;
}

class entry_sender {
public:
  explicit entry_sender(int channel)
      : channel_(channel) {}

  /// False: there is nobody to tell any more.
  bool add(const char* path, const struct stat& info) {
    const auto& owner = user_(info.st_uid);
    const auto& group = group_(info.st_gid);
    const auto length = std::strlen(path);
    file_entry entry{};
    entry.path_bytes = static_cast<std::uint32_t>(length);
    entry.owner_bytes = static_cast<std::uint32_t>(owner.size());
    entry.group_bytes = static_cast<std::uint32_t>(group.size());
    entry.kind = kind_of(info);
    entry.mode = info.st_mode & 0777;
    entry.size = static_cast<std::uint64_t>(info.st_size);
    entry.modified_ns = nanoseconds(info.st_mtim);
    entry.changed_ns = nanoseconds(info.st_ctim);
    const auto bytes = sizeof entry + length + owner.size() + group.size();
    if (bytes > max_frame_bytes)
      return true; // No name that anybody could ask for is so long.
    if (frame_.size() + bytes > frame_bytes && !flush())
      return false;
    frame_.append(reinterpret_cast<const char*>(&entry), sizeof entry);
    frame_.append(path, length).append(owner).append(group);
    return true;
  }

  bool flush() {
    const bool good = frame_.empty() || send_frame(channel_, frame_.data(), frame_.size());
    frame_.clear();
    return good;
  }

  void end() {
    if (flush())
      send_frame(channel_, nullptr, 0);
  }

private:
  static constexpr std::size_t frame_bytes = 64 * 1024;

  int channel_;
  std::string frame_;
  name_of<uid_t, passwd* (*)(std::FILE*), passwd> user_{"/etc/passwd", ::fgetpwent, &passwd::pw_uid,
                                                        &passwd::pw_name};
  name_of<gid_t, group* (*)(std::FILE*), group> group_{"/etc/group", ::fgetgrent, &group::gr_gid,
                                                       &group::gr_name};
};

void look(int channel, char** paths, int count) {
  struct stat info {};
  for (int i = 0; i < count; ++i)
    if (::lstat(paths[i], &info) != 0)
      return answer(channel, static_cast<std::uint64_t>(i), errno, file_step::open);
  answer(channel, 0, 0, file_step::none);
  entry_sender entries{channel};
  for (int i = 0; i < count; ++i)
    if (::lstat(paths[i], &info) != 0 || !entries.add(paths[i], info))
      return; // Gone meanwhile: an answer without its end.
  entries.end();
}

/// By name, as bytes.
int in_order(const FTSENT** a, const FTSENT** b) {
  return std::strcmp((*a)->fts_name, (*b)->fts_name);
}

FTS* open_walk(char* path, int (*order)(const FTSENT**, const FTSENT**)) {
  char* roots[] = {path, nullptr};
  return ::fts_open(roots, FTS_PHYSICAL, order);
}

/// The next entry. None: that was all, or (with errno) the walk could not go on.
FTSENT* next_of(FTS* walk) {
  errno = 0;
  return ::fts_read(walk);
}

/// Of the directory that was asked for: nothing in it would be found. With errno.
bool may_be_walked(const char* directory) {
  return ::access(directory, R_OK | X_OK) == 0;
}

/// What cannot be looked into is passed over.
bool has_entry(const FTSENT& each) {
  switch (each.fts_info) {
    case FTS_D:
    case FTS_DEFAULT:
    case FTS_F:
    case FTS_SL:
    case FTS_SLNONE: return true;
    default: return false;
  }
}

/// A directory was not entered, though it is there and may be: another one has come into its place
/// since it was looked at. Then what was found is not all.
bool is_cut(const FTSENT& each) {
  return each.fts_info == FTS_ERR || (each.fts_info == FTS_DP && each.fts_errno != 0);
}

void list(int channel, char* path, const char* depth_text) {
  std::uint32_t depth = 0;
  if (!number_from(depth_text, depth))
    return;
  struct stat root {};
  if (::lstat(path, &root) != 0)
    return answer(channel, 0, errno, file_step::open);
  if (!S_ISDIR(root.st_mode))
    return answer(channel, 0, ENOTDIR, file_step::type);
  if (!may_be_walked(path))
    return answer(channel, 0, errno, file_step::open);
  FTS* walk = open_walk(path, in_order);
  if (walk == nullptr)
    return answer(channel, 0, errno, file_step::read);
  answer(channel, 0, 0, file_step::none);
  entry_sender entries{channel};
  while (FTSENT* each = next_of(walk)) {
    if (is_cut(*each))
      return; // An answer without its end.
    const auto level = static_cast<std::uint32_t>(std::max<int>(each->fts_level, 0));
    if (each->fts_info == FTS_D && level >= depth)
      ::fts_set(walk, each, FTS_SKIP);
    if (level > 0 && level <= depth && has_entry(*each) &&
        !entries.add(each->fts_path, *each->fts_statp))
      return;
  }
  if (errno == 0) // Else an answer without its end.
    entries.end();
}

void search(int channel, char* path, char** patterns, int count) {
  std::setlocale(LC_CTYPE, "C.UTF-8"); // One letter of a name is one for a pattern.
  struct stat root {};
  if (::lstat(path, &root) != 0)
    return answer(channel, 0, errno, file_step::open);
  if (S_ISDIR(root.st_mode) && !may_be_walked(path))
    return answer(channel, 0, errno, file_step::open);
  FTS* walk = open_walk(path, in_order);
  if (walk == nullptr)
    return answer(channel, 0, errno, file_step::read);
  answer(channel, 0, 0, file_step::none);
  entry_sender entries{channel};
  while (const FTSENT* each = next_of(walk)) {
    if (is_cut(*each))
      return; // An answer without its end.
    if (each->fts_info == FTS_D || !has_entry(*each))
      continue;
    const bool wanted = std::any_of(patterns, patterns + count, [&](const char* pattern) {
      return ::fnmatch(pattern, each->fts_name, 0) == 0;
    });
    if (wanted && !entries.add(each->fts_path, *each->fts_statp))
      return;
  }
  if (errno == 0) // Else an answer without its end.
    entries.end();
}

// ---- Reading a part of one

/// The place of `first` and `last` in a file of this size. False: there is no such part.
bool find_part(const char* first, const char* last, std::uint64_t size, std::uint64_t& from,
               std::uint64_t& to) {
  const bool has_last = *last != '\0';
  const auto end = has_last ? std::strtoull(last, nullptr, 10) : 0;
  if (*first == '\0') {
    from = size - std::min<std::uint64_t>(end, size);
    to = size;
    return !has_last || end > 0;
  }
  from = std::strtoull(first, nullptr, 10);
  to = has_last && end < size ? end + 1 : size;
  return from == 0 ? !has_last || size > 0 : from < size && (!has_last || from <= end);
}

void read_part(int channel, const char* path, const char* first, const char* last) {
  const int file = ::open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0)
    return answer(channel, 0, errno, file_step::open);
  struct stat info {};
  if (::fstat(file, &info) != 0)
    return answer(channel, 0, errno, file_step::type);
  if (!S_ISREG(info.st_mode))
    return answer(channel, 0, S_ISDIR(info.st_mode) ? EISDIR : EINVAL, file_step::type);
  std::uint64_t at = 0, end = 0;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (!find_part(first, last, size, at, end))
    return answer(channel, size, ERANGE, file_step::read);
  answer(channel, at, 0, file_step::none);
  entry_sender entries{channel};
  if (!entries.add(path, info) || !entries.flush())
    return;
  static char buffer[max_frame_bytes];
  while (at < end) {
    const auto wanted = std::min<std::uint64_t>(end - at, sizeof buffer);
    const ssize_t n = ::pread(file, buffer, wanted, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return; // It has become shorter: an answer without its end.
    if (!send_frame(channel, buffer, static_cast<std::size_t>(n)))
      return;
    at += static_cast<std::uint64_t>(n);
  }
  send_frame(channel, nullptr, 0);
}

// ---- Changing

void put(int channel, const char* path, char** words) {
  file_wishes wishes;
  wishes.new_mode = 0777;
  if (const auto wrong = read_wishes(words, wishes); wrong != file_step::none) {
    // Its sender hears of it once all has been sent: nothing is lost but time.
    return refuse(channel, EINVAL, wrong);
  }
  receive_file(channel, path, wishes);
}

int remove_file(const char* path) {
  return ::unlink(path) == 0 || errno == ENOENT || errno == ENOTDIR ? 0 : errno;
}

/// The first failure, as errno; the rest is removed all the same.
int remove_tree(char* path) {
  struct stat root {};
  if (::lstat(path, &root) != 0)
    return errno == ENOENT || errno == ENOTDIR ? 0 : errno;
  FTS* walk = open_walk(path, nullptr);
  if (walk == nullptr)
    return errno;
  int failed = 0;
  const auto note = [&](int error) {
    if (failed == 0 && error != ENOENT)
      failed = error;
  };
  while (FTSENT* each = next_of(walk)) {
    switch (each->fts_info) {
      case FTS_D: break;
      case FTS_DNR: // It may be empty.
      case FTS_DP:
        if (::rmdir(each->fts_accpath) != 0)
          note(each->fts_info == FTS_DNR ? each->fts_errno : errno);
        break;
      case FTS_ERR: note(each->fts_errno); break;
      default:
        if (::unlink(each->fts_accpath) != 0)
          note(errno);
    }
  }
  if (failed == 0)
    failed = errno;
  ::fts_close(walk);
  return failed;
}

file_step make_directory(char** words) {
  file_wishes wishes;
  if (const auto wrong = read_wishes(words + 1, wishes); wrong != file_step::none) {
    errno = EINVAL;
    return wrong;
  }
  struct stat is {};
  if (::stat(words[0], &is) == 0) {
    errno = ENOTDIR;
    return S_ISDIR(is.st_mode) ? file_step::none : file_step::type;
  }
  if (const int failed = make_directories(words[0]); failed != 0) {
    errno = failed;
    return file_step::parents;
  }
  return grant(words[0], wishes);
}

file_step permit(char** words) {
  file_wishes wishes;
  if (const auto wrong = read_wishes(words + 1, wishes); wrong != file_step::none) {
    errno = EINVAL;
    return wrong;
  }
  return grant(words[0], wishes);
}

file_step move(char** words) {
  struct stat is {};
  if (::lstat(words[0], &is) != 0)
    return file_step::open;
  char parent[PATH_MAX];
  if (std::strlen(words[1]) >= sizeof parent) {
    errno = ENAMETOOLONG;
    return file_step::rename;
  }
  parent_of(words[1], parent);
  if (const int failed = make_directories(parent); failed != 0) {
    errno = failed;
    return file_step::parents;
  }
  return ::renameat2(AT_FDCWD, words[0], AT_FDCWD, words[1], RENAME_NOREPLACE) == 0
           ? file_step::none
           : file_step::rename;
}

bool write_all(int file, const char* at, std::size_t count) {
  while (count > 0) {
    const ssize_t n = ::write(file, at, count);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    at += n;
    count -= static_cast<std::size_t>(n);
  }
  return true;
}

/// A text in which something is to be replaced.
struct replacement {
  const char* all;
  std::size_t size;
  const std::string& old;
  const std::string& wanted;

  /// Puts the new text, piece by piece; answers how often it was there, or -1 if `put` fails.
  template <class Put>
  std::int64_t apply(Put put) const {
    std::int64_t count = 0;
    for (const char *at = all, *const end = all + size; at < end; ++count) {
      const auto left = static_cast<std::size_t>(end - at);
      const auto* found = static_cast<const char*>(::memmem(at, left, old.data(), old.size()));
      const char* const stop = found != nullptr ? found : end;
      if (!put(at, static_cast<std::size_t>(stop - at)))
        return -1;
      if (found == nullptr)
        break;
      if (!put(wanted.data(), wanted.size()))
        return -1;
      at = found + old.size();
    }
    return count;
  }
};

/// A whole new file takes the place of the one at `path`, with its mode and its owner. What failed,
/// with errno, or none.
file_step replace_whole(const replacement& what, const char* path, const struct stat& is,
                        std::int64_t& count) {
  new_file next;
  if (!next.open(path))
    return file_step::open;
  count =
    what.apply([&](const char* at, std::size_t size) { return write_all(next.fd(), at, size); });
  if (count < 0)
    return file_step::write;
  if (::fchown(next.fd(), is.st_uid, is.st_gid) != 0 ||
      ::fchmod(next.fd(), is.st_mode & 07777) != 0)
    return file_step::owner;
  return next.put_in_place() ? file_step::none : file_step::rename;
}

/// Where no second file can be made, or take its place.
file_step replace_in_place(const replacement& what, const char* path, std::int64_t& count) {
  std::string text;
  count = what.apply([&](const char* at, std::size_t size) {
    text.append(at, size);
    return true;
  });
  const int file = ::open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0)
    return file_step::open;
  const bool written = write_all(file, text.data(), text.size()) &&
                       ::ftruncate(file, static_cast<off_t>(text.size())) == 0;
  const int why = errno;
  ::close(file);
  errno = why;
  return written ? file_step::none : file_step::write;
}

/// In one file, which is replaced whole, with its mode, if there is anything to replace.
file_step replace(const char* path, const std::string& old, const std::string& wanted,
                  std::uint64_t& count) {
  char real[PATH_MAX];
  if (::realpath(path, real) == nullptr)
    return file_step::open;
  // Not for writing: that it is closed would be an event for watchers.
  const int file = ::open(real, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0)
    return file_step::open;
  struct stat is {};
  if (::fstat(file, &is) != 0)
    return file_step::type;
  if (!S_ISREG(is.st_mode) || old.empty()) {
    errno = S_ISDIR(is.st_mode) ? EISDIR : EINVAL;
    return file_step::type;
  }
  if (::faccessat(AT_FDCWD, real, W_OK, AT_EACCESS) != 0)
    return file_step::open;
  count = 0;
  const auto size = static_cast<std::size_t>(is.st_size);
  if (size == 0)
    return file_step::none;
  void* const bytes = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  if (bytes == MAP_FAILED)
    return file_step::read;
  const replacement what{static_cast<const char*>(bytes), size, old, wanted};
  file_step failed = file_step::none;
  std::int64_t replaced = 0;
  if (::memmem(bytes, size, old.data(), old.size()) != nullptr) {
    failed = replace_whole(what, real, is, replaced);
    if (failed == file_step::open || failed == file_step::owner || failed == file_step::rename)
      failed = replace_in_place(what, real, replaced);
  }
  count = static_cast<std::uint64_t>(std::max<std::int64_t>(replaced, 0));
  const int why = errno;
  ::munmap(bytes, size);
  ::close(file);
  errno = why;
  return failed;
}

/// One group after the other, until one fails. `change` answers a step, with errno.
template <class Change>
void change_all(int channel, char** words, int count, int in_group, Change change) {
  for (int at = 0; at < count; at += in_group) {
    const auto failed = change(words + at);
    if (failed != file_step::none)
      return answer(channel, static_cast<std::uint64_t>(at / in_group), errno, failed);
  }
  answer(channel, 0, 0, file_step::none);
  send_frame(channel, nullptr, 0);
}

void replace_all(int channel, char** words, int count) {
  std::string counts;
  for (int at = 0; at < count; at += 3) {
    std::uint64_t replaced = 0;
    const auto failed = replace(words[at], words[at + 1], words[at + 2], replaced);
    if (failed != file_step::none)
      return answer(channel, static_cast<std::uint64_t>(at / 3), errno, failed);
    counts.append(reinterpret_cast<const char*>(&replaced), sizeof replaced);
  }
  answer(channel, 0, 0, file_step::none);
  if (send_frame(channel, counts.data(), counts.size()))
    send_frame(channel, nullptr, 0);
}

/// How many words a task's groups have; 0: it takes any number from one on.
int words_of(file_task what) {
  switch (what) {
    case file_task::list:
    case file_task::move: return 2;
    case file_task::read:
    case file_task::replace: return 3;
    case file_task::put:
    case file_task::make_directories:
    case file_task::permit: return 4;
    case file_task::name_user: return 8;
    case file_task::trust: return 1;
    default: return 0;
  }
}

bool takes_one_group(file_task what) {
  return what == file_task::list || what == file_task::read || what == file_task::put ||
         what == file_task::name_user || what == file_task::trust;
}

file_step failed_with(int error, file_step step) {
  errno = error;
  return error == 0 ? file_step::none : step;
}

} // namespace

void run_file_task(int channel, file_task what, char** words, int count) {
  const int in_group = words_of(what);
  if (in_group > 0 && (count % in_group != 0 || (takes_one_group(what) && count != in_group)))
    return;
  switch (what) {
    case file_task::look: return look(channel, words, count);
    case file_task::list: return list(channel, words[0], words[1]);
    case file_task::search: return search(channel, words[0], words + 1, count - 1);
    case file_task::read: return read_part(channel, words[0], words[1], words[2]);
    case file_task::put: return put(channel, words[0], words + 1);
    case file_task::remove:
      return change_all(channel, words, count, 1, [](char** each) {
        return failed_with(remove_file(each[0]), file_step::write);
      });
    case file_task::remove_trees:
      return change_all(channel, words, count, 1, [](char** each) {
        return failed_with(remove_tree(each[0]), file_step::write);
      });
    case file_task::make_directories:
      return change_all(channel, words, count, in_group, make_directory);
    case file_task::permit: return change_all(channel, words, count, in_group, permit);
    case file_task::move: return change_all(channel, words, count, in_group, move);
    case file_task::replace: return replace_all(channel, words, count);
    case file_task::trust: return trust_authority(channel, words[0]);
    case file_task::name_user: return change_all(channel, words, count, in_group, name_user);
  }
}

} // namespace insula::runtime::agent
