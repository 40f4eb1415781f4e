#include "storage/images/authorities.hpp"

#include "storage/images/beneath.hpp"
#include "storage/images/digest.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <optional>
#include <sstream>
#include <string_view>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace insula::storage::images {

namespace {

namespace fs = std::filesystem;

template <auto Free>
struct freed {
  template <class T>
  void operator()(T* what) const {
    Free(what);
  }
};
void free_bytes(void* bytes) {
  OPENSSL_free(bytes);
}
using bio = std::unique_ptr<BIO, freed<BIO_free_all>>;
using x509 = std::unique_ptr<X509, freed<X509_free>>;
using pem_text = std::unique_ptr<char, freed<free_bytes>>;
using pem_bytes = std::unique_ptr<unsigned char, freed<free_bytes>>;

constexpr std::size_t most_bytes = 4u << 20; ///< Of a file with certificates, also an image's own.
constexpr std::size_t most_certificates = 100;

constexpr std::string_view old_prefix = "old-over-";
constexpr const char* layer_name = "over";
constexpr const char* label_name = "over.label";
constexpr const char* certificates = "etc/ssl/certs";
constexpr int deepest = 64; ///< Directory in an image's /etc.

/// Where programs look for all certificates in one file: Debian's place, which Alpine and Arch have
/// too, Fedora's, openSUSE's, and OpenSSL's own.
constexpr std::array bundles{"etc/ssl/certs/ca-certificates.crt",
                             "etc/pki/tls/certs/ca-bundle.crt",
                             "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                             "etc/ssl/ca-bundle.pem",
                             "etc/pki/tls/cacert.pem",
                             "etc/ssl/cert.pem"};

error failed(const std::string& what) {
  return {errc::io_failed, what + ": " + std::strerror(errno)};
}

std::string own_path(int fd) {
  std::error_code gone;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(fd), gone).string();
}

/// Where `path` leads in an image, relative to its root. None: nowhere.
std::optional<std::string> resolved(int root, const std::string& path) {
  const auto file = open_inside(root, path, O_PATH);
  if (!file)
    return std::nullopt;
  const auto at = own_path(file.get()), top = own_path(root) + "/";
  return at.starts_with(top) ? std::optional{at.substr(top.size())} : std::nullopt;
}

bool make_alike(int directory, const char* name, const struct stat& original) {
  const timespec times[] = {original.st_atim, original.st_mtim};
  const bool is_link = S_ISLNK(original.st_mode);
  return ::fchownat(directory, name, original.st_uid, original.st_gid, AT_SYMLINK_NOFOLLOW) == 0 &&
         (is_link || ::fchmodat(directory, name, original.st_mode & 07777, 0) == 0) &&
         ::utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW) == 0;
}

