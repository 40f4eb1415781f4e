// The disks of sandboxes and their snapshots, without sandboxes. Needs root, loop devices and
// mkfs.btrfs. Each test has a mount namespace of its own.
#include "base/unique_fd.hpp"
#include "runtime/spawner/btrfs_volumes.hpp"
#include "runtime/spawner/disk.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <linux/loop.h>
#include <sched.h>
#include <sstream>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <thread>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime::spawner;
using namespace insula::test;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t image_bytes = 256ull << 20, disk_bytes = 64ull << 20;

/// Runs it where no mount of it is seen by others, or stays.
void in_own_mounts(const std::function<void()>& what) {
  std::thread{[&] {
    REQUIRE(::unshare(CLONE_NEWNS) == 0);
    REQUIRE(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
    what();
  }}.join();
}

using maker = std::function<result<std::unique_ptr<disk_pool>>(const std::string&)>;
result<std::unique_ptr<disk_pool>> btrfs(const std::string& in) {
  return make_btrfs_pool(in, image_bytes);
}

/// A state directory with the pool in it.
struct house {
  explicit house(maker by = &btrfs)
      : make(std::move(by)) {
    open();
  }
  ~house() { close(); }
  void open() {
    auto made = make(state.path().string());
    REQUIRE(made);
    pool = std::move(*made);
  }
  void close() {
    pool.reset();
    const auto at = disk().string();
    while (::umount2(at.c_str(), MNT_DETACH) == 0) {
    }
  }
  /// As when the spawner is killed, or the machine starts anew.
  void open_again() {
    close();
    open();
  }
  fs::path disk() const { return state / "disk"; }
  fs::path image() const { return state / "disk.btrfs"; }

  std::uint64_t snapshot(std::uint32_t slot, const std::string& name) {
    auto copy = pool->copy(slot, name);
    REQUIRE(copy);
    REQUIRE((*copy)->flush());
    const auto bytes = (*copy)->take();
    REQUIRE(bytes);
    return *bytes;
  }
  /// The root of a snapshot's files.
  fs::path files_of(const std::string& name) {
    auto opened = pool->open_snapshot(name);
    REQUIRE(opened);
    kept = std::move(*opened);
    return "/proc/self/fd/" + std::to_string(kept.get()) + "/u";
  }

  maker make;
  temp_dir state{"/var/tmp"};
  std::unique_ptr<disk_pool> pool;
  unique_fd kept;
};

void write(const fs::path& file, std::string_view text) {
  std::ofstream{file} << text;
}
std::string read(const fs::path& file) {
  std::ostringstream all;
  all << std::ifstream{file}.rdbuf();
  return all.str();
}

using names = std::vector<std::string>;

int loops_of(const fs::path& image) {
  struct stat wanted {};
  REQUIRE(::stat(image.c_str(), &wanted) == 0);
  int count = 0;
  for (const auto& each : fs::directory_iterator{"/sys/block"}) {
    const auto name = each.path().filename().string();
    if (!name.starts_with("loop"))
      continue;
    const unique_fd loop{::open(("/dev/" + name).c_str(), O_RDONLY | O_CLOEXEC)};
    loop_info64 is{};
    count += loop && ::ioctl(loop.get(), LOOP_GET_STATUS64, &is) == 0 &&
             is.lo_inode == wanted.st_ino && is.lo_device == wanted.st_dev;
  }
  return count;
}

} // namespace

