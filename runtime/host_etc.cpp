#include "runtime/host_etc.hpp"

#include "base/hex.hpp"
#include "base/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <fstream>
#include <map>
#include <memory>
#include <openssl/evp.h>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::runtime {

namespace {

namespace fs = std::filesystem;

/// Of a file of /etc; larger ones are no configuration.
constexpr std::size_t longest_file = 16u << 20;

/// Files of /etc that packages copy there when they are installed, and what they copy.
constexpr std::array<std::pair<const char*, const char*>, 2> copies{{
  {"profile", "usr/share/base-files/profile"},
  {"inputrc", "usr/share/readline/inputrc"},
}};

/// Directories and files of /etc that are for what starts a machine, which runs in no sandbox.
constexpr std::array<std::string_view, 9> of_services{
  "apparmor.d/", "cron.",    "init.d/", "initramfs-tools/", "kernel/", "logrotate.d/",
  "runit/",      "systemd/", "udev/"};

bool is_of_services(std::string_view path) {
  const bool is_of_run_level =
    path.starts_with("rc") && path.size() > 3 && path.substr(3).starts_with(".d/");
  return is_of_run_level ||
         std::any_of(of_services.begin(), of_services.end(), [&](std::string_view each) {
           return path.starts_with(each) && path.find('/') != std::string_view::npos;
         });
}

/// Directories of a machine that are as they are in each sandbox.
constexpr std::array<std::string_view, 8> shared_directories{
  "/usr/", "/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/dev/null"};

struct found_file {
  std::string text;
  bool runs = false;
};

/// A plain file that everybody may read, by a path below `root` without a link in it.
std::optional<found_file> read_public(int root, const std::string& path) {
  unique_fd at{::openat(root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  struct stat info {};
  std::string_view left = path;
  for (auto slash = left.find('/'); slash != std::string_view::npos; slash = left.find('/')) {
    const std::string name{left.substr(0, slash)};
    left.remove_prefix(slash + 1);
    at.reset(::openat(at.get(), name.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!at || ::fstat(at.get(), &info) != 0 || (info.st_mode & S_IXOTH) == 0)
      return std::nullopt;
  }
  const unique_fd file{::openat(at.get(), std::string{left}.c_str(),
                                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      (info.st_mode & S_IROTH) == 0 || static_cast<std::uint64_t>(info.st_size) > longest_file)
    return std::nullopt;
  found_file found{std::string(static_cast<std::size_t>(info.st_size), '\0'),
                   (info.st_mode & S_IXOTH) != 0};
  std::size_t got = 0;
  while (got < found.text.size()) {
    const auto n = ::read(file.get(), found.text.data() + got, found.text.size() - got);
    if (n <= 0)
      return std::nullopt;
    got += static_cast<std::size_t>(n);
  }
  return found;
}

/// In hexadecimal digits. Empty: this machine's library refuses MD5.
std::string md5_of(std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> raw{};
  unsigned size = 0;
  if (::EVP_Digest(text.data(), text.size(), raw.data(), &size, ::EVP_md5(), nullptr) != 1)
    return {};
  return to_hex({raw.data(), size});
}

std::string text_of(const fs::path& file) {
  std::ifstream in{file, std::ios::binary | std::ios::ate};
  if (!in)
    return {};
  std::string text(static_cast<std::size_t>(in.tellg()), '\0');
  in.seekg(0);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  return text;
}

constexpr std::size_t md5_digits = 32;

/// Checksums of the files that packages have brought to /etc, by paths below /etc.
std::map<std::string, std::string> sums_of_packages(const fs::path& machine) {
  constexpr std::string_view etc = "/etc/";
  std::map<std::string, std::string> sums;
  const auto status = text_of(machine / "var/lib/dpkg/status");
  constexpr std::string_view head = "\nConffiles:\n";
  for (auto at = status.find(head); at != std::string::npos; at = status.find(head, at)) {
    at += head.size();
    // " /etc/some.conf 0123456789abcdef0123456789abcdef", and perhaps a remark.
    while (at < status.size() && status[at] == ' ') {
      const auto end = std::min(status.find('\n', at), status.size());
      const auto line = std::string_view{status}.substr(at + 1, end - at - 1);
      const auto path = line.substr(0, line.find(' '));
      const auto sum = line.substr(std::min(path.size() + 1, line.size()), md5_digits);
      if (path.starts_with(etc) && !is_of_services(path.substr(etc.size())))
        sums[std::string{path.substr(etc.size())}] = sum;
      at = std::min(end + 1, status.size());
    }
    at -= at == status.size() ? 0 : 1; // The next head begins with a line's end.
  }
  return sums;
}

/// Of PEM text the certificates alone.
std::string certificates_in(std::string_view text) {
  constexpr std::string_view begin = "-----BEGIN CERTIFICATE-----\n",
                             end = "-----END CERTIFICATE-----\n";
  std::string all;
  for (auto from = text.find(begin); from != std::string_view::npos;
       from = text.find(begin, from)) {
    const auto to = text.find(end, from);
    if (to == std::string_view::npos)
      break;
    const auto inner = text.substr(from + begin.size(), to - from - begin.size());
    const bool is_base64 = std::all_of(inner.begin(), inner.end(), [](char c) {
      return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
             c == '+' || c == '/' || c == '=' || c == '\n';
    });
    if (is_base64)
      all.append(text.substr(from, to + end.size() - from));
    from = to;
  }
  return all;
}

/// Of update-ca-certificates: remarks, and certificates of packages, "!" before those it leaves
/// out.
bool names_certificates(std::string_view text) {
  while (!text.empty()) {
    auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.starts_with('#') || line.empty())
      continue;
    if (line.front() == '!')
      line.remove_prefix(1);
    if (!line.starts_with("mozilla/") || !line.ends_with(".crt"))
      return false;
  }
  return true;
}

bool is_linker_cache(std::string_view text) {
  return text.starts_with("glibc-ld.so.cache") || text.starts_with("ld.so-1.7.0");
}

/// Of Java's, in one of its two formats.
bool is_key_store(std::string_view text) {
  return text.starts_with("\xfe\xed\xfe\xed") || text.starts_with("\x30\x82") ||
         text.starts_with("\x30\x83");
}

/// "Europe/Berlin\n".
bool is_zone(std::string_view text) {
  return text.find("..") == std::string_view::npos && text.size() > 1 && text.size() < 64 &&
         text.back() == '\n' && std::all_of(text.begin(), text.end() - 1, [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '+' || c == '-' || c == '_' || c == '/';
         });
}

/// The lines of /etc/shells that name a program of the machine's; remarks are its owner's.
std::string shells_in(std::string_view text, const fs::path& machine) {
  std::string all;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    std::error_code none;
    if ((line.starts_with("/bin/") || line.starts_with("/usr/bin/")) &&
        line.find("..") == std::string_view::npos && fs::exists(machine / line.substr(1), none))
      all.append(line) += '\n';
  }
  return all.empty() ? all : "# Valid login shells\n" + all;
}

/// Of update-xmlcatalog: entries that lead to catalogs of packages, and nothing else.
bool is_xml_catalog(std::string_view text) {
  constexpr std::string_view head =
    "<?xml version=\"1.0\"?>\n"
    "<!DOCTYPE catalog PUBLIC \"-//OASIS//DTD XML Catalogs V1.0//EN\"\n"
    "  \"file:///usr/share/xml/schema/xml-core/catalog.dtd\">\n"
    "<catalog xmlns=\"urn:oasis:names:tc:entity:xmlns:xml:catalog\">\n";
  constexpr std::string_view tail = "</catalog>\n";
  if (!text.starts_with(head) || !text.ends_with(tail) || text.size() < head.size() + tail.size())
    return false;
  text.remove_prefix(head.size());
  text.remove_suffix(tail.size());
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    constexpr std::string_view target = " catalog=\"file:///";
    const auto at = line.rfind(target);
    const auto path = line.substr(std::min(line.size(), at + target.size() - 1));
    const bool leads_to_packages =
      at != std::string_view::npos &&
      (path.starts_with("/usr/share/") || path.starts_with("/etc/xml/"));
    if (!line.starts_with("<delegate") || !line.ends_with("\"/>") || !leads_to_packages)
      return false;
  }
  return true;
}

/// Of update-catalog: lines that name catalogs below /etc/sgml.
bool is_sgml_catalog(std::string_view text) {
  constexpr std::string_view head =
    "--\n## This file is created by update-catalog with update-super.\n"
    "## Please see update-catalog(8) for how to modify this file.\n--\n";
  if (!text.starts_with(head))
    return false;
  text.remove_prefix(head.size());
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.starts_with("CATALOG /etc/sgml/") || !line.ends_with(".cat"))
      return false;
  }
  return true;
}

