// Drives of real sandboxes, attached to other ones. Needs root.
#include "tests/contract/drive_contract.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/live_node.hpp"

#include <csignal>
#include <future>
#include <memory>
#include <string>
#include <vector>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

constexpr sandbox_user as_root{0, 0};

std::optional<error> attach(live_sandbox& to, const drive_spec& what) {
  std::promise<std::optional<error>> told;
  (*to).attach_drive(what, [&](const result<void>& got) {
    told.set_value(got ? std::nullopt : std::optional{got.reason()});
  });
  return told.get_future().get();
}

/// As the object of a drive makes it.
void give_drive(live_sandbox& of) {
  REQUIRE(of.run("mkdir /drive && chown 1000:1000 /drive", as_root).exited(0));
}

drive_spec at(const std::string& path, const live_sandbox& of, bool read_only = false) {
  drive_spec what;
  what.path = path;
  what.of = of.handle();
  what.read_only = read_only;
  what.owner = 1000;
  return what;
}

} // namespace

TEST_CASE("the engine has drives as its contract says", "[runtime][drives]") {
  live_node node;
  std::vector<std::unique_ptr<live_sandbox>> all;
  const auto of = [&](const std::shared_ptr<sandbox>& which) -> live_sandbox& {
    return **std::find_if(all.begin(), all.end(),
                          [&](const auto& each) { return each->handle() == which; });
  };
  check_drive_contract(
    node.engine(), [&] { return all.emplace_back(std::make_unique<live_sandbox>(node))->handle(); },
    [&](const auto& which) { of(which).destroy(); },
    [&](const auto& of_it) { give_drive(of(of_it)); });
}

TEST_CASE("what one sandbox writes to a drive the next one reads", "[runtime][drives]") {
  live_node node;
  live_sandbox drive{node}, reader{node};
  give_drive(drive);
  {
    live_sandbox writer{node};
    REQUIRE_FALSE(attach(writer, at("/mnt/data/here", drive)));
    CHECK(writer
            .run("cd /mnt/data/here && echo word > file && mkdir -p a/b && ln -s file link && "
                 "chmod 640 file && cp /bin/true run && ./run")
            .exited(0));
    CHECK(writer.run("cd /mnt/data/here; chown 5:6 a; cp /usr/bin/id own; chmod 4755 own", as_root)
            .exited(0));
    INFO("with owners as in each sandbox, and nobody gains rights there");
    CHECK(writer.run("stat -c '%u:%g %a' /mnt/data/here/{file,a,own}").out ==
          "1000:1000 640\n5:6 755\n0:0 4755\n");
    CHECK(writer.run("/mnt/data/here/own -u").out == "1000\n");
  }
  REQUIRE_FALSE(attach(reader, at("/data", drive, true)));
  CHECK(reader.run("cat /data/link; stat -c '%u:%g' /data/a").out == "word\n5:6\n");
  CHECK(reader.run("echo no > /data/file; mkdir /data/no; rm /data/link", as_root).exited(1));
  CHECK(reader.run("mount -o remount,rw /data", as_root).how.status != 0);

  INFO("the next one that writes to it is seen by those that read");
  live_sandbox next{node};
  REQUIRE_FALSE(attach(next, at("/data", drive)));
  CHECK(next.run("echo other > /data/file").exited(0));
  CHECK(reader.run("cat /data/file").out == "other\n");

  INFO("a snapshot of it stays as it was when the drive changes");
  std::promise<result<disk_snapshot>> taken;
  (*drive).take_snapshot("d-1", [&](const auto& got) { taken.set_value(got); });
  REQUIRE(taken.get_future().get());
  auto before = at("/before", drive);
  before.snapshot = "d-1";
  REQUIRE_FALSE(attach(reader, before));
  std::promise<result<void>> dropped;
  node.engine().drop_snapshot("d-1", [&](const auto& got) { dropped.set_value(got); });
  CHECK(dropped.get_future().get());
  CHECK(next.run("echo third > /data/file").exited(0));
  CHECK(reader.run("cat /before/file; echo no > /before/file").out == "other\n");
}

TEST_CASE("a drive leads to no file but its own", "[runtime][drives][isolation]") {
  live_node node;
  live_sandbox drive{node}, box{node};
  REQUIRE(drive.run("echo secret > /secret; mkdir /elsewhere", as_root).exited(0));
  REQUIRE(drive.run("ln -s / /drive", as_root).exited(0));
  CHECK(attach(box, at("/data", drive))); // A link is none.
  REQUIRE(drive.run("rm /drive", as_root).exited(0));
  give_drive(drive);
  for (const auto* path : {"/", "/proc", "/proc/self", "/sys/fs", "/dev", "/dev/shm", "/a/../b",
                           "relative", "/a//b", ""})
    CHECK(attach(box, at(path, drive)));
  REQUIRE(box.run("ln -s /etc /linked", as_root).exited(0));
  CHECK(attach(box, at("/linked/data", drive)));
  REQUIRE_FALSE(attach(box, at("/data", drive)));
  CHECK(box.run("ls -A /data; ls /data/..; cat /data/../secret 2>/dev/null").out.find("secret") ==
        std::string::npos);
  INFO("marks of overlays mean nothing to the sandbox whose disk it is");
  CHECK(box.run("cd /data && mknod gone c 0 0 && mkdir d && touch d/own", as_root).exited(0));
  CHECK(box
          .run("python3 -c 'import os; os.setxattr(\"/data/d\", \"user.overlay.redirect\", "
               "b\"/secret\"); os.setxattr(\"/data\", \"user.overlay.opaque\", b\"y\")'",
               as_root)
          .exited(0));
  CHECK(drive.run("cat /secret; ls /drive/d", as_root).out == "secret\nown\n");
}

