#pragma once

#include "actors/alarm.hpp"
#include "actors/protocol/errors.hpp"
#include "actors/store.hpp"

#include <caf/fwd.hpp>
#include <caf/typed_response_promise.hpp>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::actors {

/// What keeps the objects of a node, and wakes them.
struct keepers {
  store_actor cluster;
  store_actor node;
  alarms_actor alarms;
  const clock* time = nullptr;
  /// The cluster's store as well, for questions over all owners: in a cluster they take long, and
  /// who commits and loads does not wait behind them.
  store_actor finder = cluster;
  /// In a cluster: the number of this node's ownership of an object, another one each time that it
  /// comes to own it; 0: it does not. One that is being given up still has it. Any thread, quick.
  /// None: nobody else has the store.
  std::function<std::uint64_t(const std::string& owner)> tenure = {};

  const store_actor& of(kept_in where) const { return where == kept_in::cluster ? cluster : node; }
};

/// What an object remembers beyond its actor: keys of its own below its owner's id, and an alarm. A
/// member of the actor's state. An object inside of another one (a session of a sandbox) has a
/// prefix for its keys, and goes with its owner.
///
/// Threads: its actor's.
/// Gates:   load() is the input gate: until its answer is there, no other message is looked at.
///          when_durable() and answer() are the output gate: what they are given happens when all
///          that was written before them would survive. What was written can be read at once.
/// Order:   one batch is on its way at a time; what is written meanwhile goes together in the next.
/// Errors:  a batch that is refused takes with it those behind it, which were made from the state
///          that has not come to be: the object has again what is durable, and everybody at the
///          output gate is told. The next write is a fresh try. stale_epoch: somebody else is this
///          object by now, and its actor should end; so it is as well if another ownership lies
///          between the reading and the lease, and the record has changed. A first write may fail
///          with the error of that second reading. All others leave open whether the batch was
///          made: the record is read before the next one is sent, and that is of what the record
///          has by then.
/// End:     who waits at the output gate by answer() is told sandbox_not_running; callbacks are
///          dropped.
class object_storage {
public:
  using on_done = std::function<void()>;
  using on_failed = std::function<void(const error&)>;
  using entries_map = std::map<std::string, std::string, std::less<>>;

  /// `prefix`: empty, or something that ends with '/'.
  object_storage(caf::scheduled_actor* self, std::shared_ptr<const keepers> with, kept_in where,
                 std::string owner, std::string prefix = {});
  object_storage(object_storage&&) = delete;
  ~object_storage();

  // ---- Reading

  /// Asks the store, once; later calls are answered at once.
  void load(on_done then, on_failed otherwise, request_context context = {});
  bool loaded() const { return loaded_; }

  /// None: there is no such key. Good until the next write.
  const std::string* find(std::string_view key) const;
  /// What `key` is, or nothing: for those that are never kept empty.
  std::string value(std::string_view key) const;
  /// All that is kept, without the prefix. Of an owner, its objects' keys too, as they were when it
  /// was loaded: that is how it knows which objects it has.
  const entries_map& entries() const { return entries_; }

  // ---- Writing

  /// The lease's. Before the first write, and after each new lease.
  void write_at(storage::epoch now);

  /// From now on the entries below `prefixes` are those that `rule` makes of all others: each batch
  /// that changes these has the changes of those as well. A record that was written without the
  /// rule follows it as soon as it is loaded and may be written. Before load().
  void derive(std::vector<std::string> prefixes,
              std::function<std::vector<storage::entry>(const entries_map&)> rule);

  /// Together, or not at all. Before the changes, what begins with one of `cleared` is removed.
  /// With a prefix go the objects below it, and their alarms; with the empty one this object's.
  void write(std::vector<storage::change> changes, std::vector<std::string> cleared = {},
             request_context context = {});

  /// No write is on its way, nor waits to be sent. As long as one is, what the store says of this
  /// object may be wrong, so its actor stays and keeps its lease.
  bool is_settled() const { return queue_.empty(); }
  /// The record may have what was refused: the next write reads it again first.
  bool is_doubtful() const { return is_doubtful_; }

  /// Not called at all when the actor ends before.
  void when_durable(on_done then, on_failed otherwise);

  /// Answers what has been asked once the state that the answer tells of is durable.
  template <class... Ts, class... Values>
  void answer(caf::typed_response_promise<Ts...> reply, Values... values) {
    gate({[reply, values...]() mutable { reply.deliver(std::move(values)...); },
          [reply](const error& why) mutable { reply.deliver(to_caf(why)); }, true});
  }

