#include "actors/snapshots/snapshot.hpp"

#include "actors/counted_mailbox.hpp"
#include "actors/object.hpp"
#include "actors/object_link.hpp"
#include "actors/protocol/errors.hpp"
#include "actors/record_text.hpp"
#include "actors/run_record.hpp"
#include "actors/snapshots/copies.hpp"
#include "actors/snapshots/disk_helpers.hpp"
#include "actors/snapshots/eviction.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "base/failpoint.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace insula::actors {

namespace snapshots {

namespace {

/// Something that was posted to the mailbox.
struct fact {
  std::function<void()> happened;
};

} // namespace
} // namespace snapshots
} // namespace insula::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::snapshots::fact)

namespace insula::actors {

namespace snapshots {

namespace {

using rest_atom = caf::atom_constant<caf::atom("rest")>;
using snapshot_impl = snapshot_object_actor::extend<
  caf::reacts_to<fact>, caf::reacts_to<rest_atom, std::uint64_t /* how much was asked for */>>;

class object;
struct snapshot_state_of {
  static inline const char* name = "snapshot";
  std::shared_ptr<object> it;
};
using snapshot_pointer = counted_pointer<snapshot_state_of, snapshot_impl>;

using then_function = std::function<void()>;
using otherwise_function = std::function<void(const error&)>;
using answer_function = std::function<void(result<snapshot_description>)>;
using outcome_function = std::function<void(const result<void>&)>;

const error goes_on_elsewhere{errc::node_unreachable, "it goes on at another node"};

/// A disk that cannot be read so often is one that no copy can have.
constexpr unsigned most_bad_copies = 5;

class object final : public std::enable_shared_from_this<object> {
public:
  object(snapshot_pointer self, std::string id, std::shared_ptr<const sandbox_options> options)
      : self_(self)
      , id_(std::move(id))
      , owner_(owner_of_snapshot(id_))
      , options_(std::move(options))
      , record_(self, options_->keep, kept_in::cluster, owner_) {
    record_.derive({std::string{lines}},
                   [id = id_](const auto& record) { return lines_of(id, record); });
  }

  // ---- What is asked of it

  void define(const define_snapshot& wanted, answer_function to) {
    with_record_to_write(
      [=, this] {
        if (is())
          return to(error{errc::already_exists, "there is such a snapshot"});
        auto made = wanted.is;
        made.created_ms = made.last_used_ms = options_->time->unix_ms();
        if (made.parent.empty())
          made.root = id_;
        made.pending = options_->acknowledges_copies && wants_copy(made);
        auto changes = changes_of(made);
        if (!wanted.held_by.empty())
          changes.push_back(
            {std::string{held_prefix} + wanted.held_by, std::to_string(made.created_ms)});
        if (made.state == snapshot_state::deleted)
          record_.set_alarm(limits::snapshot_look_again, std::move(changes));
        else if (made.pending) // For the next server, should this one end before there is a copy.
          record_.set_alarm(limits::snapshot_free_again, std::move(changes));
        else if (made.keep_ms > 0)
          record_.set_alarm(std::chrono::milliseconds{made.keep_ms}, std::move(changes));
        else
          record_.write(std::move(changes), {}, wanted.context);
        record_.when_durable(
          [=, this] {
            failpoint("snapshot.defined");
            count();
            const auto told = [=, this] {
              to(is().value_or(made));
              if (wanted.keep_last > 0)
                evict_older(self_->system(), options_, {made.origin, wanted.keep_last});
            };
            if (made.pending)
              return copy_or_delete(
                [=](const result<void>& outcome) { outcome ? told() : to(outcome.reason()); });
            if (is_kept_disk(made, wanted.held_by) && options_->copies)
              return copy_or_release(wanted, [=](const result<void>& outcome) {
                outcome ? told() : to(outcome.reason());
              });
            told();
            if (wants_copy(made))
              copy(nullptr);
          },
          [=, this](const error& why) { undo(why, to); });
      },
      [to](const error& why) { to(why); }, wanted.context);
  }

  void find(const find_snapshot& wanted, answer_function to) {
    record_.load(
      [=, this] {
        const auto found = is();
        if (is_doubtful_)
          return to(not_known());
        if (found && found->pending && found->state == snapshot_state::created)
          return to(copy_comes_later(id_));
        if (parts_)
          return to(goes_on_elsewhere);
        if (found && wanted.needs_copy)
          need_copy(*found);
        const bool is_seen = found && !found->hidden && !found->pending;
        if (!is_seen && !(found && wanted.hidden))
          return to(not_found());
        // What is told is durable: that it has a copy, too.
        record_.when_durable([=] { to(*found); }, [to](const error& why) { to(why); });
      },
      [to](const error& why) { to(why); }, wanted.context);
  }

