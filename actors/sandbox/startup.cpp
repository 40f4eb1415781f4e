#include "actors/sandbox/startup.hpp"

#include "actors/protocol/lost_files.hpp"
#include "actors/record_keys.hpp"
#include "actors/run_record.hpp"
#include "actors/sandbox/description.hpp"
#include "actors/sandbox/disk_snapshots.hpp"
#include "actors/sandbox/egress.hpp"
#include "actors/sandbox/gate.hpp"
#include "actors/sandbox/idempotency.hpp"
#include "actors/sandbox/idle.hpp"
#include "actors/sandbox/image_choice.hpp"
#include "actors/sandbox/mounts.hpp"
#include "actors/sandbox/persistence.hpp"
#include "actors/sandbox/profile.hpp"
#include "actors/sandbox/teardown.hpp"
#include "base/failpoint.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace insula::actors::inside_sandbox {

namespace {

using namespace std::chrono_literals;

/// `places`: that it has until it is gone.
template <class Places>
void end_unwanted(runtime::sandbox& made, Places places) {
  made.destroy([kept = std::make_shared<Places>(std::move(places))] {});
}

/// The key for whose ceilings it counts: the one that has made it. Empty: none.
std::string maker_of(const core& of, const request_context& first) {
  const auto* recorded = of.record().find(made_by_key);
  return recorded != nullptr ? *recorded : of.exists() ? std::string{} : first.key;
}

/// Of its limit; without one it may use the whole machine.
std::uint32_t processors_of(const core& of) {
  const auto percent = limits_of(of).cpu_percent;
  return percent != 0 ? percent : 100 * std::max(1u, std::thread::hardware_concurrency());
}

constexpr auto look_for_survivors_every = 20ms;

/// Of what the engine has refused.
start_failure failure_of(const error& why) {
  switch (why.code) {
    case errc::capacity_exceeded: return start_failure::capacity;
    case errc::machine_full: return start_failure::machine;
    default: return start_failure::launch;
  }
}

} // namespace

// ---- The ways out of a start

void startup::stopped(const error&) {
  making_ = false;
  recorded_ = false;
  adopting_ = first_ = known_ = false;
  awaits_image_ = awaits_disk_ = false;
  brought_disk_.clear();
  disk_wanted_.reset(); // What is on its way goes on: the next start begins with it.
  slot_.reset();
  warm_ = false;
  taken_ = {};
}

void startup::fall_asleep(const error& why) {
  core_.next_start();
  core_.set_engine_sandbox(nullptr);
  if (core_.now() != phase::deleting)
    core_.become(phase::asleep);
  core_.each_part([&](part& one) { one.stopped(why); });
  core_.hibernate_if_idle();
}

void startup::give_up(const error& why) {
  // It counts until it is gone.
  if (engine_sandbox())
    end_unwanted(*engine_sandbox(), std::move(taken_));
  else if (making_)
    given_up_.emplace(core_.start(), std::move(taken_));
  fall_asleep(why);
}

/// No request waited for it any more when the engine was done with it. Its place, if that was kept.
startup::taken_places startup::take_given_up(std::uint64_t start) {
  auto given_up = given_up_.extract(start);
  if (!given_up)
    return {};
  core_.hibernate_if_idle(); // It may have stayed for that.
  return std::move(given_up.mapped());
}

void startup::deleting(const error&) {
  taken_.instance.become(instance::passing);
  if (awaits_image_) // However long that takes.
    core_.post()([this, start = core_.start()] {
      on_image(start, error{errc::sandbox_not_running, "it is being deleted"});
    });
  if (!awaits_disk_)
    return;
  disk_wanted_->cancel();
  core_.post()([this, start = core_.start()] {
    on_disk(start, error{errc::sandbox_not_running, "it is being deleted"});
  });
}

// ---- The way in, step by step

void startup::begin() {
  core_.become(phase::starting);
  core_.next_start();
  core_.each_part([](part& one) { one.starting(); });
  watch_ = {};
  watch_.began = steady_clock::now();
  watch_.whose = with_.requests.first();
  core_.set_start_began(watch_.began);
  claims_ = 0;
  record().load([this] { make_unless_paused(); },
                [this](const error& why) {
                  options().figures->not_started(start_failure::record);
                  fall_asleep(why);
                },
                watch_.whose);
}

