#include "actors/sandbox/sandbox.hpp"

#include "actors/owed.hpp"
#include "actors/sandbox/parts.hpp"
#include "actors/sandbox_list.hpp"
#include "actors/snapshots/eviction.hpp"

#include <caf/all.hpp>

#include <map>

/// The actor around the parts of a sandbox: its messages, its children, and its mailbox.
namespace insula::actors {

namespace inside_sandbox {

/// Something that was posted to the mailbox.
struct fact {
  std::function<void()> happened;
};

} // namespace inside_sandbox
} // namespace insula::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::inside_sandbox::fact)

namespace insula::actors {

namespace inside_sandbox {

namespace {

using sandbox_impl = sandbox_object_actor::extend<caf::reacts_to<fact>>;

class object;
struct sandbox_state {
  static inline const char* name = "sandbox";
  std::shared_ptr<object> it;
};
using sandbox_pointer = counted_pointer<sandbox_state, sandbox_impl>;

// ---- Its children

/// Asks another actor. A sender gets its answer from there; a function is told in the mailbox.
template <class... Ts, class Handle, class... Question>
void ask(sandbox_pointer self, const Handle& whom, const reply<Ts...>& to, Question... question) {
  if (const auto* sender = to.sender()) {
    auto promise = *sender;
    promise.delegate(whom, std::move(question)...);
    return;
  }
  self->request(whom, caf::infinite, std::move(question)...)
    .then([to](const Ts&... values) { to.deliver(values...); },
          [to](const caf::error& why) { to.fail(from_caf(why)); });
}

/// One of them, by its handle.
template <class Interface, class Handle>
class child_actor : public Interface {
public:
  child_actor(sandbox_pointer self, Handle whom)
      : self_(self)
      , whom_(std::move(whom)) {}

  void kill() override { caf::anon_send_exit(whom_, caf::exit_reason::user_shutdown); }

protected:
  template <class... Ts, class... Question>
  void ask(const reply<Ts...>& to, Question... question) {
    inside_sandbox::ask(self_, whom_, to, std::move(question)...);
  }

  const sandbox_pointer self_;
  const Handle whom_;
};

class process_child final : public child_actor<child_process, started_process_actor> {
public:
  using child_actor::child_actor;
  process_actor handle() const override { return caf::actor_cast<process_actor>(whom_); }
  void start(const reply<process_actor>& to) override { ask(to, start_atom::value); }
  void start() override { caf::anon_send(whom_, start_atom::value); }
  void probe(const reply<bool>& to) override { ask(to, probe_atom::value); }
  void status(const reply<process_status>& to) override { ask(to, status_atom::value); }
  void measure(const reply<std::uint64_t, std::uint64_t>& to) override {
    ask(to, measure_atom::value);
  }
  void open_log(const reply<log_file>& to) override { ask(to, open_log_atom::value); }
  void interrupt(const reply<caf::ok_atom>& to) override { ask(to, interrupt_atom::value); }
  void write_input(input_piece piece, const reply<input_progress>& to) override {
    ask(to, std::move(piece));
  }
  void signal(int number) override { caf::anon_send(whom_, signal_terminal{number}); }
};

class session_child final : public child_actor<child_session, session_actor> {
public:
  using child_actor::child_actor;
  void open(const reply<caf::ok_atom>& to) override { ask(to, open_atom::value); }
  void run(session_command what, const reply<process_actor>& to) override {
    ask(to, std::move(what));
  }
  void look_around(const reply<runtime::shell_surroundings>& to) override {
    ask(to, look_around_atom::value);
  }
  void end(error why, const reply<caf::ok_atom>& to) override {
    ask(to, end_session{std::move(why)});
  }
  void end(error why) override { caf::anon_send(whom_, end_session{std::move(why)}); }
};

class terminal_child final : public child_actor<child_terminal, joined_terminal_actor> {
public:
  using child_actor::child_actor;
  void join(const join_reply& to) override { ask(to, join_atom::value); }
  void join(bool takes_over, const join_reply& to) override {
    ask(to, join_atom::value, takes_over);
  }
  void measure(const reply<std::uint64_t, std::uint64_t>& to) override {
    ask(to, measure_atom::value);
  }
  void is_quiet(const std::vector<std::int32_t>& quiet, const reply<bool>& to) override {
    ask(to, is_quiet_atom::value, quiet);
  }
  void signal(int number) override { caf::anon_send(whom_, signal_terminal{number}); }
  void end() override { caf::anon_send(whom_, delete_atom::value); }
};

// ---- The core that is an actor's

/// A record in a store of the node.
class stored_record final : public kept_record {
public:
  stored_record(caf::scheduled_actor* self, std::shared_ptr<const keepers> with, kept_in where,
                const std::string& owner, std::string_view prefix = {})
      : in_(self, std::move(with), where, owner, std::string{prefix}) {}

