// Which create the spawner carries out next, while it is still looked at the machine's /usr.
#include "runtime/spawner/create_queue.hpp"
#include "tests/support/catch.hpp"

#include <string>

using namespace insula::runtime::spawner;

namespace {

request create(std::uint32_t slot, bool with_usr, std::uint64_t epoch = 0,
               const std::string& tag = "") {
  request made{};
  made.what = op::create;
  made.slot = slot;
  made.flags = with_usr ? create_with_machines_usr : 0;
  made.epoch = epoch;
  tag.copy(made.tag, sizeof made.tag - 1);
  return made;
}

} // namespace

TEST_CASE("creates of other images pass those that wait for /usr", "[runtime][creates]") {
  create_queue all;
  for (const auto& [slot, with_usr] : {std::pair{1u, true}, {2u, false}, {3u, true}, {4u, false}})
    all.add(create(slot, with_usr));
  CHECK(all.has_next(false));
  CHECK(all.take_next(false)->slot == 2);
  CHECK(all.take_next(false)->slot == 4);
  CHECK_FALSE(all.has_next(false));
  CHECK_FALSE(all.take_next(false));
  CHECK(all.has_next(true));
  all.add(create(5, false));
  CHECK(all.take_next(true)->slot == 1); // Once it is known they have their order.
  CHECK(all.take_next(true)->slot == 3);
  CHECK(all.take_next(true)->slot == 5);
  CHECK(all.empty());
}

TEST_CASE("one that waits for /usr is dropped, and made for nobody's sake", "[runtime][creates]") {
  create_queue all;
  all.add(create(1, true, 7));
  all.add(create(2, false));
  REQUIRE(all.of(1) != nullptr);
  CHECK(all.of(1)->epoch == 7);
  CHECK_FALSE(all.take(1, false)); // Whatever else is asked of its slot.
  CHECK(all.take(2, false)->slot == 2);
  all.drop(1);
  CHECK(all.of(1) == nullptr);
  CHECK(all.empty());
}

TEST_CASE("the newest epoch of a tag counts that waits, too", "[runtime][creates]") {
  create_queue all;
  all.add(create(1, true, 5, "a"));
  all.add(create(2, true, 9, "b"));
  CHECK(all.newest_epoch("a") == 5);
  CHECK(all.newest_epoch("b") == 9);
  CHECK(all.newest_epoch("c") == 0);
  for (std::uint32_t slot = 3; !all.full(); ++slot)
    all.add(create(slot, true));
  CHECK(all.of(create_queue::most) != nullptr);
  CHECK(all.of(create_queue::most + 1) == nullptr);
}