void startup::adopt() {
  if (core_.now() == phase::asleep && core_.has_survived())
    begin();
}

/// Its record is there. A paused sandbox is not made; requests for it wait.
void startup::make_unless_paused() {
  if (const auto why = core_.has_survived() ? std::nullopt : core_.forbids_start())
    return fall_asleep(*why);
  if (!core_.is_held() || core_.has_survived())
    return choose_image_and_make();
  core_.become(phase::asleep);
  with_.requests.expect_resume();
  core_.hibernate_if_idle();
}

void startup::choose_image_and_make() {
  adopting_ = core_.has_survived();
  if (adopting_ && (record().find(started_key) == nullptr || with_.files.has_half_its_files() ||
                    with_.disk.has_other_disk() || has_no_run()))
    return end_survivor(); // No client was ever told of it.
  const auto from = image_of(core_, watch_.whose);
  image_name_ = from.name;
  auto here = options().images->find(from.name);
  if (options().supply == nullptr || adopting_ || (here && has_bytes_of(from, *here)))
    return make_from(std::move(here));
  awaits_image_ = true;
  options().supply->find(
    {from.source.empty() ? from.name : from.source},
    [this, start = core_.start(), post = core_.post()](const result<std::string>& found) {
      post([=, this] { on_image(start, found); });
    });
}

void startup::on_image(std::uint64_t start, const result<std::string>& found) {
  if (start != core_.start())
    return;
  awaits_image_ = false;
  if (core_.now() == phase::deleting) {
    core_.next_start(); // The answer that comes later is that of no start.
    return with_.ends.finish_delete();
  }
  if (found)
    image_name_ = *found;
  auto image = options().images->find(image_name_);
  if (found)
    return make_from(std::move(image));
  // Its bytes are not to be had any more: then its name decides.
  // What is on a disk that began with a snapshot fits no other image.
  if (image && found.reason().code != errc::image_pending && with_.disk.base().empty()) {
    log::warning("sandbox.other_image",
                 {{"id", core_.id()}, {"image", image_name_}, {"reason", found.reason().message}});
    return make_from(std::move(image));
  }
  const auto& why = found.reason();
  if (core_.exists() && why.code == errc::image_refused)
    return make_from(nullptr); // That is no fault of the request.
  log::warning("sandbox.no_image", {{"id", core_.id()},
                                    {"image", image_name_},
                                    {"reason", why.message},
                                    {"request", watch_.whose.id}});
  options().figures->not_started(start_failure::image);
  fall_asleep(why);
}

/// Null: there is no such image.
void startup::make_from(shared_image image) {
  static const auto unknown = std::make_shared<const sandbox_image>(); // All that a survivor lacks
                                                                       // is its environment.
  if (!image && !adopting_) {
    log::error("sandbox.no_image",
               {{"id", core_.id()}, {"image", image_name_}, {"request", watch_.whose.id}});
    options().figures->not_started(start_failure::image);
    return fall_asleep({core_.exists() ? errc::launch_failed : errc::image_refused,
                        "its image \"" + image_name_ +
                          "\" is not there; once it has been imported again, the sandbox starts"});
  }
  auto profile = recorded_profile(core_);
  if (!profile) {
    log::error(
      "sandbox.no_profile",
      {{"id", core_.id()}, {"reason", profile.reason().message}, {"request", watch_.whose.id}});
    options().figures->not_started(start_failure::record);
    return fall_asleep(profile.reason());
  }
  // A new one gets what its first request asks for.
  if (!core_.exists() && record().find(profile_key) == nullptr)
    profile->gains = watch_.whose.gains.value_or(profile->gains);
  if (const auto wrong = objection_to(profile->gains, options()); wrong && !adopting_) {
    options().figures->not_started(start_failure::record);
    return fall_asleep(*wrong);
  }
  core_.set_image(image ? image : unknown);
  core_.set_profile(std::move(*profile));
  known_ = core_.exists();
  if (!adopting_)
    return take_place_of_key([this] { take_place([this] { take_lease_and_make(); }); });
  taken_.instance = options().instances->take_over();
  take_place_of_key([this] { take_lease_and_make(); });
}