  void hold(const hold_snapshot& wanted, answer_function to) {
    with_record_to_write(
      [=, this] {
        const auto found = is();
        if (!found || found->state == snapshot_state::deleted)
          return to(not_found());
        if (found->state == snapshot_state::failed)
          return to(error{errc::not_found, "what snapshot " + id_ + " had is lost"});
        const bool holds = record_.find(std::string{held_prefix} + wanted.sandbox) != nullptr;
        if (!holds && found->sandboxes >= limits::snapshot_sandboxes)
          return refuse_hold(to);
        if (found->pending)
          return to(copy_comes_later(id_));
        if (found->image_changed)
          log::warning("snapshot.image_changed",
                       {{"id", id_},
                        {"sandbox", wanted.sandbox},
                        {"image", found->image},
                        {"consequence", "the sandbox has its disk over other programs"}});
        const auto now = options_->time->unix_ms();
        std::vector<storage::change> changes{
          {std::string{held_prefix} + wanted.sandbox, std::to_string(now)},
          {used_key, std::to_string(std::max(now, found->last_used_ms))}};
        found->keep_ms > 0
          ? record_.set_alarm(std::chrono::milliseconds{found->keep_ms}, std::move(changes))
          : record_.write(std::move(changes), {}, wanted.context);
        if (wanted.again && holds)
          return to(*is());
        record_.when_durable([=, this] { to(*is()); }, [to](const error& why) { to(why); });
      },
      [to](const error& why) { to(why); }, wanted.context);
  }

  /// There may be room later: a node that was lost, or did not hear that it may, holds what it
  /// holds.
  void refuse_hold(const answer_function& to) {
    look_at_sandboxes([to] {
      to(error{errc::limit_reached, "as many sandboxes stand on this snapshot as may",
               limits::brought_again_s});
    });
  }

  void release(const release_snapshot& wanted, then_function then, otherwise_function otherwise) {
    record_.load(
      [=, this] {
        const auto key = std::string{held_prefix} + wanted.sandbox;
        if (record_.find(key) == nullptr)
          return then();
        with_record_to_write(
          [=, this] {
            const auto found = is();
            const bool goes = found && found->state == snapshot_state::deleted &&
                              found->sandboxes == 1 && record_.find(freed_key) == nullptr;
            // Should this server end before its bytes have gone.
            goes ? record_.set_alarm(limits::snapshot_free_again, {{key, std::nullopt}})
                 : record_.write({{key, std::nullopt}});
            record_.when_durable([=, this] { free(then); }, otherwise);
          },
          otherwise, {});
      },
      otherwise);
  }

  void remove(const delete_snapshot& wanted, answer_function to) {
    with_record_to_write(
      [=, this] {
        const auto found = is();
        if (!found || found->state == snapshot_state::deleted)
          return to(not_found());
        if (!wanted.evicts)
          return delete_now(wanted, to);
        // Some may have forgotten that they do.
        found->sandboxes > 0 ? look_at_sandboxes([=, this] { evict(wanted, to); })
                             : evict(wanted, to);
      },
      [to](const error& why) { to(why); }, wanted.context);
  }

  // ---- What its node asks

  void attend(const alarm_due& due, then_function then, otherwise_function otherwise) {
    with_record_to_write(
      [=, this] {
        if (!record_.is_set(due))
          return then();
        const auto found = is();
        if (!found) {
          record_.alarm_over(due);
          return record_.when_durable(then, otherwise);
        }
        if (found->pending && found->state == snapshot_state::created) {
          record_.set_alarm(limits::snapshot_look_again);
          record_.when_durable(then, otherwise);
          return copying_ ? void() : copy_or_delete([](const result<void>&) {});
        }
        if (found->state != snapshot_state::deleted) {
          const auto left = expires_ms(*found).value_or(0) - options_->time->unix_ms();
          if (found->keep_ms > 0 && left > 0) {
            record_.set_alarm(std::chrono::milliseconds{left});
            return record_.when_durable(then, otherwise);
          }
          if (found->keep_ms == 0) {
            record_.alarm_over(due);
            return record_.when_durable(then, otherwise);
          }
          log::info("snapshot.expired", {{"id", id_}});
          return mark_deleted(then, otherwise);
        }
        if (record_.find(freed_key) != nullptr)
          return forget_unless_parent(then, otherwise);
        // Before anything else it is set again: what follows may fail.
        record_.set_alarm(found->sandboxes > 0 ? limits::snapshot_look_again
                                               : limits::snapshot_free_again);
        if (copying_ && copying_->then) // A sandbox is about to begin with it, and says so later.
          return record_.when_durable(then, otherwise);
        record_.when_durable([=, this] { look_at_sandboxes([=, this] { free(then); }); },
                             otherwise);
      },
      otherwise, {});
  }