  void leave_out(std::string_view prefix) { in_.leave_out(std::string{prefix}); }
  /// That of object_storage.
  template <class Rule>
  void derive(std::vector<std::string> prefixes, Rule rule) {
    in_.derive(std::move(prefixes), std::move(rule));
  }

  void load(then_function then, otherwise_function otherwise, request_context context) override {
    in_.load(std::move(then), std::move(otherwise), std::move(context));
  }
  bool loaded() const override { return in_.loaded(); }
  const entry_map& entries() const override { return in_.entries(); }
  void write_at(storage::epoch now) override { in_.write_at(now); }
  void write(std::vector<storage::change> changes, request_context context) override {
    in_.write(std::move(changes), {}, std::move(context));
  }
  bool is_settled() const override { return in_.is_settled(); }
  bool is_doubtful() const override { return in_.is_doubtful(); }
  void when_durable(then_function then, otherwise_function otherwise) override {
    in_.when_durable(std::move(then), std::move(otherwise));
  }
  void answer(const reply<caf::ok_atom>& to) override { answer_with(to, caf::ok_atom::value); }
  void answer(const reply<write_once_answer>& to, write_once_answer what) override {
    answer_with(to, std::move(what));
  }
  void set_alarm(std::chrono::milliseconds delay, std::vector<storage::change> changes) override {
    in_.set_alarm(delay, std::move(changes));
  }
  bool is_set(const alarm_due& due) const override { return in_.is_set(due); }
  std::optional<std::chrono::milliseconds> alarm_left() const override { return in_.alarm_left(); }
  void alarm_over(const alarm_due& due, std::vector<storage::change> changes) override {
    in_.alarm_over(due, std::move(changes));
  }
  void destroy(then_function then, otherwise_function otherwise, request_context context) override {
    in_.destroy(std::move(then), std::move(otherwise), std::move(context));
  }
  void abandon(const error& why) override { in_.abandon(why); }

private:
  template <class T>
  void answer_with(const reply<T>& to, T what) {
    if (const auto* sender = to.sender())
      in_.answer(*sender, std::move(what));
    else
      in_.when_durable([=] { to.deliver(what); }, to.otherwise());
  }

  object_storage in_;
};

class object final : public core {
public:
  object(sandbox_pointer self, const sandbox_id& id, std::shared_ptr<const sandbox_options> options,
         bool hibernates)
      : core(id.str(), std::move(options))
      , self_(self)
      , hibernates_(hibernates)
      , record_(self, options_->keep, kept_in::cluster, id_)
      , local_(self, options_->keep, kept_in::node, id_)
      , run_clock_(self, options_->keep, kept_in::cluster, id_, run_clock_prefix)
      , parts(*this, claim_from(options_->pool), [self] { self->quit(); }) {
    parts_ = parts.table();
    record_.leave_out(run_clock_prefix);
    record_.derive(prefixes_of_lines(), [groups = options_->groups](const auto& record) {
      return lines_of(record, groups);
    });
    self->set_down_handler([this](const caf::down_msg& gone) {
      if (const auto down = when_down_.extract(gone.source))
        down.mapped()();
    });
  }

  /// However the actor ends: each answer that is owed is given, and no child of it lives on.
  ~object() override {
    ends_ = true;
    const error why{errc::sandbox_not_running, "the node is going down"};
    each_part([&](part& one) { one.ends(why); });
  }

  kept_record& record() const override { return record_; }
  kept_record& local() const override { return local_; }
  kept_record& run_clock() const override { return run_clock_; }
  void with_lease(then_function then, otherwise_function otherwise) override {
    parts.lease_.acquire(std::move(then), std::move(otherwise));
  }
  storage::epoch epoch() const override { return parts.lease_.epoch(); }

