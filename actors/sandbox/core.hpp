#pragma once

#include "actors/kept_log.hpp"
#include "actors/record_keys.hpp"
#include "actors/sandbox/children.hpp"
#include "actors/sandbox/kept_record.hpp"
#include "actors/sandbox/lifecycle.hpp"
#include "actors/sandbox/reply.hpp"
#include "actors/sandbox/sandbox.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

/// A sandbox's object is made of parts. Each part is a plain class with its own state, and knows
/// the others by the core, by the events that the core passes on, and by a reference where it needs
/// one of them by name. Neither a part nor the core starts an actor system: a test has a core of
/// its own.
///
/// Threads: all of it is the sandbox's mailbox, but for what post() gives.
namespace insula::actors::inside_sandbox {

using steady_clock = std::chrono::steady_clock;

/// The answer to a request of a sandbox that moves to another node: the client asks there.
inline const error leaves_node{errc::node_unreachable, "it goes on at another node"};
inline const error has_ended{errc::sandbox_not_running, "the sandbox has ended"};

/// A request that needs the running sandbox. One of `go` and `refuse` is called, once.
struct waiting_request {
  then_function go;
  otherwise_function refuse;
  request_context context;
  steady_clock::time_point since = {}; ///< When it began to wait. For figures alone.
  steady_clock::time_point until = {}; ///< The end of its patience, by the node's clock.
};

class core;

/// One concern of a sandbox. The core tells each part what happens, in the order of its table.
class part {
public:
  explicit part(core& of)
      : core_(of) {}
  part(const part&) = delete;
  part& operator=(const part&) = delete;
  virtual ~part() = default;

  // ---- Events

  /// A start begins.
  virtual void starting() {}
  /// The engine's sandbox is there and is about to run. False: something has to be there first, and
  /// `then` is called once it is; or `failed`, once nothing is left of the engine's sandbox.
  virtual bool settle(const then_function& /*then*/, const otherwise_function& /*failed*/) {
    return true;
  }
  /// It runs. `adopted`: an earlier server has started it.
  virtual void running(bool /*adopted*/) {}
  /// A request is about to be served.
  virtual void served(const request_context&) {}
  /// It was used just now.
  virtual void used() {}
  /// The start is over: nothing of it runs.
  virtual void stopped(const error& /*why*/) {}
  /// The deletion begins.
  virtual void deleting(const error& /*why*/) {}
  /// The actor ends: each answer that is owed is given now.
  virtual void ends(const error& /*why*/) {}

  // ---- Questions

  /// Before a request is served. True: something has to be durable first, and one of the two is
  /// called then. False: the request can be served.
  virtual bool delays(const request_context&, const then_function&, const otherwise_function&) {
    return false;
  }
  /// Before an idle sandbox takes the step. True: something has to be done first; the idle check is
  /// made again when it is.
  virtual bool delays(idle_step) { return false; }
  /// Why the sandbox is not to be started now. Its record is loaded.
  virtual std::optional<error> forbids_start() const { return std::nullopt; }
  /// Why the sandbox neither leaves its node nor is deleted now. Its record is loaded.
  virtual std::optional<error> forbids_leaving() const { return std::nullopt; }
  /// Other sandboxes write to its disk, without any request.
  virtual bool is_written() const { return false; }
  /// As long as it is, the sandbox is not idle.
  virtual bool in_use() const { return false; }
  /// As long as it is, requests wait, and the sandbox is left as it is.
  virtual bool is_held() const { return false; }
  /// Adds what it knows beyond the record, which is loaded.
  virtual void describe(sandbox_description& /*into*/) const {}
  /// Adds what it knows. The record may not be loaded.
  virtual void count(sandbox_status& /*into*/) const {}
  /// The actor of a sandbox that does not run may end.
  virtual bool may_hibernate() const { return true; }

protected:
  kept_record& record() const;
  kept_record& local() const;
  const sandbox_options& options() const;
  const std::shared_ptr<runtime::sandbox>& engine_sandbox() const;

  core& core_;
};

/// Something is answered without the sandbox running. Until it is over, the sandbox does not
/// hibernate.
class pending_operation {
public:
  explicit pending_operation(core& of);
  void over() const;

private:
  core* core_;
};

/// Has a function run in the sandbox's mailbox. Any thread. False: the actor has ended.
using poster = std::function<bool(std::function<void()>)>;

/// The object of one sandbox, as its parts see it.
class core {
public:
  core(std::string id, std::shared_ptr<const sandbox_options> options);
  core(const core&) = delete;
  core& operator=(const core&) = delete;
  virtual ~core();