  /// The engine does not have it.
  void lose() {
    const auto kept = busy();
    with_record_to_write(
      [this, kept] {
        const auto found = is();
        // With a copy it comes back when a sandbox begins with it.
        if (!found || found->state != snapshot_state::created || !found->copy.empty())
          return;
        log::error("snapshot.lost", {{"id", id_}, {"origin", found->origin}});
        record_.write({{state_key, name_of(snapshot_state::failed)}});
        count();
      },
      [kept](const error&) {}, {}); // The node's next start says so again.
  }

  /// It is there: what was not there at an earlier start, or what has no copy yet.
  void find_again() {
    const auto kept = busy();
    with_record_to_write(
      [this, kept] {
        auto found = is();
        if (!found)
          return;
        if (found->state == snapshot_state::failed) {
          log::info("snapshot.found", {{"id", id_}, {"origin", found->origin}});
          record_.write({{state_key, std::nullopt}});
          count();
          found = is();
        }
        away_ = false;
        if (!wants_copy(*found) || copying_)
          return;
        if (found->pending && found->state == snapshot_state::created)
          return record_.set_alarm({}); // Which looks what becomes of it.
        copy(nullptr);
      },
      [kept](const error&) {}, {});
  }

  /// It is to go on at another node, which finds its bytes in a copy alone.
  void hand_over(then_function then, otherwise_function otherwise) {
    record_.load(
      [=, this] {
        const auto found = is();
        if (!found && options_->objects->is_being_taken(id_))
          return otherwise({errc::limit_reached, "it is being taken"});
        const bool is_needed = found && options_->copies && has_bytes(*found) &&
                               found->copy.empty() && found->no_copy.empty() &&
                               (found->sandboxes > 0 || found->state == snapshot_state::created);
        if (!is_needed || away_ || lacks_image_)
          return part(then);
        need_copy(*found);
        otherwise({errc::limit_reached, "it is being copied"});
      },
      otherwise);
  }

  /// Nothing of it is to be written any more.
  void part(then_function then) {
    const auto me = weak_from_this();
    parts_ = true;
    stop_copying();
    if (const auto found = is(); found && !found->copy.empty() && options_->copies)
      options_->copies->note_cached(id_, found->bytes); // It is another node's in a moment.
    options_->figures->disks.remove(id_);
    wait_until_settled([=, this] {
      const auto mine = me.lock();
      then();
      if (mine)
        leave();
    });
  }

  // ---- Its end

  /// Kept for as long as something is under way.
  std::shared_ptr<void> busy() {
    ++busy_;
    ++asked_;
    return {nullptr, [me = weak_from_this()](void*) {
              if (const auto it = me.lock())
                it->one_less();
            }};
  }
  void rest(std::uint64_t asked) {
    if (asked != asked_ || busy_ > 0)
      return;
    if (!record_.is_settled())
      return rest_later();
    give_lease_back();
    self_->quit();
  }

private:
  std::optional<snapshot_description> is() const {
    auto found = describe(id_, record_.entries());
    if (found)
      found->away = away_;
    // One from a registry begins with the very image, or not at all.
    if (!found || found->image_digest.empty() || !found->image_source.empty())
      return found;
    const auto now = options_->images->look(found->image);
    found->image_changed = now && !now->digest.empty() && now->digest != found->image_digest;
    return found;
  }
  error not_found() const { return {errc::not_found, "Snapshot " + id_ + " not found."}; }
  error not_known() const {
    return {errc::node_unreachable, "it is not known whether there is snapshot " + id_};
  }
  /// In a cluster a definition that has failed may have been written all the same. Nobody was told
  /// of it, so it goes; until that is certain nothing is said of it.
  void undo(const error& why, const answer_function& to) {
    if (parts_ || options_->routes == nullptr || std::exchange(is_doubtful_, true))
      return to(why);
    destroy([=] { to(why); },
            [=, this](const error&) {
              to(why);
              self_->delayed_send(self_, limits::snapshot_rests_after, fact{[this] { leave(); }});
            });
  }
  error no_copy_since(const error& why) const {
    return {why.code == errc::capacity_exceeded ? errc::store_failed : why.code,
            "snapshot " + id_ + " gets no copy: " + why.message, limits::brought_again_s};
  }
  void count() {
    const auto found = is();
    const auto what = found ? counted(*found, record_.entries()) : std::nullopt;
    what ? options_->figures->disks.put(id_, *what, found->bytes)
         : options_->figures->disks.remove(id_);
  }