/// Among those of the API key that has made it, if that has a name.
void startup::take_place_of_key(const then_function& then) {
  auto* const places = options().key_places;
  if (places == nullptr)
    return then();
  auto key = maker_of(core_, watch_.whose);
  if (key.empty())
    return then();
  const auto start = core_.start();
  storage::place_wish wish{std::move(key), core_.id(), processors_of(core_),
                           record().find(started_key) == nullptr};
  if (adopting_) {
    taken_.of_key = places->take_over(std::move(wish));
    return then();
  }
  const bool survivors_count =
    options().time->now() < options().survivors_until && places->counts_here_alone(wish.key);
  if (survivors_count && !options().engine->survivors().empty()) {
    return core_.after(look_for_survivors_every, [this, then, start] {
      if (start != core_.start())
        return;
      core_.now() == phase::deleting ? with_.ends.finish_delete() : take_place_of_key(then);
    });
  }
  places->take(std::move(wish), [this, then, start, post = core_.post()](
                                  const result<storage::key_places::held>& taken) {
    post([this, then, start, taken] { // With the actor its place goes.
      if (start != core_.start())
        return;
      if (core_.now() == phase::deleting)
        return with_.ends.finish_delete();
      if (!taken) {
        log::info(
          "sandbox.key_ceiling",
          {{"id", core_.id()}, {"reason", taken.reason().message}, {"request", watch_.whose.id}});
        options().figures->not_started(start_failure::key);
        return fall_asleep(taken.reason());
      }
      taken_.of_key = *taken;
      then();
    });
  });
}

/// Its own place among the node's instances.
void startup::take_place_cold(const then_function& then) {
  if (!taken_.instance) { // It may have that of a warm one that was dead.
    auto own = options().instances->take();
    if (!own) {
      options().figures->not_started(start_failure::capacity);
      return fall_asleep(own.reason());
    }
    taken_.instance = std::move(*own);
  }
  then();
}

/// A warm one from the pool, or its own place.
void startup::take_place(then_function then) {
  if (auto full = options().engine->refuses_more()) {
    options().figures->not_started(failure_of(*full));
    return fall_asleep(*full);
  }
  if (!claim_ || claims_ >= limits::claims_in_vain || !with_.disk.base().empty())
    return take_place_cold(then);
  watch_.claimed = steady_clock::now();
  claim_({{image_name_, options().engine_name, core_.profile().gains}, watch_.whose},
         reply<claim_answer>::function{
           [this, then, start = core_.start()](const result<claim_answer>& answer) {
             if (start != core_.start())
               return; // The slot is removed with the answer.
             if (core_.now() == phase::deleting)
               return with_.ends.finish_delete();
             // An error: the slot went just when it was to be asked.
             const auto got = answer ? *answer : claim_answer{nullptr, true};
             slot_ = got.slot;
             if (slot_)
               return then();
             if (!got.again)
               return take_place_cold(then);
             ++claims_;
             take_place(then);
           }});
}

void startup::take_lease_and_make() {
  watch_.lease_asked = steady_clock::now();
  core_.with_lease(
    [this] {
      watch_.part(start_phase::lease) = steady_clock::now() - watch_.lease_asked;
      if (core_.now() == phase::deleting)
        return adopting_ ? end_survivor() : with_.ends.finish_delete();
      if (!adopting_ && record().find(started_key) != nullptr && !begins_run())
        return write_record([this] { make(); });
      const auto start = core_.start();
      if (adopting_)
        recorded_ = true; // By the server that has started it.
      else
        write_record(nullptr);
      if (start == core_.start()) // Else it has failed at once.
        make();
    },
    [this](const error& why) {
      if (core_.now() == phase::deleting)
        return with_.ends.finish_delete();
      options().figures->not_started(start_failure::lease);
      fall_asleep(why);
    });
}

