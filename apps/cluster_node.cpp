#include "apps/cluster_node.hpp"

#include "actors/cluster/greeting.hpp"
#include "actors/cluster_placement.hpp"
#include "actors/drive_record.hpp"
#include "actors/record_keys.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "apps/cluster_entry.hpp"
#include "base/log.hpp"
#include "storage/etcd/http_client.hpp"
#include "storage/etcd/key_ledger.hpp"
#include "storage/etcd/membership.hpp"
#include "storage/etcd/orphans.hpp"
#include "storage/etcd/watched_keys.hpp"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <thread>

namespace insula {

namespace {

using namespace std::chrono_literals;
using http::cluster::peer;
using storage::etcd::cluster_store;
using steady = std::chrono::steady_clock;

constexpr auto join_patience = 20s;
/// Nodes of another version that have ended are members until their leases are over, and no longer.
constexpr auto misfit_patience = 5s;
constexpr auto members_patience = 500ms; ///< To say what they are.
constexpr auto look_at_members_every = 60s;
constexpr auto report_every = 500ms;
constexpr auto report_counts_for = 3s;
constexpr auto own_patience = 2s;
constexpr auto object_patience = limits::snapshot_question_patience;
constexpr auto drain_patience = 10s;
constexpr auto look_for_orphans_every = 15s;
constexpr auto pause_before_tables = 1s; ///< Until they have been read.
/// A node that could not make a sandbox, or take one, is so long the last one to be chosen.
constexpr auto failure_counts_for = 5s;
constexpr auto pause_between_rereads = 1s;
constexpr auto pause_between_handovers = 200ms;
constexpr std::size_t handed_over_at_once = 8;
constexpr std::size_t taken_up_at_once = 64;
constexpr std::size_t most_doubted = 1'024;
/// Of those that clients ask for and that are in no table: each is a question to etcd.
constexpr unsigned most_found_at_once = 256;
/// What is kept in the cluster and looked for without knowing whose it is, besides lines of lists.
const std::vector<std::string> found_by{"@alarm/", "snapshot", actors::image_source_key,
                                        actors::drives_key};

/// Of the records, the marks and the lines of lists in etcd. Where an earlier version would misread
/// what this one stores, or store less than this one reads, the number is another one.
constexpr std::uint32_t stored_format = 4;

const error going_down{errc::io_failed, "the node is shutting down"};

std::int64_t unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
           std::chrono::system_clock::now().time_since_epoch())
    .count();
}

/// What nodes tell each other twice a second, in words.
struct report {
  actors::node_load load;
  std::uint32_t assigned = 0;
  std::uint32_t target = 0;
  std::int64_t unix_ms = 0;
  std::string version;

  std::string text() const {
    std::ostringstream words;
    words << load.used << ' ' << load.capacity << ' ' << load.warm << ' ' << load.draining << ' '
          << assigned << ' ' << target << ' ' << unix_ms << ' ' << version << ' ' << load.failing
          << std::hex;
    if (load.images)
      for (const auto each : *load.images)
        words << ' ' << each;
    return words.str();
  }
  static std::optional<report> parse(const std::string& name, const std::string& text) {
    report read;
    read.load.name = name;
    std::istringstream words{text};
    words >> read.load.used >> read.load.capacity >> read.load.warm >> read.load.draining >>
      read.assigned >> read.target >> read.unix_ms >> read.version;
    const bool good = !words.fail() && read.load.capacity > 0 && read.load.warm <= read.load.used;
    // A node of an earlier version does not say what follows.
    words >> read.load.failing >> std::hex;
    actors::image_signs images;
    for (actors::image_sign each = 0; images.size() < actors::most_image_signs && words >> each;)
      images.push_back(each);
    std::sort(images.begin(), images.end());
    read.load.images = std::make_shared<const actors::image_signs>(std::move(images));
    return good ? std::optional{std::move(read)} : std::nullopt;
  }
};

/// How bad is it? 0: well enough.
int severity(std::int64_t clock_ahead_ms) {
  const std::chrono::milliseconds by{std::abs(clock_ahead_ms)};
  return (by > clock_tolerance) + (by > clock_limit);
}

struct heard_report {
  report said;
  steady::time_point at;
  std::int64_t clock_ahead_ms = 0;
};

std::optional<storage::etcd::lease_id> kept_lease(const std::string& file) {
  storage::etcd::lease_id lease = 0;
  std::ifstream{file} >> lease;
  return lease == 0 ? std::nullopt : std::optional{lease};
}

void keep_lease(const std::string& file, storage::etcd::lease_id lease) {
  std::ofstream{file, std::ios::trunc} << lease << '\n';
}

} // namespace

struct cluster_node::core : std::enable_shared_from_this<core> {
  core(cluster_config c, std::string file)
      : values(std::move(c))
      , lease_file(std::move(file)) {}

  const cluster_config values;
  const std::string lease_file;

  std::unique_ptr<storage::etcd::http_client> client;
  std::unique_ptr<storage::etcd::watched_keys> nodes;
  std::unique_ptr<storage::etcd::watched_keys> owners;
  std::unique_ptr<storage::etcd::membership> membership;
  std::unique_ptr<cluster_store> store;
  std::unique_ptr<storage::etcd::key_ledger> key_ledger;
  std::unique_ptr<actors::cluster::links> links;

