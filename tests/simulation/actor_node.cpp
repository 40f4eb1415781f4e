#include "tests/simulation/actor_node.hpp"

#include "actors/alarms.hpp"
#include "actors/directory.hpp"
#include "actors/sandbox/sandbox.hpp"
#include "storage/etcd/gateway_json.hpp"
#include "tests/simulation/actor_history.hpp"

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <algorithm>
#include <any>

namespace insula::simulation {

/// From etcd's client: what became of a question of the store's.
struct settled {
  std::function<void()> answer;
};

} // namespace insula::simulation

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::simulation::settled)

namespace insula::simulation {

using namespace actors;
using namespace storage;

namespace {

constexpr auto own_patience = 2s;
std::string text_in(const sandbox_description& of) {
  const auto at = of.metadata.find("sim");
  return at == of.metadata.end() ? std::string{} : at->second;
}

const error no_lists{errc::internal, "no list is asked for here"};
/// More is done at one moment by nobody.
constexpr int most_steps = 1'000'000;

/// The wall clocks of machines differ, and each of its starts has a steady clock of its own.
class node_clock final : public clock {
public:
  node_clock(const wired_client& steady, world& time, nanoseconds wall_ahead, std::string boot)
      : steady_(steady)
      , world_(time)
      , wall_ahead_(wall_ahead)
      , boot_(std::move(boot)) {}
  std::chrono::steady_clock::time_point now() const override {
    return std::chrono::steady_clock::time_point{std::chrono::hours{1000} + steady_.now()};
  }
  std::int64_t unix_ms() const override { return actor_node::wall_ms(world_.now() + wall_ahead_); }
  std::string boot() const override { return boot_; }

private:
  const wired_client& steady_;
  world& world_;
  const nanoseconds wall_ahead_;
  const std::string boot_;
};

/// The store's, which are watched.
class watched_leases final : public lease_service {
public:
  watched_leases(lease_service& of, history& in, std::string by)
      : of_(of)
      , all_(in)
      , by_(std::move(by)) {}
  void acquire(std::string owner, std::function<void(result<epoch>)> on_held) override {
    of_.acquire(owner, [this, owner, on_held = std::move(on_held)](result<epoch> got) {
      if (got)
        all_.held(owner, *got, by_);
      on_held(std::move(got));
    });
  }
  void release(const std::string& owner, epoch held) override { of_.release(owner, held); }

private:
  lease_service& of_;
  history& all_;
  const std::string by_;
};

/// What is asked, until it is answered, or its asker ends.
class open_question {
public:
  open_question(actor_history& in, std::function<void()> dropped)
      : all_(in)
      , dropped_(std::move(dropped)) {
    all_.asked();
  }
  open_question(const open_question&) = delete;
  ~open_question() {
    if (over())
      dropped_();
  }
  /// False: it is so already.
  bool over() {
    if (std::exchange(over_, true))
      return false;
    all_.answered();
    return true;
  }

private:
  actor_history& all_;
  const std::function<void()> dropped_;
  bool over_ = false;
};

struct testing_scheduler : caf::actor_system_config {
  testing_scheduler() { set("scheduler.policy", caf::atom("testing")); }
};

} // namespace

// ---- The server

struct actor_node::server {
  server(actor_node& of)
      : self(of)
      , system(settings)
      , time(*of.client, of.all_.time, of.wall_ahead_, of.name)
      , leases(*of.store, of.all_, of.name)
      , seen(of.client->now()) {
    keepers keep{spawn_cluster_store(), spawn_local_store(), {}, &time};
    alarms = spawn_alarms(
      system, {keep.cluster, keep.node, &time, std::make_shared<actors::figures>(), ours()});
    ended.push_back(caf::actor_cast<caf::actor>(alarms));
    keep.alarms = alarms;
    auto options = std::make_shared<sandbox_options>();
    options->engine = &of.engine_;
    options->leases = &leases;
    options->time = &time;
    options->keep = std::make_shared<const keepers>(std::move(keep));
    options->instances = std::make_shared<instance_count>(100);
    options->images->put("host", {{"host", true}, {}, "/bin/bash"});
    options->ours = ours();
    options->groups = everybodys_group;
    options->ladder.stop_after = 3s;
    directory = spawn_directory(system, std::move(options));
    ended.push_back(caf::actor_cast<caf::actor>(directory));
    for (auto& name : of.engine_.survivors())
      caf::anon_send(directory, adopt_atom::value, std::move(name));
    caf::anon_send(alarms, wake_by_atom::value, caf::actor_cast<caf::actor>(directory));
    for (const auto& each : of.all_.all)
      if (each->name != of.name)
        add_peer(each->name);
  }

