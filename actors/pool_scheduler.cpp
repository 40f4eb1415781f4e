#include "actors/pool_scheduler.hpp"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/detail/simple_actor_clock.hpp>
#include <caf/execution_unit.hpp>
#include <caf/logger.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

namespace insula::actors {

namespace {

/// Timeouts and delayed messages, by one timer of the pool that is set to the earliest of them.
///
/// Owner: shared with the timer's handlers, which may come when the actor system has gone.
class pool_clock final : public caf::actor_clock, public std::enable_shared_from_this<pool_clock> {
public:
  explicit pool_clock(boost::asio::io_context& where)
      : timer_(where) {}

  void set_ordinary_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type,
                            std::uint64_t id) override {
    change([&] { inner_.set_ordinary_timeout(t, self, type, id); });
  }
  void set_multi_timeout(time_point t, caf::abstract_actor* self, caf::atom_value type,
                         std::uint64_t id) override {
    change([&] { inner_.set_multi_timeout(t, self, type, id); });
  }
  void set_request_timeout(time_point t, caf::abstract_actor* self, caf::message_id id) override {
    change([&] { inner_.set_request_timeout(t, self, id); });
  }
  void cancel_ordinary_timeout(caf::abstract_actor* self, caf::atom_value type) override {
    const std::lock_guard hold{guard_};
    inner_.cancel_ordinary_timeout(self, type);
  }
  void cancel_request_timeout(caf::abstract_actor* self, caf::message_id id) override {
    const std::lock_guard hold{guard_};
    inner_.cancel_request_timeout(self, id);
  }
  void cancel_timeouts(caf::abstract_actor* self) override {
    const std::lock_guard hold{guard_};
    inner_.cancel_timeouts(self);
  }
  void schedule_message(time_point t, caf::strong_actor_ptr receiver,
                        caf::mailbox_element_ptr content) override {
    change([&] { inner_.schedule_message(t, std::move(receiver), std::move(content)); });
  }
  void schedule_message(time_point t, caf::group target, caf::strong_actor_ptr sender,
                        caf::message content) override {
    change([&] {
      inner_.schedule_message(t, std::move(target), std::move(sender), std::move(content));
    });
  }
  void cancel_all() override {
    const std::lock_guard hold{guard_};
    inner_.cancel_all();
  }

  /// Nothing comes any more.
  void stop() {
    const std::lock_guard hold{guard_};
    stopped_ = true;
    inner_.cancel_all();
    timer_.cancel();
  }

private:
  template <class Change>
  void change(Change what) {
    const std::lock_guard hold{guard_};
    if (stopped_)
      return;
    what();
    set_timer();
  }

  void set_timer() {
    const auto& waiting = inner_.schedule();
    if (waiting.empty() || waiting.begin()->first >= due_)
      return;
    due_ = waiting.begin()->first;
    timer_.expires_at(due_);
    timer_.async_wait([self = shared_from_this(), due = due_](const boost::system::error_code&) {
      self->struck(due);
    });
  }

  /// Also when it was cancelled, since an earlier time has taken its place.
  void struck(time_point due) {
    const std::lock_guard hold{guard_};
    if (stopped_ || due != due_)
      return;
    due_ = time_point::max();
    inner_.trigger_expired_timeouts();
    set_timer();
  }

  /// What is dropped in here may be the last reference to an actor, which then cancels its
  /// timeouts.
  std::recursive_mutex guard_;
  caf::detail::simple_actor_clock inner_;
  boost::asio::steady_timer timer_;
  time_point due_ = time_point::max(); ///< What the timer is set to.
  bool stopped_ = false;
};

class pool_scheduler final : public caf::scheduler::abstract_coordinator {
public:
  pool_scheduler(caf::actor_system& system, io_pool& pool)
      : abstract_coordinator(system)
      , pool_(pool)
      , clock_(std::make_shared<pool_clock>(pool.context(0))) {}

  /// What an actor sends while it runs follows on the same thread, in a while, without any detour.
  void enqueue(caf::resumable* job) override {
    ++under_way_;
    if (following_.owner == this)
      following_.jobs.push_back(job);
    else
      post(job);
  }

  caf::actor_clock& clock() noexcept override { return *clock_; }

protected:
  void start() override {
    max_throughput_ = std::min(max_throughput_, most_messages);
    abstract_coordinator::start();
  }

  void stop() override {
    stop_actors();
    clock_->stop();
    while (under_way_ > 0) // They have ended, and are being let go of.
      std::this_thread::sleep_for(std::chrono::microseconds{100});
    forget_system();
  }

private:
  /// A thread in which an actor was spawned keeps CAF's logger, which the system's end waits for.
  void forget_system() {
    const auto all = std::make_shared<std::latch>(static_cast<std::ptrdiff_t>(pool_.size()));
    for (std::size_t i = 0; i < pool_.size(); ++i)
      boost::asio::post(pool_.context(i), [all] {
        caf::logger::set_current_actor_system(nullptr);
        all->count_down();
      });
    all->wait();
  }

  /// Messages of one actor before others get their turn, and actors before sockets get theirs.
  static constexpr std::size_t most_messages = 64;
  static constexpr int most_jobs = 64;

  struct unit final : caf::execution_unit {
    unit(caf::actor_system& system, pool_scheduler& owner)
        : execution_unit(&system)
        , owner_(owner) {}
    void exec_later(caf::resumable* job) override { owner_.enqueue(job); }

  private:
    pool_scheduler& owner_;
  };

  /// What comes after the job that a thread is at.
  struct turn {
    const pool_scheduler* owner = nullptr; ///< None: this thread is at no job.
    std::deque<caf::resumable*> jobs;
  };

  void post(caf::resumable* job) {
    boost::asio::post(pool_.here(), [this, job] { take_turn(job); });
  }

  /// Nothing comes out of an actor's turn: CAF keeps exceptions inside. What did would leave actors
  /// unheard.
  void take_turn(caf::resumable* job) noexcept {
    following_.owner = this;
    run(job);
    for (int i = 1; i < most_jobs && !following_.jobs.empty(); ++i) {
      job = following_.jobs.front();
      following_.jobs.pop_front();
      run(job);
    }
    following_.owner = nullptr;
    while (!following_.jobs.empty()) {
      post(following_.jobs.front());
      following_.jobs.pop_front();
    }
  }

  void run(caf::resumable* job) {
    switch (job->resume(&here_, max_throughput_)) {
      case caf::resumable::resume_later: enqueue(job); break;
      case caf::resumable::done:
      case caf::resumable::awaiting_message: caf::intrusive_ptr_release(job); break;
      case caf::resumable::shutdown_execution_unit: break;
    }
    --under_way_; // The last that is done here: stop() may be waiting for it.
  }

  static thread_local turn following_;

  io_pool& pool_;
  unit here_{system(), *this}; ///< One for all: actors remember where they ran last, and use it.
  const std::shared_ptr<pool_clock> clock_;
  std::atomic<std::size_t> under_way_ = 0;
};

thread_local pool_scheduler::turn pool_scheduler::following_;

} // namespace

void run_actors_on(io_pool& pool, caf::actor_system_config& settings) {
  settings.module_factories.emplace_back(
    [&pool](caf::actor_system& system) -> caf::actor_system::module* {
      return new pool_scheduler{system, pool};
    });
}

} // namespace insula::actors
