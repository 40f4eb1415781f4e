#include "runtime/spawner/protocol.hpp"
#include "tests/e2e/docker_registry.hpp"
#include "tests/e2e/image_trees.hpp"
#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/counting_relay.hpp"
#include "tests/support/image_builder.hpp"
#include "tests/support/made_authority.hpp"
#include "tests/support/small_disk.hpp"

#include <csignal>
#include <fstream>
#include <random>
#include <thread>

using namespace insula::test;

namespace {

namespace fs = std::filesystem;

/// Of the images of a state directory.
std::string tree_of(const std::string& state, const std::string& name) {
  return fs::read_symlink(state + "/images/" + name).string();
}

pid_t child_of(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"};
  pid_t found = 0;
  file >> found;
  return found;
}

} // namespace

TEST_CASE("what is pulled is the tree that skopeo's copy makes, and sandboxes start from it",
          "[images][pull]") {
  const docker_registry registry;
  registry.push(debian, "acme/debian:12");
  counting_relay way{registry.port()};
  node it{"image: {default: debian-12}", [&](const std::string& state) {
            const auto made = image(state, {"pull", way.host() + "/acme/debian:12"});
            INFO(made.err);
            REQUIRE(made.status == 0);
            CHECK(made.out.starts_with("debian-12: Debian GNU/Linux 12 (bookworm), "));
          }};
  const temp_dir where;
  const auto layout = (where / "layout").string();
  output_of({"skopeo", "copy", "--quiet", "--src-tls-verify=false",
             "docker://" + registry.host() + "/acme/debian:12", "oci:" + layout + ":x"});
  REQUIRE(image(it.state(), {"import", layout, "--name", "copied"}).status == 0);
  const fs::path images = it.state() + "/images";
  CHECK(differences(images / "debian-12/root", images / "copied/root") ==
        std::vector<std::string>{});
  REQUIRE(image(it.state(), {"rm", "copied"}).status == 0);
  CHECK_FALSE(fs::exists(it.state() + "/pulls"));
  CHECK(it.sh("a", "cat /opt/kit/only; echo $FROM_IMAGE").out == "fresh\nyes\n");

  INFO("its record says where it is from, and so does the list");
  const auto shown = image(it.state(), {"show", "debian-12"}).out;
  CHECK(shown.find("\"reference\": \"" + way.host() + "/acme/debian:12\"") != std::string::npos);
  CHECK(image(it.state(), {"ls"}).out.find("  " + way.host() + "/acme/debian:12  ") !=
        std::string::npos);

  INFO("another name, or the digest, is the same tree, for which no layer comes again");
  const auto digest = shown.substr(shown.find("sha256:"), 71);
  const auto before = way.bytes();
  const auto again =
    image(it.state(), {"pull", way.host() + "/acme/debian@" + digest, "--name", "other"});
  INFO(again.err);
  CHECK(again.status == 0);
  CHECK(again.out.find("was here already, " + digest) != std::string::npos);
  CHECK(way.bytes() - before < 10'000);
  CHECK(tree_of(it.state(), "other") == tree_of(it.state(), "debian-12"));
  const auto taken = image(it.state(), {"pull", way.host() + "/acme/debian:12"});
  CHECK(taken.status == 1);
  CHECK(taken.err.find("there is an image \"debian-12\" already") != std::string::npos);
  CHECK(image(it.state(), {"rm", "debian-12", "--force"}).status == 0);
  CHECK(image(it.state(), {"show", "other"}).out.find(digest) != std::string::npos);
  CHECK(fs::exists(images / "other/root/usr/bin"));
}

TEST_CASE("a pull that is killed anywhere leaves nothing that counts, and the next one goes on",
          "[images][pull]") {
  const docker_registry registry;
  registry.push(debian, "debian:12");
  std::uint64_t size = 0;
  for (const auto& each : fs::recursive_directory_iterator{inputs / "layout/blobs"})
    size += each.is_regular_file() ? each.file_size() : 0;
  const temp_dir where;
  const auto state = (where / "state").string(), pulls = state + "/pulls";
  counting_relay way{registry.port()};
  const std::vector<std::string> words{
    INSULA_PROGRAM, "image", "pull", way.host() + "/debian:12", "--name", "it", "--state", state};
  constexpr std::uint64_t points = 20;
  for (std::uint64_t i = 0; i < points; ++i) {
    CAPTURE(i);
    way.hold_at(way.bytes() + (i == 0 ? 100 : size / points));
    child_program pull{words};
    REQUIRE(way.wait_until_held(60s));
    if (i == 3) {
      const auto fetcher = child_of(pull.pid());
      const auto user = std::to_string(insula::runtime::spawner::fetcher_uid);
      CHECK(status_of(fetcher, "Name") == "insula-fetch");
      CHECK(status_of(fetcher, "Uid") == user + "\t" + user + "\t" + user + "\t" + user);
      CHECK(status_of(fetcher, "Groups").find_first_not_of(' ') == std::string::npos);
      for (const auto* which : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
        CHECK(status_of(fetcher, which) == "0000000000000000");
      CHECK(status_of(fetcher, "NoNewPrivs") == "1");
      CHECK(status_of(fetcher, "Seccomp") == "2");
      CHECK(fs::read_symlink("/proc/" + std::to_string(fetcher) + "/root").parent_path() == pulls);
      const auto second = image(state, {"pull", way.host() + "/debian:12", "--name", "it"});
      CHECK(second.err.find("another one fetches this image") != std::string::npos);
    }
    // The command, its process that fetches, or by hand.
    const bool by_hand = i % 5 == 4, fetcher_alone = i % 5 == 2;
    const auto fetcher_pid = child_of(pull.pid());
    const auto fetcher = open_process(fetcher_pid);
    if (fetcher_alone)
      ::kill(fetcher_pid, SIGKILL);
    else
      pull.signal(by_hand ? SIGINT : SIGKILL);
    const auto status = pull.wait(10s);
    REQUIRE(status);
    if (by_hand || fetcher_alone)
      CHECK((WIFEXITED(*status) && WEXITSTATUS(*status) == 1));
    else
      CHECK(WIFSIGNALED(*status));
    CHECK(wait_for_end(fetcher, 10s)); // It does not outlive the command.
    CHECK_FALSE(fs::exists(state + "/images/it"));
    for (const auto& each : fs::directory_iterator{pulls})
      CHECK_FALSE(fs::exists(each.path() / "layout/index.json"));
  }
  way.hold_at(~0ull);
  const auto made = image(state, {"pull", way.host() + "/debian:12", "--name", "it"});
  INFO(made.err);
  REQUIRE(made.status == 0);
  CHECK_FALSE(fs::exists(pulls));
  CHECK(differences(state + "/images/it/root", inputs / "bundle/rootfs") ==
        std::vector<std::string>{});
  // Each byte came once, but for what was on its way when somebody was killed.
  INFO(way.bytes() << " bytes for " << size);
  CHECK(way.bytes() < size + points * (2u << 20) + (1u << 20));
  CHECK(way.bytes() >= size);
}

TEST_CASE("a killed import of what was pulled costs no second pull", "[images][pull]") {
  const docker_registry registry;
  registry.push(debian, "debian:12");
  const temp_dir where;
  const auto state = (where / "state").string();
  counting_relay way{registry.port()};
  const auto unpacking = [&] { return fs::exists(state + "/images/.new-it/root/usr"); };
  {
    child_program pull{{INSULA_PROGRAM, "image", "pull", way.host() + "/debian:12", "--name", "it",
                        "--state", state}};
    REQUIRE(eventually(unpacking));
    pull.signal(SIGKILL);
    pull.wait(10s);
  }
  CHECK_FALSE(fs::exists(state + "/images/it"));
  const auto before = way.bytes();
  const auto made = image(state, {"pull", way.host() + "/debian:12", "--name", "it"});
  INFO(made.err);
  CHECK(made.status == 0);
  CHECK(way.bytes() - before < 10'000);
  CHECK_FALSE(unpacking());
  CHECK_FALSE(fs::exists(state + "/pulls"));
}

TEST_CASE("a registry that wants to know who asks is told, from where the operator has said it",
          "[images][pull]") {
  const temp_dir where;
  // The password is "secret".
  std::ofstream{where / "htpasswd"}
    << "me:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n";
  const docker_registry registry{
    "auth: {htpasswd: {realm: here, path: " + (where / "htpasswd").string() + "}}\n"};
  layout_builder small;
  small.add({{"etc", 'd'}, {"etc/made", 'f', "yes"}});
  small.write();
  registry.push("oci:" + small.path(), "small:1", "me:secret");
  const auto state = (where / "state").string();
  const auto reference = registry.host() + "/small:1";
  const auto pull = [&](const std::string& before, const std::string& more) {
    const auto error_file = (where / "err").string();
    fs::remove(error_file);
    child_program run{{"sh", "-c",
                       before + " " INSULA_PROGRAM " image pull " + reference +
                         " --replace --state " + state + " " + more},
                      {.error_file = error_file}};
    run.read_all(60s);
    const auto status = run.wait(10s);
    REQUIRE(status);
    return std::pair{WEXITSTATUS(*status), content_of(error_file)};
  };
  const auto nobody = pull("HOME=/nowhere", "");
  CHECK(nobody.first == 1);
  CHECK(nobody.second.find("to nobody who has not logged in") != std::string::npos);
  CHECK(nobody.second.find("--password-stdin") != std::string::npos);
  const auto wrong = pull("echo wrong |", "--username me --password-stdin");
  CHECK(wrong.first == 1);
  CHECK(wrong.second.find("does not give small to me") != std::string::npos);
  CHECK(pull("", "--username me").first == 2);
  CHECK(pull("", "--password-stdin").first == 2);
  CHECK_FALSE(fs::exists(state + "/images/small-1"));
  CHECK(pull("echo secret |", "--username me --password-stdin").first == 0);
  CHECK(content_of(state + "/images/small-1/root/etc/made") == "yes");

  std::ofstream{where / "config.json"} << R"({"auths":{")" << registry.host()
                                       << R"(":{"auth":"bWU6c2VjcmV0"}}})";
  std::ofstream{where / "helped.json"} << R"({"credsStore":"desktop"})";
  CHECK(pull("DOCKER_CONFIG=" + where.path().string(), "").first == 0);
  CHECK(pull("REGISTRY_AUTH_FILE=" + (where / "config.json").string(), "").first == 0);
  const auto helped = pull("REGISTRY_AUTH_FILE=" + (where / "helped.json").string(), "");
  CHECK(helped.first == 1);
  CHECK(helped.second.find("docker-credential-desktop") != std::string::npos);
  CHECK(pull("REGISTRY_AUTH_FILE=/nowhere", "").first == 1);
}

