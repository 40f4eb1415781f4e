#pragma once

/// What the files of the sandbox's actor share, and nobody else includes: its state, the facts it
/// is told, and who does what. sandbox.cpp has its messages, start.cpp what leads to a
/// running sandbox, adoption.cpp what an earlier server has left, idle.cpp what
/// becomes of one that nobody uses, pause.cpp of a paused one, end.cpp its stop,
/// its deletion and its alarms, commands.cpp commands and files, sessions.cpp
/// sessions and their terminals, terminals.cpp those that no session has,
/// terminal_room.cpp which of them gives way to a further one,
/// egress.cpp what it may reach and how it is reached, mounts.cpp the buckets in
/// it, description.cpp what is said of it when it is made, idempotency.cpp what is asked
/// for once and again, workspace.cpp snapshots of its files.

#include "actors/object.hpp"
#include "actors/process.hpp"
#include "actors/protocol/errors.hpp"
#include "actors/sandbox/lifecycle.hpp"
#include "actors/sandbox/sandbox.hpp"
#include "actors/session.hpp"
#include "actors/survivor_note.hpp"
#include "actors/terminal.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <cassert>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>

namespace insula::actors::inside_sandbox {

using idle_atom = caf::atom_constant<caf::atom("idle")>;
using files_due_atom = caf::atom_constant<caf::atom("filesdue")>;
using hibernate_atom = caf::atom_constant<caf::atom("hibernate")>;
using patience_over_atom = caf::atom_constant<caf::atom("patience")>;

// Facts, from other threads; `start` and `number` say which attempt they are about.
struct lease_settled {
  std::uint64_t number;
  result<storage::epoch> outcome;
};
struct sandbox_ready {
  std::uint64_t start;
  std::shared_ptr<runtime::sandbox> place;
};
struct sandbox_failed {
  std::uint64_t start;
  error why;
};
struct sandbox_ended {
  std::uint64_t start;
  bool for_memory = false; ///< The node has ended it for the memory that it held.
};
struct sandbox_gone {
  std::uint64_t start;
};
struct survivor_ended {
  std::uint64_t start;
};
struct process_over {
  std::uint64_t number;
};
struct result_resumed {
  std::string key;
  result<process_actor> process;
};
struct result_over {
  std::string key;
};
struct use_over {};
/// What is to be done now that the engine has answered.
struct engine_answered {
  std::function<void()> go;
};
struct stood_still {
  std::uint64_t start, number;
  bool good; ///< If not, it goes on.
};
struct files_kept {
  std::uint64_t start, number;
  std::int64_t taken_ms;
  result<snapshot_reference> outcome;
};
struct files_back {
  std::uint64_t start;
  result<void> outcome;
};
struct terminal_over {
  std::uint64_t number;
};
struct terminal_used {
  std::uint64_t number;
  bool in_use;
};

using sandbox_impl = sandbox_object_actor::extend<
  caf::reacts_to<lease_settled>, caf::reacts_to<sandbox_ready>, caf::reacts_to<sandbox_failed>,
  caf::reacts_to<sandbox_ended>, caf::reacts_to<sandbox_gone>, caf::reacts_to<survivor_ended>,
  caf::reacts_to<process_over>, caf::reacts_to<result_resumed>, caf::reacts_to<result_over>,
  caf::reacts_to<use_over>, caf::reacts_to<engine_answered>, caf::reacts_to<terminal_over>,
  caf::reacts_to<terminal_used>, caf::reacts_to<stood_still>, caf::reacts_to<hibernate_atom>,
  caf::reacts_to<files_kept>, caf::reacts_to<files_back>, caf::reacts_to<files_due_atom>,
  caf::reacts_to<idle_atom>, caf::reacts_to<patience_over_atom>>;

using steady_clock = std::chrono::steady_clock;

/// Somebody who needs the running sandbox.
struct waiting_request {
  std::function<void()> go;
  std::function<void(const error&)> refuse;
  request_context context;
  steady_clock::time_point since = {}; ///< When it began to wait. Measured, as start_watch.
  steady_clock::time_point until = {}; ///< So long for a resume, by the node's clock.
};

/// The sandbox is being paused, or resumed.
struct pause_change {
  bool wanted; ///< Paused.
  request_context context;
  caf::typed_response_promise<sandbox_description> reply;
  std::function<void()> over; ///< Once that is answered.
};

struct lease_waiter {
  std::function<void()> then;
  std::function<void(const error&)> otherwise;
};

/// What is measured of a start. Nothing is decided by it, so it is by the system's clock.
struct start_watch {
  steady_clock::time_point began;
  steady_clock::time_point lease_asked;
  steady_clock::time_point record_sent;
  steady_clock::time_point claimed;
  steady_clock::time_point made_ours;
  start_times parts{};
  request_context whose; ///< The request that made it necessary.
  bool has_had_command = false;