TEST_CASE("a drive has its own ceiling", "[runtime][drives]") {
  live_node node;
  auto small = node.spec();
  small.limits.disk_bytes = 32u << 20;
  live_sandbox drive{node, small}, box{node};
  give_drive(drive);
  REQUIRE_FALSE(attach(box, at("/data", drive)));
  CHECK(box.run("head -c 64M /dev/zero | tr '\\0' x > /data/large").how.status != 0);
  CHECK(box.run("head -c 8M /dev/zero > large && rm /data/large").exited(0));
  CHECK(box.run("echo room > /data/small; cat /data/small").out == "room\n");
}

TEST_CASE("a sandbox makes no volume in a drive", "[runtime][drives][isolation]") {
  live_node node;
  live_sandbox drive{node}, box{node};
  give_drive(drive);
  REQUIRE_FALSE(attach(box, at("/data", drive)));
  const std::string ask =
    "import fcntl, os, struct, sys\n"
    "def ask(number, what):\n"
    "  try:\n"
    "    fcntl.ioctl(os.open('/data', os.O_RDONLY), number, bytearray(what))\n"
    "    print('done')\n"
    "  except OSError as why:\n"
    "    print(why.errno)\n";
  const std::string calls =
    "old = struct.pack('q4088s', 0, b'volume')\n" // SUBVOL_CREATE, SNAP_CREATE, SNAP_DESTROY
    "new = struct.pack('qQQ32s4040s', 0, 0, 0, b'', b'volume')\n" // And the second versions.
    "own = struct.pack('q4088s', os.open('/data', os.O_RDONLY), b'copy')\n"
    "for number, what in [(0x5000940e, old), (0x50009418, new), (0x50009401, own), "
    "(0x50009417, new), (0x5000940f, old), (0x5000943f, new)]: ask(number, what)\n";
  for (const auto user : {sandbox_user{}, as_root})
    CHECK(box.run("python3 -c \"" + ask + calls + "\"", user).out == "25\n25\n25\n25\n25\n25\n");
  CHECK(box.run("ls -A /data").out.empty());
  INFO("and copies ranges of files as before");
  CHECK(box.run("cd /data && echo word > a && cp --reflink=always a b && cat b").out == "word\n");
}

TEST_CASE("a drive stays attached when its server goes", "[runtime][drives]") {
  live_node node;
  auto drive_spec_of = node.spec(), box_spec = node.spec();
  drive_spec_of.name = "drive";
  box_spec.name = "box";
  {
    live_sandbox drive{node, drive_spec_of}, box{node, box_spec};
    give_drive(drive);
    REQUIRE_FALSE(attach(box, at("/data", drive)));
    REQUIRE(box.run("echo word > /data/file").exited(0));
    drive.let_go();
    box.let_go();
  }
  node.drop_server();
  node.serve();
  auto drive = live_sandbox::adopted(node, "drive");
  REQUIRE(drive);
  live_sandbox other{node};
  CHECK(attach(other, at("/data", *drive))->code == errc::drive_in_use);
  auto box = live_sandbox::adopted(node, "box");
  REQUIRE(box);
  CHECK_FALSE(attach(*box, at("/data", *drive)));
  CHECK(box->run("cat /data/file").out == "word\n");
  box->destroy();
  REQUIRE_FALSE(attach(other, at("/data", *drive)));
  CHECK(other.run("cat /data/file").out == "word\n");
}

TEST_CASE("the end of a drive's sandbox ends no other one", "[runtime][drives]") {
  live_node node;
  live_sandbox box{node};
  {
    live_sandbox drive{node};
    give_drive(drive);
    REQUIRE_FALSE(attach(box, at("/data", drive)));
    REQUIRE(box.run("echo word > /data/file").exited(0));
  }
  CHECK(box.run("echo more > /data/file; echo lives").out == "lives\n");
  live_sandbox next{node}; // With the slot that the drive had.
  give_drive(next);
  CHECK(attach(box, at("/other", next)) == std::nullopt);
}

TEST_CASE("drives are on disks in memory as well", "[runtime][drives]") {
  live_node node;
  node.shut_down();
  node.serve("tmpfs");
  live_sandbox drive{node}, box{node};
  give_drive(drive);
  REQUIRE_FALSE(attach(box, at("/data", drive)));
  CHECK(box.run("echo word > /data/file; stat -c %u /data/file").out == "1000\n");
  CHECK(drive.run("cat /drive/file").out == "word\n");
}