  void one_less() {
    if (--busy_ > 0)
      return;
    if (!leaves_)
      return rest_later();
    give_lease_back();
    self_->quit();
  }
  /// Once all that was asked of it has been answered.
  void leave() {
    give_lease_back();
    leaves_ = true;
    if (busy_ == 0)
      self_->quit();
  }
  void rest_later() {
    self_->delayed_send(self_, limits::snapshot_rests_after, rest_atom::value, asked_);
  }

  std::function<bool(std::function<void()>)> post() const {
    return [me = self_->address()](std::function<void()> go) {
      const auto target = caf::actor_cast<snapshot_impl>(me);
      if (target)
        caf::anon_send(target, fact{std::move(go)});
      return target != nullptr;
    };
  }

  // ---- The lease

  void with_record_to_write(then_function then, otherwise_function otherwise,
                            const request_context& context) {
    record_.load([=, this] { with_lease(then, otherwise); }, otherwise, context);
  }
  void with_lease(then_function then, otherwise_function otherwise) {
    if (parts_ || is_doubtful_)
      return otherwise(parts_ ? goes_on_elsewhere : not_known());
    if (epoch_ != 0)
      return then();
    waiting_.emplace_back(std::move(then), std::move(otherwise));
    if (waiting_.size() > 1)
      return;
    ++busy_; // Until the answer is there it stays: else the lease would be nobody's, for good.
    options_->leases->acquire(owner_, [this, post = post()](const result<storage::epoch>& held) {
      post([this, held] {
        if (held && parts_)
          options_->leases->release(owner_, *held);
        else if (held)
          record_.write_at(epoch_ = *held);
        const auto why = parts_ ? goes_on_elsewhere : held ? error{} : held.reason();
        for (const auto& [go, refuse] : std::exchange(waiting_, {}))
          held && !parts_ ? go() : refuse(why);
        one_less();
      });
    });
  }
  void give_lease_back() { options_->leases->release(owner_, std::exchange(epoch_, 0)); }
  void wait_until_settled(then_function then) {
    if (record_.is_settled())
      return then();
    const auto again = [=, this] { wait_until_settled(then); };
    record_.when_durable(again, [again](const error&) { again(); });
  }

  // ---- Copies away from the node

  bool has_bytes(const snapshot_description& is) const {
    return is.state != snapshot_state::failed && record_.find(freed_key) == nullptr;
  }
  /// None is there, and one is to be made.
  bool wants_copy(const snapshot_description& is) const {
    const bool is_for_all = !is.hidden && is.state == snapshot_state::created;
    return options_->copies != nullptr && is.copy.empty() && has_bytes(is) &&
           (is_for_all || copy_needed_);
  }
  /// A sandbox begins with it next, and nothing else does.
  static bool is_kept_disk(const snapshot_description& is) {
    return is.hidden && is.state == snapshot_state::deleted && is.sandboxes > 0;
  }
  static bool is_kept_disk(const snapshot_description& made, const std::string& held_by) {
    return made.hidden && made.state == snapshot_state::deleted && !held_by.empty();
  }
  /// Another node is to have its bytes, whoever sees it.
  void need_copy(const snapshot_description& is) {
    if (parts_ || !has_bytes(is) || !is.copy.empty() || !is.no_copy.empty())
      return;
    copy_needed_ = true;
    if (!copying_)
      copy(nullptr);
  }

  /// It is deleted if it gets none, and `then` is told that after it.
  void copy_or_delete(outcome_function then) {
    copy([=, this, kept = busy()](const result<void>& outcome) {
      const auto told = outcome ? outcome : result<void>{no_copy_since(outcome.reason())};
      const auto tell = [then, told, kept] { then(told); };
      const auto now = is();
      // The next server makes it where this one ends, and the node that has the bytes where this
      // one has none: for as long as that may come back.
      const bool ends = !outcome && (outcome.reason().code == errc::sandbox_not_running ||
                                     outcome.reason().code == errc::node_unreachable);
      const bool may_come =
        away_ && now &&
        options_->time->unix_ms() - now->created_ms < limits::deleted_snapshots_kept.count();
      if (outcome || ends || may_come || !now || now->state != snapshot_state::created)
        return tell();
      mark_deleted(tell, [tell](const error&) { tell(); });
    });
  }

