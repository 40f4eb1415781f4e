#include "storage/images/authorities.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/made_authority.hpp"
#include "tests/support/temp_dir.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

using namespace insula;
using namespace insula::storage::images;
using namespace insula::test;
namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& path) {
  std::ostringstream all;
  all << std::ifstream{path}.rdbuf();
  return all.str();
}

/// What an image is to `trust`.
struct place {
  place() { fs::create_directories(root / "etc"); }

  void add(const fs::path& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream{root / path} << text;
  }
  void link(const fs::path& path, const std::string& target) const {
    fs::create_directories((root / path).parent_path());
    fs::create_symlink(target, root / path);
  }
  std::string path() const { return top.path().string(); }

  temp_dir top;
  fs::path root = top / "root", over = top / "over";
};

authorities read(const std::string& file) {
  auto found = read_authorities(file);
  if (!found)
    FAIL(found.reason().message);
  return *found;
}

} // namespace

TEST_CASE("certificates are read, and nothing else is taken for one", "[authorities]") {
  const temp_dir where;
  made_authority one{"one"}, two{"two"};
  const auto file = (where / "file").string();
  const auto why = [&](const std::string& text) {
    std::ofstream{file} << text;
    const auto found = read_authorities(file);
    REQUIRE_FALSE(found);
    CHECK(found.reason().code == errc::invalid_request);
    CHECK(found.reason().message.starts_with(file + ": "));
    return found.reason().message.substr(file.size() + 2);
  };
  const auto first = text_of(one.file()), second = text_of(two.file());
  std::ofstream{file} << "# ours\n" << first << "\nand\n" << second;
  const auto both = read(file);
  REQUIRE(both.all.size() == 2);
  CHECK(both.pem() == first + second);
  CHECK(both.all[0].hash.size() == 8);
  CHECK(both.all[0].hash != both.all[1].hash);

  CHECK(why("") == "expected certificates in PEM, got none");
  CHECK(why("not one\n") == "expected certificates in PEM, got none");
  CHECK(why(first + text_of(one.issue("x").key)) ==
        "expected certificates in PEM and nothing else, got a \"PRIVATE KEY\" in block 2");
  auto broken = second;
  broken[broken.size() / 2] = '*';
  CHECK(why(first + broken) == "block 2 is no PEM that can be read");
  CHECK(why(first + second.substr(0, second.size() / 2)) == "block 2 is no PEM that can be read");
  CHECK(why("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n") ==
        "block 1 is no certificate that can be read");
  CHECK(why(std::string((4u << 20) + 1, '\n')) == "expected at most 4 MiB of certificates");
  std::string many;
  for (int i = 0; i < 101; ++i)
    many += first;
  CHECK(why(many) == "expected at most 100 certificates");
  CHECK(read_authorities((where / "none").string()).reason().code == errc::io_failed);
  CHECK(read_authorities(where.path().string()).reason().code == errc::invalid_request);
}