/// It has had runs, and none is alive: the record of the one for which it was made is not there.
bool startup::has_no_run() const {
  const auto run = last_run(record().entries());
  return run && !is_alive(run->state);
}

bool startup::begins_run() const {
  const auto run = last_run(record().entries());
  return run && run->state == run_state::pending;
}

/// `before`: the engine was to be asked after it.
void startup::record_failed(const error& why, bool before) {
  log::error("sandbox.record_failed",
             {{"id", core_.id()}, {"reason", why.message}, {"request", watch_.whose.id}});
  options().figures->not_started(start_failure::record);
  if (core_.now() == phase::deleting) // Else what is under way there ends it.
    return before ? with_.ends.finish_delete() : void();
  give_up({why.code, "its record could not be written: " + why.message});
}

/// The output gate of a start: no client learns of the sandbox before its record would survive a
/// crash. `make`: what is to follow it; null: the engine has been asked already.
void startup::write_record(const then_function& make) {
  if (known_ && !core_.exists()) // The store has refused its definition meanwhile.
    return record_failed({errc::store_failed, "its definition was not kept"}, make != nullptr);
  first_ = record().find(started_key) == nullptr;
  const auto now_ms = std::to_string(options().time->unix_ms());
  std::vector<storage::change> changes{{image_key, image_name_}, {started_key, now_ms}};
  const auto* recorded = record().find(image_source_key);
  if (recorded == nullptr || !has_bytes_of({{}, *recorded}, core_.image())) {
    const auto source = source_of(core_.image());
    if (!source.empty())
      changes.push_back({image_source_key, source});
    else if (recorded != nullptr)
      changes.push_back({image_source_key, std::nullopt});
  }
  if (!core_.exists()) {
    changes.push_back({created_key, now_ms});
    if (!watch_.whose.key.empty())
      changes.push_back({made_by_key, watch_.whose.key});
    if (!watch_.whose.image.empty() && record().find(image_asked_key) == nullptr)
      changes.push_back({image_asked_key, watch_.whose.image});
    if (core_.profile().gains != privileges::none) // For good, whatever the node says later.
      changes.push_back({std::string{profile_key}, write_privileges(core_.profile().gains)});
  }
  with_.files.note_start(changes);
  with_.disk.note_start(changes);
  with_.keys.note_start(changes);
  watch_.record_sent = steady_clock::now();
  record().write(std::move(changes), watch_.whose);
  record().when_durable(
    [this, make, start = core_.start()] {
      if (start != core_.start())
        return;
      watch_.part(start_phase::record) = steady_clock::now() - watch_.record_sent;
      recorded_ = true;
      if (!make)
        run_if_ready();
      else if (core_.now() == phase::deleting)
        with_.ends.finish_delete();
      else
        make();
    },
    [this, make, start = core_.start()](const error& why) {
      if (start == core_.start())
        record_failed(why, make != nullptr);
    });
}

runtime::sandbox_listener startup::listener() {
  const auto start = core_.start();
  const auto post = core_.post();
  runtime::sandbox_listener made;
  // One that comes to life after the actor has ended is removed again.
  made.on_ready = [this, start, post](const std::shared_ptr<runtime::sandbox>& of) {
    if (!post([=, this] { on_ready(start, of); }))
      of->destroy([] {});
  };
  made.on_failed = [this, start, post](const error& why) {
    post([=, this] { on_failed(start, why); });
  };
  const auto for_memory = std::make_shared<bool>(false);
  made.on_forced_end = [for_memory] { *for_memory = true; };
  made.on_ended = [this, start, post, for_memory] {
    post([this, start, memory = *for_memory] { with_.ends.on_ended(start, memory); });
  };
  made.on_mount_ended = [this, start, post](const std::string& path) {
    post([=, this] { with_.buckets.on_program_ended(start, path); });
  };
  return made;
}

