#pragma once

#include "runtime/engine.hpp"
#include "tests/support/catch.hpp"

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// What runtime::engine promises of snapshots of disks, whether it is a real one or one that is
/// played.
namespace insula::test {

/// `make`: a sandbox whose disk begins with that snapshot, or with nothing; null: it was refused.
/// `usual`: what it makes them of. `end`: the sandbox has ended when this returns. The engine has
/// no snapshots before and after.
inline void check_snapshot_contract(
  runtime::engine& of,
  const std::function<std::shared_ptr<runtime::sandbox>(const std::string& disk_from)>& make,
  const std::function<void(const std::shared_ptr<runtime::sandbox>&)>& end,
  const runtime::sandbox_spec& usual) {
  const auto take = [](runtime::sandbox& from, const std::string& name) {
    std::promise<result<runtime::disk_snapshot>> told;
    from.take_snapshot(name,
                       [&](const result<runtime::disk_snapshot>& got) { told.set_value(got); });
    return told.get_future().get();
  };
  const auto drop = [&](const std::string& name) {
    std::promise<result<void>> told;
    of.drop_snapshot(name, [&](const result<void>& got) { told.set_value(got); });
    return told.get_future().get();
  };
  const auto are_there = [&](const std::vector<std::string>& wanted) {
    std::promise<result<std::vector<std::string>>> told;
    of.list_snapshots([&](const result<std::vector<std::string>>& got) { told.set_value(got); });
    const auto all = told.get_future().get();
    return all && *all == wanted;
  };
  CHECK(are_there({}));
  const auto first = make({});
  REQUIRE(first);
  INFO("a name is one snapshot's");
  const auto made = take(*first, "b-1");
  REQUIRE(made);
  CHECK(made->bytes > 0);
  CHECK(take(*first, "b-1").reason().code == errc::already_exists);
  REQUIRE(take(*first, "a-2"));
  CHECK(are_there({"a-2", "b-1"}));

  INFO("it outlives what it was taken of, and what begins with it outlives the snapshot");
  end(first);
  CHECK(take(*first, "late").reason().code == errc::sandbox_not_running);
  const auto fork = make("b-1");
  REQUIRE(fork);
  CHECK(drop("b-1"));
  CHECK(drop("b-1"));
  CHECK(are_there({"a-2"}));
  REQUIRE(take(*fork, "b-1"));
  CHECK_FALSE(make("none"));
  std::promise<errc> refused;
  runtime::sandbox_listener heard;
  heard.on_ready = [](const auto&) {};
  heard.on_failed = [&](const error& why) { refused.set_value(why.code); };
  heard.on_ended = [] {};
  auto spec = usual;
  spec.disk_from = "none";
  of.create(std::move(spec), std::move(heard));
  CHECK(refused.get_future().get() == errc::not_found);
  const auto open = [&](const std::string& name) {
    std::promise<std::optional<errc>> told;
    fork->open_disk(name, [&](const result<unique_fd>& got) {
      told.set_value(got ? std::nullopt : std::optional{got.reason().code});
    });
    return told.get_future().get();
  };
  CHECK(open("a-2") == std::nullopt);
  CHECK(open("none") == errc::not_found);
  end(fork);
  CHECK(open("a-2") == errc::sandbox_not_running);
  for (const auto* each : {"a-2", "b-1"})
    CHECK(drop(each));
  CHECK(are_there({}));
}

} // namespace insula::test