  std::function<bool(const std::string&)> ours() {
    return [this](const std::string& id) { return self.store && self.store->is_mine(id); };
  }

  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  }

  /// The store as actors/store.hpp has it, without a thread that waits.
  store_actor spawn_cluster_store() {
    using impl = store_actor::extend<caf::reacts_to<settled>>;
    const auto made = system.spawn([this](impl::pointer me) -> impl::behavior_type {
      // What comes when the server has gone is answered to nobody.
      const auto later = [this, there = std::weak_ptr{is_there}](std::function<void()> what) {
        if (!there.expired() && store_address)
          caf::anon_send(store_address, settled{std::move(what)});
      };
      return {
        [this, me, later](write_batch& batch, const request_context&) -> caf::result<caf::ok_atom> {
          auto reply = me->make_response_promise<caf::ok_atom>();
          const auto number = keep_promise(reply);
          self.store->commit(std::move(batch), [this, later, number](result<void> done) {
            later([this, number, done] {
              auto to = take_promise<caf::ok_atom>(number);
              done ? to.deliver(caf::ok_atom::value) : to.deliver(to_caf(done.reason()));
            });
          });
          return reply;
        },
        [this, me, later](read_owner_atom, const std::string& owner, const std::string& prefix,
                          const request_context&) -> caf::result<std::vector<entry>> {
          auto reply = me->make_response_promise<std::vector<entry>>();
          const auto number = keep_promise(reply);
          const auto begin = "s/data/" + owner + "/";
          self.client->transact(
            {{}, {etcd::operation::read(begin + prefix, etcd::end_of_prefix(begin + prefix))}, {}},
            patience, [this, later, number, begin](result<etcd::outcome> got) {
              later([this, number, begin, got] {
                auto to = take_promise<std::vector<entry>>(number);
                if (!got)
                  return static_cast<void>(to.deliver(to_caf(got.reason())));
                std::vector<entry> found;
                for (const auto& each : got->found[0])
                  found.push_back({each.key.substr(begin.size()), each.value});
                to.deliver(std::move(found));
              });
            });
          return reply;
        },
        [this, me, later](find_keys_atom,
                          const std::string&) -> caf::result<std::vector<owned_entry>> {
          auto reply = me->make_response_promise<std::vector<owned_entry>>();
          const auto number = keep_promise(reply);
          self.find_alarms(
            [this, later, number](std::vector<owned_entry> found) {
              later([this, number, found = std::move(found)] {
                take_promise<std::vector<owned_entry>>(number).deliver(found);
              });
            },
            [this, later, number] {
              later([this, number] {
                take_promise<std::vector<owned_entry>>(number).deliver(
                  to_caf({errc::node_unreachable, "etcd does not answer"}));
              });
            });
          return reply;
        },
        [](const scan_marks&) -> caf::result<mark_page> { return to_caf(no_lists); },
        [](const read_entries&) -> caf::result<mark_page> { return to_caf(no_lists); },
        [](count_marks_atom, const std::string&) -> caf::result<std::uint64_t> {
          return to_caf(no_lists);
        },
        [](const settled& what) { what.answer(); },
      };
    });
    store_address = caf::actor_cast<caf::actor>(made);
    ended.push_back(store_address);
    return made;
  }

  store_actor spawn_local_store() {
    auto made = system.spawn([this](store_actor::pointer me) -> store_actor::behavior_type {
      return {
        [this, me](write_batch& batch, const request_context&) -> caf::result<caf::ok_atom> {
          auto reply = me->make_response_promise<caf::ok_atom>();
          self.local_.commit(std::move(batch), [reply](result<void> done) mutable {
            done ? reply.deliver(caf::ok_atom::value) : reply.deliver(to_caf(done.reason()));
          });
          return reply;
        },
        [this](read_owner_atom, const std::string& owner, const std::string& prefix,
               const request_context&) -> caf::result<std::vector<entry>> {
          return std::move(*self.local_.read(owner, prefix));
        },
        [this](find_keys_atom, const std::string& prefix) -> caf::result<std::vector<owned_entry>> {
          return std::move(*self.local_.find(prefix));
        },
        [](const scan_marks&) -> caf::result<mark_page> { return to_caf(no_lists); },
        [](const read_entries&) -> caf::result<mark_page> { return to_caf(no_lists); },
        [](count_marks_atom, const std::string&) -> caf::result<std::uint64_t> {
          return to_caf(no_lists);
        },
      };
    });
    ended.push_back(caf::actor_cast<caf::actor>(made));
    return made;
  }

