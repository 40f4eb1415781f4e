// Which create the spawner carries out next, while it is still looked at the machine's /usr.
#include "runtime/spawner/create_queue.hpp"
#include "tests/support/catch.hpp"

#include <string>

using namespace insula::runtime::spawner;

namespace {

constexpr at_hand nothing{false, false}, usr_alone{true, false}, all_of_it{true, true};

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
  CHECK(all.has_next(nothing));
  CHECK(all.take_next(nothing)->slot == 2);
  CHECK(all.take_next(nothing)->slot == 4);
  CHECK_FALSE(all.has_next(nothing));
  CHECK_FALSE(all.take_next(nothing));
  CHECK(all.has_next(all_of_it));
  all.add(create(5, false));
  CHECK(all.take_next(all_of_it)->slot == 1); // Once it is known they have their order.
  CHECK(all.take_next(all_of_it)->slot == 3);
  CHECK(all.take_next(all_of_it)->slot == 5);
  CHECK(all.empty());
}

TEST_CASE("creates with packages to install wait for their lists, and hold up no others",
          "[runtime][creates]") {
  create_queue all;
  const auto gaining = [](request made) {
    made.flags |= create_may_gain_rights;
    return made;
  };
  all.add(gaining(create(1, true)));
  all.add(gaining(create(2, false))); // An imported image has its own.
  all.add(create(3, true));
  CHECK(needs_package_lists(gaining(create(1, true))));
  CHECK_FALSE(needs_package_lists(gaining(create(2, false))));
  CHECK_FALSE(needs_package_lists(create(3, true)));
  CHECK(all.take_next({false, true})->slot == 2); // Both are waited for.
  CHECK(all.take_next(usr_alone)->slot == 3);
  CHECK_FALSE(all.has_next(usr_alone));
  CHECK_FALSE(all.take(1, usr_alone));
  CHECK(all.take(1, all_of_it)->slot == 1);
  CHECK(all.empty());
}

TEST_CASE("one that waits for /usr is dropped, and made for nobody's sake", "[runtime][creates]") {
  create_queue all;
  all.add(create(1, true, 7));
  all.add(create(2, false));
  REQUIRE(all.of(1) != nullptr);
  CHECK(all.of(1)->epoch == 7);
  CHECK_FALSE(all.take(1, nothing)); // Whatever else is asked of its slot.
  CHECK(all.take(2, nothing)->slot == 2);
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
