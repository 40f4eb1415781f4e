#include "actors/protocol/errors.hpp"
#include "actors/store.hpp"
#include "storage/memory_store.hpp"
#include "tests/support/catch.hpp"

#include <caf/all.hpp>

using namespace insula;

TEST_CASE("the store behind a mailbox keeps and gives back, and passes refusals on",
          "[actors][store]") {
  storage::memory_store disk;
  caf::actor_system_config settings;
  caf::actor_system system{settings};
  const auto store = actors::spawn_store(system, &disk, std::make_shared<actors::mailbox_depths>());
  caf::scoped_actor self{system};
  const auto commit = [&](storage::epoch at, std::string value) {
    std::optional<error> refused;
    self
      ->request(store, caf::infinite, storage::write_batch{"abc", at, {{"k", std::move(value)}}},
                request_context{})
      .receive([](caf::ok_atom) {}, [&](caf::error& why) { refused = from_caf(why); });
    return refused;
  };
  CHECK_FALSE(commit(2, "new"));
  const auto stale = commit(1, "old");
  REQUIRE(stale);
  CHECK(stale->code == errc::stale_epoch);
  self
    ->request(store, caf::infinite, read_owner_atom::value, std::string{"abc"}, std::string{},
              request_context{})
    .receive(
      [](const std::vector<storage::entry>& found) {
        REQUIRE(found.size() == 1);
        CHECK(found[0].value == "new");
      },
      [](caf::error& why) { FAIL(from_caf(why).message); });
}

TEST_CASE("an error keeps its kind and its words on its way through a message",
          "[actors][errors]") {
  const auto back = from_caf(to_caf({errc::capacity_exceeded, "3/3"}));
  CHECK(back.code == errc::capacity_exceeded);
  CHECK(back.message == "3/3");
  CHECK(from_caf(caf::make_error(caf::sec::request_receiver_down)).code ==
        errc::sandbox_not_running);
  CHECK(from_caf(caf::make_error(caf::sec::request_timeout)).code == errc::deadline_exceeded);
  CHECK(from_caf(caf::make_error(caf::sec::unexpected_message)).code == errc::internal);
}
