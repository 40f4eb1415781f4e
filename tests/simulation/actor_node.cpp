#include "tests/simulation/actor_node.hpp"

#include "tests/simulation/actor_server.hpp"

#include <algorithm>

namespace insula::simulation {

using namespace actors;
using namespace storage;

namespace {

constexpr auto own_patience = 2s;
/// More is done at one moment by nobody.
constexpr int most_steps = 1'000'000;

std::string text_in(const sandbox_description& of) {
  const auto at = of.metadata.find("sim");
  return at == of.metadata.end() ? std::string{} : at->second;
}

} // namespace

actor_node::actor_node(history& in, std::string n)
    : node(in, std::move(n))
    , wall_ahead_(in.time.between(0s, clocks_differ))
    , engine_(in.time, told().snapshots)
    , files_(in.time, told().place) {}

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

void actor_node::joined_again() {
  if (server_)
    server_->sweep_snapshots(); // What it had may have gone on elsewhere meanwhile.
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
  if (!serves())
    return;
  if (all_.time.chance(uses_of_snapshots))
    use_snapshots(id);
  else
    route(id, [id](actor_node& at) { at.act(id); });
}

void actor_node::create(const std::string& id) {
  if (serves())
    route(id, [id](actor_node& at) { at.make(id); });
}

/// To the node that has it; or else to one that is chosen, and asked to.
void actor_node::route(const std::string& id, const deed& what) {
  if (store->is_mine(id))
    return what(*this);
  if (const auto known = owners->find(id); known && all_.time.chance(0.8))
    return forward(known->value, what);
  const auto& chosen = all_.all[all_.time.below(all_.all.size())]->name;
  const auto then = [this, id, what, of = life_](result<std::string> who) {
    if (of == life_ && serves() && who)
      forward(*who, what);
  };
  if (chosen == name)
    answer_peer("own", id, then);
  else
    server_->ask_peer(chosen, "own", id, own_patience, then);
}

void actor_node::forward(const std::string& to, const deed& what) {
  for (const auto& each : all_.all) {
    if (each->name != to)
      continue;
    auto& there = static_cast<actor_node&>(*each);
    if (&there == this)
      return what(*this);
    return all_.time.after(told().links.delay(), [this, &there, what] {
      if (!told().links.passes(name, there.name) || !there.runs())
        return;
      there.client->post([&there, what] {
        if (there.serves())
          what(there);
      });
      all_.count("requests forwarded");
    });
  }
}

void actor_node::answer_peer(const std::string& what, std::string text,
                             std::function<void(result<std::string>)> reply) {
  if (!runs())
    return reply(error{errc::node_unreachable, "the server ends"});
  if (what == "snapshot")
    return answer_for_snapshot(text, reply);
  if (what == "release")
    return let_go(text, reply);
  demand(what == "own", "a peer asks " + what);
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