TEST_CASE("a snapshot has what the disk had, whatever becomes of that", "[runtime][disk]") {
  const bool in_memory = GENERATE(false, true);
  in_own_mounts([=] {
    house h{in_memory ? maker{&make_tmpfs_pool} : maker{&btrfs}};
    REQUIRE(h.pool->create(1, disk_bytes));
    const auto files = h.disk() / "sb-1" / "u";
    write(files / "text", "before");
    fs::create_directories(files / "empty" / "below");
    fs::create_symlink("text", files / "link");
    fs::create_hard_link(files / "text", files / "other");
    REQUIRE(::mknod((files / "gone").c_str(), S_IFCHR, ::makedev(0, 0)) == 0); // A deletion.
    REQUIRE(::mkfifo((files / "fifo").c_str(), 0640) == 0);
    REQUIRE(::chown((files / "text").c_str(), 1000, 1001) == 0);
    REQUIRE(::chmod((files / "text").c_str(), 04751) == 0);
    fs::create_directories(h.disk() / "sb-1" / "w" / "work" / "incompat" / "volatile");
    CHECK(h.snapshot(1, "first") < disk_bytes);
    write(files / "text", "after");
    fs::remove(files / "link");
    h.snapshot(1, "second");
    CHECK(h.pool->copy(1, "first").reason().code == errc::already_exists);
    CHECK(h.pool->copy(2, "third").reason().code == errc::not_found);
    CHECK(h.pool->open_snapshot("third").reason().code == errc::not_found);
    REQUIRE(h.pool->destroy(1));

    CHECK(h.pool->snapshots() == names{"first", "second"});
    CHECK(h.pool->keeps_snapshots() == !in_memory);
    auto kept = h.files_of("first");
    CHECK(read(kept / "text") == "before");
    CHECK(fs::hard_link_count(kept / "text") == 2);
    CHECK(fs::read_symlink(kept / "link") == "text");
    CHECK(fs::is_empty(kept / "empty" / "below"));
    struct stat is {};
    REQUIRE(::stat((kept / "text").c_str(), &is) == 0);
    CHECK((is.st_mode & 07777) == 04751);
    CHECK(is.st_uid == 1000);
    CHECK(is.st_gid == 1001);
    REQUIRE(::lstat((kept / "gone").c_str(), &is) == 0);
    CHECK(S_ISCHR(is.st_mode));
    CHECK(is.st_rdev == 0);
    CHECK(fs::is_fifo(kept / "fifo"));
    CHECK_FALSE(std::ofstream{kept / "new"}.is_open());
    kept = h.files_of("second");
    CHECK(read(kept / "text") == "after");
    CHECK_FALSE(fs::exists(fs::symlink_status(kept / "link")));

    INFO("a disk that begins with it is its own");
    REQUIRE(h.pool->create_from("first", 2, disk_bytes));
    CHECK(h.pool->create_from("third", 3, disk_bytes).reason().code == errc::not_found);
    const auto fork = h.disk() / "sb-2" / "u";
    CHECK(read(fork / "text") == "before");
    CHECK(fs::is_empty(h.disk() / "sb-2" / "w"));
    write(fork / "text", "its own");
    CHECK(read(h.files_of("first") / "text") == "before");

    h.kept.reset();
    CHECK(h.pool->drop_snapshot("first"));
    CHECK(h.pool->drop_snapshot("first"));
    CHECK(read(fork / "text") == "its own");
    CHECK(fs::read_symlink(fork / "link") == "text");
    REQUIRE(h.pool->destroy(2));
    CHECK(h.pool->snapshots() == names{"second"});
    CHECK_FALSE(h.pool->open_snapshot("first"));
    h.pool->drop_snapshot("second");
  });
}