  // What the store has promised stays here, so that nothing that outlives the server has it. As
  // the real one it answers everything: who loads hears nothing else before.
  template <class T>
  std::uint64_t keep_promise(const caf::typed_response_promise<T>& reply) {
    promises.emplace(++last_promise, promise{reply, [to = reply]() mutable {
                                               to.deliver(to_caf({errc::io_failed, "it closes"}));
                                             }});
    return last_promise;
  }
  template <class T>
  caf::typed_response_promise<T> take_promise(std::uint64_t number) {
    return std::any_cast<caf::typed_response_promise<T>>(promises.extract(number).mapped().to);
  }

  // ---- Peers

  void add_peer(const std::string& name) {
    auto& links = self.told().links;
    const auto proxy = system.spawn([&links, from = self.name, name](caf::event_based_actor*) {
      return caf::behavior{[&links, from, name](cluster::wire_word word, std::uint64_t number,
                                                std::uint8_t code, std::string& what,
                                                std::string& text) {
        links.say(from, name,
                  caf::make_message(word, number, code, std::move(what), std::move(text)));
      }};
    });
    const auto answers = [this](const std::string&, const std::string& what, std::string text,
                                std::function<void(result<std::string>)> reply) {
      self.answer_peer(what, std::move(text), std::move(reply));
    };
    const auto peer = cluster::spawn_peer(
      system,
      {name, static_cast<std::uint16_t>(peers.size() + 1), proxy,
       std::make_shared<cluster::linked_names>(), answers,
       [this](const std::string&, bool up) { self.all_.count(up ? "links up" : "links down"); }});
    peers[name] = peer;
    ended.push_back(proxy);
    ended.push_back(peer);
    links.add(self.name, name, {&self, peer, proxy});
  }

  void ask_peer(const std::string& name, const std::string& id,
                std::function<void(result<std::string>)> then) {
    auto asked = std::make_shared<cluster::call>();
    asked->what = "own";
    asked->text = id;
    asked->patience = own_patience;
    const auto open = std::make_shared<open_question>(self.told(), [] {});
    asked->then = [this, open, there = std::weak_ptr{is_there},
                   then = std::move(then)](result<std::string> who) {
      demand(open->over(), "a question to a peer was answered twice");
      if (there.expired())
        return;
      self.all_.count(who ? "questions to peers answered" : "questions to peers that failed");
      then(std::move(who));
    };
    caf::anon_send(peers.at(name), cluster::call_pointer{asked});
  }

  // ---- Requests

  /// Asks `whom`, and is told; not if the server ends meanwhile. `dropped` is called then.
  template <class T, class Handle, class... Words>
  void ask(const Handle& whom, std::function<void(T&)> then,
           std::function<void(const error&)> otherwise, Words... words) {
    if (ending)
      return otherwise({errc::node_unreachable, "the server ends"});
    const auto open = std::make_shared<open_question>(self.told(), [otherwise] {
      otherwise({errc::node_unreachable, "the server has ended"});
    });
    askers.push_back(system.spawn([=](caf::event_based_actor* me) mutable {
      me->request(whom, caf::infinite, std::move(words)...)
        .then(
          [open, then](T& value) {
            if (open->over())
              then(value);
          },
          [open, otherwise](const caf::error& why) {
            if (open->over())
              otherwise(from_caf(why));
          });
    }));
  }

  void end() {
    ending = true;
    self.told().links.drop(self.name, self.all_.time.chance(0.8));
    caf::anon_send(store_address, settled{[this] {
                     for (auto& [number, each] : std::exchange(promises, {}))
                       each.give_up();
                   }});
    for (const auto& [name, peer] : peers)
      caf::anon_send(peer, cluster::end_peer_atom::value);
    for (const auto& each : std::exchange(ended, {}))
      caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
    for (const auto& each : std::exchange(askers, {}))
      caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
    peers.clear();
    directory = node_directory_actor{};
    alarms = alarms_actor{};
    store_address = caf::actor{};
    scheduler().run();
  }

