#pragma once

#include "apps/image_supply.hpp"
#include "tests/apps/images/scripted_room.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/events.hpp"
#include "tests/support/manual_clock.hpp"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace insula::test {

/// A clock that one thread moves while others read it.
class shared_clock final : public clock {
public:
  std::chrono::steady_clock::time_point now() const override {
    const std::lock_guard hold{guard_};
    return is_.now();
  }
  std::int64_t unix_ms() const override {
    const std::lock_guard hold{guard_};
    return is_.unix_ms();
  }
  std::string boot() const override {
    const std::lock_guard hold{guard_};
    return is_.boot();
  }

  void advance(std::chrono::nanoseconds by) {
    const std::lock_guard hold{guard_};
    is_.advance(by);
  }

private:
  mutable std::mutex guard_;
  manual_clock is_;
};

/// What one asker is told.
class told {
public:
  auto then() const {
    return [to = all_](const result<std::string>& what) { to->tell(what); };
  }

  /// Is there no answer that nobody has taken yet?
  bool open() const { return all_->empty(); }
  /// The functions below wait for an answer, and take it.
  result<std::string> get() const { return all_->next(); }
  std::string name() const {
    const auto got = get();
    return got ? *got : "none: " + got.reason().message;
  }
  error reason() const {
    const auto got = get();
    return got ? error{errc::internal, "no error, but " + *got} : got.reason();
  }
  errc code() const { return reason().code; }

private:
  std::shared_ptr<events<result<std::string>>> all_ =
    std::make_shared<events<result<std::string>>>();
};

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::string digest_of(char each) {
  return "sha256:" + std::string(64, each);
}

/// As the room tells of it.
inline storage::images::image_record
record_of(const std::string& name, const std::string& reference, const std::string& digest) {
  storage::images::image_record is;
  is.name = name;
  is.format = "oci";
  is.reference = reference;
  is.digest = digest;
  is.by_node = true;
  is.size_bytes = 100;
  is.account = {"sandbox", "/home/sandbox", "/bin/sh"};
  return is;
}

/// As the catalogue has it.
inline actors::sandbox_image image_with(const std::string& tree, const std::string& reference = {},
                                        const std::string& digest = {}) {
  actors::sandbox_image is{{tree, false}};
  is.reference = reference;
  is.digest = digest;
  return is;
}

/// Sandboxes that need an image.
using users_or_error = result<std::vector<std::string>>;

inline users_or_error nobody() {
  return std::vector<std::string>{};
}

/// The images of a server whose room is the test.
///
/// Threads: any finds, pulls and removes; all else is for the one that has the room.
struct fetching_node {
  scripted_room room;
  shared_clock time;
  std::shared_ptr<actors::image_catalogue> all = std::make_shared<actors::image_catalogue>();
  image_supply::settings how;
  std::optional<image_supply> supply;

  fetching_node() {
    how.policy.pull = image_pull::missing;
    how.policy.allow = {"**"};
    how.default_name = "host";
    how.users = [](const std::string&, const actors::sandbox_image&) -> users_or_error {
      return nobody();
    };
    how.time = &time;
    all->put("host", image_with("host"));
  }

  /// What is in the catalogue now are the images that the server has found.
  void start() { supply.emplace(room.room(), all, how); }

  told find(const std::string& text, std::vector<std::string> names = {}) {
    told asker;
    supply->find({text, std::move(names)}, asker.then());
    return asker;
  }
  told pull(const std::string& reference) {
    told asker;
    supply->pull(reference, asker.then());
    return asker;
  }
  told remove(const std::string& name) {
    told asker;
    supply->remove(name, asker.then());
    return asker;
  }
  scripted_room::order next_pull(const std::string& reference) {
    auto order = room.next();
    REQUIRE(order.task == room_task::pull);
    REQUIRE(order.text == reference);
    return order;
  }
  scripted_room::order next_removal(const std::string& name) {
    auto order = room.next();
    REQUIRE(order.task == room_task::remove);
    REQUIRE(order.text == name);
    return order;
  }

  /// The image comes without being asked for.
  void bring(const std::string& name, const std::string& tree, const std::string& reference = {},
             const std::string& digest = digest_of('0')) {
    room.image(record_of(name, reference, digest), tree);
    settle();
  }
  /// The room's news so far have been heard, and the room has no order that the test does not
  /// know of. At most one pull is on its way.
  void settle() {
    const auto reference = "settle.example/all:" + std::to_string(++settled_);
    const auto asker = pull(reference);
    room.done(next_pull(reference), "host");
    REQUIRE(asker.name() == "host");
  }
  /// The supply's thread has begun whatever has to be begun of all that was asked so far.
  void look_round() { REQUIRE(remove("nothing").code() == errc::not_found); }
  /// The supply's thread looks at the clock.
  void nudge() { room.tell({room_news::progress, 0, ~0ull}); }

private:
  int settled_ = 0;
};

} // namespace insula::test