  std::chrono::nanoseconds& part(start_phase which) {
    return parts[static_cast<std::size_t>(which)];
  }
};

/// The terminal of one session.
struct session_terminal {
  std::uint64_t number; ///< Tells it from the next one of its session.
  joined_terminal_actor actor;
  bool in_use = false;    ///< Somebody is there.
  std::uint64_t left = 0; ///< Which leaving was the last one; 0: there was none under this server.
  unsigned joins = 0;     ///< Clients that have been sent there.
};

/// Somebody who wants one more terminal than there may be, until another has given way.
struct terminal_wish {
  std::function<void()> go;
  std::function<void(const error&)> refuse;
};

/// A command that is to run once, from the asking on.
struct kept_result {
  started_process_actor process;                                   ///< Null: it does not run yet.
  std::vector<caf::typed_response_promise<process_actor>> waiting; ///< As long as that is so.
  /// An earlier server has started it, and it is not known yet what has become of it: until then,
  /// who asks for that waits.
  bool resuming = false;
  std::vector<std::pair<find_result, caf::typed_response_promise<known_result>>> asking;
  std::vector<std::function<void()>> when_known; ///< The same, of others.
  bool over = false;                             ///< It has ended, and its output is complete.
  std::optional<std::int64_t> ended_ms;          ///< Of a remembered one: when that was seen.
};

/// Somebody was told that nothing is known of a key, and is about to ask for the command.
struct announced_once {
  std::string digest;
  std::chrono::steady_clock::time_point until;
};

/// Of one start: has what is recorded been mounted, or tried?
enum class mounts_state : std::uint8_t { unknown, settling, settled };

/// Of one start: are its files there?
enum class files_state : std::uint8_t { unknown, settling, settled };

/// What is known of the files of one start, and of their snapshots.
struct kept_files {
  files_state now = files_state::unknown;
  bool ran_before = false;  ///< It is not the first start.
  bool used = false;        ///< Since the last snapshot began.
  bool keeping = false;     ///< A snapshot is on its way.
  bool before_stop = false; ///< It is for want of use, and the last thing that is done.
  bool refreeze = false;    ///< It stood still before, and is to do so again.
  bool due_set = false;     ///< A look at whether one is due is on its way.
  std::uint64_t number = 0; ///< Of the last one.
  std::shared_ptr<work_token> token;
  std::optional<steady_clock::time_point> last_began;
  steady_clock::time_point retry_at{};                 ///< After a failure: not before.
  std::chrono::seconds retry = limits::snapshot_retry; ///< After the next one, at least.
  /// What the record says of the last one may be older than what is there: nothing is shared with
  /// that.
  bool record_unsure = false;
  /// Who waits for that one, and who for the next.
  std::vector<caf::typed_response_promise<caf::ok_atom>> waiting, waiting_next;
  std::shared_ptr<recovery> recovered; ///< Of this start, until it has been told.
  std::function<void()> then;          ///< Once they are there.
};

struct sandbox_state {
  static inline const char* name = "sandbox";
  std::optional<sandbox_id> id;
  std::shared_ptr<const sandbox_options> options;