  /// What a persistent sandbox begins with next. What it began with before stays until there is a
  /// copy of this one.
  void copy_or_release(const define_snapshot& of, outcome_function then) {
    copy_needed_ = true;
    earlier_ = of.earlier;
    copy([=, this, kept = busy()](const result<void>& outcome) {
      if (outcome)
        return then(outcome);
      const auto tell = [then, kept, why = no_copy_since(outcome.reason())] { then(why); };
      release({id_, of.held_by}, tell,
              [tell](const error&) { tell(); }); // The alarm does it later.
    });
  }

  /// One attempt is told to `then`; without that, attempts go on until there is a copy.
  void copy(outcome_function then) {
    if (parts_ || copying_)
      return then
               ? then(parts_ ? goes_on_elsewhere : error{errc::limit_reached, "it is being copied"})
               : void();
    copying_.emplace(copying{std::move(then), std::make_shared<work_token>(), busy()});
    try_to_copy();
  }

  void end_copying(const result<void>& outcome) {
    const auto over = std::exchange(copying_, std::nullopt);
    if (over && over->then)
      over->then(outcome);
  }
  void stop_copying() {
    if (!copying_)
      return;
    copying_->token->cancel();
    end_copying(error{errc::node_unreachable, "the node does not copy it any more"});
  }

  void try_to_copy() {
    with_record_to_write(
      [this] {
        const auto found = is();
        if (!copying_ || !found || !wants_copy(*found))
          return end_copying(found && !found->copy.empty() ? result<void>{} : not_found());
        auto image = image_under(*options_->images, *found);
        if (!image) // What reads a disk needs none in particular: `host` may have changed since.
          image = options_->images->find(found->image);
        if (!image)
          return not_copied(image_gone);
        with_earlier_copy(*found, [=, this](const snapshot_reference& earlier) {
          if (!copying_)
            return;
          const auto now = options_->time->unix_ms();
          const bool is_waited_for = copying_->then || copy_needed_;
          options_->copies->keep({id_, image, epoch_, now, earlier, copying_->token, is_waited_for},
                                 [=, this, token = copying_->token,
                                  post = post()](const result<snapshot_reference>& kept) {
                                   post([=, this] {
                                     if (copying_ && copying_->token == token)
                                       on_copied(now, earlier, kept);
                                   });
                                 });
        });
      },
      [this](const error& why) { not_copied(why); }, {});
  }

  /// What it shares with an earlier one is not written again: as long as that is not deleted.
  void with_earlier_copy(const snapshot_description& is,
                         std::function<void(const snapshot_reference&)> then) {
    const auto directory = options_->objects->get();
    const auto& earlier = earlier_.empty() ? is.parent : earlier_;
    if (earlier.empty() || !directory || (copying_ && copying_->alone))
      return then({});
    self_->request(directory, caf::infinite, find_snapshot{earlier, {}, true})
      .then(
        [then](const snapshot_description& found) {
          const bool stays = found.state == snapshot_state::created || found.sandboxes > 0;
          then(stays ? found.copy : snapshot_reference{});
        },
        [then](const caf::error&) { then({}); });
  }

  void on_copied(std::int64_t taken_ms, const snapshot_reference& earlier,
                 const result<snapshot_reference>& kept) {
    if (!kept)
      return not_copied(kept.reason());
    const auto found = is();
    if (!found)
      return end_copying(not_found());
    with_earlier_copy(*found, [=, this](const snapshot_reference& now) {
      if (!copying_)
        return;
      if (earlier.empty() || now == earlier)
        return write_copy(taken_ms, *kept);
      copying_->alone = true; // The earlier one has gone, with what this copy may need.
      try_to_copy();
    });
  }

