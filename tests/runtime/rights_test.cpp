// Sandboxes whose users may become their root: what opens with that, what stays shut, and sudo.
#include "runtime/host_image.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/live_node.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <sys/stat.h>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;

namespace fs = std::filesystem;

namespace {

constexpr const char* machines_lists = "/var/lib/dpkg/info";
constexpr sandbox_user inner_root{0, 0}, inner_user{};

sandbox_spec gaining() {
  auto spec = shared_node().spec();
  spec.may_gain_rights = true;
  return spec;
}

/// Gives a file the capabilities of these bits, as setcap does: what `capabilities PATH BITS` does.
const std::string capabilities = R"(capabilities() { python3 -c '
import os, struct, sys
bits = int(sys.argv[2], 16)
os.setxattr(sys.argv[1], "security.capability",
            struct.pack("<IIIII", 0x02000001, bits & 0xffffffff, 0, bits >> 32, 0))' "$@"; }
)";

std::string line_of(const std::string& text, const std::string& name) {
  const auto at = text.find(name + ":\t");
  return at == std::string::npos
           ? "none"
           : text.substr(at + name.size() + 2, text.find('\n', at) - at - name.size() - 2);
}

} // namespace

TEST_CASE("with the right to gain rights a sandbox has the locks of any other, but two",
          "[runtime][rights]") {
  live_sandbox plain{shared_node()}, box{shared_node(), gaining()};
  for (const auto as : {inner_user, inner_root}) {
    const auto before = plain.run("cat /proc/self/status", as).out;
    const auto now = box.run("cat /proc/self/status", as).out;
    CHECK(line_of(before, "NoNewPrivs") == "1");
    CHECK(line_of(now, "NoNewPrivs") == "0");
    for (const char* each : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Seccomp",
                             "Seccomp_filters", "Groups", "SigIgn"}) {
      CAPTURE(each);
      CHECK(line_of(now, each) == line_of(before, each));
    }
    // What is mounted and how, but for the two overlays, which differ in one word.
    const std::string mounts =
      "sed 's/^[^ ]* \\([^ ]*\\) \\([^ ]*\\) \\([^ ]*\\).*/\\1 \\2 \\3/' /proc/mounts | "
      "sed 's/\\(lowerdir\\|upperdir\\|workdir\\)=[^,]*/\\1/g;s/,\\(size\\|[ug]id\\)=[0-9k]*//g' | "
      "sort";
    CHECK(box.run(mounts, as).out != plain.run(mounts, as).out);
    CHECK(box.run(mounts + " | grep -v ' overlay '", as).out ==
          plain.run(mounts + " | grep -v ' overlay '", as).out);
    CHECK(box.run(mounts + " | grep ' overlay ' | sed 's/ rw,/ rw,nosuid,/'", as).out ==
          plain.run(mounts + " | grep ' overlay '", as).out);
  }
}