  /// Keys below this prefix are those of another object with the same owner.
  void leave_out(std::string prefix) { others_.push_back(std::move(prefix)); }

  /// For an owner: removes all it has here, its objects' keys and alarms included, in one batch,
  /// and refuses all that comes from it later, from whatever actor. It asks nobody to be durable
  /// first, and ends the waiting of those at the gate. Until there is a new lease, what is written
  /// later is nothing, and who comes to the output gate is told sandbox_not_running. Where another
  /// ownership lies between the reading and the lease, the record is read first, and until then
  /// nothing is refused. Errors: those of a write.
  void destroy(on_done then, on_failed otherwise, request_context context = {});

  /// The actor is about to end: who waits at the output gate is told so, and not whether what it
  /// waits for has come to be. What is written later is nothing.
  void abandon(const error& why);

  // ---- The alarm

  // Each together with the changes, in one batch.

  /// In place of the one that was set, if any. Promised, as every write, once it is durable.
  void set_alarm(std::chrono::milliseconds delay, std::vector<storage::change> changes = {});
  void cancel_alarm(std::vector<storage::change> changes = {});

  /// Is this the alarm that is set? If not it was cancelled or replaced meanwhile, and nothing is
  /// due. After load().
  bool is_set(const alarm_due& due) const;
  /// How long until it is due, whatever the wall clock has done meanwhile. None: none is set.
  std::optional<std::chrono::milliseconds> alarm_left() const;
  /// What it was for is done, as the changes say: it need not come again.
  void alarm_over(const alarm_due& due, std::vector<storage::change> changes = {});

private:
  struct waiter {
    on_done then;
    on_failed otherwise;
    bool at_end; ///< `otherwise` may be called when there is no actor any more.
  };

  /// Changes that become durable together, and how to take them back.
  struct pending {
    std::vector<storage::change> changes; ///< With prefix.
    std::vector<std::string> cleared;
    std::size_t bytes = 0;
    bool doomed = false; ///< Too much waited: it will be refused when its turn comes.
    std::map<std::string, std::optional<std::string>> before; ///< What its keys were; no prefix.
    std::optional<std::string> alarm_before;
    std::vector<waiter> waiting;
    std::vector<std::function<void()>> afterwards; ///< What others have to know once it is durable.
    request_context context;
  };

  void gate(waiter who);
  /// Where the next change goes.
  pending& open_batch();
  void add(pending& to, storage::change what);
  void change_entry(pending& in, const std::string& key, std::optional<std::string> value);
  void change_entries(pending& in, std::vector<storage::change> changes);
  void change_alarm(pending& in, std::string record);
  std::vector<storage::change> underived() const;
  void catch_up();
  void send_next();
  void read_again();
  std::uint64_t tenure() const;
  bool is_stale() const;
  void confirm();
  void leave_others_out(entries_map& in) const;
  void compare(on_done same, on_failed otherwise, const request_context& context);
  void base_on(const std::vector<storage::entry>& found, const std::vector<storage::entry>* alarms);
  void settled(std::uint64_t number);
  void refused(std::uint64_t number, const error& why);
  void take(const std::vector<storage::entry>& found);
  void take_alarm(const std::vector<storage::entry>& found);
  std::string alarm_key() const { return std::string{alarm_keys} + prefix_; }
  alarm_name alarm_of() const { return {where_, owner_, prefix_}; }
  void tell_alarms(caf::message what) const;
  void ask(bool holding_all_else, caf::message question, caf::behavior answer);

  caf::scheduled_actor* const self_;
  const std::shared_ptr<const keepers> with_;
  const kept_in where_;
  const std::string owner_;
  const std::string prefix_;
  storage::epoch epoch_ = 0;
  bool destroyed_ = false;
  bool loaded_ = false;
  entries_map entries_;                 ///< As they are when all is durable.
  std::vector<std::string> derived_at_; ///< The prefixes of what is derived.
  std::function<std::vector<storage::entry>(const entries_map&)> derived_by_; ///< None: nothing is.
  std::string alarm_;         ///< Its record; empty: none is set.
  std::deque<pending> queue_; ///< The first is on its way if `under_way_`, or the record is read.
  std::uint64_t read_under_ = 0;    ///< The ownership.
  std::vector<std::string> others_; ///< Prefixes of keys that other objects of the owner have.
  bool is_doubtful_ = false;        ///< The record may have what was refused.
  bool under_way_ = false;
  std::uint64_t number_ = 0; ///< Of the batch under way: an answer to another one counts no more.
  std::size_t queued_bytes_ = 0;
  std::uint64_t alarms_set_ = 0;
};

} // namespace insula::actors