  void write_copy(std::int64_t taken_ms, const snapshot_reference& kept) {
    with_record_to_write(
      [=, this] {
        const auto found = is();
        if (!found || !wants_copy(*found))
          return end_copying(not_found());
        std::vector<storage::change> changes{
          {std::string{snapshot_key}, std::to_string(taken_ms) + ' ' + kept},
          {no_copy_key, std::nullopt},
          {pending_key, std::nullopt}};
        if (is_kept_disk(*found)) // From now on its sandbox has time to say that it stands on it.
          for (const auto& [key, since] : record_.entries())
            if (key.starts_with(held_prefix))
              changes.push_back({key, std::to_string(options_->time->unix_ms())});
        found->pending && found->keep_ms > 0
          ? record_.set_alarm(std::chrono::milliseconds{found->keep_ms}, std::move(changes))
          : record_.write(std::move(changes));
        record_.when_durable(
          [=, this] {
            failpoint("snapshot.copied");
            log::info("snapshot.copied", {{"id", id_}});
            count();
            if (is_kept_disk(*found) && !options_->engine->keeps_snapshots())
              options_->engine->drop_snapshot(id_, [](const result<void>&) {});
            away_ = false;
            if (copying_ && copying_->alone) // There is an earlier one.
              options_->copies->forget(id_, epoch_, kept);
            end_copying({});
          },
          [this](const error& why) { not_copied(why); });
      },
      [this](const error& why) { not_copied(why); }, {});
  }

  void not_copied(const error& why) {
    if (!copying_)
      return;
    log::warning("snapshot.not_copied", {{"id", id_}, {"reason", why.message}});
    // The engine's word: in a cluster, a node that has them says so.
    away_ = why.code == errc::not_found && options_->routes != nullptr;
    lacks_image_ = why.code == errc::image_refused;
    if (copying_->then || away_ || why.code == errc::stale_epoch)
      return end_copying(why);
    // As it is, it gets none. The next server tries again.
    const bool is_bad = why.code == errc::io_failed && ++copying_->bad >= most_bad_copies;
    if (epoch_ != 0 && (is_bad || why.code == errc::limit_reached)) {
      record_.write({{no_copy_key, why.message}});
      return end_copying(why);
    }
    const auto pause = copying_->pause;
    copying_->pause = std::min(pause * 2, limits::snapshot_longest_retry);
    self_->delayed_send(self_, pause, fact{[this, token = copying_->token] {
                          if (copying_ && copying_->token == token)
                            try_to_copy();
                        }});
  }

  // ---- Deletion

  void delete_now(const delete_snapshot& wanted, const answer_function& to) {
    const auto found = is();
    if (!found || found->state == snapshot_state::deleted)
      return to(not_found());
    log::info("snapshot.deleted", {{"id", id_}, {"request", wanted.context.id}});
    mark_deleted([=, this] { to(is().value_or(*found)); }, [to](const error& why) { to(why); });
  }

  void evict(const delete_snapshot& wanted, const answer_function& to) {
    const auto found = is();
    if (found && found->sandboxes > 0)
      return to(error{errc::limit_reached, "a sandbox stands on snapshot " + id_});
    if (!found || wanted.keep_ms == 0)
      return delete_now(wanted, to);
    record_.set_alarm(std::chrono::milliseconds{wanted.keep_ms},
                      {{keep_key, std::to_string(wanted.keep_ms)},
                       {used_key, std::to_string(options_->time->unix_ms())}});
    record_.when_durable([=, this] { to(is().value_or(*found)); },
                         [to](const error& why) { to(why); });
  }

  void mark_deleted(then_function then, otherwise_function otherwise) {
    record_.set_alarm(limits::snapshot_free_again, {{state_key, name_of(snapshot_state::deleted)}});
    record_.when_durable(
      [=, this] {
        failpoint("snapshot.marked_deleted");
        stop_copying();
        count();
        free(then);
      },
      otherwise);
  }

  /// Of one that is deleted, once nothing stands on it. If that fails, the alarm tries again.
  void free(then_function then) {
    const auto found = is();
    if (!found || found->state != snapshot_state::deleted || found->sandboxes > 0 ||
        record_.find(freed_key) != nullptr)
      return then();
    when_freed_.push_back(std::move(then));
    if (when_freed_.size() > 1)
      return;
    if (options_->copies)
      options_->copies->abandon(id_);
    stop_copying();
    options_->engine->drop_snapshot(id_, [this, post = post()](const result<void>& dropped) {
      post([this, dropped] { on_dropped(dropped); });
    });
  }