/// The one that has survived, the one that was claimed, or else a new one.
void startup::make() {
  if (slot_ && !with_.disk.base().empty()) { // It was rolled back meanwhile: a warm one has a disk.
    slot_.reset();
    return take_place_cold([this] { make(); });
  }
  making_ = true;
  with_.disk.note_made();
  runtime::sandbox_spec spec;
  spec.name = core_.id();
  spec.host_name = core_.id().substr(0, 63);
  spec.image = core_.image().layers;
  spec.limits = limits_of(core_);
  const auto& network = with_.network.of_start();
  spec.network = network.policy;
  spec.requests = network.requests;
  spec.epoch = core_.epoch();
  spec.may_gain_rights = core_.profile().gains == privileges::sudo;
  if (adopting_)
    return options().engine->adopt(spec, listener());
  warm_ = slot_ != nullptr;
  if (warm_) {
    auto [made, instance] = std::exchange(slot_, nullptr)->take();
    taken_.instance = std::move(instance);
    failpoint("sandbox.claim");
    return made->claim(
      {spec.host_name, spec.limits, spec.name, spec.network, spec.epoch, spec.requests},
      listener());
  }
  spec.disk_from = with_.disk.base();
  if (options().copies && !spec.disk_from.empty())
    options().copies->note_use(spec.disk_from);
  options().figures->cold_start();
  options().engine->create(std::move(spec), listener());
}

/// The start is over: its times are counted, and told to the requests that wait.
void startup::account() {
  const auto now = steady_clock::now();
  with_.requests.account(now);
  if (adopting_)
    return;
  constexpr std::chrono::nanoseconds not_needed{-1};
  const auto made = warm_ ? runtime::creation_times{not_needed, not_needed, not_needed, not_needed,
                                                    not_needed, not_needed, not_needed}
                          : engine_sandbox()->creation();
  watch_.part(start_phase::slot) = made.slot;
  watch_.part(start_phase::cgroup) = made.cgroup;
  watch_.part(start_phase::disk) = made.disk;
  watch_.part(start_phase::namespaces) = made.namespaces;
  watch_.part(start_phase::layers) = made.layers;
  watch_.part(start_phase::mounts) = made.mounts;
  watch_.part(start_phase::agent) = made.agent;
  watch_.part(start_phase::claim) = warm_ ? watch_.made_ours - watch_.claimed : not_needed;
  watch_.part(start_phase::ready) = now - watch_.began;
  options().figures->started(watch_.parts);
  if (watch_.whose.times)
    watch_.whose.times->started(watch_.parts);
}

void startup::run_if_ready() {
  if (core_.now() != phase::starting || !engine_sandbox() || !recorded_ ||
      !core_.settle([this] { run_if_ready(); },
                    [this, start = core_.start()](const error& why) { on_failed(start, why); }))
    return;
  core_.become(phase::running);
  taken_.instance.become(instance::assigned);
  account();
  if (options().supply != nullptr)
    options().supply->used(image_name_);
  const bool adopted = std::exchange(adopting_, false), wanted = !with_.requests.empty();
  if (adopted)
    core_.set_start_began(std::nullopt);
  core_.each_part([adopted](part& one) { one.running(adopted); });
  log::info("sandbox.running",
            {{"id", core_.id()}, {"epoch", core_.epoch()}, {"request", watch_.whose.id}});
  if (adopted)
    with_.ladder.stand_as_left();
  if (core_.is_held())
    return with_.requests.expect_resume();
  with_.requests.serve();
  core_.mark_used();
  if (adopted && !wanted)
    with_.ladder.recall();
}

// ---- What the engine says

void startup::on_ready(std::uint64_t start, std::shared_ptr<runtime::sandbox> made) {
  if (start != core_.start())
    return end_unwanted(*made, take_given_up(start));
  failpoint("sandbox.made");
  making_ = false;
  core_.set_engine_sandbox(std::move(made));
  watch_.made_ours = steady_clock::now();
  if (core_.now() == phase::deleting)
    return with_.ends.destroy();
  run_if_ready();
}

void startup::on_failed(std::uint64_t start, error why) {
  if (start != core_.start())
    return static_cast<void>(take_given_up(start));
  making_ = false;
  if (warm_ && core_.now() == phase::starting && why.code != errc::stale_epoch) {
    options().figures->slot_died();
    log::warning("pool.dead_slot", {{"reason", why.message}, {"request", watch_.whose.id}});
    ++claims_;
    return take_place([this] { make(); }); // With its place, since it is gone.
  }
  if (why.code == errc::not_found && core_.now() == phase::starting &&
      with_.disk.base() != brought_disk_) // An empty one was not asked for.
    return bring_disk();
  end_failed(why);
}