  phase now = phase::asleep;
  std::uint64_t start = 0;        ///< Counts the attempts: what an older one still says is ignored.
  storage::epoch epoch = 0;       ///< 0: the lease is not held.
  std::uint64_t lease_number = 0; ///< Counts the askings for it.
  bool ended = false;             ///< The actor is about to: nothing is begun any more.
  std::vector<lease_waiter> want_lease; ///< Not empty: it has been asked for.
  std::size_t alarms = 0;               ///< That are being attended to.
  std::size_t errands = 0;              ///< Questions about its network, until they are answered.
  instance_count::place instance;
  bool making = false; ///< The engine has been asked for this start, and has not said how it went.
  /// By start: of those that are still being made though nobody wants them any more.
  std::map<std::uint64_t, instance_count::place> given_up;
  std::shared_ptr<claimed_slot> slot; ///< From the pool, until it is made ours.
  bool warm = false;                  ///< This start is that of one from the pool.
  unsigned claims = 0;                ///< Of this start, that found nobody alive.
  std::shared_ptr<runtime::sandbox> place;
  start_watch watch;          ///< Of the last start.
  request_context deletion;   ///< The request that ends it.
  bool recorded = false;      ///< This start is in the store.
  egress_policy network;      ///< What it may reach, of this start: as it is durable,
  egress_policy told_network; ///< and as the engine has been told.
  mounts_state mounts = mounts_state::unknown;
  bool mounting = false; ///< Something is mounted, or unmounted; others wait.
  std::deque<std::function<void(std::function<void()>)>> mounts_waiting;
  std::map<std::string, unsigned> mount_deaths; ///< By path, of this start.
  std::uint64_t mounts_again = 0; ///< The start whose lost mounts are about to be tried again.
  kept_files files;
  bool marking = false;  ///< That it is persistent is not durable yet.
  bool adopting = false; ///< This start takes over what an earlier server has left.
  /// created_ms, image, started_ms: there is a sandbox of this id if the first is there.
  std::optional<object_storage> record;
  std::optional<object_storage> local; ///< What goes with the node. Not loaded before it is needed.
  const sandbox_image* image = nullptr; ///< What the last start took. One of the options'.
  std::deque<waiting_request> waiting;
  std::shared_ptr<byte_budget> waiting_bytes =
    std::make_shared<byte_budget>(limits::waiting_sandbox_bytes); ///< For what commands say.
  std::vector<caf::typed_response_promise<caf::ok_atom>> deleting;
  bool evicted = false; ///< Another node's by now, or nobody's: its record is not ours to change.
  std::vector<caf::typed_response_promise<caf::ok_atom>> evicting;
  bool leaving = false; ///< For another node: whoever asks something is to ask there.
  steady_clock::time_point stays_until{}; ///< It could not leave, and is not to try before.
  std::vector<caf::typed_response_promise<caf::ok_atom>> handing_over;

  std::map<std::uint64_t, started_process_actor>
    processes; ///< Until their command and its output are over.
  std::uint64_t last_process = 0;
  std::map<std::string, kept_result> results;      ///< By key. What is over keeps nobody awake.
  std::map<std::string, announced_once> announced; ///< By key.
  /// All that an earlier server has left has been taken over: what is not there has not run.
  bool knows_all = true;
  std::map<std::string, session_actor> sessions; ///< By id, each with its shell or none so far.
  std::set<session_actor> ending_sessions;       ///< Until the last of their output has been taken.
  std::map<std::string, session_terminal> terminals; ///< By session, or as defined ones are named.
  std::map<std::uint64_t, joined_terminal_actor>
    ending_terminals; ///< By number, until they are over.
  std::uint64_t last_terminal = 0, last_left = 0;
  std::deque<terminal_wish> terminal_wishes; ///< In their order. The first have one that is ending.
  bool making_room = false;                  ///< For the others: it is looked for what gives way.
  std::size_t uses = 0; ///< Files that somebody holds, and commands of sessions.
  std::chrono::steady_clock::time_point last_used;
  bool idle_noted = false; ///< last_used is in the node's store, for the server after this one.
  std::uint64_t last_freezing = 0;
  bool hibernates = false;
  bool look_set = false; ///< One look at the clock at a time: it looks at last_used when it comes.
  bool freezing = false; ///< It has been told to stand still, and runs until it does.
  bool cannot_freeze = false; ///< It did not stand still. Tried again once it has been used.
  std::optional<pause_change> pausing; ///< Until that is settled.
  bool resume_expected = false;        ///< A look at those who wait for it is on its way.