  actor_node& self;
  testing_scheduler settings;
  caf::actor_system system;
  node_clock time;
  watched_leases leases;
  nanoseconds seen; ///< By this node's clock, when it last ran.
  nanoseconds wakes{0};
  bool ending = false;
  std::shared_ptr<int> is_there = std::make_shared<int>(0);
  struct promise {
    std::any to;
    std::function<void()> give_up;
  };
  std::map<std::uint64_t, promise> promises;
  std::uint64_t last_promise = 0;
  node_directory_actor directory;
  alarms_actor alarms;
  caf::actor store_address;
  std::map<std::string, caf::actor> peers;
  std::vector<caf::actor> ended, askers;
};

actor_node::actor_node(history& in, std::string n)
    : node(in, std::move(n))
    , wall_ahead_(in.time.between(0s, clocks_differ))
    , engine_(in.time) {}

actor_node::~actor_node() {
  end(false);
}

actor_history& actor_node::told() const {
  return static_cast<actor_history&>(all_);
}

void actor_node::begin() {
  engine_.next_server();
  server_ = std::make_unique<server>(*this);
}

void actor_node::evict(std::function<void()> gone) {
  if (all_.mistake)
    return gone();
  if (!server_) { // Nobody has adopted anything.
    end_sandboxes();
    return gone();
  }
  caf::anon_send(server_->alarms, reread_atom::value);
  const auto over = [gone, of = life_, this] {
    if (of == life_)
      gone();
  };
  server_->ask<caf::ok_atom>(
    server_->directory, [over](caf::ok_atom&) { over(); }, [over](const error&) { over(); },
    evict_atom::value);
}

void actor_node::cease() {
  if (server_)
    server_->end();
}

void actor_node::forget() {
  server_.reset();
}

void actor_node::found_alarms() {
  if (server_)
    caf::anon_send(server_->alarms, reread_atom::value);
}

void actor_node::settle() {
  if (serves())
    run();
}

/// What has been asked for, and what is due by now; in any order but that of one actor's messages.
void actor_node::run() {
  auto& mine = *server_;
  auto& scheduler = mine.scheduler();
  const auto now = client->now();
  if (const auto passed = now - std::exchange(mine.seen, now); passed > 0ns)
    scheduler.advance_time(passed);
  for (int steps = 0; scheduler.has_job(); ++steps) {
    demand(steps < most_steps, "actors of a node never rest");
    auto& jobs = scheduler.jobs;
    if (jobs.size() > 1)
      std::rotate(jobs.begin(),
                  jobs.begin() + static_cast<std::ptrdiff_t>(all_.time.below(jobs.size())),
                  jobs.end());
    scheduler.run_once();
  }
  const auto& due = scheduler.clock().schedule();
  if (due.empty())
    return;
  const auto left = std::max<nanoseconds>(due.begin()->first - scheduler.clock().now(), 1us);
  if (mine.wakes > now && mine.wakes <= now + left)
    return;
  mine.wakes = now + left;
  all_.time.after(left, [] {}); // What follows is this.
}

// ---- Requests

void actor_node::use(const std::string& id) {
  if (serves())
    route(id, &actor_node::act);
}

void actor_node::create(const std::string& id) {
  if (serves())
    route(id, &actor_node::make);
}

/// To the node that has it; or else to one that is chosen, and asked to.
void actor_node::route(const std::string& id, deed what) {
  if (store->is_mine(id))
    return (this->*what)(id);
  if (const auto known = owners->find(id); known && all_.time.chance(0.8))
    return forward(known->value, id, what);
  const auto& chosen = all_.all[all_.time.below(all_.all.size())]->name;
  const auto then = [this, id, what, of = life_](result<std::string> who) {
    if (of == life_ && serves() && who)
      forward(*who, id, what);
  };
  if (chosen == name)
    answer_peer("own", id, then);
  else
    server_->ask_peer(chosen, id, then);
}

void actor_node::forward(const std::string& to, const std::string& id, deed what) {
  for (const auto& each : all_.all) {
    if (each->name != to)
      continue;
    auto& there = static_cast<actor_node&>(*each);
    if (&there == this)
      return (this->*what)(id);
    return all_.time.after(told().links.delay(), [this, &there, id, what] {
      if (!told().links.passes(name, there.name) || !there.runs())
        return;
      there.client->post([&there, id, what] {
        if (there.serves())
          (there.*what)(id);
      });
      all_.count("requests forwarded");
    });
  }
}

