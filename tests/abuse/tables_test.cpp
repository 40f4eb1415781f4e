// For every table and every kind of memory that all sandboxes have together: one sandbox fills it,
// and meanwhile others start, run commands, resolve, connect and download, and the machine loses no
// more memory than sandboxes are charged for, but for what the node keeps free. Nothing is timed
// here; `./dev abuse` does that, for all rows.
#include "tests/abuse/neighbourhood.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/given_back.hpp"

#include <algorithm>

using namespace insula::test;

namespace {

void nothing_is_wrong(const done_things& all) {
  CHECK(all.wrong == std::vector<std::string>{});
}

void others_go_on(const neighbourhood& at) {
  nothing_is_wrong(at.executes(3));
  nothing_is_wrong(at.starts(2));
  nothing_is_wrong(at.resolves(3));
  nothing_is_wrong(at.connects(3));
  nothing_is_wrong(at.downloads(2));
}

/// What a sandbox that has ended had held comes back after some moments.
void memory_is_paid_for(const neighbourhood& at, const memory_reading& before) {
  memory_reading now;
  const bool paid = eventually([&] {
    now = at.memory();
    return now.lost_since(before) <=
           now.charged_since(before) + static_cast<std::int64_t>(uncharged_allowed);
  });
  CAPTURE(now.lost_since(before) >> 20, now.charged_since(before) >> 20);
  CHECK(paid);
}

void attack_all(const std::string& kind) {
  wait_until_given_back();
  neighbourhood at;
  for (const auto& each : all_table_attacks()) {
    if (each.kind != kind || each.only_measured)
      continue;
    CAPTURE(each.table, each.command);
    if (each.ends())
      wait_until_given_back();
    const auto before = at.memory();
    running_attack attack{at, each};
    if (each.ends()) // It goes on until then.
      others_go_on(at);
    const auto told = attack.hear();
    CAPTURE(told);
    CHECK(std::find(each.told.begin(), each.told.end(), told) != each.told.end());
    memory_is_paid_for(at, before);
    if (!each.ends())
      others_go_on(at);
    if (!each.own.empty())
      CHECK(at.uses(each.own) == each.own_told);
    memory_is_paid_for(at, before);
    at.end();
  }
}

} // namespace

TEST_CASE("file locks of one sandbox are nothing to another", "[abuse][tables]") {
  attack_all("locks");
}

TEST_CASE("names of one sandbox's directories are nothing to another", "[abuse][tables]") {
  attack_all("directories");
}

TEST_CASE("sockets of one sandbox are nothing to another", "[abuse][tables]") {
  attack_all("sockets");
}

TEST_CASE("filters of one sandbox are nothing to another", "[abuse][tables]") {
  attack_all("filters");
}

TEST_CASE("descriptors of one sandbox are nothing to another", "[abuse][tables]") {
  attack_all("descriptors");
}

TEST_CASE("numbers and queues of one sandbox are nothing to another", "[abuse][tables]") {
  attack_all("numbers");
}

TEST_CASE("what one sandbox has the gateway do is nothing to another",
          "[abuse][tables][any_user]") {
  attack_all("gateway");
}

TEST_CASE("memory, disk and output of one sandbox are nothing to another", "[abuse][tables]") {
  attack_all("storage");
}