  /// Whatever ends this actor: nobody waits for it in vain, and no command of it is waited for.
  ~sandbox_state() {
    if (options)
      options->figures->left(now);
    const error why{errc::sandbox_not_running, "the node is going down"};
    refuse_waiting(why);
    if (pausing)
      pausing->reply.deliver(to_caf(why));
    for (auto& each : std::exchange(deleting, {}))
      each.deliver(to_caf(why));
    for (auto& each : std::exchange(handing_over, {}))
      each.deliver(to_caf(why));
    for (auto& each : std::exchange(terminal_wishes, {}))
      each.refuse(why);
    for (auto& each : std::exchange(evicting, {}))
      each.deliver(to_caf(why));
    forget_files(why);
    for (auto& [number, process] : processes)
      caf::anon_send_exit(process, caf::exit_reason::user_shutdown);
    for (auto& [key, each] : results) {
      for (auto& asking : each.waiting)
        asking.deliver(to_caf(why));
      for (auto& [asked, asking] : each.asking)
        asking.deliver(to_caf(why));
      if (each.process)
        caf::anon_send_exit(each.process, caf::exit_reason::user_shutdown);
    }
    for (auto& [session_id, session] : sessions)
      caf::anon_send_exit(session, caf::exit_reason::user_shutdown);
    for (const auto& session : ending_sessions)
      caf::anon_send_exit(session, caf::exit_reason::user_shutdown);
    for (auto& [session, terminal] : terminals)
      caf::anon_send_exit(terminal.actor, caf::exit_reason::user_shutdown);
    for (auto& [number, terminal] : ending_terminals)
      caf::anon_send_exit(terminal, caf::exit_reason::user_shutdown);
    release_lease();
  }

  void become(phase next) {
    assert(may_become(now, next));
    options->figures->left(now);
    options->figures->entered(next);
    now = next;
  }

  void refuse_waiting(const error& why) {
    for (auto& each : std::exchange(waiting, {}))
      each.refuse(why);
  }

  /// They are gone, and nobody waits for a snapshot of them in vain.
  void forget_files(const error& why) {
    if (files.token)
      files.token->cancel();
    auto gone = std::exchange(files, {});
    files.number = gone.number;
    files.due_set = gone.due_set;
    files.record_unsure = gone.record_unsure;
    for (auto* all : {&gone.waiting, &gone.waiting_next})
      for (auto& each : *all)
        each.deliver(to_caf(why));
  }

  /// Their shells end with the sandbox; the next one begins without them.
  void end_sessions() {
    for (auto& [session_id, session] : std::exchange(sessions, {})) {
      ending_sessions.insert(session);
      caf::anon_send(session, end_session{{errc::sandbox_not_running, "the sandbox has ended"}});
    }
  }

  /// The next one to ask gets another.
  void end_terminal(const std::string& session) {
    if (const auto ending = terminals.extract(session)) {
      const auto& which = ending.mapped();
      ending_terminals.emplace(which.number, which.actor);
      caf::anon_send(which.actor, delete_atom::value);
    }
  }

  /// As long as it is, it does not become idle.
  bool in_use() const {
    return !processes.empty() || uses > 0 ||
           std::any_of(terminals.begin(), terminals.end(),
                       [](const auto& each) { return each.second.in_use; });
  }

