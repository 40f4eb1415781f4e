// A process that is killed while it writes, by a signal that it cannot see coming.
#include "base/unique_fd.hpp"
#include "storage/sqlite_store.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/store_calls.hpp"
#include "tests/support/temp_dir.hpp"

#include <csignal>
#include <cstdint>
#include <random>
#include <sys/wait.h>
#include <unistd.h>

using namespace insula;
using namespace insula::storage;
using namespace insula::test;

namespace {

/// Batch `n` in full: an object that is made anew every time, in keys that say which batch it was.
write_batch numbered(std::uint32_t n) {
  const auto text = std::to_string(n);
  return {"a", n, {{"first", text}, {"seen/" + text, ""}, {"last", text}}};
}

/// Commits without end, up to 32 batches at a time, and writes each acknowledged number to `fd`.
[[noreturn]] void commit_and_tell(const std::string& path, std::uint32_t from, int fd) {
  auto opened = sqlite_store::open(path);
  if (!opened)
    ::_exit(1);
  for (std::uint32_t n = from;; n += 32) {
    std::vector<std::future<result<void>>> together;
    for (std::uint32_t i = n; i < n + 32; ++i) {
      auto told = std::make_shared<std::promise<result<void>>>();
      together.push_back(told->get_future());
      (*opened)->commit(numbered(i), [told, fd, i](result<void> r) {
        if (!r || ::write(fd, &i, sizeof(i)) != sizeof(i))
          ::_exit(2);
        told->set_value({});
      });
    }
    for (auto& one : together)
      one.wait();
  }
}

} // namespace

TEST_CASE("an acknowledged write survives kill -9", "[storage][sqlite][crash]") {
  std::random_device any;
  const auto seed = any();
  CAPTURE(seed);
  std::mt19937 rng{seed};
  const temp_dir dir;
  const auto path = (dir / "insula.db").string();
  std::uint32_t kept = 0;
  for (int life = 0; life < 12; ++life) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    unique_fd told{ends[0]}, tells{ends[1]};
    const auto child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0)
      commit_and_tell(path, kept + 1, tells.get());
    tells.reset();

    // Killed in the middle of its work, at a number of its own; what it managed to say still
    // counts.
    const auto enough = 1 + rng() % 300;
    std::uint32_t acknowledged = 0;
    for (std::uint32_t heard = 0, n = 0; ::read(told.get(), &n, sizeof(n)) == sizeof(n);) {
      acknowledged = n;
      if (++heard == enough)
        REQUIRE(::kill(child, SIGKILL) == 0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    REQUIRE(acknowledged >= kept + enough);

    auto reopened = sqlite_store::open(path);
    REQUIRE(reopened);
    const auto all = as_map(*(*reopened)->read("a"));
    kept = static_cast<std::uint32_t>(std::stoul(all.at("last")));
    CHECK(kept >= acknowledged);
    CHECK(all.at("first") == all.at("last")); // Whole, whichever was the last.
    CHECK(all.size() == kept + 2);            // None is missing in between.
    CHECK(commit_now(**reopened, {"a", kept - 1, {}}).reason().code == errc::stale_epoch);
  }
}