  using core::when_running;
  void when_running(waiting_request request) override {
    parts.gate_.when_running(std::move(request));
  }
  result<void> thaw() override { return parts.idle_.thaw(); }
  void ask_snapshot(find_snapshot what, const reply<snapshot_description>& to) override {
    ask_directory(to, std::move(what));
  }
  void ask_snapshot(define_snapshot what, const reply<snapshot_description>& to) override {
    ask_directory(to, std::move(what));
  }
  void ask_snapshot(hold_snapshot what, const reply<snapshot_description>& to) override {
    ask_directory(to, std::move(what));
  }
  void release_snapshot(const std::string& id, then_function then) override {
    const auto directory = options().objects->get();
    const insula::release_snapshot what{id, this->id()};
    if (!then && directory)
      caf::anon_send(directory, what);
    else if (directory)
      self_->request(directory, caf::infinite, what)
        .then([then](caf::ok_atom) { then(); }, [then](const caf::error&) { then(); });
    else if (then)
      then();
  }
  void evict_snapshots(const snapshot_retention& as) override {
    if (as.keep_last > 0)
      snapshots::evict_older(self_->system(), options_,
                             {id(), as.keep_last, as.evicted_keep_ms,
                              number_in(record().entries(), created_key).value_or(0)});
  }
  void ask_drive(const std::string& drive, attach_drive what,
                 const reply<attached_drive>& to) override {
    const auto here = [=, this] { ask_drive_here(drive, what, to); };
    auto* const routes = options().routes;
    if (routes == nullptr)
      return here();
    routes->locate(drive, false, [=, post = post()](const result<std::string>& node) {
      post([=] {
        if (!node)
          return to.fail(node.reason());
        if (node->empty())
          return here();
        // It comes here, unless another sandbox has it there.
        routes->bring(drive, [=](const result<void>& ours) {
          post([=] { ours ? here() : to.fail(ours.reason()); });
        });
      });
    });
  }
  void hibernate_if_idle() override {
    if (ends_ || now() != phase::asleep || operations() > 0)
      return;
    if (!is_settled()) {
      if (!std::exchange(settles_, true)) // One that waits is enough.
        when_settled([this] {
          settles_ = false;
          hibernate_if_idle();
        });
      return;
    }
    parts.lease_.give_back();
    if (hibernates_)
      post()([this] { // Later: something may have come meanwhile.
        if (now() == phase::asleep && may_hibernate())
          self_->quit();
      });
  }

  poster post() const override {
    return [me = self_->address()](std::function<void()> go) {
      const auto target = caf::actor_cast<sandbox_impl>(me);
      if (target)
        caf::anon_send(target, fact{std::move(go)});
      return target != nullptr;
    };
  }
  void after(std::chrono::nanoseconds delay, std::function<void()> go) override {
    self_->delayed_send(self_, delay, fact{std::move(go)});
  }
  std::shared_ptr<child_process> start_process(process_options options) override {
    return std::make_shared<process_child>(self_,
                                           spawn_process(self_->system(), std::move(options)));
  }
  process_actor start_log_reader(kept_log_options options) override {
    return spawn_kept_log(self_->system(), std::move(options));
  }
  std::shared_ptr<child_process> process_of(const process_actor& handle) override {
    return std::make_shared<process_child>(self_, caf::actor_cast<started_process_actor>(handle));
  }
  std::shared_ptr<child_session>
  start_session(session_options options,
                std::function<void(const child_session&)> on_gone) override {
    auto made = spawn_session(self_->system(), std::move(options));
    self_->monitor(made);
    const auto child = std::make_shared<session_child>(self_, made);
    when_down_.emplace(made.address(),
                       [which = std::weak_ptr<session_child>{child}, tell = std::move(on_gone)] {
                         if (const auto gone = which.lock())
                           tell(*gone);
                       });
    return child;
  }
  std::shared_ptr<child_terminal> start_terminal(terminal_options options) override {
    return std::make_shared<terminal_child>(self_,
                                            spawn_terminal(self_->system(), std::move(options)));
  }

  void write_input(write_command_input what, const reply<input_progress>& to) {
    auto memory = parts.commands_.take_memory(what.piece.bytes.size());
    if (!memory)
      return to.fail({errc::limit_reached, "too much waits to be read"});
    parts.command_records_.write_input(
      std::move(what),
      reply<input_progress>::function{
        [to, memory = std::move(memory)](const result<input_progress>& told) { to.give(told); }});
  }

