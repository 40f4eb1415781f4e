#include "runtime/host_image.hpp"

#include "base/inner_network.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace insula::runtime {

namespace {

namespace fs = std::filesystem;

/// Files and directories of /etc that say how libraries and programs are found, and nothing about
/// this machine or the people on it.
constexpr std::array allowed_in_etc{
  "alternatives", "bash.bashrc", "debian_version",
  "ld.so.cache",  "ld.so.conf",  "ld.so.conf.d",
  "localtime",    "magic",       "mime.types",
  "os-release",   "perl",        "profile",
  "protocols",    "python3",     "python3.11",
  "python3.13",   "rpc",         "services",
  "skel",         "ssl/certs",   "ssl/openssl.cnf",
  "terminfo",     "timezone",    "gai.conf",
  "host.conf",    "inputrc",     "ca-certificates.conf",
};

struct text_file {
  const char* path;
  const char* text;
};

constexpr std::array files{
  text_file{"etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"
                          "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
                          "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
                          "sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/bash\n"
                          "_apt:x:100:65534::/nonexistent:/usr/sbin/nologin\n"
                          "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
  text_file{
    "etc/group",
    "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nmail:x:8:\n"
    "shadow:x:42:\nutmp:x:43:\nstaff:x:50:\nusers:x:100:\nsandbox:x:1000:\nnogroup:x:65534:\n"},
  text_file{"etc/shadow", ""},
  text_file{"etc/gshadow", ""},
  text_file{"etc/nsswitch.conf",
            "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n"
            "protocols: files\n"},
  text_file{"etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"},
  text_file{"etc/hostname", "sandbox\n"},
  text_file{"etc/resolv.conf", inner_resolv_conf.data()},
  text_file{"etc/environment", ""},
  text_file{"etc/fstab", ""},
};

struct directory {
  const char* path;
  mode_t mode;
  uid_t owner;
};

constexpr std::array directories{
  directory{"etc", 0755, 0},
  directory{"etc/ssl", 0755, 0},
  directory{"root", 0700, 0},
  directory{"home", 0755, 0},
  directory{"home/sandbox", 0755, 1000},
  directory{"workspace", 0755, 1000},
  directory{"tmp", 01777, 0},
  directory{"run", 0755, 0},
  directory{"run/lock", 01777, 0},
  directory{"mnt", 0755, 0},
  directory{"media", 0755, 0},
  directory{"opt", 0755, 0},
  directory{"srv", 0755, 0},
  directory{"proc", 0555, 0},
  directory{"sys", 0555, 0},
  directory{"dev", 0755, 0},
  directory{"usr", 0755, 0},
  directory{"var", 0755, 0},
  directory{"var/cache", 0755, 0},
  directory{"var/lib", 0755, 0},
  directory{"var/log", 0755, 0},
  directory{"var/mail", 0755, 0},
  directory{"var/spool", 0755, 0},
  directory{"var/tmp", 01777, 0},
};

struct link {
  const char* path;
  const char* target;
};

constexpr std::array links{link{"etc/mtab", "/proc/mounts"}, link{"var/run", "/run"},
                           link{"var/lock", "/run/lock"}};

/// Symlinks that the skeleton needs because /usr is merged on this machine; where one is a
/// directory of its own, the machine is not of the kind this image is made for.
constexpr std::array root_links{"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

constexpr auto options = fs::copy_options::recursive | fs::copy_options::copy_symlinks;

/// What of a copy only root of the machine, or a group there, could read goes again: in a sandbox
/// it would be its root's.
void remove_what_others_may_not_read(const fs::path& copy) {
  const auto info = fs::symlink_status(copy);
  const bool is_directory = fs::is_directory(info);
  const auto needed =
    is_directory ? fs::perms::others_read | fs::perms::others_exec : fs::perms::others_read;
  if (fs::is_symlink(info))
    return;
  if ((info.permissions() & needed) != needed) {
    fs::remove_all(copy);
  } else if (is_directory) {
    std::vector<fs::path> below{fs::directory_iterator{copy}, fs::directory_iterator{}};
    for (const auto& each : below)
      remove_what_others_may_not_read(each);
  }
}

void make(const fs::path& root) {
  for (const auto& each : directories) {
    const auto path = root / each.path;
    fs::create_directory(path);
    if (::chmod(path.c_str(), each.mode) != 0 ||
        ::lchown(path.c_str(), each.owner, each.owner) != 0)
      throw fs::filesystem_error{"giving away", path,
                                 std::error_code{errno, std::generic_category()}};
  }
  for (const auto& each : files) {
    std::ofstream{root / each.path} << each.text;
    fs::permissions(root / each.path, std::strstr(each.path, "shadow") != nullptr
                                        ? fs::perms{0640}
                                        : fs::perms{0644});
  }
  for (const auto& each : links)
    fs::create_symlink(each.target, root / each.path);
  for (const char* name : root_links) {
    const fs::path original = fs::path{"/"} / name;
    if (fs::is_symlink(original))
      fs::copy_symlink(original, root / name);
    else if (fs::exists(original))
      throw fs::filesystem_error{
        "an image of this machine needs a merged /usr, and this is a directory", original,
        std::make_error_code(std::errc::not_supported)};
  }
  for (const char* name : allowed_in_etc) {
    const fs::path original = fs::path{"/etc"} / name;
    std::error_code missing;
    if (fs::exists(fs::symlink_status(original, missing))) {
      fs::copy(original, root / "etc" / name, options);
      remove_what_others_may_not_read(root / "etc" / name);
    }
  }
}

/// What the skeleton was made from: when one of these has changed, it is made again.
std::string identity() {
  std::string text = "4";
  for (const char* path :
       {"/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/usr/lib", "/usr/bin"}) {
    struct stat info {};
    ::stat(path, &info);
    text += " " + std::to_string(info.st_ino) + ":" + std::to_string(info.st_mtim.tv_sec) + "." +
            std::to_string(info.st_mtim.tv_nsec);
  }
  return text;
}

} // namespace

result<host_image> prepare_host_image(const std::string& directory) {
  const fs::path top{directory};
  const auto root = top / "root";
  const auto label = top / "identity";
  const auto wanted = identity();
  try {
    // Only root may look inside: what is in there belongs to ids of this machine.
    fs::create_directories(top);
    for (const auto& each : {top.parent_path(), top})
      fs::permissions(each, fs::perms{0700});
    std::string found;
    std::getline(std::ifstream{label}, found);
    if (found != wanted || !fs::exists(root)) {
      fs::remove_all(root);
      fs::remove_all(top / "new");
      fs::create_directory(top / "new");
      // Whatever umask the server was started with: other users must be able to read what is theirs
      // to read.
      const auto mask = ::umask(022);
      make(top / "new");
      ::umask(mask);
      ::chmod((top / "new").c_str(), 0755);
      fs::rename(top / "new", root);
      std::ofstream{label} << wanted << '\n';
    }
  } catch (const fs::filesystem_error& why) {
    return error{errc::io_failed, std::string{"making the host image: "} + why.what()};
  }
  return host_image{{top.filename().string(), true}, root.string(), wanted};
}

} // namespace insula::runtime
