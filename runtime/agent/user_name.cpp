#include "runtime/agent/user_name.hpp"

#include "runtime/agent/file_operations.hpp"
#include "runtime/agent/whole_file.hpp"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <limits.h>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>

namespace insula::runtime::agent {

namespace {

constexpr const char *users_file = "/etc/passwd", *groups_file = "/etc/group";

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

/// Calls `change` for each line, without its end, and joins what it answers; a line for which it
/// answers none goes.
template <class Change>
std::string each_line(std::string_view text, Change change) {
  std::string all;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() + (line.size() < text.size() ? 1 : 0));
    if (const auto now = change(line))
      (all += *now) += '\n';
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

/// The name of the first line with that id. Empty: there is none.
std::string name_in(std::string_view text, std::string_view id) {
  std::string found;
  each_line(text, [&](std::string_view line) {
    const auto is = fields_of<3>(line);
    if (found.empty() && is[2] == id)
      found = is[0];
    return std::optional<std::string>{};
  });
  return found;
}

std::string users_with(std::string_view text, const wanted_user& who) {
  bool there = false;
  auto all = each_line(text, [&](std::string_view line) -> std::optional<std::string> {
    const auto is = fields_of<7>(line);
    if (!there && is[2] == who.uid) {
      there = true;
      return joined({who.name, is[1], is[2], is[3], is[4], who.home, who.shell});
    }
    return is[0] == who.name ? std::nullopt : std::optional{std::string{line}};
  });
  if (!there)
    all += joined({who.name, "x", who.uid, who.gid, "", who.home, who.shell}) + '\n';
  return all;
}

std::string groups_with(std::string_view text, const wanted_user& who) {
  bool there = false;
  auto all = each_line(text, [&](std::string_view line) -> std::optional<std::string> {
    const auto is = fields_of<4>(line);
    if (!there && is[2] == who.gid) {
      there = true;
      return joined({who.name, is[1], is[2], is[3]});
    }
    return is[0] == who.name ? std::nullopt : std::optional{std::string{line}};
  });
  if (!there)
    all += joined({who.name, "x", who.gid, ""}) + '\n';
  return all;
}

file_step give(int directory, uid_t owner, gid_t group) {
  const bool good =
    directory >= 0 && ::fchown(directory, owner, group) == 0 && ::fchmod(directory, 0755) == 0;
  const int why = errno;
  if (directory >= 0)
    ::close(directory);
  errno = why;
  return good ? file_step::none : file_step::owner;
}

/// What is missing of the path is made, and is the user's. One that is there becomes the user's if
/// `takes`.
file_step make_own_directories(char* path, uid_t owner, gid_t group, bool takes) {
  constexpr int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  for (char* end = path; *end != '\0';) {
    end = std::strchr(end + 1, '/');
    if (end != nullptr)
      *end = '\0';
    const bool made = ::mkdir(path, 0700) == 0;
    if (!made && errno != EEXIST)
      return file_step::parents;
    const bool last = end == nullptr;
    const auto failed =
      made || (last && takes) ? give(::open(path, flags), owner, group) : file_step::none;
    if (last || failed != file_step::none)
      return failed;
    *end = '/';
  }
  return file_step::none;
}

/// Only in place of a directory that is empty, or of nothing. Both are the case or none of them.
file_step lead(const char* from, const char* to) {
  if (std::strcmp(from, to) == 0)
    return file_step::none;
  struct stat is {};
  if (::lstat(from, &is) == 0) {
    if (!S_ISDIR(is.st_mode) || ::rmdir(from) != 0)
      return file_step::none;
  } else if (errno != ENOENT) {
    return file_step::none;
  }
  if (::symlink(to, from) == 0)
    return file_step::none;
  const int why = errno;
  if (is.st_ino != 0 && ::mkdir(from, 0700) == 0)
    give(::open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC), is.st_uid, is.st_gid);
  errno = why;
  return file_step::write;
}

} // namespace

file_step name_user(char** words) {
  const wanted_user who{words[0], words[1], words[2], words[3], words[4]};
  char *const home = words[3], *const directory = words[5], *const link = words[6];
  const bool anew = *words[7] != '\0';
  ::umask(022);
  const auto owner = static_cast<uid_t>(std::strtoul(who.uid, nullptr, 10));
  const auto group = static_cast<gid_t>(std::strtoul(who.gid, nullptr, 10));
  for (char* const each : {home, directory})
    if (const auto failed = make_own_directories(each, owner, group, anew);
        failed != file_step::none)
      return failed;
  if (const auto failed = lead(link, directory); failed != file_step::none)
    return failed;
  std::string users, groups;
  struct stat of_users {};
  struct stat of_groups {};
  of_users.st_mode = of_groups.st_mode = 0644;
  // What is no such file is an affair of the sandbox's own: it has no names.
  if (!read_whole_file(users_file, users, of_users) ||
      !read_whole_file(groups_file, groups, of_groups) ||
      (!anew && name_in(users, who.uid) == who.name))
    return file_step::none;
  const auto wanted_groups = groups_with(groups, who), wanted_users = users_with(users, who);
  // The users' file last: with it all is done.
  const auto failed = wanted_groups == groups
                        ? file_step::none
                        : write_whole_file(groups_file, wanted_groups, of_groups);
  if (failed != file_step::none || wanted_users == users)
    return failed;
  return write_whole_file(users_file, wanted_users, of_users);
}

} // namespace insula::runtime::agent
