#include "actors/snapshots/snapshot_record.hpp"
#include "base/limits.hpp"
#include "tests/simulation/actor_server.hpp"

#include <memory>

/// What clients do with snapshots, at a node.
namespace insula::simulation {

using namespace actors;
using storage::etcd::cluster_store;

namespace {

constexpr int tries_of_clients = 4;
const std::string snapshot_owners = std::string{snapshots::kind} + ':';

} // namespace

void actor_node::use_snapshots(const std::string& id) {
  auto& book = told().snapshots;
  const auto known = book.any();
  const auto box = book.any_box();
  const auto take_of = [this, &book](const std::string& source) {
    const auto as = book.asks(source, false);
    route(source, [source, as](actor_node& at) { at.take(source, as, tries_of_clients); });
  };
  constexpr double uses_of_desks = 0.7;
  constexpr std::uint64_t new_ones = 12; // Of so many uses one is of a new desk.
  if (all_.has_runs && all_.time.chance(uses_of_desks)) {
    const auto desk = all_.time.below(new_ones) == 0 ? std::nullopt : book.any_desk();
    return use_desk(desk ? *desk : book.new_desk());
  }
  switch (all_.time.below(20)) {
    case 0:
    case 1: return route(id, [id](actor_node& at) { at.fork(id); });
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
      if (known)
        begin_one(*known, all_.time.chance(0.3), tries_of_clients, [] {});
      return;
    case 7:
    case 8: return known ? delete_snapshot(*known) : void();
    case 9: return hand_over_a_snapshot();
    case 10:
    case 11: return box ? use_box(*box, [](bool) {}) : void();
    case 12: return box ? delete_box(*box) : void();
    case 13:
    case 14: return box ? take_of(*box) : void();
    default: return take_of(id);
  }
}

// ---- What peers ask

void actor_node::answer_for_snapshot(const std::string& question,
                                     const std::function<void(result<std::string>)>& reply) {
  if (!serves())
    return reply(error{errc::node_unreachable, "nobody serves here"});
  server_->ask<std::string>(
    server_->directory, [reply](std::string& answer) { reply(std::move(answer)); },
    [reply](const error& why) { reply(why); }, peer_question{question});
}

void actor_node::let_go(const std::string& owner,
                        const std::function<void(result<std::string>)>& reply) {
  if (!serves())
    return reply(error{errc::node_unreachable, "nobody serves here"});
  server_->ask<caf::ok_atom>(
    server_->directory, [=, this](caf::ok_atom&) { server_->routes.give_up(owner, reply); },
    [reply](const error& why) { reply(why); }, evict_atom::value, owner);
}

// ---- Snapshots

void actor_node::write_disk(const std::string& id) {
  if (has_running(id) && all_.time.chance(0.8))
    engine_.write(id, told().snapshots.new_text());
}

void actor_node::take(const std::string& of, const std::string& as, int tries) {
  const auto failed = [=, this](const error&) { take_again(of, as, tries - 1); };
  server_->ask<sandbox_actor>(
    server_->directory,
    [=, this](sandbox_actor& it) {
      write_disk(of);
      take_snapshot wanted;
      wanted.id = as;
      server_->ask<snapshot_description>(
        it, [=, this](snapshot_description& is) { told().snapshots.taken(as, is); }, failed,
        wanted);
    },
    failed, find_atom::value, of, request_context{});
}

/// The same request once more, wherever the client gets to. Bytes that its first attempt has left
/// at a node have that name as well: at another node it is made only if the history is of that.
void actor_node::take_again(const std::string& of, const std::string& as, int tries) {
  if (tries == 0)
    return;
  all_.time.after(all_.time.between(500ms, 5s), [=, this] {
    auto& there = static_cast<actor_node&>(*all_.all[all_.time.below(all_.all.size())]);
    if (there.serves())
      there.route(of, [=, this](actor_node& at) {
        if (&at == this || all_.repeats_anywhere)
          at.take(of, as, tries);
      });
  });
}

void actor_node::delete_snapshot(const std::string& id) {
  if (!serves())
    return;
  told().snapshots.asks_to_delete(id);
  server_->ask<snapshot_description>(
    server_->directory, [this, id](snapshot_description&) { told().snapshots.deleted(id); },
    [](const error&) {}, insula::delete_snapshot{id});
}

void actor_node::hand_over_a_snapshot() {
  std::vector<std::string> mine;
  for (const auto& [owner, since] : store->mine())
    if (owner.starts_with(snapshot_owners))
      mine.push_back(owner);
  if (mine.empty())
    return;
  const auto owner = mine[all_.time.below(mine.size())];
  server_->ask<caf::ok_atom>(
    server_->directory,
    [this, owner](caf::ok_atom&) {
      all_.count("snapshots handed over");
      store->give_up(owner, [](const auto&) {});
    },
    [](const error&) {}, hand_over_atom::value, owner);
}

// ---- Forks

void actor_node::fork(const std::string& id) {
  const auto as = told().snapshots.asks(id, true);
  const auto failed = [](const error&) {};
  server_->ask<sandbox_actor>(
    server_->directory,
    [=, this](sandbox_actor& it) {
      write_disk(id);
      take_snapshot wanted;
      wanted.id = as;
      wanted.hidden = true;
      wanted.keep_ms = limits::fork_snapshot_kept.count();
      server_->ask<snapshot_description>(
        it,
        [=, this](snapshot_description& is) {
          told().snapshots.taken(as, is);
          make_siblings(as);
        },
        failed, wanted);
    },
    failed, find_atom::value, id, request_context{});
}

/// Then nobody begins with it any more.
void actor_node::make_siblings(const std::string& snapshot) {
  const auto left = std::make_shared<std::uint64_t>(1 + all_.time.below(3));
  for (auto i = *left; i > 0; --i) {
    auto& at = all_.time.chance(0.7) ? *this : *all_.all[all_.time.below(all_.all.size())];
    static_cast<actor_node&>(at).begin_one(snapshot, all_.time.chance(0.5), tries_of_clients,
                                           [this, snapshot, left] {
                                             if (--*left == 0)
                                               delete_snapshot(snapshot);
                                           });
  }
}

// ---- Boxes

/// `then`: it runs, or comes to nothing. `stays`: as long as nobody deletes it.
void actor_node::begin_one(const std::string& snapshot, bool stays, int tries,
                           const std::function<void()>& then) {
  try_to_begin(told().snapshots.asks_for_box(snapshot), stays, tries, then);
}

void actor_node::try_to_begin(const std::string& box, bool stays, int tries,
                              const std::function<void()>& then) {
  begin_box(box, [=, this](bool runs) {
    if (!runs && tries > 1)
      return all_.time.after(all_.time.between(1s, 4s),
                             [=, this] { try_to_begin(box, stays, tries - 1, then); });
    then();
    if (!runs || !stays)
      all_.time.after(all_.time.between(200ms, 5s), [this, box] { delete_box(box); });
  });
}

void actor_node::begin_box(const std::string& box, std::function<void(bool)> then) {
  if (!serves())
    return then(false);
  store->own(box, [=, this, of = life_](const result<cluster_store::owning>& who) {
    if (of != life_ || !serves() || !who || who->node != name)
      return then(false);
    auto& book = told().snapshots;
    define_sandbox wanted;
    wanted.snapshot = book.snapshot_of(box);
    describe(
      box, wanted,
      [=, this, asked = book.now()](sandbox_description&) {
        told().snapshots.made_box(box, asked);
        start_box(box, then);
      },
      [=, this](const error& why) {
        if (why.code == errc::already_exists)
          return start_box(box, then);
        if (why.code == errc::not_found)
          told().snapshots.not_found(told().snapshots.snapshot_of(box));
        then(false);
      });
  });
}

void actor_node::use_box(const std::string& box, std::function<void(bool)> then) {
  if (serves())
    route(box, [box, then = std::move(then)](actor_node& at) { at.start_box(box, then); });
}

void actor_node::start_box(const std::string& box, std::function<void(bool)> then) {
  server_->ask<sandbox_actor>(
    server_->directory,
    [this, box, then](sandbox_actor&) {
      all_.check(box);
      then(true);
    },
    [then](const error&) { then(false); }, find_atom::value, box, request_context{});
}

void actor_node::delete_box(const std::string& box) {
  if (!serves())
    return;
  told().snapshots.asks_to_delete_box(box);
  route(box, [box](actor_node& at) {
    at.server_->ask<caf::ok_atom>(
      at.server_->directory, [&at](caf::ok_atom&) { at.all_.count("boxes deleted"); },
      [](const error&) {}, delete_atom::value, box, request_context{});
  });
}

// ---- Desks

void actor_node::use_desk(const std::string& desk) {
  const auto chosen = all_.time.below(12);
  if (chosen == 0)
    return delete_desk(desk);
  if (chosen < 6)
    return route(desk, [desk](actor_node& at) { at.stop_desk(desk); });
  begin_desk(desk, [](bool) {});
}

void actor_node::begin_desk(const std::string& desk, std::function<void(bool)> then) {
  if (serves())
    route(desk, [desk, then = std::move(then)](actor_node& at) {
      if (at.told().snapshots.is_made(desk))
        return at.run_desk(desk, then);
      at.describe(
        desk, define_sandbox{},
        [&at, desk, then](sandbox_description&) {
          at.told().snapshots.made_desk(desk);
          at.run_desk(desk, then);
        },
        [&at, desk, then](const error& why) {
          if (why.code != errc::already_exists)
            return then(false);
          at.told().snapshots.made_desk(desk);
          at.run_desk(desk, then);
        });
    });
}

void actor_node::run_desk(const std::string& desk, const std::function<void(bool)>& then) {
  const auto failed = [=, this](const error& why) {
    if (why.code == errc::snapshot_gone)
      told().snapshots.desk_gone(desk);
    then(false);
  };
  server_->ask<sandbox_actor>(
    server_->directory,
    [=, this](sandbox_actor& it) {
      begin_run wanted{3'600'000};
      wanted.resumes = true;
      server_->ask<run_report>(
        it,
        [=, this](run_report& report) {
          all_.check(desk);
          told().snapshots.desk_runs(desk, report.run.number);
          write_disk(desk);
          then(true);
        },
        failed, wanted);
    },
    failed, reach_atom::value, desk, request_context{});
}

void actor_node::stop_desk(const std::string& desk) {
  const auto run = told().snapshots.run_of(desk);
  if (run == 0)
    return;
  const auto failed = [](const error&) {};
  server_->ask<sandbox_actor>(
    server_->directory,
    [=, this](sandbox_actor& it) {
      write_disk(desk);
      server_->ask<run_report>(
        it, [=, this](run_report& report) { told().snapshots.desk_stopped(desk, report.run); },
        failed, stop_run{run});
    },
    failed, reach_atom::value, desk, request_context{});
}

void actor_node::delete_desk(const std::string& desk) {
  told().snapshots.asks_to_delete_desk(desk);
  route(desk, [desk](actor_node& at) {
    at.server_->ask<caf::ok_atom>(
      at.server_->directory, [&at](caf::ok_atom&) { at.all_.count("desks deleted"); },
      [](const error&) {}, delete_atom::value, desk, request_context{});
  });
}

} // namespace insula::simulation
