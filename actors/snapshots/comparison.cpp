#include "actors/snapshots/comparison.hpp"

#include "actors/object_link.hpp"
#include "actors/owed.hpp"
#include "actors/protocol/errors.hpp"
#include "actors/snapshots/copies.hpp"
#include "actors/snapshots/disk_helpers.hpp"
#include "base/limits.hpp"

#include <caf/all.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace insula::actors::snapshots {

namespace {

/// Something that was posted to the mailbox.
struct step {
  std::function<void()> next;
};

} // namespace
} // namespace insula::actors::snapshots

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::snapshots::step)

namespace insula::actors::snapshots {

namespace {

using comparison_impl = comparison_actor::extend<caf::reacts_to<step>>;

class comparison;
struct comparison_state {
  static inline const char* name = "comparison";
  owed_answers answers;
  std::shared_ptr<comparison> it;
};
using comparison_pointer = comparison_impl::stateful_pointer<comparison_state>;

class comparison {
public:
  comparison(comparison_pointer self, std::shared_ptr<const sandbox_options> options,
             compare_snapshots wanted, owed<snapshot_changes> to)
      : self_(self)
      , options_(std::move(options))
      , wanted_(std::move(wanted))
      , to_(std::move(to)) {}
  comparison(const comparison&) = delete;
  comparison& operator=(const comparison&) = delete;
  ~comparison() { token_->cancel(); }

  void begin() {
    if (const auto directory = options_->objects->get()) // It ends with the node.
      self_->link_to(directory);
    if (options_->disk_helpers == nullptr)
      return fail({errc::forbidden, "disks are not compared here"});
    ask({wanted_.id, wanted_.context, true}, [this](const snapshot_description& found) {
      is_ = found;
      const auto& older = wanted_.older.empty() ? is_.parent : wanted_.older;
      if (older.empty())
        return look();
      ask({older, wanted_.context}, [this](const snapshot_description& base) { with_older(base); });
    });
  }

private:
  void with_older(const snapshot_description& base) {
    const bool same_source = base.image_source == is_.image_source;
    if (base.state == snapshot_state::deleted && !same_source) // What is freed has none.
      return fail(is_gone(base.id));
    const bool digests_differ = !base.image_digest.empty() && !is_.image_digest.empty() &&
                                base.image_digest != is_.image_digest;
    if (base.image != is_.image || !same_source || digests_differ)
      return fail({errc::invalid_request, "snapshots over different images are not compared"});
    older_ = base;
    look();
  }

  void look() {
    auto image = image_under(*options_->images, is_);
    if (!image)
      return fail(image_gone);
    options_->disk_helpers->compare(
      std::move(image), {is_.id, older_ ? older_->id : "", wanted_.after, wanted_.limit},
      [this, post = post()](const result<disk_changes>& found) {
        post([this, found] { on_compared(found); });
      });
  }

  void on_compared(const result<disk_changes>& found) {
    if (found)
      return end(snapshot_changes{older_ ? older_->id : "", *found});
    const bool lacks_bytes = found.reason().code == errc::not_found;
    if (!lacks_bytes)
      return fail_unless_gone(found.reason());
    if (!options_->copies || std::exchange(brought_, true))
      return fail(found.reason());
    lacking_ = {is_};
    if (older_)
      lacking_.push_back(*older_);
    bring();
  }

  static error is_gone(const std::string& id) {
    return {errc::not_found, "what snapshot " + id + " had is gone"};
  }

  /// A snapshot that is deleted while it is compared makes that fail somehow. Its deletion is what
  /// the answer tells.
  void fail_unless_gone(const error& why) {
    std::vector<std::string> compared{is_.id};
    if (older_)
      compared.push_back(older_->id);
    look_for_gone(std::move(compared), why);
  }

  void look_for_gone(std::vector<std::string> left, const error& why) {
    if (left.empty())
      return fail(why);
    const auto id = std::move(left.back());
    left.pop_back();
    ask({id, wanted_.context, true}, [=, this](const snapshot_description& now) {
      now.state == snapshot_state::deleted ? fail(is_gone(id)) : look_for_gone(left, why);
    });
  }

  /// Back to the node, one after the other; then they are compared again.
  void bring() {
    if (lacking_.empty())
      return look();
    const auto next = std::move(lacking_.back());
    lacking_.pop_back();
    if (!next.copy.empty())
      return bring(next);
    if (options_->routes == nullptr) // It is here, or nowhere.
      return bring();
    ask({next.id, wanted_.context, true, true}, [this](const snapshot_description& now) {
      if (!now.copy.empty())
        return bring(now);
      if (!now.no_copy.empty())
        return fail({errc::not_found, "snapshot " + now.id + " has no copy: " + now.no_copy});
      fail(copy_comes_later(now.id));
    });
  }

  void bring(const snapshot_description& which) {
    auto image = image_under(*options_->images, which);
    if (!image)
      return fail(image_gone);
    options_->copies->bring({which.id, std::move(image), which.copy,
                             brought_disk_bytes(which.bytes, options_->limits.disk_bytes), token_,
                             which.bytes},
                            [this, post = post()](const result<void>& back) {
                              post([this, back] { back ? bring() : fail(back.reason()); });
                            });
  }

  void ask(find_snapshot what, std::function<void(const snapshot_description&)> then) {
    const auto directory = options_->objects->get();
    if (!directory)
      return fail({errc::node_unreachable, "the node ends"});
    self_->request(directory, caf::infinite, std::move(what))
      .then([then = std::move(then)](const snapshot_description& found) { then(found); },
            [this](const caf::error& why) { fail(from_caf(why)); });
  }

  std::function<void(std::function<void()>)> post() const {
    return [me = self_->address()](std::function<void()> next) {
      if (const auto target = caf::actor_cast<comparison_impl>(me))
        caf::anon_send(target, step{std::move(next)});
    };
  }

  void end(snapshot_changes found) {
    to_.deliver(std::move(found));
    leave();
  }
  void fail(const error& why) {
    to_.deliver(to_caf(why));
    leave();
  }
  void leave() {
    if (const auto directory = options_->objects->get())
      self_->unlink_from(directory);
    self_->quit();
  }

  const comparison_pointer self_;
  const std::shared_ptr<const sandbox_options> options_;
  const compare_snapshots wanted_;
  const owed<snapshot_changes> to_;
  snapshot_description is_;
  std::optional<snapshot_description> older_; ///< None: the image.
  std::vector<snapshot_description> lacking_; ///< That may have to be brought.
  bool brought_ = false;                      ///< What the engine lacked was asked for.
  const std::shared_ptr<work_token> token_ = std::make_shared<work_token>();
};

comparison_impl::behavior_type compare(comparison_pointer self,
                                       const std::shared_ptr<const sandbox_options>& options) {
  return {
    [self, options](const compare_snapshots& asked) -> caf::result<snapshot_changes> {
      auto promise = self->make_response_promise<snapshot_changes>();
      self->state.it =
        std::make_shared<comparison>(self, options, asked, self->state.answers.owe(promise));
      self->state.it->begin();
      return promise;
    },
    [](const step& what) { what.next(); },
  };
}

} // namespace

comparison_actor spawn_comparison(caf::actor_system& system,
                                  std::shared_ptr<const sandbox_options> options) {
  return system.spawn(compare, std::move(options));
}

} // namespace insula::actors::snapshots
