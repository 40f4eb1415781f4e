#pragma once

#include "tests/support/catch.hpp"
#include "tests/support/child_program.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <vector>

namespace insula::test {

inline const std::filesystem::path inputs{INSULA_IMAGE_INPUTS};

/// All of a file in one read: some have many megabytes.
inline std::string content_of(const std::filesystem::path& path) {
  std::string text(std::filesystem::file_size(path), '\0');
  std::ifstream{path, std::ios::binary}.read(text.data(),
                                             static_cast<std::streamsize>(text.size()));
  return text;
}

struct image_outcome {
  int status = -1; ///< As exit() was told.
  std::string out, err;
};

/// `insula image …` on a state directory, to its end.
inline image_outcome image(const std::string& state, std::vector<std::string> words) {
  const temp_dir where;
  words.insert(words.begin(), {INSULA_PROGRAM, "image"});
  words.insert(words.end(), {"--state", state});
  child_program program{words, {.error_file = (where / "err").string()}};
  image_outcome made;
  made.out = program.read_all(std::chrono::seconds{120});
  if (const auto status = program.wait(std::chrono::seconds{20}); status && WIFEXITED(*status))
    made.status = WEXITSTATUS(*status);
  made.err = content_of(where / "err");
  return made;
}

inline void import(const std::string& state, const std::string& source, const std::string& name) {
  const auto made = image(state, {"import", (inputs / source).string(), "--name", name});
  if (made.status != 0)
    throw std::runtime_error("import of " + source + ": " + made.err);
}

/// What there is to say about each file of a tree, but for contents.
inline std::map<std::string, std::string> listing(const std::filesystem::path& root) {
  std::map<std::string, std::string> all;
  const auto add = [&](const std::filesystem::path& path) {
    struct stat info {};
    REQUIRE(::lstat(path.c_str(), &info) == 0);
    std::string text = "mode " + std::to_string(info.st_mode) + ", owner " +
                       std::to_string(info.st_uid) + ":" + std::to_string(info.st_gid) +
                       ", modified " + std::to_string(info.st_mtim.tv_sec) + "." +
                       std::to_string(info.st_mtim.tv_nsec);
    if (!S_ISDIR(info.st_mode))
      text += ", size " + std::to_string(info.st_size) + ", links " + std::to_string(info.st_nlink);
    if (S_ISLNK(info.st_mode))
      text += ", to " + std::filesystem::read_symlink(path).string();
    char names[4096];
    const auto bytes = ::llistxattr(path.c_str(), names, sizeof names);
    for (ssize_t at = 0; at < bytes;) {
      const std::string name = names + at;
      char value[4096];
      const auto size = ::lgetxattr(path.c_str(), name.c_str(), value, sizeof value);
      if (name == "security.capability" || name.starts_with("user."))
        text += ", " + name + " " +
                std::string{value, static_cast<std::size_t>(std::max<ssize_t>(0, size))};
      at += static_cast<ssize_t>(name.size()) + 1;
    }
    all.emplace(path.lexically_relative(root).string(), text);
  };
  add(root);
  for (const auto& each : std::filesystem::recursive_directory_iterator{root})
    add(each.path());
  return all;
}

/// Everything that an import adds or changes beyond the layers; the documentation has the same
/// list.
inline const std::set<std::string> added{"proc",
                                         "sys",
                                         "dev",
                                         "run",
                                         "tmp",
                                         "workspace",
                                         "etc",
                                         "etc/passwd",
                                         "etc/group",
                                         "etc/shadow",
                                         "etc/gshadow",
                                         "etc/hosts",
                                         "etc/resolv.conf",
                                         "etc/machine-id",
                                         "home",
                                         "home/sandbox",
                                         "home/sandbox/.profile",
                                         "home/sandbox/.local",
                                         "home/sandbox/.local/bin"};

/// Where two trees differ, apart from that, in words.
inline std::vector<std::string> differences(const std::filesystem::path& ours,
                                            const std::filesystem::path& theirs) {
  std::vector<std::string> found;
  const auto mine = listing(ours), other = listing(theirs);
  for (const auto& [path, text] : other) {
    const auto at = mine.find(path);
    if (at == mine.end())
      found.push_back(path + ": missing");
    else if (!added.contains(path) && at->second != text)
      found.push_back(path + ": " + at->second + ", expected " + text);
    else if (!added.contains(path) &&
             std::filesystem::is_regular_file(std::filesystem::symlink_status(theirs / path)) &&
             content_of(ours / path) != content_of(theirs / path))
      found.push_back(path + ": other content");
  }
  for (const auto& [path, text] : mine)
    if (!other.contains(path) && !added.contains(path))
      found.push_back(path + ": should not be there");
  return found;
}

} // namespace insula::test
