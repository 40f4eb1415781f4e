#pragma once

#include "runtime/engine.hpp"
#include "tests/support/catch.hpp"

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>

/// What runtime::engine promises of drives, whether it is a real one or one that is played.
namespace insula::test {

/// `make`: a sandbox. `end`: it has ended when this returns. `prepare`: from now on it has a drive.
inline void
check_drive_contract(runtime::engine& of,
                     const std::function<std::shared_ptr<runtime::sandbox>()>& make,
                     const std::function<void(const std::shared_ptr<runtime::sandbox>&)>& end,
                     const std::function<void(const std::shared_ptr<runtime::sandbox>&)>& prepare) {
  using one = std::shared_ptr<runtime::sandbox>;
  const auto attach = [](const one& to, const runtime::drive_spec& what) {
    std::promise<std::optional<errc>> told;
    to->attach_drive(what, [&](const result<void>& got) {
      told.set_value(got ? std::nullopt : std::optional{got.reason().code});
    });
    return told.get_future().get();
  };
  const auto drive = make(), first = make(), second = make();
  REQUIRE((drive && first && second));
  prepare(drive);

  INFO("one sandbox writes to a drive, and others read it");
  CHECK(attach(first, {"/data", drive}) == std::nullopt);
  CHECK(attach(first, {"/data", drive}) == std::nullopt); // It is there already.
  CHECK(attach(first, {"/data", drive, {}, true}) == errc::already_exists);
  CHECK(attach(second, {"/data", drive}) == errc::drive_in_use);
  CHECK(attach(second, {"/data", drive, {}, true}) == std::nullopt);

  INFO("what it was at some moment is nobody's to change");
  std::promise<result<runtime::disk_snapshot>> taken;
  drive->take_snapshot("d-1", [&](const auto& got) { taken.set_value(got); });
  REQUIRE(taken.get_future().get());
  CHECK(attach(second, {"/before", drive, "d-1"}) == std::nullopt);
  CHECK(attach(second, {"/other", drive, "none"}) == errc::not_found);
  CHECK(attach(drive, {"/self", drive}) == errc::not_found);

  INFO("the drive is free once the sandbox has ended that wrote to it");
  end(first);
  CHECK(attach(first, {"/data", drive}) == errc::sandbox_not_running);
  const auto third = make();
  CHECK(attach(third, {"/data", drive}) == std::nullopt);
  end(second);
  end(third);
  end(drive);
  const auto fourth = make();
  CHECK(attach(fourth, {"/data", drive}) == errc::not_found);
  end(fourth);
  std::promise<void> dropped;
  of.drop_snapshot("d-1", [&](const auto&) { dropped.set_value(); });
  dropped.get_future().get();
}

} // namespace insula::test