TEST_CASE("a program that changes the user does that where a sandbox may gain rights",
          "[runtime][rights]") {
  const auto make = capabilities + "cp /usr/bin/id /usr/bin/cat /usr/bin/python3 . && "
                                   "for each in 1 4000 7ffff; do cp cat cat-$each; "
                                   "capabilities cat-$each $each; done; "
                                   "cp cat cat-quiet; chown 5:7 id cat && chmod 6755 id cat";
  for (const bool gains : {false, true}) {
    CAPTURE(gains);
    live_sandbox box{shared_node(), gains ? gaining() : shared_node().spec()};
    REQUIRE(box.run(make, inner_root).exited(0));
    const auto ids = box.run("./cat /proc/self/status | sed -n 's/^[UG]id:\\t//p'", inner_user).out;
    CHECK(ids == (gains ? "1000\t5\t5\t5\n1000\t7\t7\t7\n"
                        : "1000\t1000\t1000\t1000\n1000\t1000\t1000\t1000\n"));
    // cap_chown is among those that its root has.
    const auto chown = box.run("./cat-1 /proc/self/status", inner_user).out;
    CHECK(line_of(chown, "CapEff") == (gains ? "0000000000000001" : "0000000000000000"));
    // cap_net_raw (0x2000) and others are in nobody's reach: such a program does not even start.
    for (const char* each : {"./cat-4000", "./cat-7ffff"}) {
      const auto beyond = box.run(std::string{each} + " /proc/self/status", inner_user);
      CAPTURE(each, beyond.out, beyond.err);
      if (gains)
        CHECK(
          (beyond.out.empty() && beyond.err.find("Operation not permitted") != std::string::npos));
      else
        CHECK(line_of(beyond.out, "CapEff") == "0000000000000000");
    }
    // A user makes one of its own: it is that user's.
    CHECK(box
            .run("cp cat-quiet own && chmod 4755 own && ./own /proc/self/status | grep ^Uid",
                 inner_user)
            .out == "Uid:\t1000\t1000\t1000\t1000\n");
    // The owner's name on the machine is of no use: every id is one of the sandbox's.
    CHECK_FALSE(box.run("chown 65536 own", inner_root).exited(0));
    CHECK(box.run("chown 65535:65535 own && stat -c %u:%g own", inner_root).out == "65535:65535\n");
  }
}

TEST_CASE("dpkg knows the files of the machine's packages where these can be installed",
          "[runtime][rights]") {
  if (!fs::exists(machines_lists))
    return;
  const auto count = std::distance(fs::directory_iterator{machines_lists}, {});
  live_node node;
  const auto on_disk = [&](const char* name) {
    return fs::exists("/proc/" + std::to_string(node.spawner()) + "/root" + node.state() +
                      "/disk/" + name);
  };
  const auto lists_in = [](live_sandbox& box) {
    return box.run(std::string{"ls "} + machines_lists + " | wc -l").out;
  };
  auto spec = node.spec();
  live_sandbox plain{node, spec};
  CHECK(plain.run("dpkg -s dpkg | grep ^Status").out == "Status: install ok installed\n");
  CHECK(plain.run("dpkg -l dpkg | grep -c ^ii").out == "1\n");
  CHECK(lists_in(plain) == "1\n"); // Of which form they are.
  CHECK_FALSE(on_disk("lists-1")); // Nobody has needed them.

  spec.may_gain_rights = true;
  std::optional<live_sandbox> box{std::in_place, node, spec};
  spec.name = "other";
  live_sandbox other{node, spec};
  for (auto* each : {&*box, &other}) {
    CHECK(lists_in(*each) == std::to_string(count) + "\n");
    CHECK(each->run("dpkg -S $(command -v dpkg)").out == "dpkg: /usr/bin/dpkg\n");
    CHECK(each->run("dpkg -L dpkg | grep -x /usr/bin/dpkg").out == "/usr/bin/dpkg\n");
    CHECK(
      each->run("stat -c %a%u%g / /var /var/lib /var/lib/dpkg /var/lib/dpkg/info | sort -u").out ==
      "75500\n");
  }
  // What one does with them is its own.
  CHECK(box->run("sudo rm -r /var/lib/dpkg/info && sudo mkdir /var/lib/dpkg/info").exited(0));
  CHECK(lists_in(*box) == "0\n");
  CHECK(lists_in(other) == std::to_string(count) + "\n");
  CHECK(on_disk("lists-1"));
  CHECK_FALSE(on_disk("lists-2"));

  // The machine has changed, and a server starts: what it makes has lists of its own.
  const auto image = node.state() + "/images/host";
  std::ofstream{image + "/identity"} << "of before\n";
  REQUIRE(prepare_host_image(image));
  spec.name = "new";
  std::optional<live_sandbox> newer{std::in_place, node, spec};
  CHECK(lists_in(*newer) == std::to_string(count) + "\n");
  CHECK(lists_in(other) == std::to_string(count) + "\n");
  CHECK(on_disk("lists-1"));
  CHECK(on_disk("lists-2"));
  // Those of before go with the last that stands on them.
  box.reset();
  CHECK(on_disk("lists-1"));
  other.destroy();
  other.let_go();
  CHECK(eventually([&] { return !on_disk("lists-1"); }));
  newer.reset();
  CHECK(on_disk("lists-2")); // The next one has them at once.
}