TEST_CASE("a layer over an image has its /etc and the certificates", "[authorities]") {
  if (::geteuid() != 0)
    FAIL("this test needs root");
  made_authority by{"ours"};
  const auto ours = read(by.file());
  const auto pem = ours.pem();
  const place it;
  const auto bundle = [&] {
    const auto found = trust(it.path(), ours);
    if (!found)
      FAIL(found.reason().message);
    // Whatever the image is like: OpenSSL and Node.js find them, and the image is as it was.
    CHECK(text_of(it.over / "etc/ssl/certs" / (ours.all[0].hash + ".0")) == pem);
    CHECK(text_of(it.over / "etc/ssl/certs/insula-extra.pem") == pem);
    return *found;
  };
  SECTION("as Debian, Alpine and Arch have it") {
    it.add("etc/ssl/certs/ca-certificates.crt", "old");
    it.link("etc/ssl/certs/ffffffff.0", "/usr/share/ca-certificates/one.crt");
    it.link("etc/ssl/cert.pem", "certs/ca-certificates.crt");
    it.add("etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    it.add("etc/shadow", "root:*:1::::::\n");
    it.add("usr/bin/tool", "#!");
    it.add("etc/of-user/file", "1000's");
    REQUIRE(::chown((it.root / "etc/of-user").c_str(), 1000, 1000) == 0);
    REQUIRE(::chmod((it.root / "etc/shadow").c_str(), 0640) == 0);
    REQUIRE(::chmod((it.root / "etc").c_str(), 0751) == 0);
    CHECK(bundle() == "/etc/ssl/certs/ca-certificates.crt");
    CHECK(text_of(it.over / "etc/ssl/certs/ca-certificates.crt") == "old\n" + pem);
    CHECK(fs::read_symlink(it.over / "etc/ssl/cert.pem") == "certs/ca-certificates.crt");
    CHECK(fs::read_symlink(it.over / "etc/ssl/certs/ffffffff.0") ==
          "/usr/share/ca-certificates/one.crt");
    CHECK(text_of(it.over / "etc/passwd") == text_of(it.root / "etc/passwd"));
    struct stat info {};
    REQUIRE(::stat((it.over / "etc/of-user").c_str(), &info) == 0);
    CHECK(info.st_uid == 1000);
    REQUIRE(::stat((it.over / "etc/shadow").c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0640);
    REQUIRE(::stat((it.over / "etc").c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == 0751);
    char mark = 0;
    CHECK((::getxattr((it.over / "etc").c_str(), "user.overlay.opaque", &mark, 1) == 1 ||
           errno == ENOTSUP));
    CHECK_FALSE(fs::exists(it.over / "usr"));
    CHECK(text_of(it.root / "etc/ssl/certs/ca-certificates.crt") == "old");
    CHECK_FALSE(fs::exists(it.root / "etc/ssl/certs/insula-extra.pem"));
  }
  SECTION("as Fedora has it") {
    it.add("etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "old\n");
    it.link("etc/pki/tls/certs/ca-bundle.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem");
    it.link("etc/ssl/certs", "../pki/tls/certs");
    CHECK(bundle() == "/etc/pki/tls/certs/ca-bundle.crt");
    CHECK(text_of(it.over / "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem") == "old\n" + pem);
    CHECK(fs::read_symlink(it.over / "etc/ssl/certs") == "../pki/tls/certs");
  }
  SECTION("as openSUSE has it, outside of /etc") {
    it.add("var/lib/ca-certificates/ca-bundle.pem", "old\n");
    it.link("etc/ssl/ca-bundle.pem", "/var/lib/ca-certificates/ca-bundle.pem");
    CHECK(bundle() == "/etc/ssl/ca-bundle.pem");
    CHECK(fs::is_regular_file(fs::symlink_status(it.over / "etc/ssl/ca-bundle.pem")));
    CHECK(text_of(it.over / "etc/ssl/ca-bundle.pem") == "old\n" + pem);
    CHECK(text_of(it.root / "var/lib/ca-certificates/ca-bundle.pem") == "old\n");
  }
  SECTION("as openSUSE has it, with the directory outside of /etc as well") {
    it.add("var/lib/ca-certificates/pem/one.pem", "one\n");
    it.add("var/lib/ca-certificates/ca-bundle.pem", "old\n");
    it.link("etc/ssl/certs", "../../var/lib/ca-certificates/pem");
    it.link("etc/ssl/ca-bundle.pem", "../../var/lib/ca-certificates/ca-bundle.pem");
    CHECK(bundle() == "/etc/ssl/ca-bundle.pem");
    CHECK(fs::read_symlink(it.over / "etc/ssl/certs/one.pem") ==
          "/var/lib/ca-certificates/pem/one.pem");
    CHECK(text_of(it.over / "etc/ssl/ca-bundle.pem") == "old\n" + pem);
    CHECK(std::distance(fs::directory_iterator{it.root / "var/lib/ca-certificates/pem"}, {}) == 1);
  }
  SECTION("with a bundle in a directory outside of /etc") {
    it.add("usr/share/tls/certs/ca-certificates.crt", "old\n");
    it.add("usr/share/tls/openssl.cnf", "x\n");
    it.link("etc/ssl", "/usr/share/tls");
    CHECK(bundle() == "/etc/ssl/certs/ca-certificates.crt");
    CHECK(text_of(it.over / "etc/ssl/certs/ca-certificates.crt") == "old\n" + pem);
    CHECK(fs::read_symlink(it.over / "etc/ssl/openssl.cnf") == "/usr/share/tls/openssl.cnf");
  }
  SECTION("where links lead nowhere") {
    it.link("etc/ssl/certs", "/usr/share/none");
    it.link("etc/ssl/certs-2/ca.pem", "none");
    CHECK(bundle() == "/etc/ssl/certs/ca-certificates.crt");
  }
  SECTION("where the directory is a file") {
    it.add("etc/ssl", "not one");
    CHECK(bundle() == "/etc/ssl/certs/ca-certificates.crt");
  }
  SECTION("where /etc is not there at all") {
    fs::remove(it.root / "etc");
    CHECK(bundle() == "/etc/ssl/certs/ca-certificates.crt");
  }
  SECTION("with a bundle that is a link which leads nowhere") {
    it.link("etc/ssl/certs/ca-certificates.crt", "none");
    CHECK(bundle() == "/etc/ssl/certs/ca-certificates.crt");
    CHECK(text_of(it.over / "etc/ssl/certs/ca-certificates.crt") == pem);
  }
  SECTION("with an /etc deeper than any is") {
    fs::path deep = "etc";
    for (int i = 0; i < 100; ++i)
      deep /= "d";
    it.add(deep / "file", "x");
    const auto found = trust(it.path(), ours);
    REQUIRE_FALSE(found);
    CHECK(found.reason().message.ends_with(": File name too long"));
  }
  SECTION("where there is none") {
    CHECK(bundle() == "/etc/ssl/certs/ca-certificates.crt");
    CHECK(text_of(it.over / "etc/ssl/certs/ca-certificates.crt") == pem);
  }
  SECTION("where a subject has its name already") {
    it.add("etc/ssl/certs/" + ours.all[0].hash + ".0", pem);
    bundle();
    CHECK(text_of(it.over / "etc/ssl/certs" / (ours.all[0].hash + ".1")) == pem);
  }
  SECTION("with links that lead out of the image, or round") {
    it.link("etc/ssl/certs/ca-certificates.crt", "../../../../../../../../etc/passwd");
    it.link("etc/ssl/cert.pem", "cert.pem");
    it.link("etc/ssl/ca-bundle.pem", "/proc/self/root/etc/passwd");
    bundle();
    CHECK_FALSE(fs::exists(it.over / "etc/passwd"));
    CHECK(text_of(it.over / "etc/ssl/certs/ca-certificates.crt") == pem);
    CHECK(fs::read_symlink(it.over / "etc/ssl/ca-bundle.pem") == "/proc/self/root/etc/passwd");
  }
}

TEST_CASE("a layer stays as long as it fits, and an earlier one until nobody stands on it",
          "[authorities]") {
  if (::geteuid() != 0)
    FAIL("this test needs root");
  const temp_dir images;
  const auto tree = images / ".tree-1";
  fs::create_directories(tree / "root/etc/ssl/certs");
  std::ofstream{tree / "root/etc/ssl/certs/ca-certificates.crt"} << "old\n";
  made_authority one{"one"}, two{"two"};
  const auto first = read(one.file()), second = read(two.file());
  const auto number = [&](const char* name) {
    struct stat info {};
    return ::stat((tree / name).c_str(), &info) == 0 ? info.st_ino : 0;
  };
  CHECK(trust(tree, {})->empty());
  CHECK(number("over") == 0);
  const auto bundle = trust(tree, first);
  REQUIRE(bundle);
  const auto before = number("over");
  CHECK(*trust(tree, first) == *bundle);
  CHECK(number("over") == before);
  CHECK(trust(tree, second));
  CHECK(number("over") != before);
  CHECK(number("old-over-0") == before);
  CHECK(text_of(tree / "over/etc/ssl/certs/ca-certificates.crt") == "old\n" + second.pem());
  // One that was not finished.
  fs::remove(tree / "over.label");
  CHECK(trust(tree, second));
  CHECK(number("old-over-1") != 0);
  // The image of that name is another one by now.
  fs::create_directory(tree / "next");
  fs::copy(tree / "root/etc", tree / "next/etc", fs::copy_options::recursive);
  fs::remove_all(tree / "root");
  fs::rename(tree / "next", tree / "root");
  std::ofstream{tree / "root/etc/more"} << "more";
  CHECK(trust(tree, second));
  CHECK(text_of(tree / "over/etc/more") == "more");
  CHECK(trust(tree, {})->empty());
  CHECK(number("over") == 0);
  remove_old_layers(images.path().string());
  CHECK(std::distance(fs::directory_iterator{tree}, {}) == 1);
}
