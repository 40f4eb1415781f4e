#include "storage/private_file.hpp"
#include "storage/secret_key.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace insula;
using namespace insula::storage;
using namespace insula::test;
namespace fs = std::filesystem;

namespace {

std::string text_in(const fs::path& file) {
  std::ifstream in{file, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

void write_as(const fs::path& file, const std::string& text, mode_t mode) {
  std::ofstream{file, std::ios::binary} << text;
  REQUIRE(::chmod(file.c_str(), mode) == 0);
}

mode_t mode_of(const fs::path& file) {
  struct stat info {};
  REQUIRE(::stat(file.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> all;
  for (const auto& each : fs::directory_iterator{directory})
    all.push_back(each.path().filename().string());
  return all;
}

const std::string good_text = std::string(32, 'a') + std::string(32, '7') + "\n";

} // namespace

TEST_CASE("the key for secrets is made once, for its owner alone", "[secrets]") {
  const temp_dir where;
  const auto path = where / "secrets.key";
  const auto mask = ::umask(0); // Nothing depends on it.
  const auto first = open_secret_key(path);
  ::umask(mask);
  REQUIRE(first);
  CHECK(mode_of(path) == 0600);
  const auto text = text_in(path);
  CHECK(text.size() == 65);
  CHECK(text.find_first_not_of("0123456789abcdef") == 64);
  CHECK(text.back() == '\n');
  CHECK(names_in(where.path()) == std::vector<std::string>{"secrets.key"});
  const auto second = open_secret_key(path);
  REQUIRE(second);
  CHECK(text_in(path) == text);
  CHECK(second->key_id() == first->key_id());
  const temp_dir elsewhere;
  CHECK(open_secret_key(elsewhere / "secrets.key")->key_id() != first->key_id());
}

TEST_CASE("two that start at once have the same key for secrets", "[secrets]") {
  for (int round = 0; round < 20; ++round) {
    const temp_dir where;
    const auto path = (where / "secrets.key").string();
    std::vector<std::string> ids(8);
    std::vector<std::thread> all;
    for (auto& id : ids)
      all.emplace_back([&path, &id] {
        const auto box = open_secret_key(path);
        id = box ? box->key_id() : box.reason().message;
      });
    for (auto& each : all)
      each.join();
    const std::set<std::string> different{ids.begin(), ids.end()};
    CAPTURE(different);
    CHECK(different.size() == 1);
    CHECK(names_in(where.path()) == std::vector<std::string>{"secrets.key"});
  }
}

TEST_CASE("a key for secrets that others can use is refused, and says what to do", "[secrets]") {
  const temp_dir where;
  const auto path = where / "secrets.key";
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0610, 0666, 0644, 0677}) {
    CAPTURE(mode);
    write_as(path, good_text, mode);
    const auto refused = open_secret_key(path);
    REQUIRE_FALSE(refused);
    CHECK(refused.reason().code == errc::invalid_request);
    CHECK(refused.reason().message.starts_with(path.string() + ": "));
    CHECK(refused.reason().message.find("chmod 600") != std::string::npos);
    CHECK(refused.reason().message.find("aaaa") == std::string::npos);
    CHECK(text_in(path) == good_text);
    CHECK(mode_of(path) == mode);
  }
  for (const mode_t mode : {0600, 0400}) {
    write_as(path, good_text, mode);
    CHECK(open_secret_key(path));
    REQUIRE(::chmod(path.c_str(), 0600) == 0);
  }
  if (::geteuid() == 0) {
    REQUIRE(::chown(path.c_str(), 12345, 12345) == 0);
    const auto refused = open_secret_key(path);
    REQUIRE_FALSE(refused);
    CHECK(refused.reason().message.find("chown root") != std::string::npos);
  }
}

TEST_CASE("a key for secrets that is none is refused, and stays as it is", "[secrets]") {
  const temp_dir where;
  const auto path = where / "secrets.key";
  const std::string digits(64, 'a');
  for (const auto& text :
       {std::string{}, std::string{"\n"}, digits, digits + "\r\n", digits + "\n\n",
        digits.substr(1) + "\n", digits + "a\n", "0x" + digits.substr(2) + "\n",
        digits.substr(1) + "g\n", " " + digits.substr(1) + "\n", std::string(65, '\0'),
        std::string(100'000, 'a')}) {
    CAPTURE(text.size());
    write_as(path, text, 0600);
    const auto refused = open_secret_key(path);
    REQUIRE_FALSE(refused);
    CHECK(refused.reason().code == errc::invalid_request);
    CHECK(refused.reason().message.starts_with(path.string() + ": "));
    CHECK(refused.reason().message.find("aaaa") == std::string::npos);
    CHECK(text_in(path) == text);
  }
  write_as(path, std::string(32, 'A') + std::string(32, '9') + "\n", 0600);
  CHECK(open_secret_key(path));
}

TEST_CASE("what is no file is no key for secrets", "[secrets]") {
  const temp_dir where;
  REQUIRE(::mkfifo((where / "pipe").c_str(), 0600) == 0); // Nobody waits for its other end.
  CHECK(open_secret_key(where / "pipe").reason().code == errc::invalid_request);
  CHECK_FALSE(open_secret_key(where.path()));
  fs::create_symlink(where / "nothing", where / "link");
  CHECK(open_secret_key(where / "link").reason().code == errc::io_failed);
  CHECK(open_secret_key(where / "missing/secrets.key").reason().code == errc::io_failed);
  // A link to a key is as good as the key.
  write_as(where / "real", good_text, 0600);
  fs::create_symlink(where / "real", where / "other");
  CHECK(open_secret_key(where / "other"));
}

TEST_CASE("a private file is replaced whole, and a link to it stays one", "[secrets]") {
  const temp_dir where;
  const auto path = (where / "keys").string();
  CHECK(replace_private_file(path, "new").reason().code == errc::not_found);
  CHECK(names_in(where.path()).empty());
  REQUIRE(*make_private_file(path, "old"));
  REQUIRE_FALSE(*make_private_file(path, "other"));
  CHECK(text_in(path) == "old");
  REQUIRE(::chmod(path.c_str(), 0644) == 0);
  fs::create_symlink(path, where / "link");
  REQUIRE(replace_private_file(where / "link", "new"));
  CHECK(fs::is_symlink(where / "link"));
  CHECK(text_in(path) == "new");
  CHECK(mode_of(path) == 0600);
  CHECK(*read_private_file(path, 3) == "new");
  CHECK(read_private_file(path, 2).reason().code == errc::invalid_request);
  CHECK(names_in(where.path()).size() == 2);
  if (::geteuid() == 0) {
    REQUIRE(::chown(path.c_str(), 12345, 54321) == 0);
    REQUIRE(replace_private_file(path, "newer"));
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    CHECK(info.st_uid == 12345);
    CHECK(info.st_gid == 54321);
  }
}
