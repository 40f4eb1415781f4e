#include "storage/images/furnish.hpp"

#include "base/inner_network.hpp"
#include "base/inner_places.hpp"
#include "base/limits.hpp"
#include "base/unique_fd.hpp"
#include "storage/images/beneath.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace insula::storage::images {

namespace {

constexpr uid_t sandbox_id = 1000;

error failed(const std::string& path) {
  return {errc::io_failed, "/" + path + ": " + std::strerror(errno)};
}

enum class existing { stays, is_changed };

/// A directory at a path of one or two parts, whose parent is there.
result<void> have_directory(int root, const std::string& path, mode_t mode, uid_t owner,
                            existing what = existing::stays) {
  const auto slash = path.rfind('/');
  const auto above = open_beneath(root, slash == std::string::npos ? "" : path.substr(0, slash),
                                  O_PATH | O_DIRECTORY);
  const auto name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  if (!above)
    return {failed(path)};
  const bool made = ::mkdirat(above.get(), name.c_str(), 0700) == 0;
  if (!made && errno != EEXIST)
    return {failed(path)};
  const auto directory = open_beneath(above.get(), name, O_RDONLY | O_DIRECTORY);
  if (!directory)
    return {{errc::invalid_request, "/" + path +
                                      " of the image is no directory, and a sandbox "
                                      "needs one there"}};
  if ((made || (what == existing::is_changed && owner != 0)) &&
      ::fchown(directory.get(), owner, owner) != 0)
    return {failed(path)};
  if ((made || (what == existing::is_changed && owner == 0)) &&
      ::fchmod(directory.get(), mode) != 0)
    return {failed(path)};
  return {};
}

/// The text of a small file; empty when there is none.
result<std::string> read_file(int root, const std::string& path) {
  const auto file = open_beneath(root, path, O_RDONLY | O_NONBLOCK);
  if (!file && errno == ENOENT)
    return std::string{};
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      static_cast<std::uint64_t>(info.st_size) > limits::image_accounts_bytes)
    return error{errc::invalid_request, "/" + path + " of the image is no plain file of at most " +
                                          std::to_string(limits::image_accounts_bytes) + " bytes"};
  std::string text(static_cast<std::size_t>(info.st_size), '\0');
  const auto n = ::pread(file.get(), text.data(), text.size(), 0);
  if (n < 0)
    return failed(path);
  text.resize(static_cast<std::size_t>(n));
  return text;
}

bool has_name(const std::string& text, const std::string& name) {
  return text.starts_with(name + ":") || text.find("\n" + name + ":") != std::string::npos;
}

/// "sandbox", or a name like it that nobody has.
std::string free_name(const std::string& text) {
  std::string name = "sandbox";
  while (has_name(text, name))
    name += "_";
  return name;
}

void append(std::string& text, const std::string& line) {
  if (!text.empty() && text.back() != '\n')
    text += '\n';
  text += line + '\n';
}

/// A new file in the place of what is there: other names of the old one keep their content.
result<void> write_file(int root, const std::string& path, const std::string& text,
                        mode_t mode = 0644, uid_t owner = 0, gid_t group = 0) {
  const auto fresh = path + ".insula-new";
  auto file = open_beneath(root, fresh, O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (!file || !write_all(file.get(), text.data(), text.size()) ||
      ::fchown(file.get(), owner, group) != 0 || ::fchmod(file.get(), mode) != 0 ||
      ::renameat(root, fresh.c_str(), root, path.c_str()) != 0)
    return {failed(path)};
  return {};
}

/// A line for a new account in a list of passwords, if the image has one: without it root cannot
/// become that user by PAM. `rest`: behind the name; it has no password.
result<void> list_in(int root, const std::string& path, const std::string& name,
                     const std::string& rest) {
  struct stat info {};
  auto text = read_file(root, path);
  if (!text || text->empty() || has_name(*text, name) ||
      ::fstatat(root, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
    return {};
  append(*text, name + rest);
  return write_file(root, path, *text, info.st_mode & 07777, info.st_uid, info.st_gid);
}

/// A link in /etc, in the place of what is there.
result<void> write_link(int root, const char* name, const char* target) {
  const auto etc = open_beneath(root, "etc", O_RDONLY | O_DIRECTORY);
  if (!etc || !remove_all_at(etc.get(), name) || ::symlinkat(target, etc.get(), name) != 0)
    return {failed(std::string{"etc/"} + name)};
  return {};
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> all;
  std::istringstream text{line};
  for (std::string each; std::getline(text, each, ':');)
    all.push_back(each);
  return all;
}

/// The fields of the first line of passwd or group whose third is the sandbox's number.
std::optional<std::vector<std::string>> find_account(const std::string& text) {
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);)
    if (auto fields = fields_of(line);
        fields.size() >= 3 && fields[2] == std::to_string(sandbox_id) && !fields[0].empty())
      return fields;
  return std::nullopt;
}

bool is_program(int root, const std::string& path) {
  const auto file = open_inside(root, path, O_PATH);
  struct stat info {};
  return file && ::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) &&
         (info.st_mode & 0111) != 0;
}

std::string shell_of(int root) {
  for (const char* each : {"/bin/bash", "/bin/sh"})
    if (is_program(root, each))
      return each;
  return {};
}

