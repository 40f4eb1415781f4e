#include "apps/fixed_files.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/temp_dir.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

using namespace insula;
using namespace insula::test;
namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {

constexpr uid_t theirs = 12'345; ///< Whose the server is.

void write(const fs::path& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream{path} << text;
  REQUIRE(::chmod(path.c_str(), mode) == 0);
}

/// As a server that is not root any more.
result<fixed_files::content> read_as_server(fixed_files& files, std::size_t which = 0) {
  REQUIRE(::seteuid(theirs) == 0);
  auto found = files.read(which, {std::chrono::steady_clock::now() + 20s});
  REQUIRE(::seteuid(0) == 0);
  return found;
}

/// What setfacl does: `user` may do so much there, of 7.
void grant(const fs::path& path, mode_t mode, uid_t user, std::uint16_t rights) {
  struct entry {
    std::uint16_t tag, rights;
    std::uint32_t id;
  };
  constexpr std::uint32_t nobody = ~0u;
  struct {
    std::uint32_t version = 2;
    std::array<entry, 5> entries;
  } list;
  const auto own = static_cast<std::uint16_t>(mode >> 6);
  list.entries = {
    {{1, own, nobody}, {2, rights, user}, {4, 0, nobody}, {16, rights, nobody}, {32, 5, nobody}}};
  REQUIRE(::setxattr(path.c_str(), "system.posix_acl_access", &list, sizeof list, 0) == 0);
}

/// The process that was started last.
pid_t last_child() {
  const auto self = std::to_string(::getpid());
  std::ifstream children{"/proc/self/task/" + self + "/children"};
  pid_t child = -1;
  for (pid_t each = -1; children >> each;)
    child = each;
  REQUIRE(child > 0);
  return child;
}

fixed_files prepared(std::vector<std::string> paths) {
  if (::geteuid() != 0)
    FAIL("this test needs root");
  auto files = fixed_files::prepare(std::move(paths), theirs, theirs);
  REQUIRE(files);
  return std::move(*files);
}

} // namespace

TEST_CASE("a file of root's is read again, with what is in it by then", "[fixed_files]") {
  const temp_dir where;
  REQUIRE(::chmod(where.path().c_str(), 0700) == 0);
  const auto file = where / "secret";
  write(file, "one");
  auto files = prepared({file.string(), "/dev/null", (where / "missing").string()});
  auto found = read_as_server(files);
  REQUIRE(found);
  CHECK(found->text == "one");
  CHECK_FALSE(found->others_can_read);
  // Another file of that name, and a link as tools that renew certificates make them.
  write(where / "next", "two", 0644);
  fs::rename(where / "next", file);
  found = read_as_server(files);
  REQUIRE(found);
  CHECK(found->text == "two");
  CHECK(found->others_can_read);
  fs::create_directory(where / "archive");
  write(where / "archive/third", "three");
  fs::remove(file);
  fs::create_symlink("archive/../archive/./third", file);
  CHECK(read_as_server(files)->text == "three");
  fs::remove(file);
  fs::create_symlink(where / "archive/third", file);
  CHECK(read_as_server(files)->text == "three");

  CHECK(read_as_server(files, 1).reason().code == errc::io_failed);
  CHECK(read_as_server(files, 2).reason().message ==
        (where / "missing").string() + ": cannot be read: No such file or directory");
  CHECK(read_as_server(files)->text == "three");
  fs::remove(file);
  fs::create_symlink(file, file);
  CHECK_FALSE(read_as_server(files));
  fs::remove(file);
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  CHECK_FALSE(read_as_server(files));
  fs::remove(file);
  write(file, std::string((1u << 20) + 1, 'x'));
  CHECK(read_as_server(files).reason().message.ends_with("it has more than 1 MiB"));
}