TEST_CASE("a registry's certificate is verified, by authorities of one's own too",
          "[images][pull]") {
  made_authority ours;
  const auto files = ours.issue("localhost");
  const docker_registry registry{"  tls: {certificate: " + files.certificate +
                                 ", key: " + files.key + "}\n"};
  layout_builder small;
  small.add({{"etc", 'd'}, {"etc/made", 'f', "yes"}});
  small.write();
  registry.push("oci:" + small.path(), "small:1");
  const temp_dir where;
  const auto state = (where / "state").string();
  const auto pull = [&](const std::string& host, const std::string& authorities,
                        const std::string& more = "") {
    const auto error_file = (where / "err").string();
    fs::remove(error_file);
    child_program run{{"sh", "-c",
                       "SSL_CERT_FILE=" + authorities + " " INSULA_PROGRAM " image pull " + host +
                         ":" + std::to_string(registry.port()) + "/small:1 --replace --state " +
                         state + more},
                      {.error_file = error_file}};
    run.read_all(60s);
    const auto status = run.wait(10s);
    REQUIRE(status);
    return std::pair{WEXITSTATUS(*status), content_of(error_file)};
  };
  const auto stranger = pull("localhost", "");
  CHECK(stranger.first == 1);
  CHECK(stranger.second.find("its certificate cannot be verified") != std::string::npos);
  const auto other_name = pull("127.0.0.1", ours.file());
  CHECK(other_name.first == 1);
  CHECK(other_name.second.find("its certificate cannot be verified") != std::string::npos);
  CHECK_FALSE(fs::exists(state + "/images/small-1"));
  CHECK_FALSE(fs::exists(state + "/pulls"));
  // The name is looked up by the process without rights, too.
  const auto good = pull("localhost", ours.file());
  INFO(good.second);
  CHECK(good.first == 0);
  CHECK(content_of(state + "/images/small-1/root/etc/made") == "yes");
  CHECK(pull("127.0.0.1", "", " --insecure").first == 0);
}