/// A home that can be one: a directory of the image, by a path that says the same to everyone.
bool is_home(int root, const std::string& path) {
  if (path.size() < 2 || path.front() != '/' || path.find('=') != std::string::npos ||
      std::any_of(path.begin(), path.end(), [](char c) { return c >= 0 && c < ' '; }))
    return false;
  const auto directory = open_inside(root, path, O_PATH | O_DIRECTORY);
  return static_cast<bool>(directory);
}

/// What a home lacks for programs to be installed without root. What the image has there stays.
result<void> fill_home(int root, const std::string& home) {
  const auto directory = open_inside(root, home, O_RDONLY | O_DIRECTORY);
  if (!directory)
    return {failed(home.substr(1))};
  const auto profile = open_beneath(directory.get(), ".profile", O_CREAT | O_EXCL | O_WRONLY, 0644);
  if (!profile && errno != EEXIST)
    return {failed(home.substr(1) + "/.profile")};
  if (profile && (!write_all(profile.get(), inner_profile.data(), inner_profile.size()) ||
                  ::fchown(profile.get(), sandbox_id, sandbox_id) != 0))
    return {failed(home.substr(1) + "/.profile")};
  for (const char* each : {".local", ".local/bin"})
    if (!have_directory(directory.get(), each, 0755, sandbox_id))
      return {}; // The image has something else there.
  const auto programs = open_beneath(directory.get(), ".local/bin", O_PATH | O_DIRECTORY);
  // `corepack enable` puts its programs beside the corepack that is found first.
  for (const char* each : {"/usr/local/bin/corepack", "/usr/bin/corepack"})
    if (is_program(root, each)) {
      if (::symlinkat(each, programs.get(), "corepack") == 0)
        ::fchownat(programs.get(), "corepack", sandbox_id, sandbox_id, AT_SYMLINK_NOFOLLOW);
      break;
    }
  return {};
}

} // namespace

result<image_account> furnish(int root) {
  const struct {
    const char* path;
    mode_t mode;
    uid_t owner;
    existing what;
  } directories[] = {
    {"proc", 0555, 0, existing::stays},      {"sys", 0555, 0, existing::stays},
    {"dev", 0755, 0, existing::stays},       {"run", 0755, 0, existing::stays},
    {"tmp", 01777, 0, existing::is_changed}, {"workspace", 0755, sandbox_id, existing::is_changed},
    {"etc", 0755, 0, existing::stays},
  };
  for (const auto& [path, mode, owner, what] : directories)
    if (auto ok = have_directory(root, path, mode, owner, what); !ok)
      return ok.reason();

  image_account made{"", "", shell_of(root)};
  auto users = read_file(root, "etc/passwd"), groups = read_file(root, "etc/group"),
       hosts = read_file(root, "etc/hosts");
  for (const auto* each : {&users, &groups, &hosts})
    if (!*each)
      return each->reason();
  if (const auto found = find_account(*users)) {
    constexpr std::size_t home = 5;
    made.name = found->front();
    if (found->size() > home && is_home(root, (*found)[home]))
      made.home = (*found)[home];
  } else {
    made.name = free_name(*users);
    if (users->empty())
      append(*users, "root:x:0:0:root:/root:" + made.shell);
    append(*users, made.name + ":x:1000:1000:sandbox:/home/sandbox:" + made.shell);
    if (auto ok = write_file(root, "etc/passwd", *users); !ok)
      return ok.reason();
    if (auto ok = list_in(root, "etc/shadow", made.name, ":*:19000:0:99999:7:::"); !ok)
      return ok.reason();
  }
  if (!find_account(*groups)) {
    if (groups->empty())
      append(*groups, "root:x:0:");
    const auto name = free_name(*groups);
    append(*groups, name + ":x:1000:");
    if (auto ok = write_file(root, "etc/group", *groups); !ok)
      return ok.reason();
    if (auto ok = list_in(root, "etc/gshadow", name, ":*::"); !ok)
      return ok.reason();
  }
  if (hosts->empty())
    if (auto ok = write_file(root, "etc/hosts",
                             "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
        !ok)
      return ok.reason();
  if (auto ok = write_file(root, "etc/resolv.conf", std::string{inner_resolv_conf}); !ok)
    return ok.reason();
  if (auto ok = write_link(root, "machine-id", inner_machine_id); !ok)
    return ok.reason();
  if (made.home.empty()) {
    if (auto ok = have_directory(root, "home", 0755, 0); !ok)
      return ok.reason();
    if (auto ok = have_directory(root, "home/sandbox", 0755, sandbox_id); !ok)
      return ok.reason();
    made.home = "/home/sandbox";
  }
  if (made.home != "/workspace" && made.home != "/tmp") // These are the callers' own.
    if (auto ok = fill_home(root, made.home); !ok)
      return ok.reason();
  return made;
}

std::string pretty_name(int root) {
  unique_fd file;
  for (const char* path : {"/etc/os-release", "/usr/lib/os-release"})
    if (!file)
      file = open_inside(root, path, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return {};
  std::string text(4096, '\0');
  const auto n = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, n)));
  std::istringstream lines{text};
  const std::string key = "PRETTY_NAME=";
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key))
      continue;
    std::string value;
    for (const char each : line.substr(key.size()))
      if (each >= ' ' && each <= '~' && each != '"' && each != '\'')
        value += each;
    return value;
  }
  return {};
}

} // namespace insula::storage::images
