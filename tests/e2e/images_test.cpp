#include "base/unique_fd.hpp"
#include "tests/e2e/image_trees.hpp"
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/made_authority.hpp"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>

using namespace insula::test;

namespace fs = std::filesystem;

TEST_CASE("what is imported is the tree that umoci unpacks", "[images]") {
  const temp_dir where;
  const auto state = (where / "state").string();
  const auto source = GENERATE("layout", "oci-archive.tar", "docker.tar");
  CAPTURE(source);
  import(state, source, "it");
  const fs::path root = state + "/images/it/root";
  CHECK(differences(root, inputs / "bundle/rootfs") == std::vector<std::string>{});
  // And of what was added to it, what counts.
  CHECK(
    content_of(root / "etc/passwd").starts_with(content_of(inputs / "bundle/rootfs/etc/passwd")));
  for (const auto* each : {"etc/group", "etc/shadow", "etc/gshadow"}) {
    CAPTURE(each);
    CHECK(content_of(root / each).starts_with(content_of(inputs / "bundle/rootfs" / each)));
  }
  CHECK((fs::status(root / "tmp").permissions() & fs::perms::mask) ==
        (fs::perms::all | fs::perms::sticky_bit));
  CHECK(fs::is_directory(root / "workspace"));
}

TEST_CASE("commands run in an imported Debian", "[images]") {
  node it{"image: {default: debian}",
          [](const std::string& state) { import(state, "oci-archive.tar", "debian"); }};
  CHECK(it.sh("a", "cat /etc/os-release").out ==
        content_of(inputs / "bundle/rootfs/etc/os-release"));
  CHECK(it.sh("a", "dpkg -l | grep -c ^ii").exit_code == 0);
  CHECK(it.sh("a", "readlink /usr/bin/vdir").out == "ls\n");
  CHECK(it.sh("a", "id; pwd; echo $HOME $USER $SHELL; cd && pwd").out ==
        "uid=1000(sandbox) gid=1000(sandbox) groups=1000(sandbox)\n/workspace\n"
        "/home/sandbox sandbox /bin/bash\n/home/sandbox\n");
  CHECK(it.sh("a", "echo $FROM_IMAGE $PATH").out ==
        "yes /home/sandbox/.local/bin:/home/sandbox/.cargo/bin:/home/sandbox/go/bin:"
        "/usr/local/bin:/usr/bin:/bin:/opt/kit\n");
  CHECK(it.sh("a", "ls /opt/kit; cat /opt/kit/only; ls /etc/issue.net").out == "only\nfresh\n");
  CHECK(it.sh("a", "stat -c '%u:%g %F' /srv/data/pipe; ls -d /dev/null /proc/self").exit_code == 0);
  CHECK(
    it.sh("a", "echo mine > /workspace/file && echo mine > /tmp/file && cat /workspace/file").out ==
    "mine\n");
  CHECK(it.sh("a", "touch /usr/bin/mine").exit_code != 0); // It is not root there either.
  CHECK(it.sh("a", "getent hosts localhost").exit_code == 0);
  CHECK(it.exec("a", {"printf", "%s", std::string(200'000, 'x')}).out.size() == 200'000);
  CHECK(it.ask("PUT", "/v1/sandbox/a/file/workspace/from-outside", "text").status == 200);
  CHECK(it.sh("a", "cat from-outside").out == "text");
  // What one sandbox does to its tree, another does not see.
  CHECK(it.sh("b", "ls /workspace").out.empty());
}

TEST_CASE("an imported Debian trusts the node's authorities beside its own", "[images]") {
  const made_authority ours{"Of this node"};
  node it{"image: {default: debian}\nsandbox: {ca_file: " + ours.file() +
            ", env: {FROM_IMAGE: node}}",
          [](const std::string& state) { import(state, "oci-archive.tar", "debian"); }};
  const auto bundle = content_of(inputs / "bundle/rootfs/etc/ssl/certs/ca-certificates.crt");
  CHECK(it.sh("a", "cat $REQUESTS_CA_BUNDLE").out == bundle + content_of(ours.file()));
  CHECK(it.sh("a", "cat $NODE_EXTRA_CA_CERTS").out == content_of(ours.file()));
  CHECK(it.sh("a", "echo $FROM_IMAGE; ls -d /etc /etc/ssl/private; cat /etc/hostname").exit_code ==
        0);
  for (const auto* where : {"-CApath /etc/ssl/certs", "-CAfile /etc/ssl/certs/ca-certificates.crt"})
    CHECK(it.sh("a", "openssl verify -no-CAstore -no-CApath -no-CAfile " + std::string{where} +
                       " $NODE_EXTRA_CA_CERTS")
            .out == "/etc/ssl/certs/insula-extra.pem: OK\n");
  CHECK(it.sh("a", "echo $FROM_IMAGE").out == "node\n");
  CHECK(it.sh("a", "dpkg -V ca-certificates").exit_code == 0);
}

TEST_CASE(
  "a sandbox keeps its image when the default changes, and when the image goes and comes back",
  "[images]") {
  node it{"image: {default: debian}",
          [](const std::string& state) { import(state, "layout", "debian"); }};
  const std::string which = "echo $FROM_IMAGE";
  REQUIRE(it.sh("old", which).out == "yes\n");

  INFO("it may not be removed meanwhile, also by who knows nothing of the configuration");
  const auto used = image(it.state(), {"rm", "debian"});
  CHECK(used.status == 1);
  CHECK(used.err.find("a sandbox starts from debian, old; delete") != std::string::npos);
  CHECK(it.sh("old", which).out == "yes\n");

  REQUIRE(it.stop(SIGINT) == 0);
  it.configure("image: {default: host, available: [debian]}");
  it.start();
  CHECK(it.sh("old", which).out == "yes\n");
  CHECK(it.sh("new", which).out == "\n");

  INFO("running sandboxes go on when it is replaced, and when it is removed");
  CHECK(image(it.state(), {"import", (inputs / "layout").string(), "--name", "debian", "--replace"})
          .status == 0);
  CHECK(it.sh("old", "cat /etc/debian_version; ls /usr/share | wc -l").exit_code == 0);
  CHECK(image(it.state(), {"rm", "debian", "--force"}).status == 0);
  CHECK(it.sh("old", "cat /etc/debian_version; " + which).exit_code == 0);

  REQUIRE(it.stop(SIGINT) == 0);
  it.configure("image: {default: host}");
  it.start();
  const auto refused = it.ask("POST", "/v1/sandbox/old/exec", R"({"argv":["true"]})",
                              "Content-Type: application/json\r\n");
  CHECK(refused.status >= 500);
  CHECK(refused.body.find("its image \\\"debian\\\" is not there") != std::string::npos);
  CHECK(it.sh("new", which).out == "\n");

  REQUIRE(it.stop(SIGINT) == 0);
  import(it.state(), "docker.tar", "debian");
  it.start();
  CHECK(it.sh("old", which).out == "yes\n");
}

TEST_CASE("a server goes on with the images that it found, until it is started again", "[images]") {
  node it{"image: {default: debian}",
          [](const std::string& state) { import(state, "layout", "debian"); }};
  // The shell of the one is /bin/bash, and the other has none.
  const std::string which = "echo $FROM_IMAGE $SHELL; ls /usr/bin/bash";
  const std::string before = "yes /bin/bash\n/usr/bin/bash\n", after = "other /bin/sh\n";
  REQUIRE(it.sh("old", which).out == before);
  const auto trees = [&] {
    return std::count_if(
      fs::directory_iterator{it.state() + "/images"}, fs::directory_iterator{},
      [](auto& each) { return each.path().filename().string().starts_with(".tree-"); });
  };
  CHECK(trees() == 1);

  REQUIRE(image(it.state(),
                {"import", (inputs / "replacement").string(), "--name", "debian", "--replace"})
            .status == 0);
  CHECK(image(it.state(), {"show", "debian"}).out.find("FROM_IMAGE=other") != std::string::npos);
  CHECK(it.sh("old", which).out == before);
  const auto between = it.sh("afterreplacing", which);
  INFO(between.error << it.log());
  CHECK(between.out == before);
  CHECK(trees() == 2);

  SECTION("replaced") {
    REQUIRE(it.stop(SIGINT) == 0);
    it.start();
    const auto old = it.exec("old", {"sh", "-c", which});
    INFO(old.status << old.refusal << old.err << old.error);
    CHECK(old.out == after);
    CHECK(it.exec("new", {"sh", "-c", which}).out == after);
    CHECK(trees() == 1);
  }
  SECTION("removed") {
    REQUIRE(image(it.state(), {"rm", "debian", "--force"}).status == 0);
    CHECK(it.sh("afterremoving", which).out == before);
    REQUIRE(it.stop(SIGINT) == 0);
    it.configure("image: {default: host}");
    it.start();
    CHECK(trees() == 0);
  }
}

TEST_CASE("a server starts while others ask whether one runs", "[images]") {
  std::jthread asking;
  const node it{{}, [&](const std::string& state) {
                  fs::create_directories(state);
                  // As every image command that writes does.
                  asking = std::jthread{[file = state + "/lock"](const std::stop_token& end) {
                    while (!end.stop_requested()) {
                      {
                        const insula::unique_fd lock{
                          ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
                        ::flock(lock.get(), LOCK_SH | LOCK_NB);
                      }
                      std::this_thread::sleep_for(1ms);
                    }
                  }};
                }};
  CHECK(it.running());
}

TEST_CASE("a start without an image that is named says how to get it", "[images]") {
  const temp_dir where;
  const auto key = GENERATE("default: nowhere", "available: [nowhere]");
  std::ofstream{where / "cluster.yaml"} << "image: {" << key << "}\n";
  child_program server{{INSULA_PROGRAM, "serve", "--listen", "127.0.0.1:0", "--state",
                        (where / "state").string(), "--config", (where / "cluster.yaml").string()},
                       {.error_file = (where / "err").string()}};
  const auto status = server.wait(60s);
  REQUIRE(status);
  CHECK((WIFEXITED(*status) && WEXITSTATUS(*status) == 1));
  const auto said = content_of(where / "err");
  CHECK(said.find("there is no image \"nowhere\"") != std::string::npos);
  CHECK(said.find("insula image import") != std::string::npos);
}

TEST_CASE("images are listed, shown and removed", "[images]") {
  node it;
  const auto source = (inputs / "docker.tar").string();
  const auto made = image(it.state(), {"import", source});
  CHECK(made.status == 0);
  CHECK(made.out.starts_with("docker: Debian GNU/Linux 12 (bookworm), "));
  const auto again = image(it.state(), {"import", source});
  CHECK(again.status == 1);
  CHECK(again.err.find("there is an image \"docker\" already") != std::string::npos);

  const auto table = image(it.state(), {"ls"});
  CHECK(table.out.find("NAME") == 0);
  CHECK(table.out.find("\ndocker  ") != std::string::npos);
  CHECK(table.out.find("\nhost    ") != std::string::npos);
  const auto json = image(it.state(), {"ls", "--json"}).out;
  CHECK(json.find("\"FROM_IMAGE=yes\"") != std::string::npos);
  const auto shown = image(it.state(), {"show", "docker"}).out;
  for (const char* each : {"\"user\": \"0:0\"", "\"cwd\": \"/srv/data\"", "\"/bin/sh\"", "\"-l\""})
    CHECK(shown.find(each) != std::string::npos);
  // The image of the machine says what it was made from.
  const auto host = image(it.state(), {"show", "host"}).out;
  const auto os = content_of("/etc/os-release");
  const auto name = os.substr(os.find("PRETTY_NAME=\"") + 13);
  CHECK(host.find("\"base\": \"" + name.substr(0, name.find('"')) + "\"") != std::string::npos);
  CHECK(host.find("\"digest\": \"sha256:") != std::string::npos);

  CHECK(image(it.state(), {"rm", "docker"}).status == 0);
  CHECK(image(it.state(), {"rm", "docker"}).status == 1);
  CHECK(image(it.state(), {"rm", "host"}).status == 1);
  CHECK(image(it.state(), {"show", "docker"}).status == 1);
}

TEST_CASE("Ctrl-C during an import leaves nothing behind", "[images]") {
  const temp_dir where;
  const auto state = (where / "state").string();
  child_program program{{INSULA_PROGRAM, "image", "import", (inputs / "layout").string(), "--name",
                         "it", "--state", state},
                        {.error_file = (where / "err").string()}};
  const fs::path begun = state + "/images/.new-it/root";
  REQUIRE(eventually([&] { return fs::exists(begun / "etc/passwd"); }));
  program.signal(SIGSTOP); // So that it does not get away.
  REQUIRE_FALSE(fs::exists(begun / "workspace"));
  program.signal(SIGINT);
  program.signal(SIGCONT);
  const auto status = program.wait(60s);
  REQUIRE(status);
  CHECK((WIFEXITED(*status) && WEXITSTATUS(*status) == 1));
  CHECK(content_of(where / "err").find("interrupted; nothing was imported") != std::string::npos);
  for (const auto& each : fs::directory_iterator{state + "/images"})
    CHECK(each.path().filename() == ".lock");
}
