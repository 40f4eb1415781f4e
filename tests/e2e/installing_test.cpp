// What people install in a sandbox with the privileges `sudo`, in the machine's image and in one
// that was imported. Needs the Debian mirrors.
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <memory>

using namespace insula::test;

namespace {

/// What a program prints on this machine.
std::string printed(const std::vector<std::string>& argv) {
  child_program program{argv, {}};
  auto text = program.read_all(60s);
  REQUIRE(program.wait(20s) == 0);
  return text;
}

/// A node whose new sandboxes have the privileges `sudo` and this image, and a sandbox in which apt
/// fetches from where this machine does.
struct installed_in {
  explicit installed_in(bool imported)
      : it{imported ? "image: {default: debian}\nsandbox: {privileges: sudo}"
                    : "sandbox: {privileges: sudo}",
           [&](const std::string& state) {
             if (imported)
               printed({INSULA_PROGRAM, "image", "import",
                        std::string{INSULA_IMAGE_INPUTS} + "/oci-archive.tar", "--name", "debian",
                        "--state", state});
           }} {
    const auto put = [&](const std::string& path, const std::string& text) {
      REQUIRE(it.ask("PUT", "/v1/sandbox/a/file/workspace/put", text).status == 200);
      REQUIRE(it.sh("a", "sudo install -m 644 put " + path).exit_code == 0);
    };
    put("/etc/apt/sources.list", printed({INSULA_DEBIAN_SOURCES}));
    put(
      "/etc/apt/apt.conf.d/90machine",
      "Acquire::Retries 5;\n" +
        printed({"sh", "-c",
                 "apt-config dump --no-empty Acquire | grep -E '^Acquire::(http|https)::' || :"}));
    run("rm -f /etc/apt/sources.list.d/*; apt-get -q update");
  }

  /// As root, by way of sudo. All that it says, once it has worked.
  std::string run(const std::string& script) {
    const auto got =
      it.sh("a", "sudo DEBIAN_FRONTEND=noninteractive bash -ec '" + script + "' 2>&1 </dev/null");
    CAPTURE(script, got.out, got.error);
    REQUIRE(got.exit_code == 0);
    return got.out;
  }
  /// As the sandbox's user.
  exec_outcome sh(const std::string& script) const { return it.sh("a", script); }

  node it;
};

/// With their scripts, users and daemons.
void install_packages(installed_in& box) {
  const auto said = box.run("apt-get -qy install --no-install-recommends cowsay redis-server sudo "
                            "iputils-ping procps strace passwd login adduser");
  // Not one word that something of the image is not as packages expect it.
  CHECK(said.find("files list file") == std::string::npos);
  CHECK(said.find("unknown") == std::string::npos);
  CHECK(said.find("dpkg: warning") == std::string::npos);
  CHECK(box.sh("/usr/games/cowsay moo").out.find("< moo >") != std::string::npos);
  // A daemon, which its package has given a user.
  box.run("service redis-server start");
  CHECK(eventually([&] { return box.sh("redis-cli ping").out == "PONG\n"; }, 30s));
  CHECK(box.sh("ps -o user= -C redis-server").out.starts_with("redis"));
  // The package's own sudo asks for no password either.
  CHECK(box.sh("command -v sudo; /usr/bin/sudo -n id -u").out == "/usr/local/bin/sudo\n0\n");
  // It needs a right that no sandbox has, and says so.
  const auto ping = box.sh("ping -c 1 127.0.0.1");
  CHECK(ping.exit_code == 126);
  CHECK(ping.err.find("Operation not permitted") != std::string::npos);
  CHECK(box.sh("strace -f -e trace=execve sh -c /bin/true 2>&1").out.find("\"/bin/true\"") !=
        std::string::npos);
  CHECK(box.run("apt-get -qy remove cowsay; apt-get -qy upgrade -s | tail -1").size() > 0);
  CHECK(box.sh("command -v /usr/games/cowsay").exit_code != 0);
}

/// Made, changed and become, with the programs of packages that install_packages() has installed.
void make_users_and_groups(installed_in& box) {
  box.run("groupadd club; useradd -m -s /bin/bash -G club joe; adduser --disabled-password "
          "--gecos x ann; usermod -aG club sandbox; gpasswd -a ann club; gpasswd -d joe club");
  CHECK(box.sh("sudo su - joe -c 'id -un; pwd; id -Gn'").out == "joe\n/home/joe\njoe\n");
  CHECK(box.sh("sudo -u ann id -Gn").out.find("club") != std::string::npos);
  CHECK(box.sh("sudo su sandbox -c 'id -Gn'").out == "sandbox club\n");
  CHECK(box.sh("echo joe:secret | sudo chpasswd && echo secret | su joe -c 'id -un'").out ==
        "joe\n");
  CHECK(box.sh("echo wrong | su joe -c 'id -un'").exit_code != 0);
  CHECK(box.sh("echo wrong | su -c 'id -un'").exit_code != 0); // Root has no password.
  CHECK(box.sh("echo 'id -gn' | newgrp club").out == "club\n");
  CHECK(box.run("touch /tmp/x; for each in 0 1 1000 65534 65535; do chown $each:$each /tmp/x; "
                "stat -c %u /tmp/x; done") == "0\n1\n1000\n65534\n65535\n");
  CHECK(box.sh("sudo chown 65536 /tmp/x").exit_code != 0);
  CHECK(box.sh("sudo -u '#65535' true").exit_code == 1);
  box.run("userdel -r joe; groupdel club");
}

void install_with_other_managers(const installed_in& box) {
  CHECK(
    box.sh("sudo -H pip install --break-system-packages --quiet tomlkit==0.13.2 2>&1").exit_code ==
    0);
  CHECK(box.sh("python3 -c 'import tomlkit; print(tomlkit.__file__)'")
          .out.starts_with("/usr/local/lib/python3"));
  CHECK(box
          .sh("sudo -H npm install -g --prefix /usr/local --silent is-odd@3.0.1 2>&1 && "
              "ls -d /usr/local/lib/node_modules/is-odd")
          .out.ends_with("/usr/local/lib/node_modules/is-odd\n"));
}

} // namespace

// Of each image there is one node: a new one would have apt fetch all lists again.
TEST_CASE("packages are installed and users are made in the image of the machine", "[installing]") {
  installed_in box{false};
  install_packages(box);
  make_users_and_groups(box);
  install_with_other_managers(box);
}

TEST_CASE("packages are installed and users are made in an imported image", "[installing]") {
  installed_in box{true};
  install_packages(box);
  make_users_and_groups(box);
}
