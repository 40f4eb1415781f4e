#include "runtime/agent/user_name.hpp"

#include "runtime/agent/file_operations.hpp"
#include "runtime/agent/new_file.hpp"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <limits.h>
#include <string>
#include <string_view>
#include <unistd.h>

namespace insula::runtime::agent {

namespace {

constexpr const char *users_file = "/etc/passwd", *groups_file = "/etc/group";
constexpr off_t most_bytes = 4 << 20; ///< Of such a file.

struct wanted_user {
  const char *name, *uid, *gid, *home, *shell;
};

/// The fields of a line of such a file. Those that it lacks are empty.
template <std::size_t Count>
std::array<std::string_view, Count> fields_of(std::string_view line) {
  std::array<std::string_view, Count> all;
  for (auto& each : all) {
    each = line.substr(0, line.find(':'));
    line.remove_prefix(each.size() + (each.size() < line.size() ? 1 : 0));
  }
  return all;
}

/// Calls `change` for each line, without its end, and joins what it answers.
template <class Change>
std::string each_line(std::string_view text, Change change) {
  std::string all;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + (line.size() < text.size() ? 1 : 0));
    (all += change(line)) += '\n';
  }
  return all;
}

std::string joined(std::initializer_list<std::string_view> fields) {
  std::string all;
  for (const auto each : fields)
    (all += each) += ':';
  all.pop_back();
  return all;
}

bool has_user(std::string_view text, std::string_view name) {
  bool found = false;
  each_line(text, [&](std::string_view line) {
    found = found || fields_of<1>(line)[0] == name;
    return std::string_view{};
  });
  return found;
}

std::string users_with(std::string_view text, const wanted_user& who) {
  bool there = false;
  auto all = each_line(text, [&](std::string_view line) {
    const auto is = fields_of<7>(line);
    if (there || is[2] != who.uid)
      return std::string{line};
    there = true;
    return joined({who.name, is[1], is[2], is[3], is[4], who.home, who.shell});
  });
  if (!there)
    all += joined({who.name, "x", who.uid, who.gid, "", who.home, who.shell}) + '\n';
  return all;
}

std::string groups_with(std::string_view text, const wanted_user& who) {
  bool there = false;
  auto all = each_line(text, [&](std::string_view line) {
    const auto is = fields_of<4>(line);
    if (there || is[2] != who.gid)
      return std::string{line};
    there = true;
    return joined({who.name, is[1], is[2], is[3]});
  });
  if (!there)
    all += joined({who.name, "x", who.gid, ""}) + '\n';
  return all;
}

/// All of a file of the sandbox, or nothing if it is not there. False, with errno: it is no file,
/// or longer than such a file is.
bool read_all(const char* path, std::string& into, struct stat& is) {
  const int file = ::open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0)
    return errno == ENOENT;
  bool good = ::fstat(file, &is) == 0;
  if (good && (!S_ISREG(is.st_mode) || is.st_size > most_bytes)) {
    errno = EINVAL;
    good = false;
  }
  into.resize(good ? static_cast<std::size_t>(is.st_size) : 0);
  std::size_t at = 0;
  while (good && at < into.size()) {
    const ssize_t n = ::read(file, into.data() + at, into.size() - at);
    if (n < 0 && errno == EINTR)
      continue;
    good = n >= 0;
    if (n <= 0)
      break;
    at += static_cast<std::size_t>(n);
  }
  into.resize(at);
  const int why = errno;
  ::close(file);
  errno = why;
  return good;
}

/// A whole new file, with the mode and the owner of the one before.
file_step write_all(const char* path, std::string_view text, const struct stat& is) {
  char real[PATH_MAX];
  if (::realpath(path, real) == nullptr) {
    if (errno != ENOENT)
      return file_step::open;
    std::strcpy(real, path);
  }
  new_file next;
  if (!next.open(real))
    return file_step::open;
  while (!text.empty()) {
    const ssize_t n = ::write(next.fd(), text.data(), text.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return file_step::write;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fchown(next.fd(), is.st_uid, is.st_gid) != 0 ||
      ::fchmod(next.fd(), is.st_mode & 07777) != 0)
    return file_step::owner;
  return next.put_in_place() ? file_step::none : file_step::rename;
}

/// Those on the way that are missing are root's. One that is there is left as it is, unless
/// `takes`.
file_step make_own_directory(char* path, uid_t owner, gid_t group, bool takes) {
  char parent[PATH_MAX];
  parent_of(path, parent);
  if (const int failed = make_directories(parent); failed != 0) {
    errno = failed;
    return file_step::parents;
  }
  if (::mkdir(path, 0700) != 0) {
    if (errno != EEXIST)
      return file_step::parents;
    if (!takes)
      return file_step::none;
  }
  const int directory = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0)
    return file_step::type;
  const bool good = ::fchown(directory, owner, group) == 0 && ::fchmod(directory, 0755) == 0;
  const int why = errno;
  ::close(directory);
  errno = why;
  return good ? file_step::none : file_step::owner;
}

/// Only in place of a directory that is empty, or of nothing.
void lead(const char* from, const char* to) {
  if (std::strcmp(from, to) != 0 && (::rmdir(from) == 0 || errno == ENOENT))
    static_cast<void>(::symlink(to, from));
}

} // namespace

file_step name_user(char** words) {
  const wanted_user who{words[0], words[1], words[2], words[3], words[4]};
  char *const home = words[3], *const directory = words[5], *const link = words[6];
  std::string users, groups;
  struct stat of_users {};
  struct stat of_groups {};
  of_users.st_mode = of_groups.st_mode = 0644;
  // What is no such file is an affair of the sandbox's own: it has no names.
  const bool names =
    read_all(users_file, users, of_users) && read_all(groups_file, groups, of_groups);
  const bool has_name = !names || has_user(users, who.name);
  ::umask(022);
  const auto owner = static_cast<uid_t>(std::strtoul(who.uid, nullptr, 10));
  const auto group = static_cast<gid_t>(std::strtoul(who.gid, nullptr, 10));
  for (char* const each : {home, directory})
    if (const auto failed = make_own_directory(each, owner, group, !has_name);
        failed != file_step::none)
      return failed;
  lead(link, directory);
  if (has_name)
    return file_step::none;
  const auto failed = write_all(groups_file, groups_with(groups, who), of_groups);
  return failed != file_step::none ? failed
                                   : write_all(users_file, users_with(users, who), of_users);
}

} // namespace insula::runtime::agent