TEST_CASE("a copy of a snapshot is ready before a disk begins with it", "[runtime][disk]") {
  in_own_mounts([] {
    house h;
    REQUIRE(h.pool->create(1, disk_bytes));
    write(h.disk() / "sb-1" / "u" / "file", "kept");
    write(h.disk() / "sb-1" / "w" / "of-the-mount", "x");
    h.snapshot(1, "s");
    const auto ready = [&](const std::string& name) {
      return fs::exists(h.disk() / ("ready-" + name));
    };
    const auto begins = [&](std::uint32_t slot) {
      REQUIRE(h.pool->create_from("s", slot, disk_bytes));
      const auto disk = h.disk() / ("sb-" + std::to_string(slot));
      CHECK(read(disk / "u" / "file") == "kept");
      CHECK(fs::is_empty(disk / "w"));
      write(disk / "u" / "file", "other");
      std::ofstream all{disk / "u" / "all"};
      const std::string piece(1u << 20, 'x');
      std::size_t pieces = 0;
      while (all.write(piece.data(), static_cast<std::streamsize>(piece.size())).flush())
        ++pieces;
      CHECK(pieces <= disk_bytes >> 20);
      CHECK(h.pool->destroy(slot));
    };
    SECTION("which takes it") {
      h.pool->expect_use("s");
      h.pool->expect_use("s");
      CHECK(ready("s"));
      begins(2);
      CHECK_FALSE(ready("s"));
      begins(2);
    }
    SECTION("and goes with it") {
      h.pool->expect_use("s");
      CHECK(h.pool->drop_snapshot("s"));
      CHECK_FALSE(ready("s"));
      CHECK_FALSE(h.pool->create_from("s", 2, disk_bytes));
      h.pool->expect_use("s"); // It comes too late, and leaves nothing.
      CHECK_FALSE(ready("s"));
    }
    SECTION("and goes with the spawner") {
      h.pool->expect_use("s");
      h.open_again();
      CHECK_FALSE(ready("s"));
      begins(2);
    }
    SECTION("of the newest ones alone") {
      for (std::size_t i = 0; i <= ready_copies::most; ++i) {
        const auto name = "n" + std::to_string(i);
        h.snapshot(1, name);
        h.pool->expect_use(name);
      }
      CHECK_FALSE(ready("n0"));
      CHECK(ready("n1"));
      CHECK(ready("n" + std::to_string(ready_copies::most)));
    }
    SECTION("while others begin with it as well") {
      constexpr std::uint32_t many = 12;
      std::vector<std::thread> all;
      std::atomic<std::uint32_t> good = 0;
      for (std::uint32_t slot = 2; slot < 2 + many; ++slot)
        all.emplace_back([&, slot] {
          h.pool->expect_use("s");
          good += h.pool->create_from("s", slot, disk_bytes) ? 1 : 0;
          h.pool->expect_use("s");
        });
      for (auto& each : all)
        each.join();
      CHECK(good == many);
      for (std::uint32_t slot = 2; slot < 2 + many; ++slot)
        CHECK(read(h.disk() / ("sb-" + std::to_string(slot)) / "u" / "file") == "kept");
      CHECK(h.pool->drop_snapshot("s"));
      CHECK_FALSE(ready("s"));
      for (const auto& each : fs::directory_iterator{h.disk()})
        CHECK(each.path().filename().string().starts_with("sb-"));
    }
  });
}

TEST_CASE("a snapshot of an earlier version is one as well", "[runtime][disk]") {
  in_own_mounts([] {
    house h;
    REQUIRE(h.pool->create(1, disk_bytes));
    write(h.disk() / "sb-1" / "u" / "file", "kept");
    const auto at = h.disk().string();
    REQUIRE(std::system(
              ("btrfs -q subvolume snapshot -r " + at + "/sb-1 " + at + "/snap-old").c_str()) == 0);
    fs::create_directory(h.disk() / "snap-half"); // A killed spawner was about to take it.
    h.open_again();
    CHECK(h.pool->snapshots() == names{"old"});
    CHECK(read(h.files_of("old") / "file") == "kept");
    h.kept.reset();
    REQUIRE(h.pool->create_from("old", 2, disk_bytes));
    CHECK(read(h.disk() / "sb-2" / "u" / "file") == "kept");
    CHECK(h.pool->drop_snapshot("old"));
    CHECK(h.pool->snapshots().empty());
  });
}

TEST_CASE("snapshots outlive their spawner, and nothing else does", "[runtime][disk]") {
  in_own_mounts([] {
    house h;
    REQUIRE(h.pool->create(7, disk_bytes));
    REQUIRE(h.pool->create_shared("lists-1", disk_bytes));
    write(h.disk() / "sb-7" / "u" / "file", std::string(1u << 20, 'x'));
    fs::create_directories(h.disk() / "hidden" / "below"); // No volume.
    const auto bytes = h.snapshot(7, "kept");
    CHECK(bytes >= 1u << 20);
    CHECK(bytes < 4u << 20);
    const auto look = [&] {
      CHECK(h.pool->snapshots() == names{"kept"});
      CHECK(fs::file_size(h.files_of("kept") / "file") == 1u << 20);
      h.kept.reset();
      for (const auto& each : fs::directory_iterator{h.disk()})
        CHECK(each.path().filename() == "snap-kept");
      REQUIRE(h.pool->create(7, disk_bytes));
      CHECK(fs::is_empty(h.disk() / "sb-7" / "u"));
    };
    SECTION("when it has ended") {
      h.open_again();
      look();
    }
    SECTION("when it was killed, and its mount is still there") {
      in_own_mounts([&] {
        const auto held = h.pool->create(8, disk_bytes); // By a process on its way out.
        h.open_again();
        CHECK(loops_of(h.image()) == 1);
        look();
        h.close();
      });
    }
  });
}

