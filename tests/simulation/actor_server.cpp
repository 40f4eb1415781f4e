#include "tests/simulation/actor_server.hpp"

#include "actors/protocol/errors.hpp"
#include "actors/snapshots/snapshot.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "actors/snapshots/sweep.hpp"
#include "storage/etcd/gateway_json.hpp"

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

const error no_lists{errc::internal, "no list is asked for here"};
constexpr auto object_patience = limits::snapshot_question_patience;
/// Room on a node's disk for so many copies of other nodes' snapshots, each of which has a page.
constexpr std::uint64_t most_cached = 4;

} // namespace

actor_node::server::server(actor_node& of)
    : self(of)
    , system(settings)
    , time(*of.client, of.all_.time, of.wall_ahead_, of.name)
    , leases(*of.store, of.all_, of.name)
    , routes(of.all_, of,
             [this](const std::string& node, const std::string& what, std::string text,
                    played_routes::answer_function then) {
               ask_peer(node, what, std::move(text), object_patience, std::move(then));
             })
    , seen(of.client->now()) {
  const auto cluster = spawn_cluster_store();
  keepers keep{cluster, spawn_local_store(), {}, &time, cluster};
  alarms = spawn_alarms(
    system, {keep.cluster, keep.node, &time, std::make_shared<actors::figures>(), ours()});
  ended.push_back(caf::actor_cast<caf::actor>(alarms));
  keep.alarms = alarms;
  keep.tenure = [this](const std::string& id) -> std::uint64_t {
    return self.store ? static_cast<std::uint64_t>(self.store->tenure(id)) : 0;
  };
  options = make_options(std::move(keep));
  directory = spawn_directory(system, options, snapshot_kind(options));
  ended.push_back(caf::actor_cast<caf::actor>(directory));
  for (auto& name : of.engine_.survivors())
    caf::anon_send(directory, adopt_atom::value, std::move(name));
  caf::anon_send(alarms, wake_by_atom::value, caf::actor_cast<caf::actor>(directory));
  for (const auto& each : of.all_.all)
    if (each->name != of.name)
      add_peer(each->name);
  sweep_snapshots();
}

std::shared_ptr<sandbox_options> actor_node::server::make_options(keepers keep) {
  auto made = std::make_shared<sandbox_options>();
  made->engine = &self.engine_;
  made->leases = &leases;
  made->time = &time;
  made->keep = std::make_shared<const keepers>(std::move(keep));
  made->instances = std::make_shared<instance_count>(100);
  made->images->put("host", {{"host", true}, {}, "/bin/bash"});
  made->ours = ours();
  made->routes = &routes;
  made->copies = std::make_shared<snapshots::disk_copies>(
    self.engine_, self.files_,
    snapshots::disk_copies::cache_settings{
      [mine = ours()](const std::string& id) { return mine(snapshots::owner_of_snapshot(id)); },
      most_cached * 4096, 0s});
  made->acknowledges_copies = self.told().snapshots.shared();
  made->groups = everybodys_group;
  made->run_disks = [](const api_metadata&) { return snapshot_retention{true}; };
  made->snapshot_names = [this](const std::string& sandbox) {
    return self.told().snapshots.asks(sandbox, false);
  };
  made->ladder.stop_after = 3s;
  return made;
}

void actor_node::server::sweep_snapshots() {
  if (sweeper)
    caf::anon_send_exit(sweeper, caf::exit_reason::user_shutdown);
  sweeper = snapshots::sweep(system, options, directory);
}

void actor_node::server::end() {
  ending = true;
  const bool is_killed = self.all_.time.chance(0.5);
  self.told().links.drop(self.name, self.all_.time.chance(0.8));
  self.engine_.server_ends(is_killed);
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
  caf::anon_send_exit(sweeper, caf::exit_reason::user_shutdown);
  peers.clear();
  directory = node_directory_actor{};
  alarms = alarms_actor{};
  store_address = sweeper = caf::actor{};
  scheduler().run();
  leases.end();
  self.files_.server_ends();
  self.engine_.server_has_ended();
  scheduler().run();
}

// ---- Stores

/// The store as actors/store.hpp has it, without a thread that waits.
store_actor actor_node::server::spawn_cluster_store() {
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

store_actor actor_node::server::spawn_local_store() {
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

// ---- Peers

void actor_node::server::add_peer(const std::string& name) {
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
  const auto peer = cluster::spawn_peer(system, {name, static_cast<std::uint16_t>(peers.size() + 1),
                                                 proxy, std::make_shared<cluster::linked_names>(),
                                                 answers, [this](const std::string&, bool up) {
                                                   self.all_.count(up ? "links up" : "links down");
                                                 }});
  peers[name] = peer;
  ended.push_back(proxy);
  ended.push_back(peer);
  links.add(self.name, name, {&self, peer, proxy});
}

void actor_node::server::ask_peer(const std::string& name, const std::string& what,
                                  std::string text, nanoseconds patience,
                                  std::function<void(result<std::string>)> then) {
  const auto at = peers.find(name);
  if (at == peers.end())
    return then(error{errc::node_unreachable, "there is no link to node " + name});
  auto asked = std::make_shared<cluster::call>();
  asked->what = what;
  asked->text = std::move(text);
  asked->patience = std::chrono::duration_cast<std::chrono::milliseconds>(patience);
  const auto open = std::make_shared<open_question>(self.told(), [] {});
  asked->then = [this, open, there = std::weak_ptr{is_there},
                 then = std::move(then)](result<std::string> told) {
    demand(open->over(), "a question to a peer was answered twice");
    if (there.expired())
      return;
    self.all_.count(told ? "questions to peers answered" : "questions to peers that failed");
    then(std::move(told));
  };
  caf::anon_send(at->second, cluster::call_pointer{asked});
}

} // namespace insula::simulation
