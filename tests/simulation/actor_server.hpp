#pragma once

#include "actors/alarms.hpp"
#include "actors/cluster/peer.hpp"
#include "actors/directory.hpp"
#include "storage/lease.hpp"
#include "tests/simulation/actor_history.hpp"
#include "tests/simulation/actor_node.hpp"
#include "tests/simulation/played_routes.hpp"

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include <any>

namespace insula::simulation {

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
class watched_leases final : public storage::lease_service {
public:
  watched_leases(storage::lease_service& of, history& in, std::string by)
      : of_(of)
      , all_(in)
      , by_(std::move(by)) {}
  void acquire(std::string owner, std::function<void(result<storage::epoch>)> on_held) override {
    const auto number = ++last_;
    wanted_.emplace(number, std::move(on_held));
    of_.acquire(owner, [this, owner, number](result<storage::epoch> got) {
      const auto to = wanted_.extract(number);
      if (!to)
        return;
      if (got)
        all_.held(owner, *got, by_);
      to.mapped()(std::move(got));
    });
  }
  /// As the real one it answers everything.
  void end() {
    for (const auto& [number, tell] : std::exchange(wanted_, {}))
      tell(error{errc::node_unreachable, "it closes"});
  }
  void release(const std::string& owner, storage::epoch held) override { of_.release(owner, held); }

private:
  storage::lease_service& of_;
  history& all_;
  const std::string by_;
  std::map<std::uint64_t, std::function<void(result<storage::epoch>)>> wanted_;
  std::uint64_t last_ = 0;
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

/// All that a node has for as long as its server runs.
struct actor_node::server {
  struct testing_scheduler : caf::actor_system_config {
    testing_scheduler() { set("scheduler.policy", caf::atom("testing")); }
  };

  explicit server(actor_node& of);

  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  }
  void sweep_snapshots();
  void end();

  /// Asks `whom`, and is told; not if the server ends meanwhile. `otherwise` is called then.
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
  void ask_peer(const std::string& name, const std::string& what, std::string text,
                nanoseconds patience, std::function<void(result<std::string>)> then);

  actor_node& self;
  testing_scheduler settings;
  caf::actor_system system;
  node_clock time;
  watched_leases leases;
  played_routes routes;
  nanoseconds seen; ///< By this node's clock, when it last ran.
  nanoseconds wakes{0};
  bool ending = false;
  std::shared_ptr<int> is_there = std::make_shared<int>(0);
  std::shared_ptr<const actors::sandbox_options> options;
  node_directory_actor directory;
  alarms_actor alarms;

private:
  struct promise {
    std::any to;
    std::function<void()> give_up;
  };

  std::function<bool(const std::string&)> ours() {
    return [this](const std::string& id) { return self.store && self.store->is_mine(id); };
  }
  std::shared_ptr<actors::sandbox_options> make_options(actors::keepers keep);
  store_actor spawn_cluster_store();
  store_actor spawn_local_store();
  void add_peer(const std::string& name);

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

  std::map<std::uint64_t, promise> promises;
  std::uint64_t last_promise = 0;
  caf::actor store_address;
  caf::actor sweeper;
  std::map<std::string, caf::actor> peers;
  std::vector<caf::actor> ended, askers;
};

} // namespace insula::simulation