  /// Runs a command: of a session or of none, and once if it has a key.
  void run(exec_request wanted, const reply<process_actor>& to) {
    auto memory = parts.commands_.take_memory(wanted);
    if (!memory)
      return to.fail({errc::limit_reached, "too much waits to be run"});
    const auto what =
      std::make_shared<waiting_command>(waiting_command{std::move(wanted), std::move(memory)});
    const auto run_now = [this](waiting_command now, const reply<process_actor>& told) {
      now.wanted.session.empty() ? parts.commands_.run(std::move(now), told)
                                 : parts.sessions_.run(std::move(now), told);
    };
    const auto go = [=, this] {
      when_running(to, what->wanted.context, [=, this] {
        if (what->wanted.idempotency.key.empty())
          run_now(std::move(*what), to);
        else
          parts.idempotency_.run(std::move(*what), run_now, to);
      });
    };
    what->wanted.only_if_there ? when_there(what->wanted.context, go, to.otherwise()) : go();
  }

private:
  template <class Question>
  void ask_directory(const reply<snapshot_description>& to, Question what) {
    if (const auto directory = options().objects->get())
      ask(self_, directory, to, std::move(what));
    else
      to.fail({errc::sandbox_not_running, "the node is going down"});
  }
  /// Once more, if its actor was just put away.
  void ask_drive_here(const std::string& drive, const attach_drive& what,
                      const reply<attached_drive>& to, bool again = false) {
    const auto directory = options().objects->get();
    if (!directory)
      return to.fail({errc::sandbox_not_running, "the node is going down"});
    self_->request(directory, caf::infinite, reach_atom::value, drive, what.context)
      .then(
        [=, this](const sandbox_actor& of) {
          self_->request(of, caf::infinite, what)
            .then([to](const attached_drive& is) { to.deliver(is); },
                  [=, this](const caf::error& why) {
                    if (again || !came_too_late(why))
                      return to.fail(from_caf(why));
                    ask_drive_here(drive, what, to, true);
                  });
        },
        [to](const caf::error& why) { to.fail(from_caf(why)); });
  }
  startup::claim_function claim_from(const node_pool_actor& pool) {
    if (!pool)
      return nullptr;
    return [this, pool](claim_slot what, const reply<claim_answer>& to) {
      ask(self_, pool, to, std::move(what));
    };
  }