bool copy_file(int from, int to, const char* name, const struct stat& info) {
  const auto in = open_beneath(from, name, O_RDONLY);
  const auto out = open_beneath(to, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (!in || !out)
    return false;
  for (auto left = info.st_size; left > 0;) {
    const auto n = ::sendfile(out.get(), in.get(), nullptr, static_cast<std::size_t>(left));
    if (n < 0)
      return false;
    if (n == 0)
      break;
    left -= n;
  }
  return true;
}

/// Files, directories and links, with owners, modes and times. Follows no link.
bool copy_tree(int from, int to, int depth = 0) {
  if (depth > deepest) {
    errno = ENAMETOOLONG;
    return false;
  }
  return for_each_name(from, [&](const std::string& each) {
    const char* name = each.c_str();
    struct stat info {};
    if (::fstatat(from, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      return false;
    bool made = false;
    if (S_ISDIR(info.st_mode)) {
      made = ::mkdirat(to, name, 0700) == 0;
      const auto inner_from = open_beneath(from, each, O_RDONLY | O_DIRECTORY);
      const auto inner_to = open_beneath(to, each, O_RDONLY | O_DIRECTORY);
      made =
        made && inner_from && inner_to && copy_tree(inner_from.get(), inner_to.get(), depth + 1);
    } else if (S_ISLNK(info.st_mode)) {
      std::string target(PATH_MAX, '\0');
      const auto size = ::readlinkat(from, name, target.data(), target.size() - 1);
      made = size > 0 && ::symlinkat(target.c_str(), to, name) == 0;
    } else if (S_ISREG(info.st_mode)) {
      made = copy_file(from, to, name, info);
    } else {
      return true;
    }
    return made && make_alike(to, name, info);
  });
}

/// In place of a file or link of that name.
bool write_file(int top, const std::string& path, std::string_view text) {
  const fs::path name{path};
  const auto parent = name.has_parent_path()
                        ? open_beneath(top, name.parent_path().string(), O_PATH | O_DIRECTORY)
                        : unique_fd{::fcntl(top, F_DUPFD_CLOEXEC, 0)};
  if (!parent || !remove_all_at(parent.get(), name.filename().c_str()))
    return false;
  const auto file =
    open_beneath(parent.get(), name.filename().string(), O_WRONLY | O_CREAT | O_EXCL, 0644);
  return file && write_all(file.get(), text.data(), text.size());
}

/// Where the directory `path` of an image is in the layer. A link that leads out of /etc, or
/// nowhere, gives way to a directory with links to all that is there.
std::optional<std::string> directory_in_layer(int root, int over, const std::string& path) {
  if (path == "etc")
    return path;
  auto there = resolved(root, path);
  const auto old = there ? open_beneath(root, *there, O_RDONLY | O_DIRECTORY) : unique_fd{};
  if (old && (*there + "/").starts_with("etc/"))
    return there;
  const fs::path name{path};
  const auto parent = directory_in_layer(root, over, name.parent_path().string());
  const auto in = parent ? open_beneath(over, *parent, O_PATH | O_DIRECTORY) : unique_fd{};
  if (!in || !remove_all_at(in.get(), name.filename().c_str()) ||
      ::mkdirat(in.get(), name.filename().c_str(), 0755) != 0)
    return std::nullopt;
  const auto own = open_beneath(in.get(), name.filename().string(), O_PATH | O_DIRECTORY);
  const auto link_to = [&](const std::string& each) {
    return ::symlinkat(("/" + *there + "/" + each).c_str(), own.get(), each.c_str()) == 0;
  };
  if (!own || (old && !for_each_name(old.get(), link_to)))
    return std::nullopt;
  return *parent + "/" + name.filename().string();
}

std::optional<std::string> content_of(int file) {
  std::string text;
  std::array<char, 16 * 1024> buffer;
  ssize_t n = 0;
  while ((n = ::read(file, buffer.data(), buffer.size())) > 0) {
    text.append(buffer.data(), static_cast<std::size_t>(n));
    if (text.size() > most_bytes)
      return std::nullopt;
  }
  return n == 0 ? std::optional{text} : std::nullopt;
}

/// A bundle of the image, with more behind it: at the end of its links as long as that is in /etc,
/// else in the place of the link. False: there is none.
bool extend_bundle(int root, int over, const std::string& path, const std::string& more) {
  const auto file = open_inside(root, path, O_RDONLY | O_NONBLOCK);
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return false;
  auto text = content_of(file.get());
  auto target = resolved(root, path);
  if (!text || !target)
    return false;
  if (!target->starts_with("etc/")) {
    const fs::path name{path};
    const auto parent = resolved(over, name.parent_path().string());
    if (!parent)
      return false;
    target = *parent + "/" + name.filename().string();
  }
  if (!text->empty() && !text->ends_with('\n'))
    *text += '\n';
  return write_file(over, *target, *text + more);
}

/// Each under the name by which OpenSSL finds it among others.
bool add_to_directory(int over, const std::string& directory, const authorities& trusted) {
  const auto at = open_beneath(over, directory, O_PATH | O_DIRECTORY);
  if (!at || !write_file(at.get(), fs::path{authorities_file}.filename().string(), trusted.pem()))
    return false;
  for (const auto& each : trusted.all) {
    struct stat there {};
    std::string name;
    for (unsigned n = 0; name = each.hash + "." + std::to_string(n),
                  ::fstatat(at.get(), name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0;)
      ++n;
    if (!write_file(at.get(), name, each.pem))
      return false;
  }
  return true;
}

/// The layer, and which bundle is the image's. None: errno says why.
std::optional<std::string> fill(int root, int over, const authorities& trusted) {
  const auto from = open_beneath(root, "etc", O_RDONLY | O_DIRECTORY);
  struct stat info {};
  if ((!from && errno != ENOENT) || ::mkdirat(over, "etc", 0755) != 0)
    return std::nullopt;
  const auto to = open_beneath(over, "etc", O_RDONLY | O_DIRECTORY);
  if (!to || (from && (::fstat(from.get(), &info) != 0 || !copy_tree(from.get(), to.get()) ||
                       !make_alike(over, "etc", info))))
    return std::nullopt;
  // It has all of the image's /etc, which need not be merged with it, and is not then: the kernel
  // keeps all names of a merged directory in memory. A file system without such marks merges.
  if (::fsetxattr(to.get(), "user.overlay.opaque", "y", 1, 0) != 0 && errno != ENOTSUP)
    return std::nullopt;
  const auto directory = directory_in_layer(root, over, certificates);
  if (!directory || !add_to_directory(over, *directory, trusted))
    return std::nullopt;
  std::string found;
  for (const char* each : bundles)
    if (extend_bundle(root, over, each, trusted.pem()) && found.empty())
      found = each;
  if (found.empty()) {
    found = bundles.front();
    if (!write_file(over, *directory + "/ca-certificates.crt", trusted.pem()))
      return std::nullopt;
  }
  return "/" + found;
}

std::string unused_name(int place) {
  struct stat there {};
  std::string name;
  for (unsigned n = 0; name = std::string{old_prefix} + std::to_string(n),
                ::fstatat(place, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0;)
    ++n;
  return name;
}

} // namespace

std::string authorities::pem() const {
  std::string text;
  for (const auto& each : all)
    text += each.pem;
  return text;
}

result<authorities> read_authorities(const std::string& file) {
  const auto wrong = [&](const std::string& why) {
    return error{errc::invalid_request, file + ": " + why};
  };
  const unique_fd opened{::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  struct stat info {};
  if (!opened || ::fstat(opened.get(), &info) != 0)
    return error{errc::io_failed, file + ": cannot be read: " + std::strerror(errno)};
  if (!S_ISREG(info.st_mode))
    return wrong("expected a file with certificates in PEM");
  const auto text = content_of(opened.get());
  if (!text)
    return wrong("expected at most " + std::to_string(most_bytes >> 20) + " MiB of certificates");
  const bio from{BIO_new_mem_buf(text->data(), static_cast<int>(text->size()))};
  authorities found;
  for (std::size_t number = 1;; ++number) {
    char* name = nullptr;
    char* header = nullptr;
    unsigned char* bytes = nullptr;
    long size = 0;
    const bool any = PEM_read_bio(from.get(), &name, &header, &bytes, &size) == 1;
    const pem_text own_name{name}, own_header{header};
    const pem_bytes own_bytes{bytes};
    const auto block = "block " + std::to_string(number);
    if (!any) {
      if (ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE)
        break;
      return wrong(block + " is no PEM that can be read");
    }
    if (std::strcmp(name, PEM_STRING_X509) != 0)
      return wrong("expected certificates in PEM and nothing else, got a \"" + std::string{name} +
                   "\" in " + block);
    const unsigned char* at = bytes;
    const x509 read{d2i_X509(nullptr, &at, size)};
    if (!read || at != bytes + size)
      return wrong(block + " is no certificate that can be read");
    const bio into{BIO_new(BIO_s_mem())};
    PEM_write_bio_X509(into.get(), read.get());
    char* written = nullptr;
    const auto length = BIO_get_mem_data(into.get(), &written);
    char hash[16];
    std::snprintf(hash, sizeof hash, "%08lx", X509_subject_name_hash(read.get()));
    found.all.push_back({{written, static_cast<std::size_t>(length)}, hash});
    if (found.all.size() > most_certificates)
      return wrong("expected at most " + std::to_string(most_certificates) + " certificates");
  }
  ERR_clear_error();
  if (found.all.empty())
    return wrong("expected certificates in PEM, got none");
  return found;
}

result<std::string> trust(const std::string& place, const authorities& trusted) {
  const unique_fd top{::open(place.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  const auto root = top ? open_beneath(top.get(), "root", O_RDONLY | O_DIRECTORY) : unique_fd{};
  struct stat info {};
  if (!root || ::fstat(root.get(), &info) != 0)
    return failed(place);
  // The machine's own image is made anew now and then, in the same place.
  const auto wanted =
    trusted.all.empty()
      ? std::string{}
      : digest_of("1 " + std::to_string(info.st_ino) + " " + std::to_string(info.st_ctim.tv_sec) +
                  "." + std::to_string(info.st_ctim.tv_nsec) + "\n" + trusted.pem());
  std::string label, bundle;
  {
    std::ifstream file{place + "/" + label_name};
    std::getline(file, label);
    std::getline(file, bundle);
  }
  const bool there = ::faccessat(top.get(), layer_name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  if (there == !wanted.empty() && label == wanted && bundle.empty() == wanted.empty())
    return bundle;
  const auto mask = ::umask(022);
  auto made = [&]() -> result<std::string> {
    constexpr const char* next = "new-over";
    if (::unlinkat(top.get(), label_name, 0) != 0 && errno != ENOENT)
      return failed(place + "/" + label_name);
    if (there && ::renameat(top.get(), layer_name, top.get(), unused_name(top.get()).c_str()) != 0)
      return failed(place + "/" + layer_name);
    if (wanted.empty())
      return std::string{};
    if (!remove_all_at(top.get(), next) || ::mkdirat(top.get(), next, 0755) != 0)
      return failed(place + "/" + next);
    const auto over = open_beneath(top.get(), next, O_RDONLY | O_DIRECTORY);
    auto found = over ? fill(root.get(), over.get(), trusted) : std::nullopt;
    // Whole on the disk before the label says so.
    if (!found || ::syncfs(top.get()) != 0 ||
        ::renameat(top.get(), next, top.get(), layer_name) != 0 ||
        !write_file(top.get(), label_name, wanted + "\n" + *found + "\n"))
      return failed("adding certificates to the image in " + place);
    return std::move(*found);
  }();
  ::umask(mask);
  return made;
}

void remove_old_layers(const std::string& images_directory) {
  std::error_code ignored;
  for (const auto& each : fs::directory_iterator{images_directory, ignored}) {
    if (each.is_symlink(ignored) || !each.is_directory(ignored))
      continue;
    const unique_fd place{
      ::open(each.path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (place)
      for_each_name(place.get(), [&](const std::string& name) {
        if (name.starts_with(old_prefix))
          remove_all_at(place.get(), name.c_str());
        return true;
      });
  }
}

} // namespace insula::storage::images
