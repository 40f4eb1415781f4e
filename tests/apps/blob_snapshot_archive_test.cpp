#include "apps/blob_snapshot_archive.hpp"

#include "base/limits.hpp"
#include "storage/blobs/directory_blobs.hpp"
#include "storage/memory_store.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/temp_dir.hpp"

#include <atomic>
#include <fstream>
#include <future>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>

using namespace insula;
using namespace insula::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

constexpr std::uint32_t server = 12'345; ///< Its user.

std::unique_ptr<storage::blob_store> blobs_in(const fs::path& where) {
  snapshot_config there;
  there.directory = where.string();
  auto opened = open_blobs(there, server);
  REQUIRE(opened);
  return std::move(*opened);
}

struct stat info_of(const fs::path& path) {
  struct stat is {};
  REQUIRE(::stat(path.c_str(), &is) == 0);
  return is;
}

} // namespace

TEST_CASE("files are put back though snapshots that take long have all other threads",
          "[snapshots]") {
  const temp_dir place;
  storage::memory_store records;
  const system_clock time;
  std::promise<void> goes_on;
  const auto held = goes_on.get_future().share();
  std::atomic<std::size_t> begun = 0, answered = 0;
  const auto token = std::make_shared<actors::work_token>();
  blob_snapshot_archive files{blobs_in(place / "there"), "space", records, time};
  constexpr std::size_t many = 2 * limits::snapshot_writers;
  for (std::size_t i = 0; i < many; ++i)
    files.keep({"a",
                1,
                1,
                {},
                [&, held]() -> result<unique_fd> {
                  ++begun;
                  held.wait();
                  return error{errc::io_failed, "slow"};
                },
                token,
                true},
               [&](auto) { ++answered; });
  CHECK(eventually([&] { return begun == limits::snapshot_writers; }));
  std::promise<errc> back;
  files.put_back({"b", "x",
                  []() -> result<unique_fd> {
                    return error{errc::io_failed, "it was asked"};
                  },
                  token},
                 [&](result<void> outcome) { back.set_value(outcome.reason().code); });
  auto outcome = back.get_future();
  REQUIRE(outcome.wait_for(20s) == std::future_status::ready);
  CHECK(outcome.get() == errc::io_failed);
  CHECK(answered == 0);
  goes_on.set_value();
  files.end();
  CHECK(answered == many); // Also those whose turn had not come.
}

TEST_CASE("of whole disks those that somebody waits for are copied first", "[snapshots]") {
  const temp_dir place;
  storage::memory_store records;
  const system_clock time;
  std::promise<void> goes_on;
  const auto held = goes_on.get_future().share();
  const auto token = std::make_shared<actors::work_token>();
  std::mutex guard;
  std::string order; // With the guard.
  std::atomic<std::size_t> begun = 0;
  blob_snapshot_archive files{blobs_in(place / "there"), "space", records, time};
  const auto keep = [&](char name, bool waited_for) {
    files.keep({std::string(1, name),
                1,
                1,
                {},
                [&, held, name]() -> result<unique_fd> {
                  {
                    const std::lock_guard hold{guard};
                    order += name;
                  }
                  ++begun;
                  held.wait();
                  return error{errc::io_failed, "it was asked"};
                },
                token,
                waited_for},
               [](auto) {});
  };
  const auto are_begun = [&](std::size_t count) {
    return eventually([&] { return begun == count; });
  };
  keep('a', false); // Nobody waits for it, and all that nobody waits for comes after it.
  REQUIRE(are_begun(1));
  keep('b', false);
  for (std::size_t i = 1; i < limits::snapshot_writers; ++i)
    keep('c', true);
  REQUIRE(are_begun(limits::snapshot_writers));
  keep('d', true);
  goes_on.set_value();
  REQUIRE(are_begun(limits::snapshot_writers + 2));
  files.end();
  CHECK(order.front() == 'a');
  CHECK(order.find('b') > order.rfind('c'));
}

TEST_CASE("a directory for snapshots is made, or is taken if nobody has anything in it",
          "[snapshots]") {
  const temp_dir place;
  const auto where = place / "there";
  snapshot_config there;
  there.directory = where.string();
  SECTION("it is made") {}
  SECTION("an empty one of root's") {
    fs::create_directory(where);
  }
  SECTION("that of the server's user") {
    fs::create_directory(where);
    std::ofstream{where / "file"} << "x";
    REQUIRE(::chown(where.c_str(), server, server) == 0);
    REQUIRE(::chmod(where.c_str(), 0700) == 0);
  }
  SECTION("not one of root's with something in it") {
    fs::create_directory(where);
    std::ofstream{where / "file"} << "x";
    REQUIRE(::chmod(where.c_str(), 0755) == 0);
    const auto refused = open_blobs(there, server);
    REQUIRE_FALSE(refused);
    CHECK(refused.reason().message.find(there.directory) != std::string::npos);
    CHECK(info_of(where).st_uid == 0);
    CHECK((info_of(where).st_mode & 0777) == 0755);
    return;
  }
  CHECK(open_blobs(there, server));
  CHECK(info_of(where).st_uid == server);
  CHECK((info_of(where).st_mode & 0777) == 0700);
}