  void release_lease() {
    if (epoch != 0)
      options->leases->release(id->str(), std::exchange(epoch, 0));
  }
};

using sandbox_pointer = counted_pointer<sandbox_state, sandbox_impl>;
template <class... Ts>
using reply_to = caf::typed_response_promise<Ts...>;

template <class Fact>
void tell(const caf::actor_addr& sandbox, Fact fact) {
  if (const auto target = caf::actor_cast<sandbox_impl>(sandbox))
    caf::anon_send(target, std::move(fact));
}

/// One line of the log for one step, if somebody wants these.
void note(std::string_view event, const sandbox_state& st, const request_context& context);

// ---- start.cpp

/// Calls it, now or once the sandbox runs; starts it if need be.
void when_running(sandbox_pointer self, waiting_request request);
/// The same for what is answered with a promise; who cannot be served gets the reason.
template <class Reply, class Go>
void when_running(sandbox_pointer self, Reply reply, request_context context, Go go) {
  when_running(self,
               {std::move(go), [reply](const error& why) mutable { reply.deliver(to_caf(why)); },
                std::move(context)});
}
void begin_start(sandbox_pointer self);
/// What has been made for this start goes, and those who wait are told why.
void give_up_start(sandbox_pointer self, const error& why);
/// It runs no more, or never did. Who waits for it is told why.
void fall_asleep(sandbox_pointer self, const error& why);
/// It is another node's, or nobody's.
void evict(sandbox_pointer self, reply_to<caf::ok_atom> reply);
/// It is to go on at another node: nothing is asked of it any more, what is to outlive it is kept,
/// it is stopped, and its lease given back. Errors: limit_reached, and those of keep_files(); it
/// stays then.
void hand_over(sandbox_pointer self, reply_to<caf::ok_atom> reply);
void handed_over(sandbox_pointer self);
/// It was used just now.
void touch(sandbox_pointer self);
void look_later(sandbox_pointer self, std::chrono::nanoseconds left);
/// The right to write. It is asked for if it is not held, and given back by rest().
void with_lease(sandbox_pointer self, std::function<void()> then,
                std::function<void(const error&)> otherwise);
/// Has it stand still; stood_still follows, unless it is known not to do so.
void freeze(sandbox_pointer self);
/// It goes on, if it stands still. Errors: those of runtime::sandbox; it stays as it is. `needed`:
/// by somebody who has to wait for that.
result<void> thaw(sandbox_pointer self, bool needed = true);
/// Looks at the clock: what of the ladder is due is done.
void look(sandbox_pointer self);
/// It is idle no longer: what is noted of it for the next server goes.
void forget_idle(sandbox_pointer self);
/// It was adopted, and nobody has used it: it is idle since when an earlier server has noted it.
void recall_idle(sandbox_pointer self);
void heard(sandbox_pointer self, const stood_still& said);
/// Asleep and nothing to do: the lease goes, and so does the actor, if it may.
void rest(sandbox_pointer self);
void heard(sandbox_pointer self, lease_settled& said);
void heard(sandbox_pointer self, sandbox_ready& said);
void heard(sandbox_pointer self, sandbox_failed& said);

void heard(sandbox_pointer self, const survivor_ended& said);

// ---- adoption.cpp

/// An earlier server has left its sandbox running, and this one has not taken it over.
bool has_survived(const sandbox_state& st);
/// Takes it over, if nothing has yet.
void adopt(sandbox_pointer self);
/// Ends it instead; survivor_ended follows.
void end_survivor(sandbox_pointer self);
/// All that runs in it has its objects again.
void take_over_all(sandbox_pointer self);

// ---- workspace.cpp

/// Its files outlive their node. Its record is loaded.
bool is_persistent(const sandbox_state& st);
/// It has been taken down while its files were put back: what it has is not all of them.
bool has_half_its_files(const sandbox_state& st);
/// What stands in the record of a start, besides what it is made from.
void note_files(sandbox_state& st, std::vector<storage::change>& into);
/// If this request wants it to be persistent and it is not yet: that is written, and one of the two
/// is called then. False: there is nothing to wait for.
bool marked_first(sandbox_pointer self, const request_context& context, std::function<void()> then,
                  std::function<void(const error&)> otherwise);
/// The same of one whose record may not be loaded.
void mark(sandbox_pointer self, const mark_persistent& wanted, reply_to<caf::ok_atom> reply);
/// It is about to be served: if files were put back it will say so, unless somebody has.
void meet(sandbox_state& st, const request_context& context);
/// What it has to have of its files is there, or it is on its way to that and `then` is called, or
/// the start fails.
bool files_settled(sandbox_pointer self, std::function<void()> then);
/// It was used: a snapshot will be due.
void files_used(sandbox_pointer self);
/// Before it stands still or is stopped for want of use. False: nothing has to be kept first. When
/// it is done look() is called.
bool kept_first(sandbox_pointer self, idle_step next);
void keep_files(sandbox_pointer self, reply_to<caf::ok_atom> reply);
/// The same if it was used since the last one.
void keep_used_files(sandbox_pointer self, reply_to<caf::ok_atom> reply);
/// It runs, and its files are to outlive it.
bool may_be_kept(const sandbox_state& st);
void look_at_files(sandbox_pointer self);
void heard(sandbox_pointer self, files_kept& said);
void heard(sandbox_pointer self, const files_back& said);
/// There may be some. Its record is loaded.
bool has_snapshots(const sandbox_state& st);
/// Nothing of it is to be found any more. After its record has gone.
void forget_snapshots(const sandbox_state& st);

// ---- end.cpp

/// It has been idle for long enough.
void stop(sandbox_pointer self);
void begin_delete(sandbox_pointer self);
/// It is over; with a reason, its record stays.
void deleted(sandbox_pointer self, const error* why_not);
/// Nothing of it runs any more: what is stored of it goes, too.
void finish_delete(sandbox_pointer self);
void heard(sandbox_pointer self, const sandbox_ended& said);
void heard(sandbox_pointer self, const sandbox_gone& said);
/// Does what an alarm of the sandbox, or of an object in it, is for.
void attend(sandbox_pointer self, alarm_due due, reply_to<caf::ok_atom> reply);

/// Something is answered without the sandbox running: until then it does not hibernate.
class errand {
public:
  explicit errand(sandbox_pointer self)
      : self_(self) {
    ++self_->state.errands;
  }
  void over() const {
    --self_->state.errands;
    rest(self_);
  }

private:
  sandbox_pointer self_;
};

/// Whoever asks again is sent to where it goes on.
inline const error leaves_node{errc::node_unreachable, "it goes on at another node"};

/// Why nothing is asked of it any more, for one that is deleted, evicted or handed over.
inline const error& why_not_asked(const sandbox_state& st) {
  return st.evicted || (st.leaving && st.now != phase::deleting) ? leaves_node : being_deleted;
}

/// Of one whose record is loaded: it runs, or has run, and was not deleted since.
inline bool exists(const sandbox_state& st) {
  return st.record->find("created_ms") != nullptr;
}

/// It runs, or is on its way; one that an earlier server has left is taken over if it is asked.
inline bool lives(const sandbox_state& st) {
  return is_alive(st.now) || st.now == phase::starting ||
         (st.now == phase::asleep && has_survived(st));
}

/// Once its record is there; who cannot be served is told why.
template <class Reply>
void with_record(sandbox_pointer self, Reply reply, const request_context& context,
                 std::function<void(errand)> go) {
  auto& st = self->state;
  if (st.now == phase::deleting || st.leaving)
    return static_cast<void>(reply.deliver(to_caf(why_not_asked(st))));
  const errand mine{self};
  const auto failed = [reply, mine](const error& why) {
    auto to = reply;
    to.deliver(to_caf(why));
    mine.over();
  };
  st.record->load(
    [=] {
      const auto served = [mine, go] { go(mine); };
      if (!marked_first(self, context, served, failed))
        served();
    },
    failed, context);
}

/// Only if there is such a sandbox; else whoever asks is told so.
template <class Reply, class Go>
void when_there(sandbox_pointer self, Reply reply, const request_context& context, Go go) {
  if (lives(self->state))
    return go();
  with_record(self, reply, context, [=](errand asking) {
    auto answer = reply;
    if (exists(self->state))
      go();
    else
      answer.deliver(to_caf({errc::not_found, "Sandbox " + self->state.id->str() + " not found."}));
    asking.over();
  });
}

// ---- description.cpp

/// Of all that runs in it.
std::map<std::string, std::string> own_environment(const sandbox_state& st);
void define(sandbox_pointer self, const define_sandbox& wanted,
            reply_to<sandbox_description> reply);
void redefine(sandbox_pointer self, const redefine_sandbox& wanted,
              reply_to<sandbox_description> reply);
/// What it may use. Its record is loaded.
runtime::sandbox_limits limits_of(const sandbox_state& st);
/// Until it is to be deleted; none: it stays.
std::optional<std::chrono::milliseconds> time_left(const sandbox_state& st);

sandbox_description describe(const sandbox_state& st);

// ---- pause.cpp

// Of one whose record is loaded, as that of whatever runs.

/// As those who look at it are told.
bool is_paused(const sandbox_state& st);
/// The same, or it is about to become so, or to be so no more: who needs it running waits.
bool is_held(const sandbox_state& st);
void set_paused(sandbox_pointer self, const pause_sandbox& wanted,
                reply_to<sandbox_description> reply);
/// It stands still, as far as it runs: now it is marked. Or it goes on: now the mark goes.
void write_pause(sandbox_pointer self);
/// That is durable, or nothing has come of it.
void pause_settled(sandbox_pointer self, result<void> outcome);
/// It is held: those who wait do so for limits::pause_patience.
void expect_resume(sandbox_pointer self);
void refuse_impatient(sandbox_pointer self);
/// It runs: each in its turn, unless one of them has it paused.
void serve_waiting(sandbox_pointer self);

// ---- egress.cpp

inline const error network_lost{errc::launch_failed, "the egress gateway does not answer"};
/// What its record says, which is loaded; else the node's default.
egress_policy recorded_network(const sandbox_state& st);
/// Has the engine been told what is durable by now? If not it is, and `then` is called, or the
/// start fails.
bool network_settled(sandbox_pointer self, std::function<void()> then);
void get_network(sandbox_pointer self, const request_context& context,
                 reply_to<network_state> reply);
void set_network(sandbox_pointer self, const set_network_request& wanted,
                 reply_to<network_state> reply);
void change_network(sandbox_pointer self, const change_network_request& wanted,
                    reply_to<network_state> reply);
void open_sockets(sandbox_pointer self, const open_sockets_request& wanted,
                  reply_to<sandbox_sockets> reply);
void list_ports(sandbox_pointer self, const list_ports_request& wanted,
                reply_to<std::vector<listening_port>> reply);

// ---- mounts.cpp

/// What is recorded is mounted, or it is on its way to that and `then` is called, however it went.
/// Of a sandbox that is about to run.
bool mounts_settled(sandbox_pointer self, std::function<void()> then);
/// Its program has ended by itself: it gets another, a few times.
void mount_died(sandbox_pointer self, std::uint64_t start, const std::string& path);
void mount_bucket(sandbox_pointer self, const mount_bucket_request& wanted,
                  reply_to<caf::ok_atom> reply);
void unmount_bucket(sandbox_pointer self, const unmount_bucket_request& wanted,
                    reply_to<caf::ok_atom> reply);
void list_mounts(sandbox_pointer self, const list_mounts_request& wanted,
                 reply_to<std::vector<mounted_bucket>> reply);

// ---- commands.cpp

std::vector<std::string> environment(const sandbox_state& st,
                                     const std::map<std::string, std::string>& particular,
                                     const std::map<std::string, std::string>& wanted);
/// A leading ~, $NAME and ${NAME}, by what every command is given. Errors: invalid_request.
result<std::string> expanded(const sandbox_state& st, const std::string& path);
/// All of a command but what is run.
process_options make_options(sandbox_pointer self, std::optional<std::int64_t> timeout_ms,
                             const request_context& context);
started_process_actor add_process(sandbox_pointer self, process_options options);
/// While somebody holds it the sandbox is in use.
std::shared_ptr<void> new_use(sandbox_pointer self);
/// What a command counts for until it runs; null: too much waits already.
std::shared_ptr<void> take_memory(sandbox_state& st, const exec_request& wanted);
void run_command(sandbox_pointer self, exec_request wanted, std::shared_ptr<void> memory,
                 reply_to<process_actor> reply);
/// Of the sandbox' own kind, not of a session's.
void start_command(sandbox_pointer self, exec_request wanted, reply_to<process_actor> reply);
void run_probe(sandbox_pointer self, const request_context& context, reply_to<bool> reply);
caf::result<file_channel> open_file(sandbox_pointer self, runtime::file_operation what,
                                    std::string path, request_context context, std::string session);
caf::result<file_channel> open_part(sandbox_pointer self, read_file_request wanted);
void run_file_task(sandbox_pointer self, file_task_request wanted, reply_to<file_channel> reply);
caf::result<file_channel> open_tree(sandbox_pointer self, runtime::tree_request wanted,
                                    request_context context);

// ---- sessions.cpp

/// The one of this id, which is made with defaults if it is not there.
result<session_actor> find_session(sandbox_pointer self, const std::string& id);
void run_in_session(sandbox_pointer self, exec_request wanted, std::shared_ptr<void> memory,
                    reply_to<process_actor> reply);
/// Answers when its shell is up.
void create_session(sandbox_pointer self, create_session_request wanted,
                    reply_to<caf::ok_atom> reply);
void remove_session(sandbox_pointer self, const delete_session_request& wanted,
                    reply_to<caf::ok_atom> reply);
/// A new one begins where its session is. An image without bash has no sessions, but may have
/// terminals.
void open_terminal(sandbox_pointer self, open_terminal_request wanted,
                   reply_to<terminal_actor, std::uint64_t, std::uint64_t> reply);
/// Where there is room for one. `blank`: as of terminal_options.
void make_terminal(sandbox_pointer self, const std::string& name, runtime::process_spec spec,
                   const open_terminal_request& wanted, bool blank);
void resume_session(sandbox_pointer self, const runtime::survivor& shell, const survivor_note& note,
                    std::optional<runtime::survivor> command,
                    std::shared_ptr<process_options> process,
                    std::function<void(result<process_actor>)> on_resumed);
void resume_terminal(sandbox_pointer self, const runtime::survivor& which,
                     const std::string& session);

// ---- terminal_room.cpp

/// Calls `go`, which may make one terminal, once there is room for it. If there is none, that of
/// the terminals that was left longest ago gives way, if it is nothing but a shell at its prompt.
/// `refuse` is told: limit_reached (none gives way), sandbox_not_running.
void with_terminal_room(sandbox_pointer self, std::function<void()> go,
                        std::function<void(const error&)> refuse);
/// One has ended, so there may be room.
void terminal_is_over(sandbox_pointer self);

// ---- terminals.cpp

void define(sandbox_pointer self, const define_terminal& wanted, reply_to<caf::ok_atom> reply);
void find(sandbox_pointer self, const find_terminal& asked, reply_to<known_terminal> reply);
void forget(sandbox_pointer self, const forget_terminal& asked, reply_to<caf::ok_atom> reply);
void open_defined_terminal(sandbox_pointer self, const open_terminal_request& wanted,
                           reply_to<terminal_actor, std::uint64_t, std::uint64_t> reply);

// ---- idempotency.cpp

/// As run_command(), if it has not been asked for before.
void run_once(sandbox_pointer self, exec_request wanted, std::shared_ptr<void> memory,
              reply_to<process_actor> reply);
void find_result_of(sandbox_pointer self, const find_result& asked, reply_to<known_result> reply);
void write_once(sandbox_pointer self, const write_once_request& asked,
                reply_to<write_once_answer> reply);
/// What is told when it is over, besides `also`.
std::function<void()> over_with_result(sandbox_pointer self, const std::string& key,
                                       std::function<void()> also);
/// An earlier server has started it. False: there is one of that key.
bool resume_result(sandbox_pointer self, const std::string& key);
/// What an earlier server has kept, and has forgotten about since.
void drop_unknown_results(sandbox_pointer self);
void result_runs(sandbox_pointer self, const std::string& key, const process_actor& process);
void result_does_not_run(sandbox_pointer self, const std::string& key, const error& why);
/// Whoever has asked for this command is told why it does not run.
void refuse_command(sandbox_pointer self, const exec_request& wanted, const error& why,
                    reply_to<process_actor> reply);
void find_command_of(sandbox_pointer self, const find_command& asked,
                     reply_to<known_command> reply);
void interrupt(sandbox_pointer self, const interrupt_command& asked, reply_to<caf::ok_atom> reply);
/// It is over: what a remembered one needs no more is let go of.
void result_is_over(sandbox_pointer self, const std::string& key);
/// Of the alarm that is set for it.
void expire_results(sandbox_pointer self, const alarm_due& due);

/// What stands in a store of a request that has its effect once.
struct once_record {
  std::string digest;
  std::int64_t made_ms = 0;
  std::string which;      ///< What else has to be the same. One line.
  std::string about = {}; ///< Of a remembered command: what is known of it.

  std::string text() const;
  static once_record read(std::string_view text);
  bool expired(std::int64_t now_ms) const;
};
inline const error once_conflict{errc::idempotency_conflict,
                                 "this Idempotency-Key has been used for another request"};

} // namespace insula::actors::inside_sandbox

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::lease_settled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::sandbox_ready)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::sandbox_failed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::sandbox_ended)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::sandbox_gone)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::survivor_ended)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::process_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::result_resumed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::result_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::use_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::engine_answered)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::stood_still)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::files_kept)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::files_back)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::terminal_over)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::terminal_used)
