#pragma once

#include "storage/etcd/client.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

/// A cluster without threads, sockets and time: what happens next is drawn from a seed.
namespace insula::simulation {

using namespace std::chrono_literals;
using nanoseconds = std::chrono::nanoseconds;

/// Time, and what is going to happen.
class world {
public:
  explicit world(std::uint64_t seed)
      : random_(seed) {}

  nanoseconds now() const { return now_; }
  void at(nanoseconds when, std::function<void()> what) { future_.emplace(when, std::move(what)); }
  void after(nanoseconds pause, std::function<void()> what) { at(now_ + pause, std::move(what)); }
  void run_until(nanoseconds end);
  /// Called after all that happens: what follows from it without time.
  std::function<void()> settle = [] {};

  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool chance(double part) { return std::uniform_real_distribution<>{}(random_) < part; }
  nanoseconds between(nanoseconds least, nanoseconds most) {
    return least + nanoseconds{static_cast<std::int64_t>(
                     below(static_cast<std::uint64_t>((most - least).count()) + 1))};
  }

private:
  nanoseconds now_{0};
  std::mt19937_64 random_;
  std::multimap<nanoseconds, std::function<void()>> future_;
};

/// etcd as its clients see it: one history of changes, and leases that end by its own time. Its
/// leader's disk may hang: then it is asked beside the others for as long as that takes, and
/// answers what it can without a majority.
class engine {
public:
  engine(world& in)
      : world_(in) {}

  /// Errors: those that etcd has for it: not_found of a lease, disk_full; io_failed: it took place,
  /// and the answer is of no use.
  result<storage::etcd::outcome> transact(const storage::etcd::transaction& what);
  result<storage::etcd::lease_id> grant(std::chrono::seconds lives);
  storage::etcd::renewal renew(storage::etcd::lease_id which);
  void revoke(storage::etcd::lease_id which);

  /// There is no new leader until then. It gives all leases their whole time anew.
  void hang_leader(nanoseconds elected_after);
  /// It hears that it is none. `revokes`: what it took for over goes, though it was renewed
  /// elsewhere.
  void leader_goes_on(bool revokes);
  bool leader_hangs() const { return hangs_; }
  /// Of those that do not hang.
  bool has_leader() const { return !electing_; }
  /// What a leader says that hangs.
  storage::etcd::renewal renew_at_old(storage::etcd::lease_id which);

  const std::map<std::string, storage::etcd::key_value>& keys() const { return keys_; }
  storage::etcd::revision at() const { return at_; }
  /// All that has been changed, in its order.
  const std::vector<storage::etcd::event>& log() const { return log_; }
  /// Called with each change that takes place.
  std::function<void(const storage::etcd::event&)> changed = [](const auto&) {};
  /// Called once when there is something new, as long as what is returned is held.
  std::shared_ptr<void> when_changed(std::function<void()> tell);

  bool full = false;     ///< It takes nothing more.
  double garbled = 0.01; ///< So many of its answers make no sense.
  std::size_t refused_full = 0, refused_lease = 0;
  std::size_t renewed_in_vain = 0, ended_early = 0;
  nanoseconds last_early_end{-1h};

private:
  struct lease {
    std::chrono::seconds lives;
    std::uint64_t renewals = 0;
  };
  void elect(std::uint64_t which_time);
  bool holds(const storage::etcd::condition& what) const;
  storage::etcd::outcome apply(const storage::etcd::transaction& what);
  void note(storage::etcd::event what);
  void watch_end(storage::etcd::lease_id which);
  void remove(const std::string& key);

  world& world_;
  std::map<std::string, storage::etcd::key_value> keys_;
  std::map<storage::etcd::lease_id, lease> leases_;
  std::vector<storage::etcd::event> log_;
  std::vector<std::pair<std::weak_ptr<void>, std::function<void()>>> waiting_;
  storage::etcd::revision at_ = 1;
  storage::etcd::lease_id last_lease_ = 0;
  storage::etcd::term term_ = 1, old_term_ = 0;
  bool hangs_ = false, electing_ = false;
  std::uint64_t times_hung_ = 0;
  std::map<storage::etcd::lease_id, std::chrono::seconds> old_leases_; ///< That the old one has.
};

/// What is between a node and etcd right now.
struct wire {
  bool requests_arrive = true;
  bool answers_arrive = true;
  nanoseconds slowest = 5ms;
};

/// A node's way to etcd: attempts of 300 ms until patience is over, each of which may arrive late,
/// or not, or only half. A node that stands still hears nothing until it goes on.
class wired_client final : public storage::etcd::client {
public:
  wired_client(world& in, engine& to, nanoseconds clock_ahead)
      : world_(in)
      , engine_(to)
      , ahead_(clock_ahead) {}
  ~wired_client() override { *alive_ = false; }

  void transact(storage::etcd::transaction what, milliseconds patience,
                std::function<void(result<storage::etcd::outcome>)> then) override;
  void grant(std::chrono::seconds lives, milliseconds patience,
             std::function<void(result<storage::etcd::lease_id>)> then) override;
  void renew(storage::etcd::lease_id which, milliseconds patience,
             std::function<void(result<storage::etcd::renewal>)> then) override;
  void revoke(storage::etcd::lease_id which, milliseconds patience,
              std::function<void(result<void>)> then) override;
  std::shared_ptr<void>
  watch(std::string prefix, storage::etcd::revision from,
        std::function<void(std::vector<storage::etcd::event>, storage::etcd::revision)> tell,
        std::function<void(error)> ended) override;
  void post(std::function<void()> what) override;
  void after(nanoseconds pause, std::function<void()> what) override;
  nanoseconds now() const override { return world_.now() + ahead_; }

  wire between;
  bool stands_still = false;
  bool ending = false; ///< What is posted is done at once.
  void go_on();

private:
  struct watching;
  void wait_for_news(const std::shared_ptr<watching>& at);
  void look(const std::shared_ptr<watching>& at);
  template <class Answer>
  void ask(std::function<result<Answer>()> at_engine, milliseconds patience,
           std::function<void(result<Answer>)> then,
           std::function<result<Answer>()> at_old = nullptr);
  template <class Call>
  void attempt(std::shared_ptr<Call> call);
  void here(std::function<void()> what);

  world& world_;
  engine& engine_;
  const nanoseconds ahead_;
  std::vector<std::function<void()>> held_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

} // namespace insula::simulation
