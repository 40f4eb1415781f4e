#include "storage/images/image_source.hpp"
#include "tests/storage/images_fixture.hpp"

#include <csignal>
#include <fcntl.h>
#include <grp.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace insula;
using namespace insula::test;

// ---- Layers

TEST_CASE("layers become one tree", "[images]") {
  image_fixture it;
  layout_builder from;
  from.add({{"./", 'd', "", 0751},
            {"etc/", 'd', "", 0755, 0, 0, 1'500'000'000},
            {"etc/hostname", 'f', "one\n", 0600, 5, 60'000, 1'400'000'000},
            {"bin", 'l', "usr/bin"},
            {"usr/bin/tool", 'f', "#!", 04755},
            {"usr/bin/again", 'h', "usr/bin/tool"},
            {"srv/pipe", 'p', "", 0640, 33, 33}},
           packing::gzip);
  from.add({{"etc/hostname", 'f', "two\n", 0644}, {"opt/new", 'f', "new"}}, packing::zstd);
  const auto record = it.imported(from);
  CHECK(record.digest.starts_with("sha256:"));
  CHECK(record.format == "oci");
  CHECK(record.entries > 6);

  CHECK(it.text("etc/hostname") == "two\n");
  CHECK(it.text("opt/new") == "new");
  CHECK(fs::read_symlink(it.at("bin")) == "usr/bin");
  CHECK((it.status("").st_mode & 07777) == 0751);
  CHECK((it.status("usr/bin/tool").st_mode & 07777) == 04755);
  CHECK(it.status("usr/bin/tool").st_ino == it.status("usr/bin/again").st_ino);
  CHECK(S_ISFIFO(it.status("srv/pipe").st_mode));
  CHECK((it.status("srv/pipe").st_mode & 07777) == 0640);
  CHECK(it.status("srv/pipe").st_uid == 33);
  CHECK((it.status("usr").st_mode & 07777) == 0755); // No layer has it.
  CHECK(it.status("usr").st_uid == 0);
  // What came into a directory later does not change its time, as umoci has it.
  CHECK(it.status("etc").st_mtime == 1'500'000'000);
}

TEST_CASE("other users of the machine reach no file of an image, setuid or not", "[images]") {
  image_fixture it;
  ::chmod(it.state.c_str(), 0755);
  layout_builder from;
  from.add({{"usr/bin/tool", 'f', "#!", 06755}, {"tmp/", 'd', "", 01777}});
  it.imported(from);
  struct stat images {};
  REQUIRE(::stat((it.state + "/images").c_str(), &images) == 0);
  CHECK((images.st_mode & 07777) == 0700);
  CHECK(images.st_uid == 0);
  const auto tree = fs::read_symlink(it.state + "/images/it").string();
  REQUIRE(::stat((it.state + "/images/" + tree).c_str(), &images) == 0);
  CHECK((images.st_mode & 07777) == 0700);
  for (const auto& path : {it.at("usr/bin/tool"), it.at("tmp")}) {
    const auto child = ::fork();
    if (child == 0) {
      const bool other = ::setgroups(0, nullptr) == 0 && ::setresgid(1000, 1000, 1000) == 0 &&
                         ::setresuid(1000, 1000, 1000) == 0;
      ::_exit(!other ? 2 : ::open(path.c_str(), O_PATH | O_CLOEXEC) < 0 && errno == EACCES ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

TEST_CASE("owners and times are as the layer says", "[images]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', "x", 0600, 65'535, 1, -5}, {"l", 'l', "a", 0, 7, 8, 1'234'567'890}});
  it.imported(from);
  CHECK(it.status("a").st_uid == 65'535);
  CHECK(it.status("a").st_gid == 1);
  CHECK(it.status("a").st_mtime == -5);
  CHECK(it.status("l").st_uid == 7);
  CHECK(it.status("l").st_mtime == 1'234'567'890);
}

TEST_CASE("a whiteout hides what lower layers have, and only that", "[images][whiteout]") {
  image_fixture it;
  layout_builder from;
  from.add({{"d/a", 'f', "a"}, {"d/b", 'f', "b"}, {"d/deep/c", 'f', "c"}, {"e/f", 'f', "f"}});
  SECTION("a file, a directory") {
    from.add({{"d/.wh.a", 'f', ""}, {".wh.e", 'f', ""}, {"d/.wh.never", 'f', ""}});
    it.imported(from);
    CHECK_FALSE(it.there("d/a"));
    CHECK(it.there("d/b"));
    CHECK_FALSE(it.there("e"));
    CHECK_FALSE(it.there("d/.wh.a"));
  }
  SECTION("an opaque directory, whose own files may come before the mark or after it") {
    from.add({{"d/mine", 'f', "mine"},
              {"d/deep/mine", 'f', "mine"},
              {"d/.wh..wh..opq", 'f', ""},
              {"d/b", 'f', "mine"}});
    it.imported(from);
    CHECK_FALSE(it.there("d/a"));
    CHECK_FALSE(it.there("d/deep/c"));
    CHECK(it.text("d/mine") == "mine");
    CHECK(it.text("d/deep/mine") == "mine");
    CHECK(it.text("d/b") == "mine");
    CHECK(it.text("e/f") == "f");
  }
  SECTION("not what the same layer has under that name") {
    from.add(
      {{"d/a", 'f', "new"}, {"d/.wh.a", 'f', ""}, {"d/.wh.b", 'f', ""}, {"d/b", 'f', "new"}});
    it.imported(from);
    CHECK(it.text("d/a") == "new");
    CHECK(it.text("d/b") == "new");
  }
  SECTION("the whole root") {
    from.add({{".wh..wh..opq", 'f', ""}, {"only", 'f', "only"}});
    it.imported(from);
    CHECK_FALSE(it.there("d"));
    CHECK_FALSE(it.there("e"));
    CHECK(it.text("only") == "only");
  }
  SECTION("below what has become a file, or a symlink, there is nothing to hide") {
    from.add({{"d/deep", 'f', "now a file"},
              {"d/deep/.wh.c", 'f', ""},
              {"e", 'l', "d"},
              {"e/.wh.b", 'f', ""},
              {"gone/.wh.x", 'f', ""}});
    it.imported(from);
    CHECK(it.text("d/deep") == "now a file");
    CHECK(it.text("d/b") == "b");
  }
  SECTION("the bookkeeping of another file system is nothing") {
    from.add({{".wh..wh.plnk", 'd', ""}, {".wh..wh.aufs", 'f', ""}, {"d/.wh..wh.orph", 'd', ""}});
    it.imported(from);
    CHECK(it.there("d/a"));
    CHECK_FALSE(it.there(".wh..wh.plnk"));
  }
}

TEST_CASE("whiteouts of the first layer hide nothing", "[images][whiteout]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', "a"}, {".wh.a", 'f', ""}, {".wh..wh..opq", 'f', ""}});
  it.imported(from);
  CHECK(it.text("a") == "a");
}

TEST_CASE("what comes later takes the place of what was there, whatever the two are", "[images]") {
  image_fixture it;
  layout_builder from;
  from.add({{"file", 'f', "1"},
            {"file", 'f', "2"},
            {"tree/a/b", 'f', "b"},
            {"link", 'l', "/outside"},
            {"kept/x", 'f', "x", 0, 0, 0},
            {"one", 'f', "one"},
            {"two", 'h', "one"}});
  from.add({{"file/", 'd', ""},
            {"file/inside", 'f', "inside"},
            {"tree", 'f', "a file"},
            {"link/", 'd', "", 0700},
            {"link/y", 'f', "y"},
            {"kept/", 'd', "", 0711, 3, 4},
            {"one", 'f', "other"}});
  it.imported(from);
  CHECK(it.text("file/inside") == "inside");
  CHECK(it.text("tree") == "a file");
  CHECK(it.text("link/y") == "y");
  CHECK(it.text("kept/x") == "x");
  CHECK((it.status("kept").st_mode & 07777) == 0711);
  CHECK(it.status("kept").st_uid == 3);
  CHECK(it.text("two") == "one"); // The other name keeps the old content.
}

TEST_CASE("names are bytes", "[images]") {
  image_fixture it;
  layout_builder from;
  const std::vector<std::string> names{"with space", "line\nbreak", "\xc3\xbc",
                                       "u\xcc\x88",  "\xff\xfe",    "--",
                                       "*",          ".wh",         "\xe6\x97\xa5\xe6\x9c\xac",
                                       "..x",        "x..",         "..."};
  std::vector<tar_member> members;
  for (const auto& each : names)
    members.push_back({"n/" + each, 'f', each});
  // Long enough for a record of its own in the tar.
  const std::string deep = std::string(200, 'd') + "/" + std::string(255, '\xfc');
  members.push_back({deep, 'f', "deep"});
  members.push_back({"link", 'l', "u\xcc\x88/\xff"});
  members.push_back({"hard", 'h', "n/\xff\xfe"});
  from.add(members);
  it.imported(from);
  for (const auto& each : names)
    CHECK(it.text("n/" + each) == each);
  CHECK(it.text(deep) == "deep");
  CHECK(fs::read_symlink(it.at("link")) == "u\xcc\x88/\xff");
  CHECK(it.text("hard") == "\xff\xfe");
}

TEST_CASE("of extended attributes, those of users and of capabilities are kept", "[images]") {
  image_fixture it;
  layout_builder from;
  // VFS_CAP_REVISION_2 with cap_net_bind_service.
  const std::string capability{"\1\0\0\2\0\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20};
  from.add({{"d", 'd', "", 0, 0, 0, 0, {{"user.old", "1"}}},
            {"f",
             'f',
             "x",
             0755,
             9,
             9,
             0,
             {{"user.note", std::string{"a\0b", 3}},
              {"user.overlay.opaque", "y"},
              {"trusted.overlay.opaque", "y"},
              {"security.capability", capability},
              {"security.other", "z"}}}});
  from.add({{"d", 'd', "", 0, 0, 0, 0, {{"user.new", "2"}}}});
  it.imported(from);
  if (it.attribute("f", "user.note").empty()) // The temporary directory's file system has none.
    WARN("no attributes of users here");
  else
    CHECK(it.attribute("d", "user.new") == "2");
  CHECK((it.attribute("f", "user.note").empty() ||
         it.attribute("f", "user.note") == std::string{"a\0b", 3}));
  CHECK(it.attribute("f", "security.capability") == capability);
  CHECK(it.attribute("f", "user.overlay.opaque").empty());
  CHECK(it.attribute("f", "trusted.overlay.opaque").empty());
  CHECK(it.attribute("f", "security.other").empty());
  CHECK(it.attribute("d", "user.old").empty());
}

TEST_CASE("holes of a file stay holes", "[images]") {
  image_fixture it;
  layout_builder from;
  tar_member sparse{"disk", 'f', "the end"};
  sparse.hole = 8 << 20;
  from.add({sparse});
  it.imported(from);
  const auto info = it.status("disk");
  CHECK(info.st_size == (8 << 20) + 7);
  CHECK(info.st_blocks * 512 < 1 << 20);
  CHECK(it.text("disk").ends_with("\0the end"));
}

TEST_CASE("a tar without its end is whole, as long as its files are", "[images]") {
  image_fixture it;
  layout_builder from;
  auto tar = make_tar({{"a", 'f', "first"}, {"b", 'f', "last"}});
  tar.resize(tar.find("last") + 4);
  from.add_tar(tar);
  it.imported(from);
  CHECK(it.text("b") == "last");
}

TEST_CASE("an image may be empty layers above one", "[images]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', "a"}});
  from.add({}, packing::gzip);
  from.add_tar("");
  it.imported(from);
  CHECK(it.text("a") == "a");
}

// ---- What is added

TEST_CASE("what a sandbox needs is added, and what is there stays", "[images][furnish]") {
  image_fixture it;
  layout_builder from;
  SECTION("to an image of one file") {
    from.add({{"hello", 'f', "hello", 0755}});
    const auto record = it.imported(from);
    CHECK(record.account == images::image_account{"sandbox", "/home/sandbox", ""});
    for (const char* each : {"proc", "sys", "dev", "run", "tmp", "workspace", "home/sandbox"})
      CHECK(S_ISDIR(it.status(each).st_mode));
    CHECK((it.status("tmp").st_mode & 07777) == 01777);
    CHECK(it.status("workspace").st_uid == 1000);
    CHECK(it.status("home/sandbox").st_uid == 1000);
    CHECK(it.text("etc/passwd") ==
          "root:x:0:0:root:/root:\nsandbox:x:1000:1000:sandbox:/home/sandbox:\n");
    CHECK(it.text("etc/group") == "root:x:0:\nsandbox:x:1000:\n");
    CHECK(contains(it.text("etc/hosts"), "127.0.0.1 localhost"));
    CHECK(contains(it.text("home/sandbox/.profile"), "$HOME/.local/bin:"));
    for (const char* each : {"home/sandbox/.profile", "home/sandbox/.local/bin"})
      CHECK(it.status(each).st_uid == 1000);
    CHECK(it.target("etc/machine-id") == "/dev/machine-id");
  }
  SECTION("to one with accounts, a shell and a workspace of its own") {
    from.add({{"etc/passwd", 'f', "root:x:0:0::/root:/bin/sh\nsandbox:x:999:999::/:/bin/sh"},
              {"etc/passwd-", 'h', "etc/passwd"},
              {"etc/group", 'f', "root:x:0:\nother:x:1000:\n"},
              {"etc/shadow", 'f', "root:*:1::::::", 0640},
              {"etc/gshadow", 'f', "root:*::\n", 0640},
              {"etc/hosts", 'f', "10.0.0.1 me\n"},
              {"bin", 'l', "usr/bin"},
              {"usr/bin/dash", 'f', "", 0755},
              {"usr/bin/sh", 'l', "/bin/dash"},
              {"usr/bin/bash", 'f', "no program", 0644},
              {"workspace", 'd', "", 0700},
              {"workspace/there", 'f', "there"},
              {"tmp", 'd', "", 0700}});
    const auto record = it.imported(from);
    CHECK(record.account == images::image_account{"sandbox_", "/home/sandbox", "/bin/sh"});
    CHECK(it.text("etc/passwd")
            .ends_with("/bin/sh\nsandbox_:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n"));
    CHECK_FALSE(contains(it.text("etc/passwd-"), "1000"));
    CHECK(it.text("etc/shadow") == "root:*:1::::::\nsandbox_:*:19000:0:99999:7:::\n");
    CHECK((it.status("etc/shadow").st_mode & 07777) == 0640);
    CHECK(it.text("etc/gshadow") == "root:*::\n"); // The group was there.
    CHECK(it.text("etc/group") == "root:x:0:\nother:x:1000:\n");
    CHECK(it.text("etc/hosts") == "10.0.0.1 me\n");
    CHECK(it.text("workspace/there") == "there");
    CHECK(it.status("workspace").st_uid == 1000);
    CHECK((it.status("workspace").st_mode & 07777) == 0700);
    CHECK((it.status("tmp").st_mode & 07777) == 01777);
  }
  SECTION("nobody, where uid 1000 is somebody with a home") {
    from.add({{"etc/passwd", 'f', "node:x:1000:1000::/home/node:/bin/bash\n"},
              {"home/node", 'd', "", 0755, 1000, 1000},
              {"home/node/.profile", 'f', "the image's"},
              {"usr/local/bin/corepack", 'l', "../lib/corepack.js"},
              {"usr/local/lib/corepack.js", 'f', "", 0755},
              {"etc/machine-id", 'f', "0123456789abcdef0123456789abcdef\n"},
              {"bin/bash", 'f', "", 0755}});
    const auto record = it.imported(from);
    CHECK(record.account == images::image_account{"node", "/home/node", "/bin/bash"});
    CHECK(it.text("etc/passwd") == "node:x:1000:1000::/home/node:/bin/bash\n");
    CHECK_FALSE(it.there("home/sandbox"));
    CHECK(it.text("home/node/.profile") == "the image's");
    CHECK(it.target("home/node/.local/bin/corepack") == "/usr/local/bin/corepack");
    CHECK(it.status("home/node/.local/bin/corepack").st_uid == 1000);
    CHECK(it.target("etc/machine-id") == "/dev/machine-id");
  }
  SECTION("a home, where uid 1000's is not there") {
    from.add({{"etc/passwd", 'f', "node:x:1000:1000::/nowhere:/bin/bash\n"}});
    CHECK(it.imported(from).account.home == "/home/sandbox");
    CHECK(it.there("home/sandbox"));
  }
}

TEST_CASE("what a sandbox needs cannot be something else", "[images][furnish]") {
  image_fixture it;
  layout_builder from;
  const auto member =
    GENERATE(tar_member{"workspace", 'l', "/etc"}, tar_member{"proc", 'f', ""},
             tar_member{"tmp", 'l', "var"}, tar_member{"dev", 'p', ""}, tar_member{"etc", 'l', "x"},
             tar_member{"etc/passwd", 'l', "../../../outside/precious"},
             tar_member{"etc/group", 'p', ""}, tar_member{"etc/hosts", 'd', ""});
  from.add({member});
  CHECK(contains(it.refusal(from), "/" + member.path + " of the image is no "));
}

// ---- The configuration

TEST_CASE("environment, user, directory and entrypoint are read from the configuration",
          "[images][config]") {
  image_fixture it;
  layout_builder from;
  from.add({{"etc/os-release", 'f', "NAME=x\nPRETTY_NAME=\"Some Linux 1\x1b[31m\"\n"}});
  from.run = R"({"Env":["PATH=/a:/b","EMPTY="],"User":"me:us","WorkingDir":"/srv",)"
             R"("Entrypoint":["/bin/x","-a"],"Cmd":null,"Labels":{"a":"b"}})";
  const auto record = it.imported(from);
  CHECK(record.settings ==
        images::image_settings{{"PATH=/a:/b", "EMPTY="}, "me:us", "/srv", {"/bin/x", "-a"}, {}});
  CHECK(record.base == "Some Linux 1[31m"); // For a terminal, without what commands one.
  CHECK(*it.store.find("it") == record);
  CHECK(it.store.list()->front() == record);
}

TEST_CASE("an image without settings has none", "[images][config]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', ""}});
  from.run = "null";
  CHECK(it.imported(from).settings == images::image_settings{});
}

TEST_CASE("of several images, the one for this machine is taken", "[images][config]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', "mine"}});
  const auto platform = [](const std::string& os, const std::string& architecture) {
    return R"(,"platform":{"os":")" + os + R"(","architecture":")" + architecture + "\"}";
  };
  const auto named = [](const std::string& name) {
    return R"(,"annotations":{"org.opencontainers.image.ref.name":")" + name + "\"}";
  };
  const auto mine = from.write_manifest(platform("linux", images::machine_architecture()));
  const auto tagged_one = from.write_manifest(named("one"));
  const auto other_machine = from.write_manifest(platform("linux", "s390x"));
  const auto unknown = from.write_manifest(platform("unknown", "unknown"));
  layout_builder second;
  second.add({{"a", 'f', "second"}});
  const auto tagged_two = second.write_manifest(named("registry/x:two"));
  fs::copy(second.where / "blobs", from.where / "blobs",
           fs::copy_options::recursive | fs::copy_options::skip_existing);

  SECTION("by its platform") {
    from.write_index(other_machine + "," + unknown + "," + mine);
    REQUIRE(it.import(from.path()));
    CHECK(it.text("a") == "mine");
  }
  SECTION("through an index in the index") {
    const auto inner = R"({"schemaVersion":2,"manifests":[)" + other_machine + "," + mine + "]}";
    write_file(from.blob(sha256(inner)), inner);
    from.write_index(R"({"mediaType":"application/vnd.oci.image.index.v1+json","digest":")" +
                     sha256(inner) + R"(","size":)" + std::to_string(inner.size()) + "}");
    REQUIRE(it.import(from.path()));
    CHECK(it.text("a") == "mine");
  }
  SECTION("by its tag") {
    from.write_index(tagged_one + "," + tagged_two);
    images::import_options how;
    how.tag = "two";
    REQUIRE(it.import(from.path(), how));
    CHECK(it.text("a") == "second");
  }
  SECTION("not by chance") {
    from.write_index(tagged_one + "," + tagged_two);
    CHECK(contains(it.refusal(from.path()), "--tag says which; its tags: one registry/x:two"));
    images::import_options how;
    how.tag = "three";
    CHECK(contains(it.refusal(from.path(), how), "no image \"three\""));
  }
  SECTION("none for another machine") {
    from.write_index(other_machine + "," + unknown);
    CHECK(contains(it.refusal(from.path()), "linux/s390x"));
  }
  SECTION("also not one that only its configuration gives away") {
    from.architecture = "s390x";
    CHECK(contains(it.refusal(from), "the image is for linux/s390x"));
  }
}

// ---- Archives

TEST_CASE("a layout in a tar is the same, packed or not", "[images][archive]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', "a"}, {"b", 'f', std::string(1 << 20, 'b')}}, packing::gzip);
  from.write();
  std::vector<tar_member> members;
  for (const auto& each : fs::recursive_directory_iterator{from.where.path()})
    if (each.is_regular_file())
      members.push_back({"./" + fs::relative(each.path(), from.where.path()).string(), 'f',
                         read_file(each.path())});
  const auto how = GENERATE(packing::plain, packing::gzip, packing::zstd);
  const auto file = it.where / "image.tar";
  write_file(file, pack(make_tar(members), how));
  const auto made = it.import(file.string());
  REQUIRE(made);
  CHECK(made->format == "oci");
  CHECK(it.text("a") == "a");
  CHECK(it.text("b").size() == 1 << 20);
}

TEST_CASE("what docker save writes is taken", "[images][archive]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', "a"}, {"gone", 'f', ""}});
  from.add({{".wh.gone", 'f', ""}});
  const auto file = it.where / "image.tar";
  SECTION("as it is") {
    write_file(file, from.docker_tar());
  }
  SECTION("packed") {
    write_file(file, pack(from.docker_tar(), packing::gzip));
  }
  SECTION("with layers that are links to each other") {
    const auto settings = from.config();
    const auto config = sha256(settings).substr(7) + ".json";
    write_file(file,
               make_tar({{"x/one.tar", 'f', from.layers[0].blob},
                         {"y/layer.tar", 'l', "../x/one.tar"},
                         {"z/layer.tar", 'f', from.layers[1].blob},
                         {config, 'f', settings},
                         {"manifest.json", 'f',
                          R"([{"Config":")" + config +
                            R"(","RepoTags":null,"Layers":["y/layer.tar","z/layer.tar"]}])"}}));
  }
  const auto made = it.import(file.string());
  if (!made)
    FAIL(made.reason().message);
  CHECK(made->format == "docker");
  CHECK(made->digest == sha256(from.config()));
  CHECK(it.text("a") == "a");
  CHECK_FALSE(it.there("gone"));
}

// ---- The store

TEST_CASE("an image is replaced only when that is wanted", "[images][store]") {
  image_fixture it;
  layout_builder first, second;
  first.add({{"a", 'f', "first"}});
  second.add({{"a", 'f', "second"}});
  it.imported(first);
  second.write();
  images::import_options how;
  how.name = "it";
  const auto refused = it.store.import_image(second.path(), how);
  REQUIRE_FALSE(refused);
  CHECK(contains(refused.reason().message, "--replace"));
  CHECK(it.text("a") == "first");
  how.replace = true;
  REQUIRE(it.store.import_image(second.path(), how));
  CHECK(it.text("a") == "second");
  CHECK(it.leftovers().empty());
}

TEST_CASE("a failed replacement leaves what was there", "[images][store]") {
  image_fixture it;
  layout_builder first, second;
  first.add({{"a", 'f', "first"}});
  const auto record = it.imported(first);
  second.add({{"/absolute", 'f', ""}});
  second.write();
  images::import_options how;
  how.replace = true;
  REQUIRE_FALSE(it.import(second.path(), how));
  CHECK(it.text("a") == "first");
  CHECK(*it.store.find("it") == record);
  CHECK(it.leftovers().empty());
}

TEST_CASE("names of images are plain", "[images][store]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', ""}});
  from.write();
  images::import_options how;
  how.name = GENERATE("host", "..", ".x", "a/b", "A", "-a", "a b", "\xc3\xbc", "a\n");
  CHECK_FALSE(it.store.import_image(from.path(), how));
  CHECK_FALSE(it.store.find(how.name));
  CHECK_FALSE(it.store.remove(how.name));
}

TEST_CASE("only root may look into images", "[images][store]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', "", 04755}});
  it.imported(from);
  CHECK((it.status("..").st_mode & 07777) == 0700);
}

TEST_CASE("a removed image is gone, and its name is free", "[images][store]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', ""}});
  it.imported(from);
  REQUIRE(it.store.remove("it"));
  CHECK(it.store.list()->empty());
  CHECK(it.leftovers().empty());
  const auto again = it.store.remove("it");
  REQUIRE_FALSE(again);
  CHECK(again.reason().code == errc::not_found);
  CHECK(contains(again.reason().message, "insula image import"));
  it.imported(from);
}

TEST_CASE("one image has several names, and stays as long as one does", "[images][store]") {
  image_fixture at;
  layout_builder one, other;
  one.add({{"file", 'f', "one"}});
  other.add({{"file", 'f', "other"}});
  images::import_options how;
  how.name = "first";
  how.reference = "registry.example/one:1";
  const auto first = at.imported(one, how);
  CHECK(at.store.find("first")->reference == "registry.example/one:1");
  how.name = "second";
  const auto second = at.store.name_again(first.digest, how);
  REQUIRE(second);
  CHECK(second->name == "second");
  CHECK(second->root == first.root);
  CHECK(at.store.list()->size() == 2);

  INFO("the name is free, or replaced when that is wanted, and the image has to be here");
  const auto taken = at.store.name_again(first.digest, how);
  REQUIRE_FALSE(taken);
  CHECK(taken.reason().message.find("there is an image \"second\" already") != std::string::npos);
  how.name = "Bad";
  CHECK_FALSE(at.store.name_again(first.digest, how));
  how.name = "third";
  const auto missing = at.store.name_again(sha256("nothing"), how);
  REQUIRE_FALSE(missing);
  CHECK(missing.reason().code == errc::not_found);
  images::import_options another;
  another.name = "other";
  const auto replaced = at.imported(other, another);
  another.replace = true;
  REQUIRE(at.store.name_again(first.digest, another));
  CHECK(at.store.find("other")->root == first.root);
  CHECK_FALSE(fs::exists(replaced.root)); // No name leads there any more.

  REQUIRE(at.store.remove("first"));
  REQUIRE(at.store.remove("other"));
  CHECK(read_file(fs::path{at.store.find("second")->root} / "file") == "one");
  REQUIRE(at.store.remove("second"));
  CHECK_FALSE(fs::exists(first.root));
  CHECK(at.leftovers().empty());
}

TEST_CASE("an image that has to have a digest is no other one", "[images][store]") {
  image_fixture at;
  layout_builder one;
  one.add({{"file", 'f', "one"}});
  images::import_options how;
  how.digest = sha256("another");
  CHECK(at.refusal(one, how).find(", not " + how.digest) != std::string::npos);
}

TEST_CASE("a record may say more than a program knows", "[images][store]") {
  images::image_record record;
  record.name = "it";
  auto text = images::to_json(record);
  text.insert(1, R"("of_tomorrow": {"a": [1]}, )");
  const auto again = images::read_image_record(text);
  REQUIRE(again);
  CHECK(*again == record);
}

TEST_CASE("while a server runs, nothing is taken from under its sandboxes", "[images][store]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', "old"}});
  it.imported(from);
  const unique_fd below{::open(it.at("").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  const auto still_there = [&] { return ::faccessat(below.get(), "a", F_OK, 0) == 0; };
  {
    const unique_fd server{
      ::open((it.state + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    REQUIRE(::flock(server.get(), LOCK_EX | LOCK_NB) == 0);
    images::import_options how;
    how.replace = true;
    it.imported(from, how);
    CHECK(still_there());
    REQUIRE(it.store.remove("it"));
    CHECK(still_there());
    CHECK(it.leftovers().size() == 2);
    SECTION("the next server removes it") {
      it.store.sweep({});
    }
  }
  SECTION("whoever comes after that server removes it") {
    it.imported(from);
  }
  CHECK_FALSE(still_there());
  CHECK(it.leftovers().empty());
}

TEST_CASE("what a starting server has found stays, whatever happens to the name meanwhile",
          "[images][store]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', "old"}});
  it.imported(from);
  const unique_fd server{::open((it.state + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  REQUIRE(::flock(server.get(), LOCK_EX | LOCK_NB) == 0);
  const auto found = it.store.find("it");
  REQUIRE(found);

  layout_builder other;
  other.add({{"a", 'f', "new"}});
  other.run = R"({"Env":["PATH=/bin","NEW=yes"]})";
  images::import_options how;
  how.replace = true;
  const auto made = it.imported(other, how);
  CHECK(made.root != found->root);
  CHECK(*it.store.find("it") == made);
  CHECK(read_file(made.root + "/a") == "new");
  CHECK(read_file(found->root + "/a") == "old");
  REQUIRE(it.store.remove("it"));
  CHECK(read_file(made.root + "/a") == "new");

  it.store.sweep({found->root});
  CHECK(read_file(found->root + "/a") == "old");
  CHECK_FALSE(fs::exists(made.root));
  it.store.sweep({});
  CHECK(it.leftovers().empty());
}

TEST_CASE("what is no image is neither listed nor replaced", "[images][store]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', ""}});
  const auto outside = it.where / "outside";
  fs::create_directories(it.state + "/images");
  SECTION("a directory") {
    write_file(it.state + "/images/it/image.json", "{}");
    write_file(it.state + "/images/it/root/file", "");
    from.write();
    const auto refused = it.import(from.path(), {.name = {}, .tag = {}, .replace = true});
    REQUIRE_FALSE(refused);
    CHECK(contains(refused.reason().message, "is no image, and in the way of one"));
    CHECK_FALSE(it.store.remove("it"));
    CHECK(it.there("file"));
  }
  SECTION("a symlink that leads elsewhere") {
    fs::create_directory_symlink(outside, it.state + "/images/it");
    CHECK_FALSE(it.store.remove("it"));
    // Nothing is removed while it is not known what is needed.
    write_file(it.state + "/images/.tree-1/root/file", "");
    it.store.sweep({});
    CHECK(fs::exists(it.state + "/images/.tree-1/root/file"));
  }
  SECTION("a symlink to nothing") {
    fs::create_symlink(".tree-1", it.state + "/images/it");
  }
  CHECK(it.store.list()->empty());
  const auto missing = it.store.find("it");
  REQUIRE_FALSE(missing);
  CHECK(missing.reason().code == errc::not_found);
}

TEST_CASE("two imports at once are one too many", "[images][store]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', ""}});
  from.write();
  images::import_options how;
  how.on_progress = [&](const images::import_progress&) {
    images::image_store other{it.state};
    images::import_options second;
    second.name = "other";
    const auto refused = other.import_image(from.path(), second);
    REQUIRE_FALSE(refused);
    CHECK(refused.reason().code == errc::limit_reached);
  };
  CHECK(it.import(from.path(), how));
}

TEST_CASE("a cancelled import leaves nothing", "[images][store]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', std::string(2 << 20, 'a')}});
  int asked = 0;
  images::import_options how;
  how.cancelled = [&] { return ++asked > 3; };
  it.refusal(from, how, errc::deadline_exceeded);
}

TEST_CASE("a killed import leaves nothing that counts, and the next one removes it",
          "[images][store]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', std::string(2 << 20, 'a')}});
  from.add({{"b", 'f', "b"}});
  from.write();
  const auto child = ::fork();
  if (child == 0) {
    images::import_options how;
    how.name = "it";
    how.on_progress = [](const images::import_progress& now) {
      if (now.layer == 2)
        ::raise(SIGKILL);
    };
    static_cast<void>(it.store.import_image(from.path(), how));
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(it.store.list()->empty());
  CHECK_FALSE(it.store.find("it"));
  CHECK(it.leftovers().size() == 1);
  it.imported(from);
  CHECK(it.leftovers().empty());
}

TEST_CASE("progress says how far an import is", "[images][store]") {
  image_fixture it;
  layout_builder from;
  from.add({{"a", 'f', std::string(3 << 20, 'a')}});
  from.add({{"b", 'f', ""}}, packing::gzip);
  std::vector<images::import_progress> seen;
  images::import_options how;
  how.on_progress = [&](const images::import_progress& now) { seen.push_back(now); };
  it.imported(from, how);
  REQUIRE(seen.size() > 3);
  CHECK(seen.front().layer == 1);
  CHECK(seen.back().layer == 2);
  CHECK(seen.back().layers == 2);
  CHECK(seen.back().bytes == seen.back().total_bytes);
  for (std::size_t i = 1; i < seen.size(); ++i)
    CHECK(seen[i].bytes > seen[i - 1].bytes);
}