  // ---- Where the sandbox stands

  const std::string& id() const { return id_; }
  const sandbox_options& options() const { return *options_; }
  phase now() const { return now_; }
  void become(phase next);
  /// Counts the attempts to start it: an answer to an older one counts no more.
  std::uint64_t start() const { return start_; }
  /// The engine's sandbox of this start. Null: there is none, or not yet.
  const std::shared_ptr<runtime::sandbox>& engine_sandbox() const { return engine_sandbox_; }
  /// That the last start took.
  const sandbox_image& image() const { return *image_; }
  /// The same; before any start the node's.
  const sandbox_profile& profile() const { return profile_; }
  bool runs() const { return is_alive(now_) && engine_sandbox_ != nullptr; }
  /// An earlier server has left it running, and this one has not taken it over.
  bool has_survived() const { return options_->engine->survives(id_); }
  /// It runs, or is on its way; a survivor is taken over by the first request.
  bool lives() const {
    return is_alive(now_) || now_ == phase::starting || (now_ == phase::asleep && has_survived());
  }
  /// It has been defined or has run, and was not deleted since. Its record is loaded.
  bool exists() const { return record().find(created_key) != nullptr; }
  /// Why nothing is asked of it any more. None: it may be asked.
  const std::optional<error>& refusal() const { return refusal_; }
  error not_found() const { return {errc::not_found, "Sandbox " + id_ + " not found."}; }
  std::size_t operations() const { return operations_; }

  // By the parts that start and end it.
  void next_start() { ++start_; }
  void set_engine_sandbox(std::shared_ptr<runtime::sandbox> made) {
    engine_sandbox_ = std::move(made);
  }
  const shared_image& image_handle() const { return image_; }
  void set_image(shared_image taken) { image_ = std::move(taken); }
  void set_profile(sandbox_profile taken) { profile_ = std::move(taken); }
  void set_refusal(std::optional<error> why) { refusal_ = std::move(why); }

  /// For figures: when the start began, for its first command. None: there was one.
  void set_start_began(std::optional<steady_clock::time_point> at) { start_began_ = at; }
  std::optional<steady_clock::time_point> take_start_began() {
    return std::exchange(start_began_, std::nullopt);
  }

  // ---- The events and questions of all parts

  template <class Tell>
  void each_part(Tell tell) const {
    for (auto* one : parts_)
      tell(*one);
  }
  std::optional<error> forbids_start() const;
  std::optional<error> forbids_leaving() const;
  bool is_written() const;
  bool in_use() const;
  bool is_held() const;
  bool may_hibernate() const;
  /// By the record, and what the parts know beyond it.
  sandbox_description describe() const;
  sandbox_status status() const;
  void mark_used();
  bool settle(const then_function& then, const otherwise_function& failed);
  bool delays(const request_context& context, const then_function& then,
              const otherwise_function& otherwise);
  bool delays(idle_step next);

  // ---- What is kept

  /// In the cluster's store.
  virtual kept_record& record() const = 0;
  /// In the node's store. Not loaded before it is needed.
  virtual kept_record& local() const = 0;
  /// In the cluster's store, for the alarm of a run alone. Not loaded before it is needed.
  virtual kept_record& run_clock() const = 0;
  /// No write of the three is on its way. Else the stores may be about to hold what nobody reads in
  /// them yet: the object is neither absent nor at rest.
  bool is_settled() const;
  /// Calls it once that is so, whatever has become of the writes. Not if the actor ends before.
  void when_settled(then_function then);
  /// The right to write. It is asked for if it is not held.
  virtual void with_lease(then_function then, otherwise_function otherwise) = 0;
  /// At which is written. 0: the lease is not held.
  virtual storage::epoch epoch() const = 0;

  // ---- Requests