TEST_CASE("sudo makes a user root of the sandbox, and of nothing else", "[runtime][rights]") {
  live_sandbox box{shared_node(), gaining()};
  CHECK(box.run("command -v sudo").out == "/usr/local/bin/sudo\n");
  CHECK(box.run("sudo id -u").out == "0\n");
  const auto as_root = box.run("cat /proc/self/status", inner_root).out;
  const auto by_sudo = box.run("sudo cat /proc/self/status").out;
  for (const char* each : {"Uid", "Gid", "CapPrm", "CapEff", "CapBnd", "CapAmb", "Seccomp"}) {
    CAPTURE(each);
    CHECK(line_of(by_sudo, each) == line_of(as_root, each));
  }
  // Its environment, place and arguments go along.
  CHECK(
    box.run("cd /var/tmp; A='b c' PATH=/opt/x:$PATH sudo sh -c 'pwd; echo $A $PATH $1' sh '* d'")
      .out.starts_with("/var/tmp\nb c /opt/x:"));
  CHECK(box
          .run("PATH=/usr/bin:/usr/sbin /usr/local/bin/sudo printenv PATH; "
               "PATH=/bin /usr/local/bin/sudo -u nobody printenv PATH")
          .out == "/usr/bin:/usr/sbin:/usr/local/sbin:/sbin\n/bin\n");
  CHECK(box.run("sudo printenv HOME").out == box.run("printenv HOME").out);
  CHECK(box.run("sudo -H printenv HOME USER LOGNAME SUDO_USER SUDO_UID SUDO_GID").out ==
        "/root\nroot\nroot\nsandbox\n1000\n1000\n");
  CHECK(box.run("sudo X=1 Y='2 3' sh -c 'echo $X $Y'").out == "1 2 3\n");
  for (const char* each : {"-n", "-E", "-S", "-k", "-nE", "-n -E --", "--non-interactive",
                           "--preserve-env=A,B", "-p word"}) {
    CAPTURE(each);
    CHECK(box.run("sudo " + std::string{each} + " id -u").out == "0\n");
  }
  CHECK(box.run("sudo -u nobody id -un; sudo --user=nobody id -un; sudo -u '#1' id -u").out ==
        "nobody\nnobody\n1\n");
  CHECK(box.run("sudo -g nogroup id -u; sudo -g nogroup id -gn").out == "1000\nnogroup\n");
  CHECK(
    box.run("sudo groupadd -g 900 club; sudo usermod -aG club nobody; sudo -u nobody id -Gn").out ==
    "nogroup club\n");
  CHECK(box.run("sudo -i pwd; sudo -i printf '%s|' 'a b' \"c'd\" '*' '\\n'").out ==
        "/root\na b|c'd|*|\\n|");
  CHECK(box.run("SHELL=/bin/sh sudo -s 'echo $0; id -u'").exited(127)); // One word, as it is.
  CHECK(box.run("sudo -s echo '$SUDO_UID'").out == "1000\n");
  CHECK(box.run("sudo sudo -u nobody sudo id -u").out == "0\n");
  CHECK(box.run("sudo -D /etc pwd").out == "/etc\n");
  CHECK(box.run("sudo -v && sudo -K && sudo -l").out.find("NOPASSWD: ALL") != std::string::npos);
  CHECK(box.run("sudo sh -c 'exit 7'").exited(7));
  CHECK(box.run("echo in | sudo cat").out == "in\n");
  // A script without its first line.
  CHECK(box.run("echo 'echo $0' > script; chmod +x script; sudo ./script").out == "./script\n");
}

