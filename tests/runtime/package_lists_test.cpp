// dpkg's lists of packages, as the spawner copies them.
#include "base/limits.hpp"
#include "runtime/spawner/package_lists.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <atomic>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <sched.h>
#include <set>
#include <sys/mount.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace insula;
using namespace insula::runtime::spawner;
using namespace insula::test;

namespace fs = std::filesystem;

namespace {

unique_fd opened(const fs::path& directory) {
  return unique_fd{::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
}

std::string content_of(const fs::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

unsigned mode_of(const fs::path& path) {
  return static_cast<unsigned>(fs::symlink_status(path).permissions());
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  std::error_code none;
  for (const auto& each : fs::directory_iterator{directory, none})
    names.insert(each.path().filename());
  return names;
}

/// A directory to copy from, and one to copy to.
struct two_directories {
  temp_dir top;
  fs::path from = top / "from", to = top / "to";
  std::atomic<bool> stop = false;

  two_directories() {
    fs::create_directory(from);
    fs::create_directory(to);
  }
  void file(const std::string& name, const std::string& text, unsigned mode = 0644) const {
    std::ofstream{from / name} << text;
    fs::permissions(from / name, fs::perms{mode});
  }
  result<void> copy() const {
    return copy_package_lists(opened(from).get(), opened(to).get(), stop);
  }
};

/// In a thread with mounts of its own, which go with it.
void with_own_mounts(const std::function<void()>& act) {
  std::async(std::launch::async, [&] {
    REQUIRE(::unshare(CLONE_NEWNS) == 0);
    REQUIRE(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
    act();
  }).get();
}

} // namespace

TEST_CASE("lists of packages are copied as everybody may read them", "[runtime][lists]") {
  const two_directories it;
  const std::string large(100'001, 'x');
  it.file("a.list", "/.\n/usr/bin/a\n");
  it.file("a.postinst", "#!/bin/sh\n", 0755);
  it.file("large.list", large, 0444);
  it.file("empty.list", "");
  it.file("group.list", "x", 04775);
  it.file("secret", "x", 0640);
  fs::create_symlink("/etc/shadow", it.from / "link");
  fs::create_directory(it.from / "directory");
  REQUIRE(::mkfifo((it.from / "pipe").c_str(), 0644) == 0);
  REQUIRE(it.copy());
  CHECK(names_in(it.to) ==
        std::set<std::string>{"a.list", "a.postinst", "large.list", "empty.list", "group.list"});
  CHECK(content_of(it.to / "a.list") == "/.\n/usr/bin/a\n");
  CHECK(content_of(it.to / "large.list") == large);
  CHECK(mode_of(it.to / "a.list") == 0644);
  CHECK(mode_of(it.to / "a.postinst") == 0755);
  CHECK(mode_of(it.to / "large.list") == 0444);
  CHECK(mode_of(it.to / "group.list") == 0755);
}

TEST_CASE("lists are copied while packages are installed", "[runtime][lists]") {
  const two_directories it;
  constexpr int files = 300;
  const auto name = [](int number) { return std::to_string(number) + ".list"; };
  for (int i = 0; i < files; ++i)
    it.file(name(i), "before");
  std::atomic<bool> enough = false;
  std::thread dpkg{[&] {
    for (int i = 0; !enough; i = (i + 1) % files) {
      it.file("new", "after");
      fs::rename(it.from / "new", it.from / name(i));
      fs::remove(it.from / name((i + files / 2) % files));
    }
  }};
  bool copied = true;
  for (int round = 0; copied && round < 20; ++round) {
    copied = static_cast<bool>(it.copy());
    fs::remove_all(it.to);
    fs::create_directory(it.to);
  }
  enough = true;
  dpkg.join();
  CHECK(copied);
}

TEST_CASE("lists that are too many or too large are not copied", "[runtime][lists]") {
  two_directories it;
  it.file("a.list", "x");
  SECTION("files") {
    for (std::size_t i = 0; i < limits::package_list_files; ++i)
      REQUIRE(::link((it.from / "a.list").c_str(), (it.from / std::to_string(i)).c_str()) == 0);
  }
  SECTION("bytes") {
    fs::resize_file(it.from / "a.list", limits::package_list_bytes + 1);
  }
  SECTION("nobody wants them any more") {
    it.stop = true;
  }
  const auto got = it.copy();
  REQUIRE_FALSE(got);
  CHECK(got.reason().code == errc::launch_failed);
  CHECK(names_in(it.to).empty());
}

TEST_CASE("what cannot be copied says why", "[runtime][lists]") {
  const two_directories it;
  it.file("a.list", "x");
  std::ofstream{it.to / "a.list"} << "there";
  const auto got = it.copy();
  REQUIRE_FALSE(got);
  CHECK(got.reason().message == "copying a.list: File exists");
}

TEST_CASE("lists are for images that know the machine's packages", "[runtime][lists]") {
  const temp_dir top;
  const auto has_them = [&] { return package_lists::can_be_over(opened(top.path()).get()); };
  CHECK_FALSE(has_them());
  fs::create_directories(top / "elsewhere");
  std::ofstream{top / "elsewhere/status"} << "Package: a\n";
  fs::create_directories(top / "var/lib");
  fs::create_symlink("../../elsewhere", top / "var/lib/dpkg");
  CHECK_FALSE(has_them()); // A link may lead anywhere.
  fs::remove(top / "var/lib/dpkg");
  fs::rename(top / "elsewhere", top / "var/lib/dpkg");
  CHECK(has_them());
}

TEST_CASE("a layer has all lists of the machine, and goes with the last that has it",
          "[runtime][lists][root]") {
  if (!fs::exists("/var/lib/dpkg/info"))
    return;
  const temp_dir state, image, other;
  const auto in_pool = state.path() / "disk";
  with_own_mounts([&] {
    const auto pool = make_tmpfs_pool(state.path());
    REQUIRE(pool);
    const auto root = opened(image.path());
    {
      const package_lists lists{**pool, "lists-1", root.get()};
      CHECK(lists.name() == "lists-1");
      CHECK(lists.is_over(root.get()));
      CHECK_FALSE(lists.is_over(opened(other.path()).get()));
      while (!lists.ready())
        std::this_thread::yield();
      CHECK_FALSE(lists.failed());
      REQUIRE(lists.layer() >= 0);
      const auto copied = in_pool / "lists-1/var/lib/dpkg/info";
      CHECK(names_in(copied) == names_in("/var/lib/dpkg/info"));
      CHECK(content_of(copied / "dpkg.list") == content_of("/var/lib/dpkg/info/dpkg.list"));
      for (auto each = copied; each != in_pool; each = each.parent_path()) {
        CAPTURE(each);
        CHECK(mode_of(each) == 0755);
      }
      // Another one, of a name that is taken, is none, and takes nothing away.
      auto made = (*pool)->create_shared("lists-1", 1 << 20);
      CHECK_FALSE(made);
    }
    CHECK(names_in(in_pool).empty());
    // One that is not waited for.
    { const package_lists unwanted{**pool, "lists-2", root.get()}; }
    CHECK(names_in(in_pool).empty());
    // One that has no room.
    REQUIRE(::mount(nullptr, in_pool.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0);
    const package_lists none{**pool, "lists-3", root.get()};
    CHECK(none.ready());
    CHECK(none.failed());
    CHECK(none.layer() == -1);
  });
}
