#include "runtime/host_etc.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <fstream>
#include <map>
#include <sys/stat.h>

using insula::runtime::etc_part;
using insula::runtime::shared_etc;

namespace fs = std::filesystem;

namespace {

const std::string packaged = "as packaged\n", sum_of_packaged = "c9440c9b9fe69064cb0776ee98a69a85";
const std::string secret = "hunter2-of-this-machine\n";

/// The part of a machine that its /etc is made from.
struct machine {
  insula::test::temp_dir root;

  void file(const std::string& path, const std::string& text, mode_t mode = 0644) const {
    const auto whole = root / path;
    fs::create_directories(whole.parent_path());
    std::ofstream{whole} << text;
    ::chmod(whole.c_str(), mode);
  }
  void link(const std::string& path, const std::string& target) const {
    fs::create_directories((root / path).parent_path());
    fs::create_symlink(target, root / path);
  }
  /// A package has brought these to /etc.
  void package(const std::vector<std::string>& paths) const {
    std::string text = "Package: some\nStatus: install ok installed\nConffiles:\n";
    for (const auto& each : paths)
      text += " /etc/" + each + " " + sum_of_packaged + "\n";
    file("var/lib/dpkg/status", text + "Description: some\n");
  }
  std::map<std::string, etc_part> shared() const {
    std::map<std::string, etc_part> all;
    for (auto& each : shared_etc(root.path()))
      all[each.path] = each;
    return all;
  }
};

} // namespace

TEST_CASE("a sandbox has of /etc what packages have brought there", "[runtime][host_etc]") {
  const machine it;
  it.package(
    {"fonts/fonts.conf", "java-17/security/java.security", "some.sh", "init.d/some", "gone.conf"});
  it.file("etc/fonts/fonts.conf", packaged);
  it.file("etc/java-17/security/java.security", packaged);
  it.file("etc/some.sh", packaged, 0755);
  it.file("etc/init.d/some", packaged, 0755);
  it.link("etc/rc2.d/S01some", "../init.d/some");
  it.file("usr/share/base-files/profile", "PS1=\n");
  it.file("etc/profile", "PS1=\n" + secret);
  it.file("usr/share/conf.avail/10.conf", "x");
  it.link("etc/fonts/conf.d/10.conf", "../../../usr/share/conf.avail/10.conf");
  it.link("etc/fonts/again.conf", "conf.d/10.conf");
  it.link("etc/java", "java-17");
  it.file("usr/lib/jvm/bin/java", "x", 0755);
  it.link("etc/alternatives/java", "/usr/lib/jvm/bin/java");
  it.file("var/lib/dpkg/alternatives/fpc.cfg", "auto\n/etc/fpc.cfg\n\n/etc/fpc-3.2.2.cfg\n40\n\n");
  it.file("etc/fpc-3.2.2.cfg", "made by its package");
  it.link("etc/fpc.cfg", "/etc/alternatives/fpc.cfg");
  it.link("etc/alternatives/fpc.cfg", "/etc/fpc-3.2.2.cfg");
  it.file("etc/timezone", "Europe/Berlin\n");
  it.file("etc/localtime", "a copy");
  it.file("usr/share/zoneinfo/Europe/Berlin", "TZif");
  it.file("etc/ca-certificates.conf", "# by debconf\nmozilla/A.crt\n!mozilla/B.crt\n");
  it.file("etc/ssl/certs/java/cacerts", "\xfe\xed\xfe\xed...");
  const std::string xml_head =
    "<?xml version=\"1.0\"?>\n<!DOCTYPE catalog PUBLIC \"-//OASIS//DTD XML Catalogs V1.0//EN\"\n"
    "  \"file:///usr/share/xml/schema/xml-core/catalog.dtd\">\n"
    "<catalog xmlns=\"urn:oasis:names:tc:entity:xmlns:xml:catalog\">\n";
  const std::string to_package =
    "<delegateSystem systemIdStartString=\"http://x/\" catalog=\"file:///etc/xml/a.xml\"/>\n";
  const std::string to_home =
    "<delegateSystem systemIdStartString=\"http://x/\" catalog=\"file:///home/a.xml\"/>\n";
  it.file("etc/xml/catalog", xml_head + to_package + "</catalog>\n");
  it.file("etc/xml/a.xml", xml_head + "</catalog>\n");
  it.file("etc/xml/b.xml", xml_head + to_home + "</catalog>\n");
  it.file("etc/xml/c.xml", xml_head + "<!-- " + secret + "-->\n</catalog>\n");
  it.file("etc/xml/a.xml.old", xml_head + "</catalog>\n");
  const std::string sgml = "--\n## This file is created by update-catalog with update-super.\n"
                           "## Please see update-catalog(8) for how to modify this file.\n--\n"
                           "CATALOG /etc/sgml/xml-core.cat\n";
  it.file("var/lib/sgml-base/supercatalog", sgml);
  it.link("etc/sgml/catalog", "/var/lib/sgml-base/supercatalog");
  it.file("usr/bin/zsh", "x", 0755);
  it.file("etc/shells", "# " + secret + "/usr/bin/zsh\n/usr/bin/gone\n/opt/hunter2\n");
  const std::string certificate =
    "-----BEGIN CERTIFICATE-----\nQUJD\nRA==\n-----END CERTIFICATE-----\n";
  it.file("etc/ssl/certs/ca-certificates.crt",
          "# " + secret + certificate +
            "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE "
            "KEY-----\n" +
            certificate + "-----BEGIN CERTIFICATE-----\nno base64: " + secret +
            "-----END CERTIFICATE-----\n");

  auto got = it.shared();
  for (const char* each : {"fonts/fonts.conf", "java-17/security/java.security"}) {
    CAPTURE(each);
    CHECK(got[each].text == packaged);
    CHECK_FALSE(got[each].runs);
  }
  CHECK(got["some.sh"].runs);
  for (const char* each :
       {"init.d/some", "rc2.d/S01some"}) // What starts a machine starts none here.
    CHECK(it.shared().count(each) == 0);
  CHECK(got["profile"].text == "PS1=\n");
  CHECK(got["fonts/conf.d/10.conf"].target == "../../../usr/share/conf.avail/10.conf");
  CHECK(got["fonts/again.conf"].target == "conf.d/10.conf");
  CHECK(got["java"].target == "java-17");
  CHECK(got["alternatives/java"].target == "/usr/lib/jvm/bin/java");
  CHECK(got["fpc-3.2.2.cfg"].text == "made by its package");
  CHECK(got["fpc.cfg"].target == "/etc/alternatives/fpc.cfg");
  CHECK(got["alternatives/fpc.cfg"].target == "/etc/fpc-3.2.2.cfg");
  CHECK(got["timezone"].text == "Europe/Berlin\n");
  CHECK(got["localtime"].target == "/usr/share/zoneinfo/Europe/Berlin");
  CHECK(got["ca-certificates.conf"].text.find("!mozilla/B.crt") != std::string::npos);
  CHECK(got["ssl/certs/java/cacerts"].text == "\xfe\xed\xfe\xed...");
  CHECK(got["ssl/certs/ca-certificates.crt"].text == certificate + certificate);
  CHECK(it.shared().count("gone.conf") == 0);
  CHECK(got["xml/catalog"].text == xml_head + to_package + "</catalog>\n");
  CHECK(got["xml/a.xml"].text == xml_head + "</catalog>\n");
  for (const char* each : {"xml/b.xml", "xml/c.xml", "xml/a.xml.old"})
    CHECK(it.shared().count(each) == 0);
  CHECK(got["sgml/catalog"].text == sgml);
  CHECK(got["sgml/catalog"].target.empty());
  CHECK(got["shells"].text == "# Valid login shells\n/usr/bin/zsh\n");
}