TEST_CASE("sudo says what is wrong", "[runtime][rights]") {
  live_sandbox box{shared_node(), gaining()};
  const auto wrong = [&](const std::string& words) {
    const auto got = box.run("sudo " + words);
    CAPTURE(words, got.out, got.err);
    CHECK(got.exited(1));
    CHECK(got.out.empty());
    return got.err;
  };
  CHECK(wrong("no-such-program") == "sudo: no-such-program: command not found\n");
  CHECK(wrong("/etc/passwd") == "sudo: /etc/passwd: Permission denied\n");
  CHECK(wrong("-u stranger id") == "sudo: unknown user stranger\n");
  CHECK(wrong("-u '#4711' id") == "sudo: unknown user #4711\n");
  CHECK(wrong("-u '#-1' id") == "sudo: unknown user #-1\n");
  CHECK(wrong("-u '#4294967296' id") == "sudo: unknown user #4294967296\n");
  CHECK(wrong("-g strangers id") == "sudo: unknown group strangers\n");
  CHECK(wrong("-D /none id") == "sudo: /none: No such file or directory\n");
  CHECK(wrong("-e /etc/passwd") == "sudo: -e is not known here; sudo -h says what is\n");
  CHECK(wrong("--edit x") == "sudo: --edit is not known here; sudo -h says what is\n");
  CHECK(wrong("-u").find("needs a value") != std::string::npos);
  CHECK(wrong("-i -s").find("do not go together") != std::string::npos);
  CHECK(wrong("").starts_with("usage: sudo"));
  CHECK(box.run("sudo -h").out.starts_with("usage: sudo"));
  // Without a list of users root is root all the same.
  CHECK(
    box.run("sudo mv /etc/passwd /etc/group /tmp; sudo id -u; sudo mv /tmp/passwd /tmp/group /etc")
      .out == "0\n");
  // An ordinary sandbox has none, and a copy that is brought there says why.
  live_sandbox plain{shared_node()};
  CHECK_FALSE(plain.run("command -v sudo").exited(0));
}

TEST_CASE("root inside keeps nobody from ending its sandbox", "[runtime][rights]") {
  live_sandbox neighbour{shared_node()};
  live_sandbox box{shared_node(), gaining()};
  for (int i = 0; i < 20; ++i)
    box.run("sudo kill -KILL -1");
  box.run("sudo kill -STOP 1; sudo kill -KILL 1; sudo kill -TERM 1");
  CHECK(box.run("sudo id -u").out == "0\n");
  REQUIRE(box
            .run("printf '#!/bin/sh\\nexec sleep 1000\\n' > fake; chmod 755 fake; "
                 "sudo cp fake /usr/local/bin/sudo; timeout 0.1 sudo -n true")
            .exited(124));
  live_sandbox other{shared_node(), gaining()};
  CHECK(other.run("sudo id -u").out == "0\n"); // The fake is one sandbox's.
  // What users are told by is gone, and so is the shell.
  other.run("sudo sh -c 'rm -rf /usr/bin /bin/bash /etc /usr/local/bin'");
  other.destroy();
  box.destroy();
  CHECK(neighbour.run("echo works").out == "works\n");
}

TEST_CASE("what a sandbox's root leaves on the machine's disk changes nobody's user",
          "[runtime][rights]") {
  live_sandbox box{shared_node(), gaining()};
  REQUIRE(box.run("sudo cp /usr/bin/id /workspace/id && sudo chmod 6755 /workspace/id").exited(0));
  auto stays = box.start("echo up; exec sleep 3141");
  stays.says("up");
  pid_t inside = 0;
  REQUIRE(eventually([&] { return (inside = find_process("sleep 3141")) > 0; }));
  // By the way that root of the machine has into it: the kernel honours no such program there, as
  // its mount belongs to another namespace of users.
  const auto path = "/proc/" + std::to_string(inside) + "/root/workspace/id";
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 06755);
  CHECK(info.st_uid >= 1'879'048'192u); // On this side it is nobody.
  const auto by_nobody = "setpriv --reuid 65534 --clear-groups " + path + " -u";
  CHECK(std::system(("test \"$(" + by_nobody + ")\" = 65534").c_str()) == 0);
}
