#include "storage/local_lease.hpp"
#include "storage/memory_store.hpp"
#include "tests/support/catch.hpp"

#include <vector>

using namespace insula;
using namespace insula::storage;

namespace {

/// A store whose disk the test plays: a commit is done, or fails, when the test says so.
class slow_store final : public store {
public:
  void commit(write_batch batch, std::function<void(result<void>)> on_durable) override {
    waiting.push_back({std::move(batch), std::move(on_durable)});
  }
  result<std::vector<entry>> read(std::string_view owner, std::string_view prefix) override {
    return disk.read(owner, prefix);
  }
  result<std::vector<owned_entry>> find(std::string_view prefix) override {
    return disk.find(prefix);
  }
  result<mark_page> scan(std::string_view mark, const mark_position& after,
                         std::size_t limit) override {
    return disk.scan(mark, after, limit);
  }
  result<mark_page> scan_keys(std::string_view mark, const mark_position& after,
                              std::size_t limit) override {
    return disk.scan_keys(mark, after, limit);
  }
  result<mark_page> read_each(const std::vector<mark_position>& places) override {
    return disk.read_each(places);
  }
  result<std::uint64_t> count(std::string_view mark) override { return disk.count(mark); }
  result<std::vector<std::string>> owners() override { return disk.owners(); }

  void finish() {
    auto next = take();
    disk.commit(std::move(next.first), std::move(next.second));
  }
  void refuse() { take().second(error{errc::io_failed, "the disk is full"}); }

  std::vector<std::pair<write_batch, std::function<void(result<void>)>>> waiting;
  memory_store disk;

private:
  std::pair<write_batch, std::function<void(result<void>)>> take() {
    REQUIRE_FALSE(waiting.empty());
    auto next = std::move(waiting.front());
    waiting.erase(waiting.begin());
    return next;
  }
};

std::unique_ptr<local_lease> open(store& where) {
  auto opened = local_lease::open(where);
  REQUIRE(opened);
  return std::move(*opened);
}

/// Everything that was answered, in order: epochs, and 0 for an error.
struct answers {
  std::vector<epoch> got;
  std::vector<errc> errors;

  std::function<void(result<epoch>)> next() {
    return [this](result<epoch> r) {
      got.push_back(r ? *r : 0);
      if (!r)
        errors.push_back(r.reason().code);
    };
  }
};

} // namespace

TEST_CASE("leases wait for the first block and no later one", "[storage][lease]") {
  slow_store disk;
  answers told;
  auto leases = open(disk);
  leases->acquire("first", told.next());
  CHECK(told.got.empty()); // An epoch nobody wrote down could be handed out twice.
  disk.finish();
  CHECK(told.got == std::vector<epoch>{1});
  for (int i = 0; i < 999; ++i)
    leases->acquire(std::to_string(i), told.next());
  CHECK(told.got.size() == 1'000);
  CHECK(told.errors.empty());
  CHECK(disk.waiting.size() == 1); // The next block, asked for ahead, and only once.
  disk.finish();
  leases->acquire("next", told.next());
  CHECK(told.got.back() == 1'001);
}

TEST_CASE("who waits for a block is answered when it comes, however many", "[storage][lease]") {
  slow_store disk;
  answers told;
  auto leases = open(disk);
  for (int i = 0; i < 2'500; ++i)
    leases->acquire(std::to_string(i), told.next());
  CHECK(told.got.empty());
  for (int block = 0; block < 3; ++block)
    disk.finish();
  CHECK(told.got.size() == 2'500);
  CHECK(told.got.back() == 2'500);
  CHECK(told.errors.empty());
}

TEST_CASE("a lease that is waited for is taken", "[storage][lease]") {
  slow_store disk;
  answers told;
  auto leases = open(disk);
  leases->acquire("a", told.next());
  leases->acquire("a", told.next());
  CHECK(told.errors == std::vector{errc::limit_reached});
  disk.finish();
  CHECK(told.got == std::vector<epoch>{0, 1});
}

TEST_CASE("a disk that refuses the block is told to who waits, and asked again by the next",
          "[storage][lease]") {
  slow_store disk;
  answers told;
  auto leases = open(disk);
  leases->acquire("a", told.next());
  disk.refuse();
  CHECK(told.errors == std::vector{errc::io_failed});
  CHECK(disk.waiting.empty());
  leases->acquire("a", told.next()); // It did not become held by failing.
  disk.finish();
  CHECK(told.got == std::vector<epoch>{0, 1});
}

TEST_CASE("ending the service answers who waits, and a late block does no harm",
          "[storage][lease]") {
  slow_store disk;
  answers told;
  auto leases = open(disk);
  leases->acquire("a", told.next());
  leases.reset();
  CHECK(told.errors == std::vector{errc::io_failed});
  disk.finish();
  CHECK(told.got.size() == 1);
  CHECK(disk.waiting.empty());
}

TEST_CASE("a restart skips what is left of a block", "[storage][lease]") {
  memory_store disk;
  answers told;
  open(disk)->acquire("a", told.next());
  open(disk)->acquire("a", told.next());
  CHECK(told.got == std::vector<epoch>{1, 1'001});
}

TEST_CASE("leases that are held or waited for have a ceiling", "[storage][lease]") {
  slow_store disk;
  answers told;
  auto leases = open(disk);
  SECTION("waiting") {
    for (std::size_t i = 0; i <= store::max_waiting; ++i)
      leases->acquire(std::to_string(i), told.next());
    CHECK(told.errors == std::vector{errc::limit_reached});
  }
  SECTION("held") {
    disk.finish();
    for (std::size_t i = 0; i <= local_lease::max_held; ++i) {
      leases->acquire(std::to_string(i), told.next());
      if (!disk.waiting.empty())
        disk.finish();
    }
    CHECK(told.got.size() == local_lease::max_held + 1);
    CHECK(told.errors == std::vector{errc::limit_reached});
  }
}

TEST_CASE("a damaged record of epochs is not guessed at", "[storage][lease]") {
  memory_store disk;
  disk.commit({"_lease", 1, {{"reserved_until", "1000x"}}}, [](result<void>) {});
  const auto opened = local_lease::open(disk);
  REQUIRE_FALSE(opened);
  CHECK(opened.reason().code == errc::io_failed);
}

TEST_CASE("a store that cannot be read stops the service from starting", "[storage][lease]") {
  class unreadable final : public store {
    void commit(write_batch, std::function<void(result<void>)>) override {}
    result<std::vector<entry>> read(std::string_view, std::string_view) override {
      return error{errc::io_failed, "the disk is gone"};
    }
    result<std::vector<owned_entry>> find(std::string_view) override {
      return std::vector<owned_entry>{};
    }
    result<mark_page> scan(std::string_view, const mark_position&, std::size_t) override {
      return mark_page{};
    }
    result<mark_page> scan_keys(std::string_view, const mark_position&, std::size_t) override {
      return mark_page{};
    }
    result<mark_page> read_each(const std::vector<mark_position>&) override { return mark_page{}; }
    result<std::uint64_t> count(std::string_view) override { return std::uint64_t{0}; }
    result<std::vector<std::string>> owners() override { return std::vector<std::string>{}; }
  } disk;
  const auto opened = local_lease::open(disk);
  REQUIRE_FALSE(opened);
  CHECK(opened.reason().message == "the disk is gone");
}