/// The start is over.
void startup::end_failed(error why) {
  if (why.code == errc::not_found) // Which is no word about the sandbox.
    why.code = errc::launch_failed;
  // The engine's own ceiling is told as the node's.
  if (why.code == errc::capacity_exceeded)
    why.message = options().instances->now();
  log::error("sandbox.not_started",
             {{"id", core_.id()}, {"reason", why.message}, {"request", watch_.whose.id}});
  options().figures->not_started(failure_of(why));
  if (core_.now() == phase::deleting) // One that was not to be had may still be there.
    return core_.has_survived() ? end_survivor() : with_.ends.finish_delete();
  fall_asleep(why);
}

/// None: there is a copy.
std::optional<error> startup::cannot_be_brought(const snapshot_description& found) const {
  if (options().copies && !found.copy.empty())
    return std::nullopt;
  if (options().routes == nullptr || found.state == snapshot_state::failed)
    return error{errc::launch_failed, "what snapshot " + found.id + " had is lost"};
  if (!found.no_copy.empty())
    return error{errc::launch_failed,
                 "snapshot " + found.id +
                   " is on another node alone, and has no copy: " + found.no_copy};
  if (found.away)
    return error{errc::store_failed,
                 "what snapshot " + found.id +
                   " had is on a node that is not there, and has no copy",
                 limits::brought_again_s};
  return snapshots::copy_comes_later(found.id);
}

/// The engine lacks what this start begins with. A copy may be there, and then it is tried once
/// more.
void startup::bring_disk() {
  awaits_disk_ = true;
  brought_disk_ = with_.disk.base();
  disk_wanted_ = std::make_shared<actors::work_token>();
  core_.ask_snapshot(
    find_snapshot{with_.disk.base(), watch_.whose, true, options().routes != nullptr},
    reply<snapshot_description>::function{
      [this, start = core_.start()](const result<snapshot_description>& found) {
        if (start != core_.start() || !awaits_disk_)
          return;
        if (!found)
          return on_disk(start, found.reason());
        if (const auto why = cannot_be_brought(*found))
          return on_disk(start, *why);
        log::info("snapshot.brings", {{"id", found->id}, {"sandbox", core_.id()}});
        options().copies->bring(
          {found->id, core_.image_handle(), found->copy,
           snapshots::brought_disk_bytes(found->bytes, limits_of(core_).disk_bytes), disk_wanted_,
           found->bytes},
          [this, start, post = core_.post()](const result<void>& back) {
            post([=, this] { on_disk(start, back); });
          });
        core_.after(limits::brought_patience, [this, start, id = found->id] {
          on_disk(start, error{errc::store_failed,
                               "what snapshot " + id + " had is on its way to this node",
                               limits::brought_again_s});
        });
      }});
}

void startup::on_disk(std::uint64_t start, const result<void>& back) {
  if (start != core_.start() || !std::exchange(awaits_disk_, false))
    return;
  if (core_.now() == phase::deleting) {
    core_.next_start(); // The answer that comes later is that of no start.
    return with_.ends.finish_delete();
  }
  if (back)
    return failpoint("snapshot.brought"), make();
  auto why = back.reason();
  if (why.code == errc::store_failed)
    why.message = std::string{files_unavailable} + why.message;
  end_failed(std::move(why));
}

void startup::end_survivor() {
  options().engine->disown(core_.id(), [this, start = core_.start(), post = core_.post()] {
    post([this, start] { on_survivor_ended(start); });
  });
}

void startup::on_survivor_ended(std::uint64_t start) {
  if (start != core_.start())
    return;
  if (core_.now() == phase::deleting)
    return with_.ends.load_and_finish_delete();
  if (with_.requests.empty())
    return fall_asleep({errc::sandbox_not_running, "it was never used"});
  make_unless_paused();
}

} // namespace insula::actors::inside_sandbox