  /// Serves it, now or once the sandbox runs; starts the sandbox if need be.
  virtual void when_running(waiting_request request) = 0;
  template <class... Ts>
  void when_running(const reply<Ts...>& to, const request_context& context, then_function go) {
    when_running({std::move(go), to.otherwise(), context});
  }
  /// Calls `go` with the record loaded, and with the reply to use: until that is given the sandbox
  /// does not hibernate. Starts nothing.
  template <class... Ts, class Go>
  void with_record(const reply<Ts...>& to, const request_context& context, Go go) {
    if (refusal_)
      return to.fail(*refusal_);
    const reply<Ts...> mine{
      typename reply<Ts...>::function{[to, now = pending_operation{*this}](auto outcome) {
        to.give(std::move(outcome));
        now.over();
      }}};
    load(
      context, [mine, go = std::move(go)] { go(mine); }, mine.otherwise());
  }
  /// Calls one of the two with the record loaded. Starts nothing.
  void with_record(const request_context& context, then_function go, otherwise_function refuse);
  /// The same if there is such a sandbox, or at once if it lives.
  void when_there(const request_context& context, then_function go, otherwise_function refuse);
  /// While somebody holds it the sandbox is in use. Any thread may let go of it.
  std::shared_ptr<void> keep_awake();
  /// Goes on, if it stands still. Errors: those of runtime::sandbox; it stays as it is.
  virtual result<void> thaw() = 0;

  // ---- Snapshots, which are objects of their own

  virtual void ask_snapshot(find_snapshot what, const reply<snapshot_description>& to) = 0;
  virtual void ask_snapshot(define_snapshot what, const reply<snapshot_description>& to) = 0;
  virtual void ask_snapshot(hold_snapshot what, const reply<snapshot_description>& to) = 0;
  /// This sandbox stands on it no more. `then` is called when that is durable and bytes that nobody
  /// needs have gone, or when it has failed. Null: nobody is told.
  virtual void release_snapshot(const std::string& id, then_function then = nullptr) = 0;
  /// Makes room for the newest ones of this sandbox. Nobody is told.
  virtual void evict_snapshots(const snapshot_retention& as) = 0;

  // ---- Drives, which are other sandboxes

  /// Of the one of that id, which is to live at this node. Errors: those of attach_drive;
  /// node_unreachable.
  virtual void ask_drive(const std::string& drive, attach_drive what,
                         const reply<attached_drive>& to) = 0;

  /// The lease goes if the sandbox is asleep and has nothing to do, and so does the actor, if it
  /// may. Both wait for the writes that are on their way.
  virtual void hibernate_if_idle() = 0;

  // ---- The actor

  virtual poster post() const = 0;
  /// In the sandbox's mailbox. The delay keeps the actor until it is over, also of a sandbox that
  /// was deleted meanwhile: no more than half a minute, and longer ones in steps.
  virtual void after(std::chrono::nanoseconds delay, std::function<void()> go) = 0;
  virtual std::shared_ptr<child_process> start_process(process_options options) = 0;
  virtual std::shared_ptr<child_process> process_of(const process_actor& handle) = 0;
  virtual process_actor start_log_reader(kept_log_options options) = 0;
  /// `on_gone`: its actor has ended.
  virtual std::shared_ptr<child_session>
  start_session(session_options options, std::function<void(const child_session&)> on_gone) = 0;
  virtual std::shared_ptr<child_terminal> start_terminal(terminal_options options) = 0;

protected:
  const std::string id_;
  const std::shared_ptr<const sandbox_options> options_;
  std::vector<part*> parts_; ///< In the order in which they are told. Not owned.

private:
  friend class pending_operation;
  void load(const request_context& context, const then_function& then,
            const otherwise_function& otherwise);

  phase now_ = phase::asleep;
  std::uint64_t start_ = 0;
  std::shared_ptr<runtime::sandbox> engine_sandbox_;
  shared_image image_;
  sandbox_profile profile_;
  std::optional<error> refusal_;
  std::optional<steady_clock::time_point> start_began_;
  std::size_t operations_ = 0;
  std::size_t uses_ = 0;
};

/// One line of the log for one step, if debug lines are wanted.
void note(std::string_view event, const core& of, const request_context& context);

inline kept_record& part::record() const {
  return core_.record();
}
inline kept_record& part::local() const {
  return core_.local();
}
inline const sandbox_options& part::options() const {
  return core_.options();
}
inline const std::shared_ptr<runtime::sandbox>& part::engine_sandbox() const {
  return core_.engine_sandbox();
}

} // namespace insula::actors::inside_sandbox