TEST_CASE("what cannot be pulled is said in words, and leaves nothing", "[images][pull]") {
  const docker_registry registry;
  const temp_dir where;
  const auto state = (where / "state").string();
  const auto refusal = [&](std::vector<std::string> words, int status = 1) {
    words.insert(words.begin(), "pull");
    const auto made = image(state, words);
    CHECK(made.status == status);
    CHECK_FALSE(fs::exists(state + "/pulls"));
    return made.err;
  };
  const auto says = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const auto at = [&](const std::string& name) { return registry.host() + "/" + name; };
  says(refusal({at("nothing:1")}), "it has no nothing:1");
  says(refusal({"127.0.0.1:1/nothing"}), "127.0.0.1");
  says(refusal({"nowhere.invalid/nothing"}), "nowhere.invalid");
  says(refusal({"docker://x"}, 2), "names no image of a registry");
  says(refusal({at("x"), "--platform", "linux"}, 2), "a platform is OS/ARCHITECTURE");
  says(refusal({at("x"), "--platform", "linux/s390x"}), "does not run here");
  says(refusal({at("x"), "--name", "Bad Name"}), "is no name for an image");
  layout_builder foreign;
  foreign.architecture = "s390x";
  foreign.add({{"etc", 'd'}});
  foreign.write();
  registry.push("oci:" + foreign.path(), "foreign:1");
  says(refusal({at("foreign:1")}), "it is for linux/s390x, not for");
  layout_builder large;
  std::string noise(2 << 20, '\0'); // skopeo packs it.
  for (std::mt19937 next; auto& each : noise)
    each = static_cast<char>(next());
  large.add({{"file", 'f', noise}});
  large.write();
  registry.push("oci:" + large.path(), "large:1");
  says(refusal({at("large:1"), "--max-size", "1MiB"}), "more than the 1 MiB that are allowed");
  layout_builder hostile;
  hostile.add({{"etc", 'd'}, {"out", 'l', "/etc"}});
  hostile.add({{"out/passwd", 'f', "root::0:0::/:/bin/sh\n"}});
  hostile.write();
  registry.push("oci:" + hostile.path(), "hostile:1");
  says(refusal({at("hostile:1")}), "out: the way there is a symlink");
  CHECK_FALSE(fs::exists(state + "/images/hostile-1"));
  layout_builder scripts;
  scripts.add({{"etc", 'd'}, {"etc/os-release", 'f', "PRETTY_NAME=\"Tiny\"\n"}});
  scripts.write();
  registry.push("oci:" + scripts.path(), "tiny");
  const auto tiny = image(state, {"pull", at("tiny")});
  CHECK(tiny.status == 0);
  CHECK(tiny.out.starts_with("tiny: Tiny, "));
  says(tiny.err, "has neither /bin/bash nor /bin/sh");
}

TEST_CASE("a disk that has no room for an image keeps nothing of it", "[images][pull]") {
  const docker_registry registry;
  registry.push(debian, "debian:12");
  // For its layers there is room, or not even for those; and then for what they unpack to.
  const std::size_t size = GENERATE(20u << 20, 100u << 20);
  CAPTURE(size);
  const small_disk disk{size};
  const auto own = disk.path(); // A command finds it by this process.
  const auto state =
    "/proc/" + std::to_string(::getpid()) + own.substr(own.find("/fd/")) + "/state";
  const auto made = image(state, {"pull", registry.host() + "/debian:12"});
  INFO(made.err);
  CHECK(made.status == 1);
  CHECK(made.err.find(size < (60u << 20) ? "it needs another" : "No space left on device") !=
        std::string::npos);
  CHECK_FALSE(fs::exists(state + "/pulls"));
  CHECK(image(state, {"ls", "--json"}).out == "[]\n");
  // Nothing takes its room.
  CHECK(fs::space(own).available > size - (1u << 20));
}