  mutable std::mutex mutex;
  runtime::engine* engine = nullptr;
  actors::node* node = nullptr;
  io_pool* pool = nullptr;
  std::shared_ptr<actors::instance_count> instances;
  std::function<std::uint64_t()> failures;
  std::shared_ptr<const actors::image_catalogue> images;
  std::function<actors::image_signs(const actors::image_wish&)> signs_of;
  std::uint32_t pool_target = 0;
  std::map<std::string, heard_report> reports;
  std::map<std::string, steady::time_point> failed; ///< Nodes that took none when they were asked.
  mutable std::uint64_t launches_failed = 0;        ///< Here, as far as has been looked at.
  mutable steady::time_point failing_until{};
  std::map<std::string, storage::etcd::revision> doubted; ///< Ids, with the ownership that is none.
  std::function<void(const std::string&, bool)> peer_lost;
  std::set<std::string> members_seen;
  std::string misfit; ///< What has been said of a member that this one does not understand.
  std::map<std::string, std::string> versions; ///< Of etcd's members, by their endpoints.
  std::uint64_t random = std::random_device{}();

  // Joining:
  bool has_joined = false;
  std::atomic<bool> resumed{false};
  std::optional<error> waits_for;
  /// Since when all that it waits for is that others, or what is stored, are of another version.
  std::optional<steady::time_point> misfit_since;

  std::atomic<bool> draining{false};
  std::atomic<bool> takes_none{false}; ///< Its spawner is gone.
  std::atomic<bool> has_links{false};
  std::atomic<unsigned> being_found{0};

  // Losing it again:
  std::chrono::nanoseconds permitted{0};
  std::function<void()> gone_waits; ///< For somebody who can evict.
  bool forgotten = false;           ///< This server ends: it does not join anew.

  // What is asked of the store and of actors, a few at a time:
  std::vector<std::string> to_take_up;
  std::size_t being_taken_up = 0;
  std::set<std::string> leaving;
  std::size_t next_to_leave = 0;
  bool drained = false;

  // One thread for what waits.
  std::thread worker;
  std::condition_variable woken;
  std::deque<std::function<void()>> work;
  bool ending = false;
  bool reread_asked = false;
  steady::time_point next_report{}, next_orphans{}, next_reread{};
  steady::time_point drain_next{}, next_unused{}, next_members{};

  // ---- Joining

  member_record own_record() const {
    const auto& at = values.nodes.at(values.self).internal;
    return {at.address + ":" + std::to_string(at.port), actors::cluster::link_version,
            INSULA_VERSION};
  }

  /// Of etcd's members, which are near the nodes: nobody else can be asked before it is one.
  result<void> look_at_clock() {
    std::promise<etcd_members> told;
    client->look_at_members(members_patience,
                            [&](auto found) { told.set_value(std::move(found)); });
    const auto found = told.get_future().get();
    note_versions(found);
    std::map<std::string, std::chrono::milliseconds> named;
    for (const auto& [endpoint, each] : found)
      if (each.ahead)
        named["etcd at " + endpoint] = *each.ahead;
    return clock_agrees(named);
  }

  using etcd_members = std::map<std::string, storage::etcd::http_client::member_status>;

  /// What is known to be wrong with a version is said once for each member, and again when that is
  /// another one.
  void note_versions(const etcd_members& found) {
    const std::lock_guard lock{mutex};
    for (const auto& [endpoint, each] : found) {
      if (each.version.empty() || versions[endpoint] == each.version)
        continue;
      versions[endpoint] = each.version;
      if (const auto fault = fault_of_etcd(each.version); !fault.empty())
        log::warning("cluster.etcd_version",
                     {{"member", endpoint}, {"version", each.version}, {"reason", fault}});
    }
  }

  storage::etcd::membership_options as_member() const {
    storage::etcd::membership_options how;
    how.prefix = values.prefix + "/";
    how.self = values.self;
    how.record = own_record().text();
    how.format = stored_format;
    return how;
  }

  storage::etcd::membership::listener beside_others() const {
    storage::etcd::membership::listener tell;
    tell.fits = [self = own_record()](const auto& others) { return speaks_as(self, others); };
    return tell;
  }

  result<void> open_client() {
    std::vector<std::string> names;
    for (const auto& [name, each] : values.nodes)
      names.push_back(name);
    auto opened = storage::etcd::http_client::open(
      {endpoints_for(values.self, values.nodes.at(values.self).internal.address, names,
                     values.etcd_endpoints),
       values.etcd_authority, values.etcd_certificate, values.etcd_key});
    if (!opened)
      return opened.reason();
    client = std::move(*opened);
    return {};
  }

  error cannot_join(const error& why) const {
    return {why.code, "node " + values.self + " cannot join its cluster: " + why.message};
  }

  result<void> check() {
    if (auto ok = open_client(); !ok)
      return ok;
    if (const auto right = look_at_clock(); !right)
      return cannot_join(right.reason());
    std::promise<result<void>> told;
    storage::etcd::membership::check(*client, as_member(), beside_others(),
                                     [&](result<void> fits) { told.set_value(std::move(fits)); });
    const auto fits = told.get_future().get();
    return fits ? result<void>{} : cannot_join(fits.reason());
  }