/// Files of /etc that alternatives can choose, as packages have registered them.
std::set<std::string> alternatives_in_etc(const fs::path& machine) {
  constexpr std::string_view etc = "/etc/";
  std::set<std::string> all;
  std::error_code none;
  for (const auto& each : fs::directory_iterator{machine / "var/lib/dpkg/alternatives", none}) {
    std::ifstream lines{each.path()};
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(etc) && !line.starts_with("/etc/alternatives/"))
        all.insert(line.substr(etc.size()));
  }
  return all;
}

class collector {
public:
  explicit collector(const fs::path& machine)
      : machine_(machine)
      , etc_(::open((machine / "etc").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC))
      , root_(::open(machine.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {}

  std::vector<etc_part> collect() {
    const auto sums = sums_of_packages(machine_);
    if (!etc_ || sums.empty())
      return {};
    for (const auto& [path, sum] : sums)
      if (auto found = read_public(etc_.get(), path); found && md5_of(found->text) == sum)
        add(path, std::move(*found));
    if (parts_.empty()) // The checksums are of no use here.
      return {};
    for (const auto& [path, original] : copies)
      if (auto found = read_public(root_.get(), original))
        add(path, std::move(*found));
    add_made(sums);
    add_links();
    std::vector<etc_part> all;
    for (auto& [path, part] : parts_)
      all.push_back(std::move(part));
    return all;
  }

private:
  void add(const std::string& path, found_file file) {
    parts_[path] = {path, std::move(file.text), file.runs, {}};
  }

  void add_made(const std::map<std::string, std::string>& sums) {
    for (const auto& [path, is_right] :
         {std::pair{"ld.so.cache", &is_linker_cache}, {"ssl/certs/java/cacerts", &is_key_store}})
      if (auto found = read_public(etc_.get(), path); found && is_right(found->text))
        add(path, std::move(*found));
    if (auto found = read_public(etc_.get(), "ssl/certs/ca-certificates.crt"))
      add("ssl/certs/ca-certificates.crt", {certificates_in(found->text)});
    if (auto found = read_public(etc_.get(), "ca-certificates.conf");
        found && names_certificates(found->text))
      add("ca-certificates.conf", std::move(*found));
    if (auto found = read_public(etc_.get(), "timezone"); found && is_zone(found->text)) {
      const auto zone = "/usr/share/zoneinfo/" + found->text.substr(0, found->text.size() - 1);
      add("timezone", std::move(*found));
      if (fs::exists(machine_ / zone.substr(1))) // Some machines have a copy of it.
        parts_["localtime"] = {"localtime", {}, false, zone};
    }
    if (const auto found = read_public(etc_.get(), "shells"))
      if (auto shells = shells_in(found->text, machine_); !shells.empty())
        add("shells", {std::move(shells)});
    add_catalogs();
    for (const auto& path : alternatives_in_etc(machine_))
      if (sums.count(path) == 0)
        if (auto found = read_public(etc_.get(), path))
          add(path, std::move(*found));
  }

  /// Those of XML, and that of SGML, which on a machine is a link to a file outside of /etc.
  void add_catalogs() {
    std::error_code none;
    for (const auto& each : fs::directory_iterator{machine_ / "etc/xml", none}) {
      const auto name = each.path().filename().string();
      const auto path = "xml/" + name;
      if (name != "catalog" && !name.ends_with(".xml"))
        continue;
      if (auto found = read_public(etc_.get(), path); found && is_xml_catalog(found->text))
        add(path, std::move(*found));
    }
    if (auto found = read_public(root_.get(), "var/lib/sgml-base/supercatalog");
        found && is_sgml_catalog(found->text))
      add("sgml/catalog", std::move(*found));
  }

  /// Those that lead to others are looked at again once more of them are known.
  void add_links() {
    std::vector<etc_part> links;
    find_links("", links);
    for (auto before = links.size() + 1; before != links.size();) {
      before = links.size();
      std::erase_if(links, [this](const etc_part& each) {
        const bool leads_here = leads_to_shared(each);
        if (leads_here)
          parts_[each.path] = each;
        return leads_here;
      });
    }
  }

  void find_links(const std::string& directory, std::vector<etc_part>& into) const {
    std::error_code none;
    for (const auto& each : fs::directory_iterator{machine_ / "etc" / directory, none}) {
      const auto path = directory + each.path().filename().string();
      const auto status = each.symlink_status(none);
      const auto enters = fs::perms::others_exec | fs::perms::others_read;
      if (fs::is_symlink(status))
        into.push_back({path, {}, false, fs::read_symlink(each.path(), none).string()});
      else if (!is_of_services(path + '/') && fs::is_directory(status) &&
               (status.permissions() & enters) == enters)
        find_links(path + '/', into);
    }
  }

  bool leads_to_shared(const etc_part& link) const {
    const auto to =
      (fs::path{"/etc"} / fs::path{link.path}.parent_path() / link.target).lexically_normal();
    const auto text = to.string();
    std::error_code none;
    if (std::any_of(shared_directories.begin(), shared_directories.end(),
                    [&](std::string_view each) { return text.starts_with(each); }))
      return fs::exists(fs::symlink_status(machine_ / text.substr(1), none));
    if (!text.starts_with("/etc/"))
      return false;
    auto path = text.substr(sizeof "/etc/" - 1);
    if (parts_.count(path) != 0)
      return true;
    if (!path.ends_with('/'))
      path += '/';
    const auto in_directory = parts_.lower_bound(path);
    return in_directory != parts_.end() && in_directory->first.starts_with(path);
  }

  const fs::path machine_;
  const unique_fd etc_, root_;
  std::map<std::string, etc_part> parts_;
};

} // namespace

std::vector<etc_part> shared_etc(const fs::path& machine) {
  return collector{machine}.collect();
}

} // namespace insula::runtime