TEST_CASE("a power cut in mid-write leaves the snapshots that were acknowledged",
          "[runtime][disk]") {
  in_own_mounts([] {
    house h;
    REQUIRE(h.pool->create(1, disk_bytes));
    const auto files = h.disk() / "sb-1" / "u";
    std::atomic<bool> stop = false;
    std::thread writer{[&] {
      for (int i = 0; !stop; ++i)
        write(files / ("noise" + std::to_string(i % 200)), std::string(50'000, 'n'));
    }};
    for (int i = 0; i < 5; ++i) {
      write(files / "number", std::to_string(i));
      h.snapshot(1, "s" + std::to_string(i));
      house other; // What the machine's disk has at some moment is put into its place.
      other.close();
      fs::copy_file(h.image(), other.image(), fs::copy_options::overwrite_existing);
      other.open();
      CHECK(other.pool->snapshots().size() == static_cast<std::size_t>(i) + 1);
      CHECK(read(other.files_of("s" + std::to_string(i)) / "number") == std::to_string(i));
      other.kept.reset();
    }
    stop = true;
    writer.join();
  });
}

TEST_CASE("an image that cannot be mounted is put aside, and said", "[runtime][disk]") {
  in_own_mounts([] {
    house h;
    h.close();
    {
      std::fstream image{h.image(), std::ios::in | std::ios::out | std::ios::binary};
      image.seekp(64 << 10); // Where the first super block is.
      image << std::string(4096, '\0');
    }
    h.open();
    CHECK(h.pool->snapshots().empty());
    REQUIRE(h.pool->create(1, disk_bytes));
    int aside = 0;
    for (const auto& each : fs::directory_iterator{h.state.path()})
      aside += each.path().filename().string().starts_with("disk.btrfs.broken-");
    CHECK(aside == 1);
  });
}

TEST_CASE("the image of disks grows with its configuration, and never shrinks", "[runtime][disk]") {
  in_own_mounts([] {
    house h;
    REQUIRE(h.pool->create(1, disk_bytes));
    h.snapshot(1, "kept");
    for (const auto bytes : {2 * image_bytes, image_bytes}) {
      h.make = [=](const std::string& in) { return make_btrfs_pool(in, bytes); };
      h.open_again();
      CHECK(fs::file_size(h.image()) == 2 * image_bytes);
      CHECK(fs::space(h.disk()).capacity == 2 * image_bytes);
      CHECK(h.pool->snapshots() == names{"kept"});
    }
  });
}

TEST_CASE("a snapshot that finds no room leaves nothing", "[runtime][disk]") {
  in_own_mounts([] {
    house h;
    REQUIRE(h.pool->create(1, image_bytes));
    std::ofstream all{h.disk() / "sb-1" / "u" / "all"};
    const std::string piece(1u << 20, 'x');
    while (all.write(piece.data(), static_cast<std::streamsize>(piece.size())).flush()) {
    }
    auto copy = h.pool->copy(1, "full");
    REQUIRE(copy);
    const auto flushed = (*copy)->flush();
    const auto taken = flushed ? (*copy)->take() : result<std::uint64_t>{flushed.reason()};
    copy->reset();
    CHECK(h.pool->snapshots().size() == (taken ? 1u : 0u));
    CHECK((taken || taken.reason().code == errc::disk_full));
    REQUIRE(h.pool->destroy(1));
  });
}
