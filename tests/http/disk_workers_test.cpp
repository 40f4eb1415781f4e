#include "http/sandboxes/disk_workers.hpp"
#include "tests/support/catch.hpp"

#include <atomic>
#include <memory>

using insula::http::disk_workers;

TEST_CASE("what workers were given before their end is done by it", "[http][disk_workers]") {
  disk_workers workers{2};
  std::atomic<int> done = 0;
  for (int i = 0; i < 100; ++i)
    workers.post([&done] { ++done; });
  workers.end();
  CHECK(done == 100);
}

TEST_CASE("what comes after the workers' end is dropped, with what it holds",
          "[http][disk_workers]") {
  disk_workers workers{1};
  workers.end();
  const auto held = std::make_shared<int>(0);
  bool done = false;
  workers.post([held, &done] { done = true; });
  CHECK_FALSE(done);
  CHECK(held.use_count() == 1);
}