  void begin() {
    auto how = as_member();
    how.resumed = kept_lease(lease_file).value_or(0);
    auto tell = beside_others();
    tell.joined = [this](bool again) { joined(again); };
    tell.waits = [this](const error& why) {
      log::warning("cluster.waits", {{"reason", why.message}});
      const std::lock_guard lock{mutex};
      waits_for = why;
      if (why.code != errc::invalid_request)
        misfit_since.reset();
      else if (!misfit_since)
        misfit_since = steady::now();
      woken.notify_one();
    };
    tell.lost = [this](std::function<void()> gone) { lost(std::move(gone)); };
    tell.renewed = [this](std::chrono::nanoseconds until) {
      const std::lock_guard lock{mutex};
      permitted = until;
      if (engine != nullptr)
        engine->permit(until);
    };
    membership = std::make_unique<storage::etcd::membership>(*client, how, tell);
    store = std::make_unique<cluster_store>(
      *client, *membership,
      storage::etcd::cluster_store_options{
        .prefix = how.prefix,
        .found_by = found_by,
        .told_of_owned = {actors::image_source_key, actors::drives_key},
        .found = [this] { may_have_alarms(); },
        // A request that comes late would start here again what has just been handed over.
        .refuses =
          [this] {
            return is_closed() ? std::optional{error{errc::node_unreachable, closed_because()}}
                               : std::nullopt;
          }});
    key_ledger = std::make_unique<storage::etcd::key_ledger>(*client, *membership, how.prefix,
                                                             [] { return 1'000 * unix_ms(); });
    nodes = std::make_unique<storage::etcd::watched_keys>(*client, how.prefix + "nodes/",
                                                          [this] { members_changed(); });
    owners = std::make_unique<storage::etcd::watched_keys>(*client, how.prefix + "owner/", [] {});
    nodes->start();
    owners->start();
    membership->start();
  }

  /// Errors: node_unreachable: there is no more time for that, or more of it does not help.
  result<void> wait_until_joined() {
    const auto end = steady::now() + join_patience;
    std::unique_lock lock{mutex};
    while (!has_joined) {
      const auto until = misfit_since ? std::min(end, *misfit_since + misfit_patience) : end;
      if (until <= steady::now())
        return error{errc::node_unreachable,
                     waits_for ? waits_for->message : "etcd does not answer"};
      woken.wait_until(lock, until);
    }
    return {};
  }

  void joined(bool again) {
    keep_lease(lease_file, membership->lease());
    log::info(
      "cluster.member",
      {{"node", values.self}, {"since", membership->since()}, {"resumed", again ? "yes" : "no"}});
    const std::lock_guard lock{mutex};
    if (!std::exchange(has_joined, true)) {
      resumed = again;
    } else if (node != nullptr && pool != nullptr) {
      with_node([](actors::node& it) {
        it.sweep_snapshots(); // What it had may have gone on elsewhere meanwhile.
      });
    }
    next_orphans = {};
    woken.notify_one();
  }

  void lost(std::function<void()> gone) {
    log::error("cluster.lost", {{"node", values.self},
                                {"reason", "its lease is over, or may be: its sandboxes end"}});
    keep_lease(lease_file, 0); // It will be given back, and that may arrive late.
    store->forget_all();
    const std::lock_guard lock{mutex};
    if (forgotten)
      return;
    if (node == nullptr || pool == nullptr)
      gone_waits = std::move(gone); // What runs could not be ended, and would go on as another's.
    else
      evict_all(std::move(gone));
  }

  /// Not on the client's thread, which outlives the actor system: a thread that spawns an actor
  /// keeps the system from ending. With the lock.
  void with_node(std::function<void(actors::node&)> what) {
    boost::asio::post(pool->next(), [self = shared_from_this(), what = std::move(what)] {
      const std::lock_guard held{self->mutex};
      if (self->node != nullptr)
        what(*self->node);
    });
  }

  /// With the lock.
  void evict_all(std::function<void()> gone) {
    with_node([self = shared_from_this(), gone = std::move(gone)](actors::node& it) {
      it.evict_all([self, gone](const result<void>&) {
        {
          const std::lock_guard lock{self->mutex};
          if (self->forgotten) // This server ends meanwhile.
            return;
        }
        gone();
      });
    });
  }

  void members_changed() {
    std::vector<std::string> gone;
    std::function<void(const std::string&, bool)> tell;
    const auto now = nodes->all();
    {
      const std::lock_guard lock{mutex};
      for (const auto& name : members_seen)
        if (!now.contains(name)) {
          gone.push_back(name);
          reports.erase(name);
        }
      members_seen.clear();
      std::map<std::string, std::string> others;
      for (const auto& [name, each] : now) {
        members_seen.insert(name);
        if (name != values.self)
          others.emplace(name, each.value);
      }
      // It has come at the same moment as this one, or does not look.
      const auto fits = speaks_as(own_record(), others);
      const auto why = fits ? "" : fits.reason().message;
      if (std::exchange(misfit, why) != why && !why.empty())
        log::error("cluster.protocol", {{"reason", why}});
      tell = peer_lost;
      if (!gone.empty()) {
        next_orphans = {};
        woken.notify_one();
      }
    }
    // etcd can end a lease before its time, and the table hears of that first.
    if (const auto own = now.find(values.self);
        own == now.end() || own->second.created != membership->since())
      membership->look();
    for (const auto& name : gone) {
      log::warning("cluster.node_gone", {{"node", name}});
      if (tell)
        tell(name, true);
    }
  }

  void link_changed(const std::string& name, bool up) {
    log::info(up ? "cluster.link_up" : "cluster.link_down", {{"node", name}});
    std::function<void(const std::string&, bool)> tell;
    {
      const std::lock_guard lock{mutex};
      if (up) {
        next_report = {};
        woken.notify_one();
      } else {
        tell = peer_lost;
      }
    }
    if (tell)
      tell(name, false);
  }

  // ---- The worker

  void do_later(std::function<void()> what) {
    const std::lock_guard lock{mutex};
    if (ending)
      return;
    work.push_back(std::move(what));
    woken.notify_one();
  }

  bool is_ending() const {
    const std::lock_guard lock{mutex};
    return ending;
  }

  void may_have_alarms() {
    const std::lock_guard lock{mutex};
    if (std::exchange(reread_asked, true) || ending)
      return;
    woken.notify_one();
  }

  void run_worker() {
    std::unique_lock lock{mutex};
    while (!ending) {
      const auto now = steady::now();
      if (!work.empty()) {
        auto what = std::move(work.front());
        work.pop_front();
        lock.unlock();
        what();
        lock.lock();
        continue;
      }
      if (reread_asked && next_reread <= now && node != nullptr) {
        reread_asked = false;
        next_reread = now + pause_between_rereads; // It is about all that there are.
        node->reread_alarms();
      }
      if (next_report <= now) {
        next_report = now + report_every;
        lock.unlock();
        ask_for_reports();
        lock.lock();
        continue;
      }
      if (next_orphans <= now && node != nullptr) {
        next_orphans = now + look_for_orphans_every;
        lock.unlock();
        look_for_orphans();
        lock.lock();
        continue;
      }
      if (next_members <= now) {
        next_members = now + look_at_members_every;
        client->look_at_members(members_patience, [self = shared_from_this()](auto found) {
          self->note_versions(found);
        });
        continue;
      }
      if (draining && drain_next <= now && node != nullptr) {
        drain_next = now + pause_between_handovers;
        lock.unlock();
        hand_over_some();
        lock.lock();
        continue;
      }
      auto until = std::min(next_report, next_members);
      if (node != nullptr)
        until = std::min(until, next_orphans);
      if (node != nullptr && reread_asked)
        until = std::min(until, next_reread);
      if (draining)
        until = std::min(until, drain_next);
      woken.wait_until(lock, until);
    }
  }

  /// Alarms ring at the node that owns their object. Where that was a node that is gone, whoever
  /// is first takes it. What the server before this one owned has to be known as well; and what
  /// was owned for somebody who did not come is given back.
  void look_for_orphans() {
    if (!membership->good())
      return;
    key_ledger->tidy([self = shared_from_this()](const std::string& sandbox) {
      const std::lock_guard lock{self->mutex};
      return self->engine == nullptr || self->engine->survives(sandbox);
    });
    if (!owners->ready() || !nodes->ready()) {
      const std::lock_guard lock{mutex};
      next_orphans = std::min(next_orphans, steady::now() + pause_before_tables);
      return;
    }
    // First: the table is later than the store, which gives up what it knows.
    auto ids = storage::etcd::not_known_of(*membership, *owners, *store);
    if (const auto now = steady::now(); next_unused <= now) {
      next_unused = now + look_for_orphans_every; // Of the same moment it would see all twice.
      store->give_up_unused();
    }
    if (!is_closed())
      if (const auto alarms = store->find(found_by.front()))
        for (auto& id : storage::etcd::unattended(*alarms, *nodes, *owners))
          ids.push_back(std::move(id));
    // All nodes look at the same time: so they share.
    std::shuffle(ids.begin(), ids.end(), std::mt19937_64{std::random_device{}()});
    {
      const std::lock_guard lock{mutex};
      to_take_up = std::move(ids);
    }
    take_up_some();
  }

  void take_up_some() {
    const std::lock_guard lock{mutex};
    for (; !ending && !to_take_up.empty() && being_taken_up < taken_up_at_once; ++being_taken_up) {
      store->own(to_take_up.back(), [self = shared_from_this()](const auto&) {
        {
          const std::lock_guard held{self->mutex};
          --self->being_taken_up;
        }
        self->take_up_some();
      });
      to_take_up.pop_back();
    }
  }

  // ---- Draining

  /// Those that cannot go now are come back to when all others have had their turn.
  void hand_over_some() {
    const auto mine = store->mine();
    if (!membership->good())
      return;
    const std::lock_guard lock{mutex};
    if (node == nullptr)
      return;
    if (!std::exchange(drained, mine.empty()) && mine.empty())
      log::info("cluster.drained", {{"node", values.self}});
    for (std::size_t i = 0; i < mine.size() && leaving.size() < handed_over_at_once; ++i) {
      const auto& id = mine[next_to_leave++ % mine.size()].first;
      if (!leaving.insert(id).second)
        continue;
      node->hand_over(id, [self = shared_from_this(), id](const result<void>& stopped) {
        if (!stopped)
          return self->has_left(id, false);
        self->store->give_up(id, [self, id](const result<void>& given) {
          self->has_left(id, static_cast<bool>(given));
        });
      });
    }
  }

  void has_left(const std::string& id, bool given_up) {
    const std::lock_guard lock{mutex};
    leaving.erase(id);
    if (!given_up)
      return;
    drain_next = {}; // The next one can go at once.
    woken.notify_one();
  }

  // ---- Reports

  /// Nothing new is owned here.
  bool is_closed() const { return draining || takes_none; }

  /// Why no sandbox can begin here now, though this node may own them. With the mutex.
  std::optional<error> refusal() const {
    return engine != nullptr ? engine->refuses_more() : std::nullopt;
  }

  report own_report() const {
    report mine;
    mine.load.name = values.self;
    mine.load.draining = is_closed();
    mine.unix_ms = unix_ms();
    mine.version = INSULA_VERSION;
    const std::lock_guard lock{mutex};
    mine.target = pool_target;
    if (failures)
      if (const auto now = failures(); std::exchange(launches_failed, now) != now)
        failing_until = steady::now() + failure_counts_for;
    mine.load.failing = steady::now() < failing_until || refusal().has_value();
    if (instances) {
      using actors::instance;
      mine.load.capacity = instances->limit();
      mine.load.warm = instances->of(instance::warm);
      mine.assigned = instances->of(instance::assigned);
      mine.load.used = mine.load.warm + mine.assigned + instances->of(instance::passing);
    }
    if (images)
      mine.load.images = images->signs();
    return mine;
  }

  void ask_for_reports() {
    if (!links)
      return;
    for (const auto& name : links->up()) {
      const auto sent = unix_ms();
      links->ask(name, "report", "", report_counts_for,
                 [self = shared_from_this(), name, sent](const result<std::string>& said) {
                   if (said)
                     self->heard(name, sent, *said);
                 });
    }
  }

  void heard(const std::string& name, std::int64_t sent, const std::string& text) {
    auto said = report::parse(name, text);
    if (!said)
      return;
    const auto ahead = said->unix_ms - (sent + unix_ms()) / 2;
    const int now = severity(ahead);
    int before = 0;
    {
      const std::lock_guard lock{mutex};
      if (const auto at = reports.find(name); at != reports.end())
        before = severity(at->second.clock_ahead_ms);
      reports.insert_or_assign(name, heard_report{std::move(*said), steady::now(), ahead});
    }
    if (now <= before)
      return;
    const auto say = now == 2 ? log::error : log::warning;
    say("cluster.clock", {{"node", name},
                          {"ahead_ms", ahead},
                          {"what", "its clock is another: alarms that move between the nodes ring "
                                   "by as much too early or too late"}});
  }

  void answer(const std::string& from, const std::string& what, const std::string& text,
              const std::function<void(result<std::string>)>& reply) {
    if (what == "report")
      return reply(own_report().text());
    if (what == "drain") {
      begin_drain();
      return reply(std::string{"ok"});
    }
    if (what == "own") {
      if (is_closed())
        return reply(error{errc::capacity_exceeded, closed_because()});
      if (auto full = objection_to(text))
        return reply(std::move(*full));
      return store->own(text, [reply](result<cluster_store::owning> who) {
        reply(who ? result<std::string>{who->node} : result<std::string>{who.reason()});
      });
    }
    if (what == "snapshot")
      return answer_for_object(text, reply);
    if (what == "release")
      return let_go(text, reply);
    if (what == "bring")
      return hand_over(text, reply);
    log::warning("cluster.unknown_question", {{"node", from}, {"what", what}});
    reply(error{errc::invalid_request, "nothing is known of " + what});
  }

  /// The node that has asked knew less than half a second ago that there was room, and finds
  /// another.
  std::optional<error> objection_to(const std::string& id) const {
    if (store->is_mine(id))
      return std::nullopt;
    const std::lock_guard lock{mutex};
    return refusal();
  }

  std::string closed_because() const {
    return takes_none ? "this node has lost its spawner" : "this node is being drained";
  }

  void begin_drain() {
    if (draining.exchange(true))
      return;
    log::info("cluster.draining", {{"node", values.self}});
    const std::lock_guard lock{mutex};
    woken.notify_one();
  }

  // ---- Where requests go

  using found_fn = std::function<void(result<std::optional<peer>>)>;
  /// Where something goes that nobody owns, and may not stay so.
  enum class placing : std::uint8_t {
    best,   ///< To the node that has most room for it.
    here,   ///< To this node, unless it is closed.
    anyhow, ///< To this node, which may be drained: it goes on elsewhere in its turn.
  };

  std::optional<peer> peer_of(const std::string& name) const {
    const auto at = values.nodes.find(name);
    if (at == values.nodes.end())
      return std::nullopt;
    return peer{name, at->second.internal.address, at->second.internal.port};
  }

  void answer_with(const std::string& id, const std::string& name, const found_fn& then) const {
    if (name == values.self)
      return then(std::optional<peer>{});
    if (auto found = peer_of(name))
      return then(std::move(found));
    then(error{errc::node_unreachable,
               id + " is at node " + name + ", which this node's configuration does not have"});
  }

  /// Until the table has another ownership than the one that a node has said is none.
  bool is_doubted(const std::string& id, storage::etcd::revision ownership) {
    const std::lock_guard lock{mutex};
    const auto at = doubted.find(id);
    if (at == doubted.end() || at->second == ownership)
      return at != doubted.end();
    doubted.erase(at);
    return false;
  }

  void find(const std::string& id, bool make, const actors::image_wish& image, const found_fn& then,
            placing where = placing::best) {
    if (!membership->good())
      return then(error{errc::node_unreachable, "this node is cut off from its cluster"});
    if (store->is_mine(id))
      return then(std::optional<peer>{});
    if (const auto known = owners->find(id);
        known && known->value != values.self && !is_doubted(id, known->created))
      return answer_with(id, known->value, then);
    if (being_found.fetch_add(1) >= most_found_at_once) {
      --being_found;
      return then(error{errc::node_unreachable, "too many sandboxes are being looked for"});
    }
    store->find_owner(id, [self = shared_from_this(), id, make, image, then,
                           where](result<cluster_store::found_owner> got) {
      --self->being_found;
      if (!got)
        return then(got.reason());
      if (self->is_ending())
        return then(going_down);
      if (got->node.empty() && !got->has_been && !make)
        return then(error{errc::not_found, "there is no " + self->words_for(id)});
      const bool anyhow = where == placing::anyhow;
      if (got->node.empty() && (anyhow || (where == placing::here && !self->is_closed())))
        return self->own_here(id, then, anyhow);
      if (got->node.empty())
        return self->place_it(id, wish_of(*got, image), then);
      if (got->node == self->values.self)
        return self->own_here(id, then);
      self->answer_with(id, got->node, then);
    });
  }

  /// A sandbox that has been begins with what its record says, beside its drives.
  static actors::image_wish wish_of(const cluster_store::found_owner& of,
                                    const actors::image_wish& asked) {
    auto wish = asked;
    if (of.told.size() < 2)
      return wish;
    if (!of.told[0].empty())
      wish = actors::image_wish{of.told[0]};
    if (const auto drive = first_drive(actors::read_drives(of.told[1])))
      wish.beside = drive->drive;
    return wish;
  }

  static std::string words_for(const std::string& owner) {
    const auto name = object_name::parse(owner);
    return name && !name->kind.empty() ? name->kind + ' ' + name->id : "sandbox " + owner;
  }

  // ---- Objects of any kind

  void locate(const std::string& owner, bool make,
              const std::function<void(result<std::string>)>& then) {
    if (make && takes_none)
      return then(error{errc::node_unreachable, closed_because()});
    find(
      owner, make, {},
      [then](const result<std::optional<peer>>& found) {
        if (!found)
          return then(found.reason());
        then(*found ? (*found)->name : std::string{});
      },
      make ? placing::anyhow : placing::here);
  }

  /// Of a peer, about one that is here.
  void answer_for_object(const std::string& question,
                         const std::function<void(result<std::string>)>& reply) {
    const std::lock_guard lock{mutex};
    node == nullptr ? reply(going_down) : node->answer_peer(question, reply);
  }

  /// The links are there a moment after the actors, and go before them.
  void ask_peer(const std::string& name, std::string what, std::string text,
                std::function<void(result<std::string>)> then) const {
    if (!has_links)
      return then(error{errc::node_unreachable, "there is no link to node " + name});
    links->ask(
      name, std::move(what), std::move(text), object_patience,
      [then = std::move(then)](result<std::string> told) {
        const bool is_late = !told && (told.reason().code == errc::deadline_exceeded ||
                                       told.reason().code == errc::internal);
        then(is_late ? error{errc::node_unreachable, told.reason().message} : std::move(told));
      });
  }

  /// A peer has what the object needs.
  void let_go(const std::string& owner, const std::function<void(result<std::string>)>& reply) {
    const auto given = [reply](const result<void>& gone) {
      reply(gone ? result<std::string>{std::string{"ok"}} : result<std::string>{gone.reason()});
    };
    const std::lock_guard lock{mutex};
    if (node == nullptr)
      return reply(going_down);
    node->let_go(owner, [self = shared_from_this(), owner, given](const result<void>&) {
      // A server that has just begun may not know yet that it is its own.
      self->store->own(owner, [self, owner, given](const result<cluster_store::owning>& now) {
        if (!now || now->node != self->values.self)
          return given(now ? result<void>{} : result<void>{now.reason()});
        self->store->give_up(owner, given);
      });
    });
  }

  /// A peer is to have the object, with what this node has kept of it.
  void hand_over(const std::string& owner, const std::function<void(result<std::string>)>& reply) {
    const std::lock_guard lock{mutex};
    if (node == nullptr)
      return reply(going_down);
    node->hand_over(owner, [self = shared_from_this(), owner, reply](const result<void>& left) {
      if (!left)
        return reply(left.reason());
      self->store->give_up(owner, [reply](const result<void>& given) {
        reply(given ? result<std::string>{std::string{"ok"}} : result<std::string>{given.reason()});
      });
    });
  }

  void claim(const std::string& owner, const std::string& by,
             const std::function<void(result<void>)>& then) {
    if (is_closed())
      return then(error{errc::node_unreachable, closed_because()});
    locate(
      owner, false, [self = shared_from_this(), owner, by, then](const result<std::string>& at) {
        if (!at || at->empty())
          return then(at ? result<void>{} : result<void>{at.reason()});
        self->ask_peer(*at, by, owner, [self, owner, then](const result<std::string>& gone) {
          if (!gone)
            return then(gone.reason());
          self->store->own(owner, [self, owner, then](const result<cluster_store::owning>& now) {
            const bool is_ours = now && now->node == self->values.self;
            then(is_ours ? result<void>{}
                 : now ? result<void>{error{errc::node_unreachable, owner + " is at " + now->node}}
                       : result<void>{now.reason()});
          });
        });
      });
  }

  /// Also what this node gives up just now, as etcd may still say that it is its.
  void own_here(const std::string& id, const found_fn& then, bool anyhow = false) {
    if (is_closed() && !anyhow)
      return then(error{errc::node_unreachable, closed_because()});
    store->own(
      id,
      [self = shared_from_this(), id, then](result<cluster_store::owning> who) {
        if (!who)
          return then(who.reason());
        self->answer_with(id, who->node, then);
      },
      anyhow);
  }

  /// This node first in the list.
  std::vector<actors::node_load> loads() {
    std::vector<actors::node_load> all{own_report().load};
    const std::lock_guard lock{mutex};
    const auto now = steady::now();
    std::erase_if(failed, [&](const auto& each) { return each.second <= now; });
    for (const auto& [name, each] : reports)
      if (each.at >= now - report_counts_for && members_seen.contains(name)) {
        all.push_back(each.said.load);
        all.back().failing = all.back().failing || failed.contains(name);
      }
    return all;
  }

  void note_failure(const std::string& name) {
    const std::lock_guard lock{mutex};
    failed[name] = steady::now() + failure_counts_for;
  }

  /// The node that has the snapshot's object has its bytes as well, mostly.
  std::optional<std::string> choose_by_snapshot(const std::vector<actors::node_load>& all,
                                                const std::string& id) const {
    return choose_by_owner(all, actors::snapshots::owner_of_snapshot(id));
  }

  std::optional<std::string> choose_by_owner(const std::vector<actors::node_load>& all,
                                             const std::string& of) const {
    const auto owner = owners->find(of);
    const auto at = std::find_if(all.begin(), all.end(), [&](const auto& each) {
      return owner && each.name == owner->value && !each.failing && actors::takes_one(each);
    });
    return at == all.end() ? std::nullopt : std::optional{at->name};
  }

  /// Empty text: the default image.
  std::optional<std::string> choose(const actors::image_wish& image) {
    const auto all = loads();
    if (!image.beside.empty())
      if (auto name = choose_by_owner(all, image.beside))
        return name;
    if (!image.snapshot.empty())
      if (auto name = choose_by_snapshot(all, image.snapshot))
        return name;
    std::uint64_t turn = 0;
    actors::image_signs wanted;
    {
      const std::lock_guard lock{mutex};
      if (signs_of && !image.text.empty())
        wanted = signs_of(image);
      random = random * 6'364'136'223'846'793'005u + 1'442'695'040'888'963'407u;
      turn = random >> 33;
    }
    const auto at = actors::place_sandbox(all, turn, wanted);
    return at ? std::optional{all[*at].name} : std::nullopt;
  }

  bool starts_differ() {
    if (owners->has_any(actors::snapshots::owner_of_snapshot("")))
      return true;
    const auto all = loads();
    const auto& mine = all.front().images;
    return std::any_of(all.begin() + 1, all.end(), [&](const actors::node_load& each) {
      return mine && each.images && *mine != *each.images;
    });
  }

  /// A node that refuses, or does not answer, is not the last word: the next best one is asked,
  /// once, and then it is this one. An answer that came too late decides nothing, since etcd does.
  void place_it(const std::string& id, const actors::image_wish& image, const found_fn& then,
                bool again = false) {
    // None has room: whoever was asked says so, in the words of each API.
    const auto name = choose(image).value_or(values.self);
    if (name == values.self)
      return own_here(id, then);
    links->ask(name, "own", id, own_patience,
               [self = shared_from_this(), id, image, then, again, name](result<std::string> who) {
                 if (who)
                   return self->answer_with(id, *who, then);
                 if (self->is_ending())
                   return then(going_down);
                 self->note_failure(name);
                 if (!again)
                   return self->place_it(id, image, then, true);
                 if (self->is_closed())
                   return then(error{errc::node_unreachable, who.reason().message});
                 self->own_here(id, then);
               });
  }
};

cluster_node::cluster_node(std::shared_ptr<core> made)
    : core_(std::move(made)) {}

result<std::unique_ptr<cluster_node>> cluster_node::join(const cluster_config& values,
                                                         const std::string& records) {
  auto made = std::make_shared<core>(values, records + "/lease");
  if (auto ok = made->open_client(); !ok)
    return ok.reason();
  if (const auto right = made->look_at_clock(); !right)
    return made->cannot_join(right.reason());
  made->begin();
  std::unique_ptr<cluster_node> node{new cluster_node{made}};
  if (const auto ok = made->wait_until_joined(); !ok)
    return made->cannot_join(ok.reason());
  made->worker = std::thread{[made = made.get()] { made->run_worker(); }};
  return node;
}

result<void> cluster_node::check(const cluster_config& values) {
  return std::make_shared<core>(values, std::string{})->check();
}

cluster_node::~cluster_node() {
  end_links();
  core_->owners.reset();
  core_->nodes.reset(); // Its news are for the membership.
  core_->key_ledger.reset();
  core_->store.reset();
  core_->membership.reset();
  core_->client.reset();
}

bool cluster_node::resumed() const {
  return core_->resumed;
}

storage::etcd::cluster_store& cluster_node::records() {
  return *core_->store;
}

storage::key_ledger& cluster_node::key_ledger() {
  return *core_->key_ledger;
}

std::uint64_t cluster_node::questions() const {
  return core_->client->questions();
}

void cluster_node::set_engine(runtime::engine& engine) {
  const std::lock_guard lock{core_->mutex};
  core_->engine = &engine;
  if (core_->permitted.count() != 0) // Else it comes in a moment; none at all is for ever.
    engine.permit(core_->permitted);
}

void cluster_node::set_node(actors::node& node, std::shared_ptr<actors::instance_count> instances,
                            std::uint32_t pool_target) {
  const std::lock_guard lock{core_->mutex};
  core_->node = &node;
  core_->instances = std::move(instances);
  core_->pool_target = pool_target;
  core_->reread_asked = true;
  core_->woken.notify_one();
}

result<void> cluster_node::start_links(caf::actor_system& system, io_pool& pool,
                                       const cluster_config& values, std::vector<int> inherited) {
  actors::cluster::link_options how;
  how.self = values.self;
  for (const auto& [name, node] : values.nodes)
    how.members.push_back({name, node.link.address, node.link.port});
  how.authority = values.authority;
  how.certificate = values.certificate;
  how.key = values.key;
  how.build = INSULA_VERSION;
  how.inherited = std::move(inherited);
  auto made = std::make_unique<actors::cluster::links>(
    system, pool, std::move(how),
    [core = core_](const std::string& from, const std::string& what, const std::string& text,
                   const std::function<void(result<std::string>)>& reply) {
      core->answer(from, what, text, reply);
    },
    [core = core_](const std::string& name, bool up) { core->link_changed(name, up); });
  if (auto ok = made->start(); !ok)
    return ok;
  core_->do_later([core = core_.get(), held = std::make_shared<decltype(made)>(std::move(made))] {
    core->links = std::move(*held);
    core->has_links = true;
  });
  std::promise<void> there;
  core_->do_later([&] { there.set_value(); });
  there.get_future().wait();
  const std::lock_guard lock{core_->mutex};
  core_->pool = &pool;
  if (auto gone = std::exchange(core_->gone_waits, {}))
    core_->evict_all(std::move(gone));
  return {};
}

void cluster_node::on_peer_lost(std::function<void(const std::string& name, bool for_good)> tell) {
  const std::lock_guard lock{core_->mutex};
  core_->peer_lost = std::move(tell);
}

void cluster_node::on_failures(std::function<std::uint64_t()> count) {
  const std::lock_guard lock{core_->mutex};
  core_->failures = std::move(count);
}

void cluster_node::set_images(
  std::shared_ptr<const actors::image_catalogue> here,
  std::function<actors::image_signs(const actors::image_wish&)> signs_of) {
  const std::lock_guard lock{core_->mutex};
  core_->images = std::move(here);
  core_->signs_of = std::move(signs_of);
}

void cluster_node::take_no_more() {
  core_->takes_none = true;
}

void cluster_node::forget_node() {
  const std::lock_guard lock{core_->mutex};
  core_->forgotten = true;
  core_->node = nullptr;
  core_->engine = nullptr;
  core_->failures = nullptr;
  core_->signs_of = nullptr;
  core_->peer_lost = nullptr;
}

void cluster_node::end_links() {
  {
    const std::lock_guard lock{core_->mutex};
    core_->ending = true;
    core_->has_links = false;
    core_->forgotten = true;
    core_->node = nullptr;
    core_->pool = nullptr;
    core_->engine = nullptr;
    core_->failures = nullptr;
    core_->signs_of = nullptr;
    core_->peer_lost = nullptr;
    core_->woken.notify_one();
  }
  if (core_->worker.joinable())
    core_->worker.join();
  if (core_->client) {
    // What has been answered before this, and goes on with links or store, is through with it.
    std::promise<void> quiet;
    core_->client->post([&] { quiet.set_value(); });
    quiet.get_future().wait();
  }
  core_->links.reset();
}

void cluster_node::leave(bool end_lease) {
  if (end_lease)
    keep_lease(core_->lease_file, 0); // As above.
  std::promise<void> left;
  core_->membership->leave(end_lease, [&] { left.set_value(); });
  left.get_future().wait();
}

bool cluster_node::is_here(std::string_view id) const {
  return core_->membership->good() && core_->store->is_mine(id);
}

std::uint64_t cluster_node::tenure(std::string_view id) const {
  return static_cast<std::uint64_t>(core_->store->tenure(id));
}

void cluster_node::find(std::string id, bool make, const actors::image_wish& image,
                        std::function<void(result<std::optional<peer>>)> then) {
  core_->find(id, make, image, then);
}

void cluster_node::doubt(const std::string& id, const std::string& node) {
  const auto known = core_->owners->find(id);
  if (!known || known->value != node)
    return; // The table knows better already.
  const std::lock_guard lock{core_->mutex};
  if (core_->doubted.size() >= most_doubted)
    core_->doubted.clear(); // Who goes to the wrong node is told so once more.
  core_->doubted[id] = known->created;
}

void cluster_node::locate(const std::string& owner, bool make,
                          std::function<void(result<std::string>)> then) {
  core_->locate(owner, make, then);
}

void cluster_node::ask_object(const std::string& node, std::string question,
                              std::function<void(result<std::string>)> then) {
  core_->ask_peer(node, "snapshot", std::move(question), std::move(then));
}

void cluster_node::claim(const std::string& owner, std::function<void(result<void>)> then) {
  core_->claim(owner, "release", then);
}

void cluster_node::bring(const std::string& owner, std::function<void(result<void>)> then) {
  core_->claim(owner, "bring", then);
}

std::optional<peer> cluster_node::place(const actors::image_wish& image) {
  const auto name = core_->choose(image).value_or(core_->values.self);
  return name == core_->values.self ? std::nullopt : core_->peer_of(name);
}

bool cluster_node::starts_differ() const {
  return core_->starts_differ();
}

bool cluster_node::may_serve() const {
  return core_->membership->good();
}

std::string cluster_node::self() const {
  return core_->values.self;
}

std::string cluster_node::member(std::string_view certificate_name) const {
  const std::string name{certificate_name};
  return core_->values.nodes.contains(name) ? name : "";
}

std::optional<peer> cluster_node::node(const std::string& name) const {
  return core_->peer_of(name);
}

http::cluster_status cluster_node::look() const {
  http::cluster_status seen;
  seen.self = core_->values.self;
  const auto members = core_->nodes->all();
  const auto mine = core_->own_report();
  {
    const std::lock_guard lock{core_->mutex};
    for (const auto& [name, each] : core_->values.nodes) {
      http::cluster_node_status node;
      node.name = name;
      node.address = each.internal.address + ":" + std::to_string(each.internal.port);
      const auto member = members.find(name);
      node.state = member == members.end() ? "away" : "member";
      if (member != members.end()) {
        node.lease = member->second.lease;
        node.version = member_record::parse(member->second.value).build;
      }
      const auto heard = core_->reports.find(name);
      const report* said = name == seen.self               ? &mine
                           : heard == core_->reports.end() ? nullptr
                           : member == members.end()       ? nullptr
                                                           : &heard->second.said;
      if (said != nullptr) {
        node.sandboxes = said->assigned;
        node.capacity = said->load.capacity;
        node.warm = said->load.warm;
        node.version = said->version;
        if (said->load.draining)
          node.state = "draining";
        if (said != &mine)
          node.clock_ahead_ms = heard->second.clock_ahead_ms;
      }
      seen.nodes.push_back(std::move(node));
    }
  }
  for (const auto& [id, owner] : core_->owners->all())
    if (sandbox_id::parse(id)) // Else an object of another kind.
      seen.sandboxes.push_back({id, owner.value, owner.created});
  return seen;
}

http::cluster_pool_totals cluster_node::others() const {
  http::cluster_pool_totals sum;
  const std::lock_guard lock{core_->mutex};
  const auto oldest = steady::now() - report_counts_for;
  for (const auto& [name, each] : core_->reports) {
    if (each.at < oldest || !core_->members_seen.contains(name))
      continue;
    sum.warm += each.said.load.warm;
    sum.assigned += each.said.assigned;
    sum.limit += each.said.load.capacity;
    sum.target += each.said.target;
  }
  return sum;
}

void cluster_node::drain(std::string node, std::function<void(result<void>)> then) {
  if (node == core_->values.self) {
    core_->begin_drain();
    return then({});
  }
  if (!core_->values.nodes.contains(node))
    return then(error{errc::not_found, "there is no node " + node});
  core_->links->ask(node, "drain", "", drain_patience,
                    [then = std::move(then)](const result<std::string>& said) {
                      then(said ? result<void>{} : result<void>{said.reason()});
                    });
}

} // namespace insula
