// Reading and writing files of a sandbox from outside, beside whatever goes on inside.
#include "tests/support/catch.hpp"
#include "tests/support/file_channel.hpp"
#include "tests/support/live_node.hpp"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sys/socket.h>
#include <thread>

using namespace insula;
using namespace insula::runtime;
using namespace insula::test;
using namespace std::chrono_literals;

namespace {

constexpr sandbox_user root{0, 0};

std::string random_bytes(std::size_t count) {
  std::mt19937_64 rng{count};
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    const auto word = rng();
    bytes.replace(i, 8, reinterpret_cast<const char*>(&word), 8);
  }
  return bytes;
}

bool is(const file_answer& got, int error, file_step step) {
  INFO("errno " << got.head.error << " at step " << got.head.step);
  CHECK(got.heard);
  CHECK(got.head.error == error);
  CHECK(got.head.step == static_cast<std::uint32_t>(step));
  return got.heard && got.head.error == error && got.head.step == static_cast<std::uint32_t>(step);
}

bool worked(const file_answer& got) {
  return is(got, 0, file_step::none);
}

/// Names in a directory that a finished write would not have left.
std::string temporaries(live_sandbox& in, const std::string& directory = "/workspace") {
  return in.run("find " + directory + " -name '.insula*'", root).out;
}

} // namespace

TEST_CASE("what is written can be read, whatever its size", "[runtime][files]") {
  live_sandbox box{shared_node()};
  for (const std::size_t size :
       {0ul, 1ul, 4'096ul, 262'144ul, 262'145ul, 1'000'000ul, 33'554'432ul}) {
    CAPTURE(size);
    const auto content = random_bytes(size);
    const auto written = write_file(*box, "/workspace/file", content);
    REQUIRE(worked(written));
    CHECK(written.head.size == size);
    CHECK(written.head.kind == file_kind::regular);
    CHECK(written.head.mode == 0644);
    const auto got = read_file(*box, "/workspace/file");
    REQUIRE(worked(got));
    CHECK(got.whole);
    CHECK(got.head.size == size);
    CHECK((got.bytes == content));
  }
  CHECK(box.run("stat -c '%U %G %a' file").out == "sandbox sandbox 644\n");
}

TEST_CASE("parents are made, and belong to the user", "[runtime][files]") {
  live_sandbox box{shared_node()};
  REQUIRE(worked(write_file(*box, "/workspace/a/b/c/d.txt", "x")));
  CHECK(box.run("stat -c '%U %a' a a/b a/b/c").out == "sandbox 755\nsandbox 755\nsandbox 755\n");
  REQUIRE(worked(write_file(*box, "/workspace/a//b/./e.txt", "y")));
  CHECK(box.run("cat a/b/e.txt").out == "y");
}

TEST_CASE("a file that is replaced keeps its mode", "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("echo old > script; chmod 750 script; echo old > secret; chmod 600 secret");
  CHECK(write_file(*box, "/workspace/script", "new").head.mode == 0750);
  CHECK(write_file(*box, "/workspace/secret", "new").head.mode == 0600);
  CHECK(box.run("stat -c %a script secret; cat script secret").out == "750\n600\nnewnew");
  // Nobody sees a half-written file: who has the old one open goes on reading it.
  CHECK(box.run("exec 5<script").exited(0));
}

TEST_CASE("a symlink is written through, also one that dangles", "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("echo long old content > target; ln -s target link; ln -s /tmp/new dangling; "
          "ln -s loop2 loop; ln -s loop loop2; mkdir d; ln -s d dir; ln -s . self");
  REQUIRE(worked(write_file(*box, "/workspace/link", "new")));
  CHECK(box.run("readlink link; cat target").out == "target\nnew");
  REQUIRE(worked(write_file(*box, "/workspace/dangling", "made")));
  CHECK(box.run("readlink dangling; cat /tmp/new").out == "/tmp/new\nmade");
  CHECK(read_file(*box, "/workspace/dangling").bytes == "made");
  REQUIRE(worked(write_file(*box, "/workspace/dir/file", "through a directory")));
  CHECK(read_file(*box, "/workspace/self/self/d/file").bytes == "through a directory");
  CHECK(is(write_file(*box, "/workspace/loop", "x"), ELOOP, file_step::open));
  CHECK(is(read_file(*box, "/workspace/loop"), ELOOP, file_step::open));
}