  const sandbox_pointer self_;
  const bool hibernates_;
  bool ends_ = false;
  bool settles_ = false; ///< It is to hibernate once what it has written is settled.
  mutable stored_record record_, local_, run_clock_;
  std::map<caf::actor_addr, then_function> when_down_;

public:
  owed_answers answers_owed{has_ended};
  all_parts parts;
};

// ---- Its messages

/// The handler of one message: a function of a part, which owes the answer.
template <class Part, class Message, class... Ts>
auto serve(sandbox_pointer self, Part& by,
           void (Part::*function)(const Message&, const reply<Ts...>&)) {
  return [self, &by, function](const Message& asked) -> caf::result<Ts...> {
    auto promise = self->make_response_promise<Ts...>();
    (by.*function)(asked, promise);
    return promise;
  };
}

/// The same where the function asks others meanwhile, who may answer when the sandbox has gone.
template <class Part, class Message, class T>
auto serve_owed(sandbox_pointer self, Part& by,
                void (Part::*function)(const Message&, const reply<T>&)) {
  return [self, &by, function](const Message& asked) -> caf::result<T> {
    auto promise = self->make_response_promise<T>();
    const auto owed = self->state.it->answers_owed.owe(promise);
    (by.*function)(asked, typename reply<T>::function{[owed](result<T> told) {
                     if (told)
                       owed.deliver(std::move(*told));
                     else
                       owed.deliver(to_caf(told.reason()));
                   }});
    return promise;
  };
}

/// The same once the sandbox runs.
template <class Part, class Message, class... Ts>
auto serve_running(sandbox_pointer self, Part& by,
                   void (Part::*function)(const Message&, const reply<Ts...>&)) {
  return [self, &by, function](const Message& asked) -> caf::result<Ts...> {
    const reply<Ts...> to{self->make_response_promise<Ts...>()};
    self->state.it->when_running(to, asked.context, [=, &by] { (by.*function)(asked, to); });
    return *to.sender();
  };
}

/// The same for what is asked for by an atom.
template <class Atom, class Part>
auto serve_atom(sandbox_pointer self, Part& by,
                void (Part::*function)(const reply<caf::ok_atom>&)) {
  return [self, &by, function](Atom) -> caf::result<caf::ok_atom> {
    auto promise = self->make_response_promise<caf::ok_atom>();
    (by.*function)(promise);
    return promise;
  };
}

sandbox_impl::behavior_type sandbox(sandbox_pointer self, const sandbox_id& id,
                                    std::shared_ptr<const sandbox_options> options,
                                    bool hibernates) {
  self->count_mailbox(options->figures->sandboxes);
  self->state.it = std::make_shared<object>(self, id, std::move(options), hibernates);
  auto& it = *self->state.it;
  auto& p = it.parts;
  return {
    // Commands
    [self, &it](exec_request& request) -> caf::result<process_actor> {
      auto promise = self->make_response_promise<process_actor>();
      it.run(std::move(request), promise);
      return promise;
    },
    serve_running(self, p.idempotency_, &idempotency::find_process),
    serve(self, p.command_records_, &command_records::find),
    serve(self, p.command_records_, &command_records::list),
    serve(self, p.command_records_, &command_records::interrupt),
    [self, &it](write_command_input& what) -> caf::result<input_progress> {
      auto promise = self->make_response_promise<input_progress>();
      it.write_input(std::move(what), promise);
      return promise;
    },
    [self, &it](const probe_request& asked) -> caf::result<bool> {
      const reply<bool> to{self->make_response_promise<bool>()};
      it.when_running({[=, &it] { it.parts.commands_.probe(asked.context, to); },
                       [to](const error&) { to.deliver(false); }, asked.context});
      return *to.sender();
    },
    // Sessions and terminals
    serve_running(self, p.sessions_, &sessions::create),
    serve(self, p.sessions_, &sessions::remove),
    serve(self, p.terminals_, &terminals::open),
    serve(self, p.terminals_, &terminals::define),
    serve(self, p.terminals_, &terminals::find),
    serve(self, p.terminals_, &terminals::forget),
    // Files and buckets
    serve(self, p.files_, &files::read),
    serve(self, p.files_, &files::write),
    serve(self, p.files_, &files::read_tree),
    serve(self, p.files_, &files::write_tree),
    serve(self, p.files_, &files::run_task),
    serve_running(self, p.idempotency_, &idempotency::write_once),
    serve(self, p.persistence_, &persistence::mark),
    serve(self, p.mounts_, &mounts::mount),
    serve(self, p.mounts_, &mounts::unmount),
    serve(self, p.mounts_, &mounts::list),
    // Network
    serve(self, p.egress_, &egress::get_network),
    serve(self, p.egress_, &egress::set_network),
    serve(self, p.egress_, &egress::change_network),
    serve(self, p.egress_, &egress::open_sockets),
    serve(self, p.egress_, &egress::list_ports),
    // Runs
    serve_owed(self, p.runs_, &runs::begin),
    serve_owed(self, p.runs_, &runs::find),
    serve_owed(self, p.runs_, &runs::stop),
    serve_owed(self, p.runs_, &runs::extend),
    // Its disk
    serve_owed(self, p.disk_, &disk_snapshots::take),
    serve_owed(self, p.disk_, &disk_snapshots::roll_back_to),
    serve_owed(self, p.drive_, &drive::attach),
    // The sandbox as a whole
    [&it](status_atom) { return it.status(); },
    serve_owed(self, p.description_, &description::define),
    serve_owed(self, p.description_, &description::redefine),
    serve(self, p.description_, &description::copy),
    serve(self, p.pause_, &pause::set),
    [self, &it](find_atom, const request_context& context) -> caf::result<caf::ok_atom> {
      const reply<caf::ok_atom> to{self->make_response_promise<caf::ok_atom>()};
      it.when_running(to, context, [to] { to.deliver(caf::ok_atom::value); });
      return *to.sender();
    },
    [self, &p](delete_atom, request_context& context) -> caf::result<caf::ok_atom> {
      auto promise = self->make_response_promise<caf::ok_atom>();
      p.teardown_.remove(std::move(context), promise);
      return promise;
    },
    // From its node
    serve(self, p.teardown_, &teardown::attend),
    [&p](adopt_atom) { p.startup_.adopt(); },
    serve_atom<evict_atom>(self, p.teardown_, &teardown::evict),
    serve_atom<hand_over_atom>(self, p.teardown_, &teardown::hand_over),
    serve_atom<keep_files_atom>(self, p.persistence_, &persistence::keep),
    serve_atom<keep_used_files_atom>(self, p.persistence_, &persistence::keep_if_used),
    // From other threads, and from itself
    [](const fact& what) { what.happened(); },
  };
}

} // namespace

} // namespace inside_sandbox

sandbox_object_actor spawn_sandbox(caf::actor_system& system, sandbox_id id,
                                   std::shared_ptr<const sandbox_options> options,
                                   bool hibernates) {
  return system.spawn(inside_sandbox::sandbox, std::move(id), std::move(options), hibernates);
}

} // namespace insula::actors