  void on_dropped(const result<void>& dropped) {
    const auto tell = [this] {
      for (const auto& each : std::exchange(when_freed_, {}))
        each();
    };
    const auto found = is();
    if (!found)
      return tell();
    if (!dropped) {
      log::warning("snapshot.not_freed", {{"id", id_}, {"reason", dropped.reason().message}});
      record_.set_alarm(limits::snapshot_look_again);
      return record_.when_durable(tell, [tell](const error&) { tell(); });
    }
    failpoint("snapshot.dropped");
    log::info("snapshot.freed", {{"id", id_}});
    options_->figures->disks.remove(id_);
    const bool has_copy = !found->copy.empty() && options_->copies;
    if (found->hidden || found->pending) {
      if (has_copy)
        options_->copies->forget(id_, epoch_, {});
      return destroy(tell, [tell](const error&) { tell(); });
    }
    record_.set_alarm(limits::deleted_snapshots_kept, changes_when_freed(record_.entries()));
    record_.when_durable(
      [=, this] {
        if (has_copy)
          options_->copies->forget(id_, epoch_, {});
        tell();
      },
      [tell](const error&) { tell(); });
  }

  /// The alarm of one that was deleted long ago.
  void forget_unless_parent(then_function then, otherwise_function otherwise) {
    self_->request(options_->keep->finder, caf::infinite, scan_marks{list_under(id_), {}, 1, true})
      .then(
        [=, this](const storage::mark_page& found) {
          if (found.lines.empty())
            return destroy(then, otherwise);
          record_.set_alarm(limits::deleted_snapshots_kept);
          record_.when_durable(then, otherwise);
        },
        [otherwise](const caf::error& why) { otherwise(from_caf(why)); });
  }

  void destroy(then_function then, otherwise_function otherwise) {
    record_.destroy(
      [=, this] {
        options_->figures->disks.remove(id_);
        then();
        leave();
      },
      otherwise);
  }

  /// What the record of a sandbox says of its disk and its runs. None: it cannot be read now.
  void read_holder(const std::string& sandbox,
                   const std::function<void(const std::optional<record_entries>&)>& then) {
    const auto record = std::make_shared<record_entries>();
    const auto read = [this, sandbox, record, then](std::string_view prefix, then_function next) {
      self_
        ->request(options_->keep->cluster, caf::infinite, read_owner_atom::value, sandbox,
                  std::string{prefix}, request_context{})
        .then(
          [record, next](const std::vector<storage::entry>& found) {
            for (const auto& [key, value] : found)
              record->emplace(key, value);
            next();
          },
          [then](const caf::error&) { then(std::nullopt); });
    };
    read(disk_keys, [=] { read(run_keys, [=] { then(*record); }); });
  }

  /// By the record of a sandbox. One whose runs are over needs no bytes of a snapshot that was
  /// deleted: its next run does not begin with that.
  bool stands_on_it(const record_entries& record) const {
    const auto is_me = [&](const char* key) {
      const auto at = record.find(key);
      return at != record.end() && at->second == id_;
    };
    if (!is_me(disk_from_key) && !is_me(disk_next_key))
      return false;
    const auto now = is();
    const auto run = last_run(record);
    const bool is_seen = now && !now->hidden && now->state == snapshot_state::deleted;
    return !is_seen || !run || is_alive(run->state);
  }

  /// Those whose record does not say that they stand on it do so no more: a server that was killed
  /// has told nobody.
  void look_at_sandboxes(then_function then) {
    struct looking {
      std::size_t left = 1;
      std::vector<storage::change> gone = {};
    };
    const auto so_far = std::make_shared<looking>();
    const auto one_less = [=, this] {
      if (--so_far->left > 0)
        return;
      if (so_far->gone.empty())
        return then();
      record_.write(std::move(so_far->gone));
      record_.when_durable(then, [then](const error&) { then(); });
    };
    const auto settled_before = options_->time->unix_ms() - limits::snapshot_hold_settles.count();
    for (const auto& [key, since] : record_.entries()) {
      if (!key.starts_with(held_prefix) || number_in(since).value_or(0) > settled_before)
        continue;
      ++so_far->left;
      const auto sandbox = key.substr(held_prefix.size());
      read_holder(sandbox, [=, this, held = key](const std::optional<record_entries>& record) {
        if (record && !stands_on_it(*record))
          so_far->gone.push_back({held, std::nullopt});
        one_less();
      });
    }
    one_less();
  }