TEST_CASE("a link is followed to where a file is to be, and no further", "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("ln -s nowhere/file lost; ln -s two one; ln -s /tmp/three two; mkdir -p d/e; "
          "ln -s ../../up d/e/link; ln -s /dev/shm/in-memory shm");
  CHECK(is(write_file(*box, "/workspace/lost", "x"), ENOENT, file_step::open));
  REQUIRE(worked(write_file(*box, "/workspace/one", "of two")));
  REQUIRE(worked(write_file(*box, "/workspace/d/e/link", "upwards")));
  REQUIRE(worked(write_file(*box, "/workspace/shm", "elsewhere")));
  CHECK(box.run("cat /tmp/three up /dev/shm/in-memory; readlink one two d/e/link shm; ls -A").out ==
        "of twoupwardselsewheretwo\n/tmp/three\n../../up\n/dev/shm/in-memory\n"
        "d\nlost\none\nshm\ntwo\nup\n");
}

TEST_CASE("files in memory and of the machine's are replaced as others are", "[runtime][files]") {
  live_sandbox box{shared_node()};
  for (const auto* path : {"/dev/shm/file", "/usr/local/bin/file"}) {
    CAPTURE(path);
    const std::string name = path;
    REQUIRE(worked(write_file(*box, name, "one", root)));
    box.run("chmod 755 " + name, root);
    CHECK(write_file(*box, name, "two", root).head.mode == 0755);
    CHECK(read_file(*box, name).bytes == "two");
    write_file(*box, name, random_bytes(300'000), root, true);
    write_file(*box, name + "2", random_bytes(300'000), root, true);
    CHECK(eventually([&] {
      return box.run("ls -A $(dirname " + name + ") | grep -e '^.insula' -e '^file2'").out.empty();
    }));
    CHECK(read_file(*box, name).bytes == "two");
  }
}

TEST_CASE("files take after a directory that hands on its group or its access list",
          "[runtime][files]") {
  live_sandbox box{shared_node()};
  REQUIRE(box
            .run("mkdir group list; chgrp 1234 group; chmod 2777 group; chmod 777 list; "
                 "echo old > group/old; chmod 666 group/old; python3 -c '"
                 "import os, struct\n"
                 "entry = lambda tag, may, id=0xffffffff: struct.pack(\"<HHI\", tag, may, id)\n"
                 "os.setxattr(\"list\", \"system.posix_acl_default\", struct.pack(\"<I\", 2) + "
                 "entry(1, 7) + entry(2, 4, 1234) + entry(4, 5) + entry(16, 5) + entry(32, 5))'",
                 root)
            .exited(0));
  for (const auto* path : {"group/new", "group/old", "list/new"})
    REQUIRE(worked(write_file(*box, std::string{"/workspace/"} + path, "x")));
  CHECK(box.run("stat -c '%n %g' group/*").out == "group/new 1234\ngroup/old 1234\n");
  CHECK(box
          .run("python3 -c 'import os; print(len(os.getxattr(\"list/new\", "
               "\"system.posix_acl_access\")))'")
          .out == "44\n");
  CHECK(box.run("ls -A group list").out == "group:\nnew\nold\n\nlist:\nnew\n");
}

TEST_CASE("nobody inside finds the place where files are made", "[runtime][files]") {
  live_sandbox box{shared_node()};
  REQUIRE(worked(write_file(*box, "/workspace/file", "x", root)));
  // Not by its name, nor by the working directory of those who go there.
  CHECK(box.run("find / -xdev -name .insula 2>/dev/null; ls -A /proc | grep insula", root).out ==
        "");
  CHECK(
    box.run("for i in /proc/[0-9]*; do readlink $i/cwd; done | grep -vx /workspace", root).out ==
    "");
  CHECK(box.run("pwd; cd; pwd").out == "/workspace\n/home/sandbox\n");
}

TEST_CASE("what is no file is refused at once", "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("mkdir directory; mkfifo fifo; ln -s fifo to_fifo; ln -s directory to_directory;"
          "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'");
  const auto begin = std::chrono::steady_clock::now();
  const auto reading = [&](const char* path) { return read_file(*box, path); };
  CHECK(is(reading("/workspace"), EISDIR, file_step::type));
  CHECK(is(reading("/workspace/directory/"), EISDIR, file_step::type));
  CHECK(reading("/workspace/directory").head.kind == file_kind::directory);
  CHECK(is(reading("/workspace/to_directory"), EISDIR, file_step::type));
  CHECK(is(reading("/workspace/fifo"), EINVAL, file_step::type));
  CHECK(reading("/workspace/fifo").head.kind == file_kind::other);
  CHECK(is(reading("/workspace/to_fifo"), EINVAL, file_step::type));
  CHECK(is(reading("/workspace/socket"), ENXIO, file_step::open));
  CHECK(is(reading("/dev/null"), EINVAL, file_step::type));
  CHECK(is(reading("/dev/tty"), ENXIO, file_step::open));
  CHECK(is(reading("/dev/ptmx"), EINVAL, file_step::type));
  const auto writing = [&](const char* path) { return write_file(*box, path, "content"); };
  CHECK(is(writing("/workspace/directory"), EISDIR, file_step::type));
  CHECK(is(writing("/workspace/directory/"), EISDIR, file_step::type));
  CHECK(is(writing("/workspace/to_directory"), EISDIR, file_step::type));
  CHECK(is(writing("/workspace/fifo"), ENXIO, file_step::open));
  CHECK(is(writing("/workspace/to_fifo"), ENXIO, file_step::open));
  CHECK(is(writing("/workspace/socket"), ENXIO, file_step::open));
  CHECK(is(writing("/dev/full"), EINVAL, file_step::type));
  // A FIFO that somebody reads can be opened, and is still no file.
  auto reader = box.start("echo up; exec cat fifo");
  reader.says("up");
  for (int i = 0; i < 20; ++i) {
    const auto refused = writing("/workspace/fifo");
    CHECK((refused.head.error == ENXIO || refused.head.error == EINVAL));
  }
  CHECK(std::chrono::steady_clock::now() - begin < 60s);
  CHECK(temporaries(box).empty());
}

TEST_CASE("what is missing, forbidden or too long is refused by its errno", "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("echo x > file; echo x > readonly; chmod 444 readonly; echo x > hidden; chmod 0 hidden;"
          "mkdir closed; echo x > closed/file; chmod 555 closed; mkdir locked; chmod 0 locked");
  CHECK(is(read_file(*box, "/workspace/none"), ENOENT, file_step::open));
  CHECK(is(read_file(*box, ""), ENOENT, file_step::open));
  CHECK(is(read_file(*box, "/workspace/file/below"), ENOTDIR, file_step::open));
  CHECK(is(read_file(*box, "/workspace/hidden"), EACCES, file_step::open));
  CHECK(is(read_file(*box, "/workspace/locked/x"), EACCES, file_step::open));
  CHECK(is(read_file(*box, "/root/x"), EACCES, file_step::open));
  CHECK(is(write_file(*box, "/workspace/file/below", "x"), ENOTDIR, file_step::open));
  CHECK(is(write_file(*box, "/workspace/file/below/it", "x"), ENOTDIR, file_step::parents));
  CHECK(is(write_file(*box, "/workspace/readonly", "x"), EACCES, file_step::open));
  CHECK(is(write_file(*box, "/workspace/closed/new", "x"), EACCES, file_step::open));
  CHECK(is(write_file(*box, "/workspace/locked/new", "x"), EACCES, file_step::open));
  CHECK(is(write_file(*box, "/etc/passwd", "x"), EACCES, file_step::open));
  CHECK(is(write_file(*box, "/new", "x"), EACCES, file_step::open));
  CHECK(is(write_file(*box, "/proc/sys/kernel/core_pattern", "x"), EACCES, file_step::open));
  const std::string name(256, 'n');
  CHECK(is(read_file(*box, "/workspace/" + name), ENAMETOOLONG, file_step::open));
  CHECK(is(write_file(*box, "/workspace/" + name, "x"), ENAMETOOLONG, file_step::open));
  CHECK(is(write_file(*box, "/workspace/" + name + "/x", "x"), ENAMETOOLONG, file_step::parents));
  std::string path = "/workspace";
  while (path.size() < 4'096)
    path += "/d";
  CHECK(is(read_file(*box, path), ENAMETOOLONG, file_step::open));
  CHECK(is(write_file(*box, path, "x"), ENAMETOOLONG, file_step::setup));
  CHECK(box.run("cat readonly closed/file").out == "x\nx\n");
  // A directory that takes no new file still has files that can be written.
  REQUIRE(worked(write_file(*box, "/workspace/closed/file", "new")));
  CHECK(box.run("cat closed/file").out == "new");
  CHECK(temporaries(box).empty());
}

TEST_CASE("root inside may write where the user may not", "[runtime][files]") {
  live_sandbox box{shared_node()};
  REQUIRE(worked(write_file(*box, "/etc/motd", "hello", root)));
  CHECK(box.run("cat /etc/motd; stat -c %U /etc/motd").out == "helloroot\n");
  CHECK(
    is(write_file(*box, "/proc/sys/kernel/core_pattern", "|/x", root), EACCES, file_step::open));
}

TEST_CASE("a file of another in a sticky directory is written in place or refused, never lost",
          "[runtime][files]") {
  live_sandbox box{shared_node()};
  box.run("echo old > /tmp/shared; chmod 666 /tmp/shared", root);
  const auto got = write_file(*box, "/tmp/shared", "new");
  CHECK(got.heard);
  CHECK(box.run("cat /tmp/shared").out == (got.head.error == 0 ? "new" : "old\n"));
  CHECK(temporaries(box, "/tmp").empty());
}

TEST_CASE("a full disk is reported, and neither the file nor a part of it stays",
          "[runtime][files]") {
  auto limits = shared_node().spec().limits;
  limits.disk_bytes = 32u << 20;
  live_sandbox box{shared_node(), limits};
  REQUIRE(worked(write_file(*box, "/workspace/old", "old")));
  const auto large = random_bytes(64u << 20);
  for (const char* path : {"/workspace/new", "/workspace/old"}) {
    const auto full = write_file(*box, path, large);
    CHECK(full.heard);
    CHECK((full.head.error == EDQUOT || full.head.error == ENOSPC));
    // The room of the first comes back a moment later: until then not even a name can be made.
    CHECK((full.head.step == static_cast<std::uint32_t>(file_step::write) ||
           full.head.step == static_cast<std::uint32_t>(file_step::open)));
  }
  CHECK(box.run("cat old; ls -A").out == "oldold\n");
  const auto small = random_bytes(10u << 20);
  CHECK(eventually([&] { return write_file(*box, "/workspace/small", small).head.error == 0; }));
}

TEST_CASE("an upload that is cut off leaves nothing", "[runtime][files]") {
  live_sandbox box{shared_node()};
  REQUIRE(worked(write_file(*box, "/workspace/old", "old")));
  for (const std::size_t size : {0u, 1u, 300'000u, 5'000'000u}) {
    write_file(*box, "/workspace/new", random_bytes(size), {}, true);
    write_file(*box, "/workspace/old", random_bytes(size), {}, true);
  }
  // A child of the agent notices by itself, a moment later.
  CHECK(eventually([&] { return box.run("ls -A").out == "old\n"; }));
  CHECK(box.run("cat old").out == "old");
}

TEST_CASE("a frame that is too large cuts the upload", "[runtime][files]") {
  live_sandbox box{shared_node()};
  const auto channel = (*box).open_file(file_operation::write, "/workspace/new", {});
  REQUIRE(channel);
  const frame_head frame{max_frame_bytes + 1};
  REQUIRE(::send(channel->get(), &frame, sizeof frame, MSG_NOSIGNAL) == sizeof frame);
  file_head head{};
  ssize_t n = -1;
  CHECK(eventually([&] {
    n = ::recv(channel->get(), &head, sizeof head, MSG_DONTWAIT);
    return n >= 0;
  }));
  CHECK(n == 0);
  CHECK(box.run("ls -A").out.empty());
}

TEST_CASE("a reader that goes away ends the reading", "[runtime][files]") {
  live_sandbox box{shared_node()};
  REQUIRE(worked(write_file(*box, "/workspace/large", random_bytes(20u << 20))));
  for (int i = 0; i < 20; ++i) {
    const auto channel = (*box).open_file(file_operation::read, "/workspace/large", {});
    REQUIRE(channel);
  }
  CHECK(eventually([&] { return box.run("ps -eo args= | grep -c ^insula-").out == "2\n"; }));
}

TEST_CASE("what handles a file shares no memory with PID 1", "[runtime][files]") {
  live_sandbox box{shared_node()};
  REQUIRE(worked(write_file(*box, "/workspace/large", random_bytes(20u << 20))));
  const auto channel = (*box).open_file(file_operation::read, "/workspace/large", {});
  REQUIRE(channel);
  file_head head{};
  REQUIRE(eventually(
    [&] { return ::recv(channel->get(), &head, sizeof head, MSG_DONTWAIT) == sizeof head; }));
  const auto agents = shared_node().agents();
  REQUIRE(agents.size() == 1);
  // Once the child that has written is buried, there are the starter, which shares, and the reader.
  CHECK(eventually([&] {
    int children = 0, sharing = 0;
    for (const auto& each : std::filesystem::directory_iterator{"/proc"}) {
      const auto pid = std::atoi(each.path().filename().c_str());
      if (pid <= 0 || parent_of(pid) != agents.front())
        continue;
      ++children;
      std::ifstream file{each.path() / "maps"};
      const std::string maps{std::istreambuf_iterator<char>{file}, {}};
      sharing += maps.find(" rw-s ") != std::string::npos;
    }
    return children == 2 && sharing == 1;
  }));
}

TEST_CASE("two hundred operations at once all come out right", "[runtime][files]") {
  live_sandbox box{shared_node()};
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 20; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        const auto path = "/workspace/" + std::to_string(t) + "/" + std::to_string(i);
        const auto content =
          random_bytes(1'000 * static_cast<std::size_t>(t) + 10'000 * static_cast<std::size_t>(i));
        const auto written = write_file(*box, path, content);
        const auto got = read_file(*box, path);
        right += written.head.error == 0 && got.whole && got.bytes == content;
      }
    });
  for (auto& each : threads)
    each.join();
  CHECK(right == 100);
  // And all of them open at the same time.
  std::vector<unique_fd> open;
  for (int i = 0; i < 200; ++i) {
    auto channel = (*box).open_file(file_operation::read, "/workspace/1/1", {});
    REQUIRE(channel);
    open.push_back(std::move(*channel));
  }
  CHECK(box.run("echo works").out == "works\n");
}

TEST_CASE("last writer wins, and a file is always one of those written", "[runtime][files]") {
  live_sandbox box{shared_node()};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i)
        write_file(*box, "/workspace/one", std::string(100'000, static_cast<char>('a' + t)));
    });
  std::set<std::string> seen;
  for (int i = 0; i < 20; ++i)
    if (const auto got = read_file(*box, "/workspace/one"); got.heard && got.head.error == 0)
      seen.insert(got.bytes);
  for (auto& each : threads)
    each.join();
  seen.insert(read_file(*box, "/workspace/one").bytes);
  for (const auto& each : seen) {
    CHECK(each.size() == 100'000);
    CHECK(each.find_first_not_of(each[0]) == std::string::npos);
  }
  CHECK(temporaries(box).empty());
}

TEST_CASE("a symlink that is swapped all the time never leads out of the sandbox",
          "[runtime][files]") {
  live_sandbox box{shared_node()};
  // A secret of the host at a place that a symlink can name, and files that are elsewhere inside.
  const auto secret = shared_node().state() + "/secret";
  { std::ofstream{secret} << "HOST SECRET"; }
  box.run("mkdir -p d e; echo inside > d/file; echo inside > e/file; echo inside > file");
  box.run("echo 'SANDBOX SHADOW' > /etc/shadow; chmod 644 /etc/shadow", root);
  auto swaps = box.start(
    "echo up; exec python3 -c \"\nimport os\n"
    "targets = ['/etc/shadow', '../../../../../../etc/shadow', '" +
    secret + "', '/proc/1/root" + secret + "', '/proc/self/root/../.." + secret +
    "', '../../../../../.." + secret +
    "', '/proc/self/cwd/etc/shadow', '/proc/self/fd/0', 'file']\n"
    "for i in range(100000):\n"
    "    os.symlink(targets[i % len(targets)], 'new')\n"
    "    os.rename('new', 'swapped')\n"
    "    if i % 10 == 0:\n"
    "        with open('new', 'w') as f: f.write('inside')\n"
    "        os.rename('new', 'swapped')\n"
    "    if i % 50 == 0:\n"
    "        try:\n"
    "            os.rename('d', 'd2'); os.symlink('/etc', 'd'); os.unlink('d'); os.rename('d2', "
    "'d')\n"
    "        except OSError: pass\n" // Writing from outside makes parents that are missing.
    "\"");
  swaps.says("up");
  std::atomic<int> leaks = 0, answers = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const auto* path = t % 2 == 0 ? "/workspace/swapped" : "/workspace/d/file";
        if (i % 2 == 0) {
          const auto got = read_file(*box, path);
          answers += got.heard;
          leaks += got.bytes.find("HOST") != std::string::npos ||
                   got.bytes.find("root:") != std::string::npos;
        } else {
          answers += write_file(*box, path, "from outside").heard;
        }
      }
    });
  for (auto& each : threads)
    each.join();
  CHECK(leaks == 0);
  CHECK(answers == 2'000);
  std::ifstream file{secret};
  std::string kept;
  std::getline(file, kept);
  CHECK(kept == "HOST SECRET");
  // Swapping may go on or be over; its end is clean.
  CHECK(swaps.finish().exited(0));
  std::filesystem::remove(secret);
}
