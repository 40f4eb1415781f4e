#include "tests/simulation/node.hpp"

#include "storage/etcd/gateway_json.hpp"
#include "storage/etcd/orphans.hpp"
#include "tests/simulation/history.hpp"

namespace insula::simulation {

using namespace storage;

namespace {

constexpr auto look_for_orphans_every = 15s;

} // namespace

node::node(history& in, std::string n)
    : name(std::move(n))
    , all_(in)
    , ahead_(in.time.between(0s, 1000s)) {}

bool node::has_running(const std::string& id) const {
  return has_sandbox(id) && all_.time.now() + ahead_ < permitted_;
}

void node::start() {
  client = std::make_unique<wired_client>(all_.time, all_.decides, ahead_);
  etcd::membership_options how;
  how.prefix = "s/";
  how.self = name;
  how.record = name;
  how.resumed = kept_lease_;
  etcd::membership::listener tell;
  tell.joined = [this](bool resumed) {
    kept_lease_ = member->lease();
    const bool first = !std::exchange(has_joined_, true);
    if (resumed)
      all_.count("leases gone on with");
    else if (first)
      end_sandboxes(); // Another node may have had it in between.
    demand(resumed || !has_sandboxes(), "a new member has sandboxes");
    // There is more to be done before its actors are there, which may take long.
    if (first)
      client->after(all_.time.chance(0.2) ? all_.time.between(1s, 8s)
                                          : all_.time.between(0s, 200ms),
                    [this] { serve(); });
    else if (serving_)
      joined_again();
  };
  tell.lost = [this](std::function<void()> gone) { lost(std::move(gone)); };
  tell.renewed = [this](nanoseconds until) {
    permitted_ = until;
    all_.check_all();
  };
  member = std::make_unique<etcd::membership>(*client, how, tell);
  etcd::cluster_store_options keeping{"s/", all_.found_by};
  keeping.found = [this] {
    if (serving_)
      found_alarms();
  };
  keeping.most_activations = 5;
  store = std::make_unique<etcd::cluster_store>(*client, *member, keeping);
  nodes = std::make_unique<etcd::watched_keys>(*client, "s/nodes/", [this] {
    if (const auto own = nodes->find(name); !own || own->created != member->since())
      member->look();
    if (serving_)
      look_for_orphans();
  });
  owners = std::make_unique<etcd::watched_keys>(*client, "s/owner/", [] {});
  nodes->start();
  owners->start();
  member->start();
}

void node::serve() {
  serving_ = true;
  if (gone_) // Lost before there was anybody who could end what runs.
    evict_now();
  begin();
  const auto again = std::make_shared<std::function<void()>>();
  *again = [this, weak = std::weak_ptr{again}] {
    store->give_up_unused();
    look_for_orphans();
    if (const auto self = weak.lock())
      client->after(look_for_orphans_every, [self] { (*self)(); });
  };
  (*again)();
}

void node::lost(std::function<void()> gone) {
  all_.count("leases lost");
  kept_lease_ = 0; // It will be given back, and that may arrive late.
  store->forget_all();
  gone_ = std::move(gone);
  if (serving_)
    client->after(all_.time.between(0ms, 1s), [this] { evict_now(); });
}

void node::evict_now() {
  ++life_;
  if (auto gone = std::exchange(gone_, {}))
    evict(std::move(gone));
}

void node::end(bool for_good) {
  if (!client)
    return;
  client->ending = true;
  client->stands_still = false;
  ++life_;
  cease();
  if (for_good) {
    end_sandboxes();
    // Its lease is given back as its last word, which may not arrive.
    kept_lease_ = 0;
    const auto old = member->lease();
    member->leave(false, [] {});
    if (old != 0 && client->between.requests_arrive)
      all_.decides.revoke(old);
  }
  serving_ = has_joined_ = false;
  gone_ = {};
  nodes.reset();
  owners.reset();
  store.reset();
  member.reset();
  forget();
  client.reset();
}

void node::find_alarms(std::function<void(std::vector<owned_entry>)> then,
                       std::function<void()> otherwise) {
  client->transact(
    {{}, {etcd::operation::read(alarm_marks, etcd::end_of_prefix(alarm_marks))}, {}}, patience,
    [then = std::move(then), otherwise = std::move(otherwise)](result<etcd::outcome> got) {
      if (!got)
        return otherwise();
      std::vector<owned_entry> entries;
      for (const auto& each : got->found[0]) {
        const auto slash = each.key.rfind('/');
        entries.push_back({each.key.substr(slash + 1), each.key.substr(7, slash - 7), each.value});
      }
      then(std::move(entries));
    });
}

void node::look_for_orphans() {
  if (!member->good())
    return;
  if (!nodes->ready() || !owners->ready())
    return client->after(1s, [this] { look_for_orphans(); });
  for (const auto& id : etcd::not_known_of(*member, *owners, *store)) {
    all_.count("ids of the server before taken up");
    store->own(id, [this, id](const auto&) { all_.check(id); });
  }
  find_alarms([this](const std::vector<owned_entry>& found) {
    for (const auto& id : etcd::unattended(found, *nodes, *owners))
      store->own(id, [this, id](const result<etcd::cluster_store::owning>& who) {
        all_.check(id);
        if (who && who->node == name)
          all_.count("orphans taken");
      });
  });
}

} // namespace insula::simulation
