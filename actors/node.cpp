#include "actors/node.hpp"

#include "actors/alarms.hpp"
#include "actors/protocol/errors.hpp"
#include "actors/snapshots/snapshot.hpp"
#include "actors/snapshots/sweep.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <mutex>

namespace insula::actors {

/// Who is answered later finds it only as long as there is the node.
struct node::lent_store {
  std::mutex mutex;
  storage::store* store = nullptr;
};

namespace {

/// A sandbox is deleted from the node's store first, which a power cut may take back.
void sweep(storage::store& cluster, storage::store& local, storage::lease_service& leases,
           const std::shared_ptr<node::lent_store>& lent, runtime::kept_logs* logs) {
  const auto known = cluster.owners();
  const auto found = local.owners();
  if (!known || !found)
    return; // What comes next says why.
  for (const auto& owner : *found) {
    if (std::binary_search(known->begin(), known->end(), owner))
      continue;
    if (logs != nullptr)
      logs->remove(owner);
    leases.acquire(owner, [lent, &leases, owner](result<storage::epoch> held) {
      if (!held)
        return; // The next start tries again.
      {
        const std::lock_guard lock{lent->mutex};
        if (lent->store != nullptr)
          lent->store->commit({owner, *held, {}, {""}}, [](result<void>) {});
      }
      leases.release(owner, *held);
    });
  }
}

/// What an earlier server has left has its objects again, before anybody asks for it.
void adopt_all(const runtime::engine& engine, const node_directory_actor& directory) {
  for (auto& name : engine.survivors())
    caf::anon_send(directory, adopt_atom::value, std::move(name));
}

/// For sandboxes that are new.
node_pool_actor spawn_pool_of(caf::actor_system& system, const sandbox_options& from) {
  pool_options options;
  options.key = {from.image_name, from.engine_name, from.profile.gains};
  options.engine = from.engine;
  options.instances = from.instances;
  options.spec.host_name = "warm"; // Until it is somebody's.
  if (const auto image = from.images->look(from.image_name))
    options.spec.image = image->layers;
  options.spec.limits = from.limits;
  options.spec.network = from.network;
  options.spec.may_gain_rights = from.profile.gains == privileges::sudo;
  options.figures = from.figures;
  options.node_ends = from.node_ends;
  return spawn_pool(system, std::move(options));
}

/// Asks, and passes on how it went. The actor is there for as long as that takes.
template <class... Question>
void ask(caf::actor_system& system, const node_directory_actor& whom,
         std::function<void(result<void>)> then, Question... question) {
  system.spawn([=](caf::event_based_actor* self) {
    self->request(whom, caf::infinite, question...)
      .then([then](caf::ok_atom) { then({}); },
            [then](const caf::error& why) { then(from_caf(why)); });
  });
}

} // namespace

node::node(caf::actor_system& system, storage::store& cluster, storage::store& local,
           sandbox_options options, const pool_settings& warm, object_kinds kinds)
    : system_(&system)
    , swept_(std::make_shared<lent_store>()) {
  swept_->store = &local;
  sweep(cluster, local, *options.leases, swept_, options.logs);
  const auto depths = options.figures->stores;
  keepers keep{
    spawn_store(system, &cluster, depths), spawn_store(system, &local, depths), {}, options.time};
  if (options.ours)
    keep.finder = spawn_store(system, &cluster, depths);
  alarms_ =
    spawn_alarms(system, {keep.finder, keep.node, options.time, options.figures, options.ours});
  keep.alarms = alarms_;
  keep.tenure = options.tenure;
  options.keep = std::make_shared<const keepers>(std::move(keep));
  auto* const engine = options.engine;
  options.pool = spawn_pool_of(system, options);
  pool_ = options.pool;
  caf::anon_send(pool_, prime_pool{warm});
  const auto shared = std::make_shared<const sandbox_options>(std::move(options));
  if (shared->keeps_snapshots())
    kinds.merge(snapshot_kind(shared));
  const auto directory = spawn_directory(system, shared, std::move(kinds));
  options_ = shared;
  adopt_all(*engine, directory);
  caf::anon_send(alarms_, wake_by_atom::value, caf::actor_cast<caf::actor>(directory));
  directory_ = directory;
  sweep_snapshots();
}

void node::sweep_snapshots() {
  if (!options_->keeps_snapshots())
    return;
  if (sweep_)
    caf::anon_send_exit(sweep_, caf::exit_reason::user_shutdown);
  sweep_ = snapshots::sweep(*system_, options_, directory_);
}

void node::let_go(const std::string& owner, std::function<void(result<void>)> then) {
  ask(*system_, directory_, std::move(then), evict_atom::value, owner);
}

void node::answer_peer(std::string question, std::function<void(result<std::string>)> then) {
  system_->spawn(
    [=, whom = directory_, question = std::move(question)](caf::event_based_actor* self) {
      self->request(whom, caf::infinite, peer_question{question})
        .then([then](std::string& told) { then(std::move(told)); },
              [then](const caf::error& why) { then(from_caf(why)); });
    });
}

std::future<std::uint64_t> node::keep_files() const {
  const auto outcome = std::make_shared<std::promise<std::uint64_t>>();
  system_->spawn([outcome, whom = directory_](caf::event_based_actor* self) {
    self->request(whom, caf::infinite, keep_files_atom::value)
      .then([outcome](std::uint64_t failed) { outcome->set_value(failed); },
            [outcome](const caf::error&) { outcome->set_value(0); }); // It has ended already.
  });
  return outcome->get_future();
}

void node::evict_all(std::function<void(result<void>)> then) {
  reread_alarms(); // None of them is this node's.
  ask(*system_, directory_, std::move(then), evict_atom::value);
}

void node::hand_over(const std::string& id, std::function<void(result<void>)> then) {
  ask(*system_, directory_, std::move(then), hand_over_atom::value, id);
}

void node::reread_alarms() {
  caf::anon_send(alarms_, reread_atom::value);
}

node::~node() {
  {
    const std::lock_guard lock{swept_->mutex};
    swept_->store = nullptr;
  }
  // The directory takes its sandboxes with it; the stores end when the last of them lets go of
  // them.
  caf::anon_send_exit(alarms_, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(directory_, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(pool_, caf::exit_reason::user_shutdown);
  if (sweep_)
    caf::anon_send_exit(sweep_, caf::exit_reason::user_shutdown);
}

} // namespace insula::actors
