#include "storage/images/programs.hpp"

#include "base/unique_fd.hpp"
#include "storage/images/beneath.hpp"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <optional>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace insula::storage::images {

namespace {

/// The beginning of a file. Empty: there is none.
std::string text_in(int root, const std::string& path, std::size_t most = 16u << 10) {
  const auto file = open_inside(root, path, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return {};
  std::string text(most, '\0');
  const auto n = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, n)));
  return text;
}

bool is_version(std::string_view text) {
  return !text.empty() && text.size() <= 32 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || c == '.';
  });
}

/// What a header of C defines: `#define NAME value`, the quotes cut. Empty: nothing.
std::string defined(const std::string& header, std::string_view name) {
  std::istringstream lines{header};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words{line};
    std::string define, what, value;
    if (words >> define >> what >> value && define == "#define" && what == name) {
      std::erase(value, '"');
      return is_version(value) ? value : std::string{};
    }
  }
  return {};
}

std::string node_version(int root, const std::string& prefix) {
  const auto header = text_in(root, prefix + "/include/node/node_version.h");
  std::string version;
  for (const char* part : {"NODE_MAJOR_VERSION", "NODE_MINOR_VERSION", "NODE_PATCH_VERSION"}) {
    const auto number = defined(header, part);
    if (number.empty())
      return {};
    version += (version.empty() ? "" : ".") + number;
  }
  return version;
}

/// Of Debian's package: "Version: 3.11.2-6+deb12u6" says 3.11.2.
std::string package_version(int root, const std::string& package) {
  constexpr std::size_t most = 32u << 20;
  const auto status = text_in(root, "var/lib/dpkg/status", most);
  const auto entry = "\nPackage: " + package + "\n";
  const auto at = ("\n" + status).find(entry);
  if (at == std::string::npos)
    return {};
  const auto rest = std::string_view{status}.substr(at);
  constexpr std::string_view key = "\nVersion: ";
  const auto version = rest.find(key);
  if (version == rest.npos || version > rest.find("\n\n"))
    return {};
  auto text = rest.substr(version + key.size(), 64);
  text = text.substr(0, text.find('\n'));
  if (const auto colon = text.find(':'); colon != text.npos)
    text.remove_prefix(colon + 1);
  text = text.substr(0, text.find_first_not_of("0123456789."));
  return is_version(text) ? std::string{text} : std::string{};
}

bool is_program(int root, const std::string& path) {
  const auto file = open_inside(root, path, O_PATH);
  struct stat info {};
  return file && ::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) &&
         (info.st_mode & S_IXOTH) != 0;
}

constexpr std::array prefixes{"usr/local", "usr"}; // In the order of PATH.

std::optional<std::string> node_of(int root) {
  for (const std::string prefix : prefixes) {
    if (!is_program(root, prefix + "/bin/node"))
      continue;
    auto version = node_version(root, prefix);
    return version.empty() && prefix == "usr" ? package_version(root, "nodejs") : version;
  }
  return std::nullopt;
}

std::optional<std::string> python_of(int root) {
  constexpr int newest = 40;
  for (const std::string prefix : prefixes) {
    if (!is_program(root, prefix + "/bin/python3"))
      continue;
    // python3 leads to one of these.
    const auto leads = open_inside(root, prefix + "/bin/python3", O_PATH);
    struct stat there {};
    ::fstat(leads.get(), &there);
    for (int minor = newest; minor > 0; --minor) {
      const auto name = "python3." + std::to_string(minor);
      const auto own = open_inside(root, prefix + "/bin/" + name, O_PATH);
      struct stat info {};
      if (!own || ::fstat(own.get(), &info) != 0 || info.st_ino != there.st_ino)
        continue;
      auto version =
        defined(text_in(root, prefix + "/include/" + name + "/patchlevel.h"), "PY_VERSION");
      if (version.empty() && prefix == "usr")
        version = package_version(root, name);
      return version.empty() ? "3." + std::to_string(minor) : version;
    }
    return std::string{};
  }
  return std::nullopt;
}

} // namespace

std::map<std::string, std::string> programs_of(int root) {
  std::map<std::string, std::string> all;
  if (auto version = node_of(root))
    all["node"] = std::move(*version);
  if (auto version = python_of(root))
    all["python"] = std::move(*version);
  return all;
}

} // namespace insula::storage::images
