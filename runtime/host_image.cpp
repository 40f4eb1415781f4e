#include "runtime/host_image.hpp"

#include "base/inner_network.hpp"
#include "base/inner_places.hpp"
#include "base/unique_fd.hpp"
#include "runtime/host_etc.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace insula::runtime {

namespace {

namespace fs = std::filesystem;

constexpr uid_t sandbox_user_id = 1000;

/// Files and directories of /etc that say how libraries and programs are found, for machines that
/// keep no checksums of what their packages have brought there.
constexpr std::array usual_in_etc{
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
  // Those of the machine's packages follow.
  text_file{"etc/passwd", "root:x:0:0:root:/root:/bin/bash\n"
                          "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
                          "bin:x:2:2:bin:/bin:/usr/sbin/nologin\n"
                          "sandbox:x:1000:1000:sandbox:/home/sandbox:/bin/bash\n"
                          "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"},
  text_file{
    "etc/group",
    "root:x:0:\ndaemon:x:1:\nbin:x:2:\nsys:x:3:\nadm:x:4:\ntty:x:5:\ndisk:x:6:\nmail:x:8:\n"
    "shadow:x:42:\nutmp:x:43:\nstaff:x:50:\nusers:x:100:\nsandbox:x:1000:\nnogroup:x:65534:\n"},
  text_file{"etc/nsswitch.conf",
            "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nservices: files\n"
            "protocols: files\n"},
  text_file{"etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"},
  text_file{"etc/hostname", "sandbox\n"},
  text_file{"etc/resolv.conf", inner_resolv_conf.data()},
  text_file{"etc/environment", ""},
  text_file{"etc/fstab", ""},
  text_file{"home/sandbox/.profile", inner_profile.data()},
};

struct directory {
  const char* path;
  mode_t mode;
  uid_t owner;
};

/// What a program asks that knows users by PAM: root changes to anybody, and a user with a
/// password. The machine's own say how its users sign in.
constexpr std::array pam_files{
  text_file{"etc/pam.d/common-auth", "auth required pam_unix.so\n"},
  text_file{"etc/pam.d/common-account", "account required pam_unix.so\n"},
  text_file{"etc/pam.d/common-password", "password required pam_unix.so yescrypt\n"},
  text_file{"etc/pam.d/common-session", "session required pam_permit.so\n"},
  text_file{"etc/pam.d/common-session-noninteractive", "session required pam_permit.so\n"},
};

constexpr text_file sudo_rule{"etc/sudoers.d/90-sandbox", inner_sudo_rule.data()};
constexpr text_file sudo_rules{"etc/sudoers", "root ALL=(ALL:ALL) ALL\n"
                                              "@includedir /etc/sudoers.d\n"};

constexpr std::array directories{
  directory{"etc", 0755, 0},
  directory{"etc/ssl", 0755, 0},
  directory{"etc/sudoers.d", 0750, 0},
  directory{"root", 0700, 0},
  directory{"home", 0755, 0},
  directory{"home/sandbox", 0755, 1000},
  directory{"home/sandbox/.local", 0755, 1000},
  directory{"home/sandbox/.local/bin", 0755, 1000},
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
  directory{"var/cache/apt", 0755, 0},
  directory{"var/cache/apt/archives", 0755, 0},
  directory{"var/cache/apt/archives/partial", 0700, 0},
  directory{"var/lib", 0755, 0},
  directory{"var/lib/apt", 0755, 0},
  directory{"var/lib/apt/lists", 0755, 0},
  directory{"var/lib/apt/lists/partial", 0700, 0},
  directory{"var/lib/dpkg", 0755, 0},
  directory{"var/lib/dpkg/info", 0755, 0},
  directory{"var/lib/dpkg/updates", 0755, 0},
  directory{"var/lib/dpkg/triggers", 0755, 0},
  directory{"var/log", 0755, 0},
  directory{"var/log/apt", 0755, 0},
  directory{"var/mail", 0755, 0},
  directory{"var/spool", 0755, 0},
  directory{"var/tmp", 01777, 0},
};

struct link {
  const char* path;
  const char* target;
};

constexpr std::array links{link{"etc/mtab", "/proc/mounts"},
                           link{"etc/machine-id", inner_machine_id}, link{"var/run", "/run"},
                           link{"var/lock", "/run/lock"}};

/// Symlinks that the skeleton needs because /usr is merged on this machine; where one is a
/// directory of its own, the machine is not of the kind this image is made for.
constexpr std::array root_links{"bin", "sbin", "lib", "lib32", "lib64", "libx32"};

void give_away(const fs::path& path, uid_t owner, gid_t group) {
  if (::lchown(path.c_str(), owner, group) != 0)
    throw fs::filesystem_error{"giving away", path,
                               std::error_code{errno, std::generic_category()}};
}

void give_away(const fs::path& path, uid_t owner) {
  give_away(path, owner, owner);
}

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

void copy_usual_etc(const fs::path& etc) {
  for (const char* name : usual_in_etc) {
    const fs::path original = fs::path{"/etc"} / name;
    std::error_code missing;
    if (fs::exists(fs::symlink_status(original, missing))) {
      fs::copy(original, etc / name, options);
      remove_what_others_may_not_read(etc / name);
    }
  }
}

/// The image's own files stay.
void write_etc(const fs::path& etc, const std::vector<etc_part>& parts) {
  const unique_fd top{::open(etc.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  fs::path made; // Parts of one directory follow one another.
  for (const auto& each : parts) {
    if (auto parent = (etc / each.path).parent_path(); parent != made) {
      fs::create_directories(parent);
      made = std::move(parent);
    }
    const auto need = [&](bool worked) {
      if (!worked && errno != EEXIST)
        throw fs::filesystem_error{"making", etc / each.path,
                                   std::error_code{errno, std::generic_category()}};
      return worked;
    };
    if (!each.target.empty()) {
      need(::symlinkat(each.target.c_str(), top.get(), each.path.c_str()) == 0);
      continue;
    }
    const unique_fd file{::openat(top.get(), each.path.c_str(),
                                  O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                                  each.runs ? 0755 : 0644)};
    if (!need(static_cast<bool>(file)))
      continue;
    errno = EIO; // Unless the kernel has a better word.
    need(::write(file.get(), each.text.data(), each.text.size()) ==
         static_cast<ssize_t>(each.text.size()));
  }
}

/// In the place of what is there, which may be a link to a file of the machine.
void write_text(const fs::path& root, const text_file& file, fs::perms may = fs::perms{0644}) {
  fs::remove(root / file.path);
  std::ofstream{root / file.path} << file.text;
  fs::permissions(root / file.path, may);
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> all(1);
  for (const char each : line)
    if (each == ':')
      all.emplace_back();
    else
      all.back() += each;
  return all;
}

/// Of an account that is no person's.
bool is_system_id(const std::string& number) {
  return !number.empty() && number.size() <= 3 &&
         number.find_first_not_of("0123456789") == std::string::npos;
}

/// The system's accounts of the machine, with their numbers: files in its /usr belong to them, and
/// packages expect to find them. Of people there is nothing.
///
/// `file`: etc/passwd or etc/group, which has the image's own by now. Gives back all names in it.
std::vector<std::string>
add_system_accounts(const fs::path& root, const char* file, std::size_t fields,
                    std::string (*line_of)(const std::vector<std::string>&)) {
  std::vector<std::string> names, numbers;
  std::string line;
  for (std::ifstream own{root / file}; std::getline(own, line);) {
    names.push_back(fields_of(line)[0]);
    numbers.push_back(fields_of(line)[2]);
  }
  std::ofstream out{root / file, std::ios::app};
  for (std::ifstream machines{fs::path{"/"} / file}; std::getline(machines, line);) {
    const auto all = fields_of(line);
    const auto is_new = [&](const std::vector<std::string>& known, const std::string& value) {
      return std::find(known.begin(), known.end(), value) == known.end();
    };
    if (all.size() != fields || !is_system_id(all[2]) || !is_new(names, all[0]) ||
        !is_new(numbers, all[2]))
      continue;
    out << line_of(all);
    names.push_back(all[0]);
    numbers.push_back(all[2]);
  }
  return names;
}

/// No account has a password, and root can give it one.
void add_accounts(const fs::path& root) {
  const auto users = add_system_accounts(root, "etc/passwd", 7, [](const auto& all) {
    // A place of its packages, and no other of the machine's.
    bool is_usual = false;
    for (const char* each : {"/var/lib/", "/var/cache/", "/var/spool/", "/var/run/", "/run/"})
      is_usual |= all[5].starts_with(each);
    return all[0] + ":x:" + all[2] + ":" + (is_system_id(all[3]) ? all[3] : "65534") +
           "::" + (is_usual ? all[5] : "/nonexistent") + ":/usr/sbin/nologin\n";
  });
  const auto groups = add_system_accounts(
    root, "etc/group", 4, [](const auto& all) { return all[0] + ":x:" + all[2] + ":\n"; });
  constexpr gid_t shadow_group = 42;
  const auto write = [&](const char* file, const auto& names, const char* rest) {
    {
      std::ofstream out{root / file};
      for (const auto& each : names)
        out << each << rest;
    }
    fs::permissions(root / file, fs::perms{0640});
    give_away(root / file, 0, shadow_group);
  };
  write("etc/shadow", users, ":*:19000:0:99999:7:::\n");
  write("etc/gshadow", groups, ":*::\n");
}

/// Where apt finds packages of the machine's release, and which of them are in /usr. The machine's
/// own sources stay out: they can contain a password.
void add_apt(const fs::path& root) {
  std::map<std::string, std::string> release;
  std::ifstream lines{"/usr/lib/os-release"};
  for (std::string line; std::getline(lines, line);)
    if (const auto sign = line.find('='); sign != std::string::npos)
      release[line.substr(0, sign)] = line.substr(sign + 1);
  const auto& name = release["VERSION_CODENAME"];
  const bool is_name = !name.empty() && std::all_of(name.begin(), name.end(),
                                                    [](char c) { return c >= 'a' && c <= 'z'; });
  constexpr const char* packages = "/var/lib/dpkg/status";
  if (release["ID"] != "debian" || !is_name || !fs::exists(packages))
    return;
  for (const char* each : {"apt.conf.d", "preferences.d", "trusted.gpg.d"})
    fs::create_directories(root / "etc/apt" / each);
  const std::string by = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] "
                         "http://deb.debian.org/";
  std::ofstream{root / "etc/apt/sources.list"} << by << "debian " << name << " main\n"
                                               << by << "debian " << name << "-updates main\n"
                                               << by << "debian-security " << name
                                               << "-security main\n";
  // All but thousands of lists and scripts: spawner/package_lists.hpp.
  const fs::path machines{"/var/lib/dpkg"}, own = root / "var/lib/dpkg";
  for (const char* each : {"status", "diversions", "info/format"})
    if (fs::exists(machines / each))
      fs::copy_file(machines / each, own / each);
  for (const char* each : {"alternatives", "triggers"}) {
    fs::create_directories(own / each);
    std::error_code none;
    for (const auto& file : fs::directory_iterator{machines / each, none}) {
      // Packages may be installed meanwhile: a file that goes is one that was about to be replaced.
      std::error_code gone;
      if (file.is_regular_file(gone) &&
          fs::copy_file(file.path(), own / each / file.path().filename(), gone))
        remove_what_others_may_not_read(own / each / file.path().filename());
    }
  }
  // The machine's own wishes for owners and modes.
  std::ofstream{own / "statoverride"};
}

/// What apropos and `man -k` look in: the pages below /usr/share/man, by languages. It belongs to
/// packages' pages alone; those of other places have directories of their own.
void add_manual_index(const fs::path& root) {
  const fs::path index{"/var/cache/man"};
  const auto add = [&](const fs::path& name) {
    std::ifstream file{index / name, std::ios::binary};
    std::array<char, 4> sign{};
    file.read(sign.data(), sign.size());
    constexpr std::array<char, 4> gdbm{'\xcf', '\x9a', '\x57', '\x13'};
    if (sign != gdbm)
      return;
    const auto copy = root / index.relative_path() / name;
    fs::create_directories(copy.parent_path());
    std::error_code gone; // It is made anew after each package.
    if (fs::copy_file(index / name, copy, gone))
      fs::permissions(copy, fs::perms{0644});
  };
  add("index.db");
  std::error_code none;
  for (const auto& each : fs::directory_iterator{index, none})
    if (const auto language = each.path().filename();
        fs::is_directory(fs::path{"/usr/share/man"} / language, none))
      add(language / "index.db");
}

/// `corepack enable` puts its programs beside the corepack that is found first.
void add_corepack(const fs::path& root) {
  constexpr const char* program = "/usr/bin/corepack";
  const auto link = root / "home/sandbox/.local/bin/corepack";
  if (!fs::exists(program))
    return;
  fs::create_symlink(program, link);
  give_away(link, sandbox_user_id);
}

void make(const fs::path& root) {
  for (const auto& each : directories) {
    const auto path = root / each.path;
    fs::create_directory(path);
    fs::permissions(path, fs::perms{each.mode});
    give_away(path, each.owner);
  }
  for (const auto& each : files) {
    std::ofstream{root / each.path} << each.text;
    if (std::string_view{each.path}.starts_with("home/"))
      give_away(root / each.path, sandbox_user_id);
    fs::permissions(root / each.path, fs::perms{0644});
  }
  add_accounts(root);
  write_text(root, sudo_rule, fs::perms{0440});
  if (fs::exists("/usr/bin/sudo"))
    write_text(root, sudo_rules, fs::perms{0440});
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
  add_apt(root);
  add_corepack(root);
  add_manual_index(root);
  if (const auto parts = shared_etc("/"); !parts.empty())
    write_etc(root / "etc", parts);
  else
    copy_usual_etc(root / "etc");
  if (fs::is_directory(root / "etc/pam.d"))
    for (const auto& each : pam_files)
      write_text(root, each);
}

/// What the skeleton was made from: when one of these has changed, it is made again.
std::string identity() {
  std::string text = "8";
  for (const char* path : {"/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/usr/lib",
                           "/usr/bin", "/var/lib/dpkg/status", "/etc/passwd", "/etc/group"}) {
    struct stat info {};
    ::stat(path, &info);
    text += " " + std::to_string(info.st_ino) + ":" + std::to_string(info.st_mtim.tv_sec) + "." +
            std::to_string(info.st_mtim.tv_nsec);
  }
  return text;
}

constexpr std::string_view old_prefix = "old-";

std::string unused_number(const fs::path& top) {
  unsigned number = 0;
  while (fs::exists(top / (std::string{old_prefix} + std::to_string(number))))
    ++number;
  return std::to_string(number);
}

} // namespace

void remove_old_host_images(const std::string& directory) {
  std::error_code ignored;
  for (const auto& each : fs::directory_iterator{directory, ignored})
    if (each.path().filename().string().starts_with(old_prefix))
      fs::remove_all(each.path(), ignored);
}

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
      fs::remove_all(top / "new");
      fs::create_directory(top / "new");
      // Whatever umask the server was started with: other users must be able to read what is theirs
      // to read.
      const auto mask = ::umask(022);
      make(top / "new");
      ::umask(mask);
      ::chmod((top / "new").c_str(), 0755);
      if (fs::exists(root)) // Sandboxes of an earlier server may stand on it.
        fs::rename(root, top / (std::string{old_prefix} + unused_number(top)));
      fs::rename(top / "new", root);
      std::ofstream{label} << wanted << '\n';
    }
  } catch (const fs::filesystem_error& why) {
    return error{errc::io_failed, std::string{"making the host image: "} + why.what()};
  }
  return host_image{{top.filename().string(), true}, root.string(), wanted};
}

} // namespace insula::runtime