TEST_CASE("root goes nowhere for a server that could have put it there", "[fixed_files]") {
  const temp_dir where;
  REQUIRE(::chmod(where.path().c_str(), 0755) == 0);
  write(where / "shadow", "for root alone");
  const auto home = where / "home";
  fs::create_directory(home);
  const auto file = home / "file";
  const auto leads_to_shadow = [&] {
    fs::remove(file);
    fs::create_symlink(where / "shadow", file);
  };
  SECTION("its own directory") {
    REQUIRE(::chown(home.c_str(), theirs, theirs) == 0);
    leads_to_shadow();
  }
  SECTION("a directory of its group") {
    REQUIRE(::chown(home.c_str(), 0, theirs) == 0);
    REQUIRE(::chmod(home.c_str(), 0775) == 0);
    leads_to_shadow();
  }
  SECTION("a directory of everybody's") {
    REQUIRE(::chmod(home.c_str(), 0777) == 0);
    leads_to_shadow();
  }
  SECTION("a directory with a list of further users") {
    grant(home, S_IRWXU, theirs, 7);
    leads_to_shadow();
  }
  SECTION("a link of its own where everybody may make some") {
    REQUIRE(::chmod(home.c_str(), 01777) == 0);
    leads_to_shadow();
    REQUIRE(::lchown(file.c_str(), theirs, theirs) == 0);
  }
  SECTION("further up, by way of a link") {
    fs::create_directory(where / "inner");
    REQUIRE(::chown(home.c_str(), theirs, theirs) == 0);
    fs::create_directory(home / "d");
    fs::create_symlink(where / "shadow", home / "d/file");
    fs::create_symlink("../home/d/file", where / "inner/file");
    auto files = prepared({(where / "inner/file").string()});
    const auto found = read_as_server(files);
    REQUIRE_FALSE(found);
    CHECK(found.reason().message.find("could change where this path leads") != std::string::npos);
    return;
  }
  auto files = prepared({file.string()});
  const auto found = read_as_server(files);
  REQUIRE_FALSE(found);
  CHECK(found.reason().message.find("could change where this path leads") != std::string::npos);
  // What it may read itself it reads itself.
  fs::remove(file);
  write(file, "its own");
  REQUIRE(::chown(file.c_str(), theirs, theirs) == 0);
  CHECK(read_as_server(files)->text == "its own");
}

TEST_CASE("a further user who may look is none who may change", "[fixed_files]") {
  const temp_dir where;
  REQUIRE(::chmod(where.path().c_str(), 0755) == 0);
  fs::create_directory(where / "home");
  grant(where / "home", S_IRWXU, theirs, 5);
  write(where / "home/file", "for root alone");
  auto files = prepared({(where / "home/file").string()});
  const auto found = read_as_server(files);
  REQUIRE(found);
  CHECK(found->text == "for root alone");
  // Nor is one of another group.
  REQUIRE(::removexattr((where / "home").c_str(), "system.posix_acl_access") == 0);
  REQUIRE(::chown((where / "home").c_str(), 0, theirs + 1) == 0);
  REQUIRE(::chmod((where / "home").c_str(), 0775) == 0);
  CHECK(read_as_server(files));
}

TEST_CASE("for a server that stays root, everything is read", "[fixed_files]") {
  const temp_dir where;
  write(where / "secret", "one");
  REQUIRE(::chown((where / "secret").c_str(), theirs, theirs) == 0);
  REQUIRE(::chmod(where.path().c_str(), 0777) == 0);
  auto files = fixed_files::prepare({(where / "secret").string()}, 0, 0);
  REQUIRE(files);
  CHECK(files->read(0, {std::chrono::steady_clock::now() + 20s})->text == "one");
}

TEST_CASE("a file that comes too late is left out, and the next one is right", "[fixed_files]") {
  const temp_dir where;
  const std::string large(300'000, 'x');
  write(where / "slow", large);
  write(where / "other", "two");
  auto files = prepared({(where / "slow").string(), (where / "other").string()});
  const auto child = last_child();
  const auto now = [] { return std::chrono::steady_clock::now(); };
  REQUIRE(::kill(child, SIGSTOP) == 0); // As if the file system did not answer.
  REQUIRE(::waitpid(child, nullptr, WUNTRACED) == child);
  CHECK(files.read(0, {now() + 10ms}).reason().message.ends_with("that takes too long"));
  const unique_fd ends{::eventfd(1, EFD_CLOEXEC)};
  CHECK(files.read(1, {now() + 1h, {ends.get()}}).reason().message.ends_with("the server ends"));
  for (int i = 0; i < 2'000; ++i) // Without end, nothing is asked.
    REQUIRE_FALSE(files.read(0, {now()}));
  REQUIRE(::kill(child, SIGCONT) == 0);
  CHECK(eventually([&] { return files.read(1, {now() + 20s}); }));
  CHECK(files.read(1, {now() + 20s})->text == "two");
  CHECK((files.read(0, {now() + 20s})->text == large));
}

TEST_CASE("without its child nothing is read, and it is said", "[fixed_files]") {
  const temp_dir where;
  write(where / "secret", "one");
  auto files = prepared({(where / "secret").string()});
  CHECK(read_as_server(files, 0)->text == "one");
  CHECK_THROWS(read_as_server(files, 7));
  REQUIRE(::seteuid(0) == 0);
  auto other = std::move(files);
  CHECK(read_as_server(other, 0)->text == "one");
  const auto child = last_child();
  REQUIRE(::kill(child, SIGKILL) == 0);
  const auto is_over = [&] { return !fs::exists("/proc/" + std::to_string(child)); };
  CHECK(eventually([&] { // Nor does it stay as a zombie.
    CHECK(read_as_server(other, 0).reason().message.ends_with("the server needs a restart"));
    return is_over();
  }));
}