  const snapshot_pointer self_;
  const std::string id_, owner_;
  const std::shared_ptr<const sandbox_options> options_;
  object_storage record_;
  storage::epoch epoch_ = 0;
  std::vector<std::pair<then_function, otherwise_function>> waiting_; ///< For the lease.
  std::vector<then_function> when_freed_;
  struct copying {
    outcome_function then; ///< None: it is tried again until there is a copy.
    std::shared_ptr<work_token> token;
    std::shared_ptr<void> kept; ///< Its actor, until this is over.
    std::chrono::seconds pause = limits::snapshot_retry;
    bool alone = false; ///< It shares nothing with an earlier one.
    unsigned bad = 0;   ///< Attempts that its disk has made fail.
  };
  std::optional<copying> copying_;
  std::string earlier_; ///< As of define_snapshot.
  std::size_t busy_ = 0;
  bool parts_ = false;       ///< It goes on elsewhere: nothing is begun any more.
  bool leaves_ = false;      ///< It ends as soon as all that it was asked is answered.
  bool copy_needed_ = false; ///< By another node or its sandbox, though nobody sees it.
  bool lacks_image_ = false; ///< What it lies over is not here, so it can have no copy.
  bool is_doubtful_ = false; ///< Its definition has failed, and may have been written.
  bool away_ = false;        ///< The engine does not have its bytes, and there is no copy.
  std::uint64_t asked_ = 0;
};

/// The handler of one message, which is answered with what it is.
template <class Message, class Answer>
auto serve(snapshot_pointer self,
           void (object::*function)(const Message&, std::function<void(result<Answer>)>)) {
  return [self, function](const Message& asked) -> caf::result<Answer> {
    auto promise = self->make_response_promise<Answer>();
    (self->state.it.get()->*function)(
      asked, [promise, kept = self->state.it->busy()](result<Answer> told) mutable {
        told ? promise.deliver(std::move(*told)) : promise.deliver(to_caf(told.reason()));
      });
    return promise;
  };
}

/// The same for what is answered with nothing.
template <class Message>
auto serve(snapshot_pointer self,
           void (object::*function)(const Message&, then_function, otherwise_function)) {
  return [self, function](const Message& asked) -> caf::result<caf::ok_atom> {
    auto promise = self->make_response_promise<caf::ok_atom>();
    const auto kept = self->state.it->busy();
    (self->state.it.get()->*function)(
      asked, [promise, kept]() mutable { promise.deliver(caf::ok_atom::value); },
      [promise, kept](const error& why) mutable { promise.deliver(to_caf(why)); });
    return promise;
  };
}

snapshot_impl::behavior_type snapshot(snapshot_pointer self, std::string id,
                                      std::shared_ptr<const sandbox_options> options) {
  self->state.it = std::make_shared<object>(self, std::move(id), std::move(options));
  const auto part = [self]() -> caf::result<caf::ok_atom> {
    auto promise = self->make_response_promise<caf::ok_atom>();
    self->state.it->part([promise]() mutable { promise.deliver(caf::ok_atom::value); });
    return promise;
  };
  return {
    serve(self, &object::define),
    serve(self, &object::find),
    serve(self, &object::hold),
    serve(self, &object::release),
    serve(self, &object::remove),
    serve(self, &object::attend),
    [](adopt_atom) {},
    [part](evict_atom) { return part(); },
    [self](hand_over_atom) -> caf::result<caf::ok_atom> {
      auto promise = self->make_response_promise<caf::ok_atom>();
      self->state.it->hand_over(
        [promise]() mutable { promise.deliver(caf::ok_atom::value); },
        [promise](const error& why) mutable { promise.deliver(to_caf(why)); });
      return promise;
    },
    [](keep_files_atom) { return caf::ok_atom::value; },
    [](keep_used_files_atom) { return caf::ok_atom::value; },
    [self](lost_atom) { self->state.it->lose(); },
    [self](found_atom) { self->state.it->find_again(); },
    [](const fact& what) { what.happened(); },
    [self](rest_atom, std::uint64_t asked) { self->state.it->rest(asked); },
  };
}

} // namespace
} // namespace snapshots

snapshot_object_actor spawn_snapshot(caf::actor_system& system, std::string id,
                                     std::shared_ptr<const sandbox_options> options) {
  return system.spawn(snapshots::snapshot, std::move(id), std::move(options));
}

object_kinds snapshot_kind(std::shared_ptr<const sandbox_options> options) {
  object_kinds kinds;
  kinds.emplace(snapshots::kind,
                [options = std::move(options)](caf::actor_system& system, const std::string& id)
                  -> owned_object_actor { return spawn_snapshot(system, id, options); });
  return kinds;
}

} // namespace insula::actors