TEST_CASE("nothing of the machine's own in /etc is in a sandbox", "[runtime][host_etc]") {
  const machine it;
  it.package({"changed.conf", "closed.conf", "closed/file.conf", "led.conf", "led/file.conf",
              "ssl/private/key.pem", "mysql/my.cnf", "good.conf"});
  it.file("etc/good.conf", packaged);
  // A file of its own, plain, hidden, by a second name, or in a directory that others fill.
  it.file("etc/secret", secret);
  it.file("etc/.secret", secret);
  it.file("etc/good.conf.bak", secret);
  fs::create_hard_link(it.root / "etc/secret", it.root / "etc/second");
  it.file("etc/alternatives/secret", secret);
  it.file("etc/ssl/certs/secret.pem", secret);
  it.file("etc/ssl/certs/java/cacerts", secret);
  it.file("etc/ld.so.cache", secret);
  it.file("etc/timezone", secret + "more\n");
  it.file("etc/shells", secret);
  it.file("etc/xml/catalog", secret);
  it.file("var/lib/sgml-base/supercatalog", secret);
  // A package's file that somebody has changed, or that is not for all.
  it.file("etc/changed.conf", packaged + secret);
  it.file("etc/mysql/my.cnf", packaged + secret);
  it.file("var/lib/dpkg/alternatives/my.cnf", "auto\n/etc/mysql/my.cnf\n");
  it.file("etc/ca-certificates.conf", "mozilla/A.crt\n" + secret);
  it.file("etc/closed.conf", packaged, 0640);
  it.file("etc/closed/file.conf", packaged);
  ::chmod((it.root / "etc/closed").c_str(), 0750);
  it.file("etc/ssl/private/key.pem", secret, 0600);
  // Links: in the place of a file, on the way to it, to a secret, to nothing, and out of /etc.
  it.file("srv/file.conf", packaged);
  it.link("etc/led.conf", "../srv/file.conf");
  it.link("etc/led", "../srv");
  it.link("etc/to-secret", "secret");
  it.link("etc/to-nothing", "/usr/hunter2");
  it.link("etc/to-home", "/home/somebody/.ssh/id_rsa");
  it.link("etc/round", "round");
  it.link("etc/there", "back");
  it.link("etc/back", "there");

  const auto got = it.shared();
  CHECK(got.size() == 1);
  CHECK(got.count("good.conf") == 1);
}

TEST_CASE("without dpkg nothing is known of /etc", "[runtime][host_etc]") {
  const machine it;
  it.file("etc/good.conf", packaged);
  CHECK(it.shared().empty());
  it.file("var/lib/dpkg/status", "Package: some\nConffiles:\n /etc/none\n\n /x y z\nConffiles");
  CHECK(it.shared().empty());
  const insula::test::temp_dir empty;
  CHECK(shared_etc(empty.path()).empty());
}