void actor_node::answer_peer(const std::string& what, std::string text,
                             std::function<void(result<std::string>)> reply) {
  if (what != "own" || !runs())
    return reply(error{errc::invalid_request, "no such question"});
  const auto id = text;
  store->own(std::move(text),
             [this, id, reply = std::move(reply)](const result<etcd::cluster_store::owning>& who) {
               all_.check(id);
               reply(who ? result<std::string>{who->node} : result<std::string>{who.reason()});
             });
}

void actor_node::act(const std::string& id) {
  switch (all_.time.below(12)) {
    case 0: return hand_over(id);
    case 1: return remove(id);
    case 2:
    case 3: return start(id);
    default: return write(id);
  }
}

void actor_node::start(const std::string& id) {
  server_->ask<sandbox_actor>(
    server_->directory,
    [this, id](sandbox_actor&) {
      all_.count("sandboxes started or found");
      all_.check(id);
    },
    [](const error&) {}, find_atom::value, id, request_context{});
}

void actor_node::remove(const std::string& id) {
  const auto number = told().begun(id, true);
  server_->ask<caf::ok_atom>(
    server_->directory, [this, id, number](caf::ok_atom&) { told().done(id, number); },
    [this, id, number](const error&) { told().failed(id, number); }, delete_atom::value, id,
    request_context{});
}

void actor_node::hand_over(const std::string& id) {
  if (!store->is_mine(id))
    return;
  server_->ask<caf::ok_atom>(
    server_->directory,
    [this, id](caf::ok_atom&) {
      all_.count("ids handed over");
      store->give_up(id, [](const auto&) {});
    },
    [](const error&) {}, hand_over_atom::value, id);
}

/// One that is not there yet is made, with the same words.
void actor_node::write(const std::string& id) {
  const auto number = told().begun(id, false);
  const auto text = told().text_of(number);
  const auto failed = [this, id, number](const error&) { told().failed(id, number); };
  std::optional<std::int64_t> expires;
  if (all_.time.chance(0.2))
    expires = wall_ms(all_.time.now() + wall_ahead_ + all_.time.between(1s, 10s));
  server_->ask<sandbox_actor>(
    server_->directory,
    [=, this](sandbox_actor& it) {
      redefine_sandbox change;
      change.metadata = {"sim", text};
      change.expires_ms = expires;
      server_->ask<sandbox_description>(
        it,
        [=, this](sandbox_description& now) {
          if (now.exists)
            return told().done(id, number);
          server_->ask<sandbox_description>(
            it, [=, this](sandbox_description&) { told().done(id, number); }, failed,
            define_sandbox{{{"sim", text}}, {}, {}, expires});
        },
        failed, change);
    },
    failed, reach_atom::value, id, request_context{});
}

/// By its actor, which is made if need be.
template <class Question>
void actor_node::describe(const std::string& id, Question what,
                          std::function<void(sandbox_description&)> then,
                          std::function<void(const error&)> otherwise) {
  server_->ask<sandbox_actor>(
    server_->directory,
    [=, this](sandbox_actor& it) { server_->ask<sandbox_description>(it, then, otherwise, what); },
    otherwise, reach_atom::value, id, request_context{});
}

void actor_node::make(const std::string& id) {
  const auto number = told().begun(id, false);
  describe(
    id, define_sandbox{{{"sim", told().text_of(number)}}, {}},
    [this, id, number](sandbox_description& now) {
      told().done(id, number);
      all_.made(id, text_in(now));
    },
    [this, id, number](const error& why) {
      told().failed(id, number);
      if (why.code == errc::already_exists)
        look_at(id, 5);
    });
}

/// What has just ended is there again for whoever asks once more.
void actor_node::look_at(const std::string& id, int tries) {
  describe(
    id, redefine_sandbox{},
    [this, id](sandbox_description& now) {
      if (now.exists)
        all_.made(id, text_in(now));
    },
    [this, id, tries](const error& why) {
      if (why.code == errc::sandbox_not_running && tries > 1)
        look_at(id, tries - 1);
    });
}

} // namespace insula::simulation
