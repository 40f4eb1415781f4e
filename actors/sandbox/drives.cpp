#include "actors/sandbox/drives.hpp"

#include "actors/drive_record.hpp"
#include "actors/record_keys.hpp"
#include "actors/run_record.hpp"
#include "actors/sandbox/persistence.hpp"
#include "actors/sandbox/profile.hpp"
#include "actors/sandbox/startup.hpp"
#include "actors/sandbox/teardown.hpp"
#include "actors/sandbox_metadata.hpp"
#include "base/failpoint.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <utility>

namespace insula::actors::inside_sandbox {

namespace {

constexpr std::chrono::seconds first_pause{1}, longest_pause{20};

/// As drives_key, of the start that is under way or was the last: a change is for the next one.
constexpr const char* attached_key = "attached_drives";

/// The directory that the sandbox has is of no drive.
bool is_gone(const error& why) {
  return why.code == errc::already_exists || why.code == errc::not_found;
}

/// In the words of clients.
error told_of(const error& why, const std::string& name) {
  switch (why.code) {
    case errc::not_found: return {errc::drive_gone, "Drive '" + name + "' not found."};
    case errc::drive_in_use:
      return {errc::drive_in_use, "Drive '" + name + "' is in use: " + why.message + '.'};
    case errc::io_failed:
    case errc::already_exists:
      return {errc::launch_failed, "Drive '" + name + "' cannot be attached: " + why.message};
    case errc::launch_failed:
    case errc::capacity_exceeded:
    case errc::machine_full:
    case errc::key_ceiling:
    case errc::disk_full: return why;
    default: // It comes and goes, and is no word about this sandbox.
      return {errc::node_unreachable, "Drive '" + name + "' cannot be had now: " + why.message};
  }
}

} // namespace

void drives::starting() {
  now_ = state::unknown;
  held_.clear();
}

bool drives::goes_on(std::uint64_t start) const {
  return start == core_.start() && core_.now() == phase::starting && now_ == state::settling;
}

bool drives::settle(const then_function& then, const otherwise_function&) {
  if (now_ != state::unknown)
    return now_ == state::settled;
  if (!startup_.adopting())
    note_wanted();
  auto wanted = read_drives(record().value(attached_key));
  if (startup_.adopting()) // What they show is there, and nobody's.
    std::erase_if(wanted, [](const auto& each) { return each.mode == drive_mode::snapshot; });
  if (wanted.empty()) {
    now_ = state::settled;
    return true;
  }
  now_ = state::settling;
  attach_next(std::move(wanted), then);
  return false;
}

/// For a server that takes the sandbox over.
void drives::note_wanted() {
  const auto text = record().value(drives_key);
  if (text != record().value(attached_key))
    record().write({{attached_key, text.empty() ? std::nullopt : std::optional{text}}});
}

/// One after the other: of two sandboxes that want the same drives one has them all.
void drives::attach_next(std::vector<drive_mount> left, const then_function& then) {
  if (left.empty()) {
    failpoint("sandbox.drives_attached");
    now_ = state::settled;
    return then();
  }
  const auto wanted = left.front();
  left.erase(left.begin());
  attach(wanted, startup_.adopting(),
         [=, this, start = core_.start()](const result<void>& outcome) {
           if (!goes_on(start))
             return;
           if (outcome)
             return attach_next(left, then);
           const auto& why = outcome.reason();
           log::error("sandbox.no_drive", {{"id", core_.id()},
                                           {"drive", wanted.drive},
                                           {"path", wanted.path},
                                           {"reason", why.message},
                                           {"request", startup_.whose().id}});
           if (startup_.adopting() && !is_gone(why)) { // It has the drive.
             ask_again(wanted, first_pause);
             return attach_next(left, then);
           }
           options().figures->not_started(start_failure::files);
           startup_.give_up(told_of(why, wanted.name));
         });
}

void drives::attach(const drive_mount& wanted, bool has_it,
                    std::function<void(const result<void>&)> then) {
  attach_drive question;
  question.by.sandbox = core_.id();
  if (const auto run = last_run(record().entries()))
    question.by.run = run->number;
  if (const auto& captions = options().captions)
    if (const auto caption = captions(metadata_of(record().entries())))
      question.by.name = caption->name;
  question.mode = wanted.mode;
  question.context.id = startup_.whose().id;
  question.has_it = has_it;
  question.on_gone = [this, name = wanted.name, start = core_.start(), post = core_.post()] {
    post([=, this] { on_gone(start, name); });
  };
  const auto place = [this, wanted, then, start = core_.start()](const attached_drive& of) {
    if (start != core_.start() || !engine_sandbox())
      return; // With what it holds the drive is free again.
    runtime::drive_spec what;
    what.path = wanted.path;
    what.of = of.of;
    what.snapshot = of.snapshot;
    what.read_only = wanted.mode != drive_mode::read_write;
    what.owner = user_of(core_).uid;
    engine_sandbox()->attach_drive(
      std::move(what), [this, then, start, of, post = core_.post()](const result<void>& outcome) {
        post([=, this] {
          if (outcome && start == core_.start() && of.snapshot.empty())
            held_.push_back(of);
          then(outcome);
        });
      });
  };
  core_.ask_drive(wanted.drive, std::move(question),
                  reply<attached_drive>::function{[place, then](const result<attached_drive>& of) {
                    of ? place(*of) : then(of.reason());
                  }});
}

/// In a sandbox that was adopted, and goes on meanwhile.
void drives::ask_again(const drive_mount& wanted, std::chrono::seconds pause) {
  core_.after(pause, [=, this, start = core_.start()] {
    if (start != core_.start())
      return;
    if (core_.now() == phase::starting)
      return ask_again(wanted, pause);
    attach(wanted, true, [=, this](const result<void>& outcome) {
      if (start != core_.start() || outcome)
        return;
      if (is_gone(outcome.reason()))
        return on_gone(start, wanted.name);
      ask_again(wanted, std::min(2 * pause, longest_pause));
    });
  });
}

/// Its directory is of no drive any more: to write there would be to lose what is written.
void drives::on_gone(std::uint64_t start, const std::string& name) {
  if (start != core_.start() || *options().node_ends)
    return;
  const error why{errc::node_unreachable, "Drive '" + name + "' has ended."};
  log::error("sandbox.drive_ended", {{"id", core_.id()}, {"drive", name}});
  if (core_.now() == phase::starting)
    return startup_.give_up(why);
  if (!core_.runs())
    return;
  // Its own disk is kept first, if that does not take long.
  const auto stop = [=, this] {
    if (start == core_.start() && core_.runs())
      teardown_.stop(sandbox_end::stopped, why.message);
  };
  persistence_.keep(reply<caf::ok_atom>::function{
    [stop, post = core_.post()](const result<caf::ok_atom>&) { post(stop); }});
  core_.after(limits::drive_patience, stop);
}

void drives::keep(then_function then) {
  const auto left = std::make_shared<std::size_t>(1);
  const auto over = [left, once = std::make_shared<then_function>(std::move(then))] {
    if (*left > 0 && --*left == 0)
      std::exchange(*once, nullptr)();
  };
  for (const auto& each : held_) {
    if (!each.keep)
      continue;
    ++*left;
    each.keep([this, over, post = core_.post()](const result<void>& kept) {
      post([=, this] {
        if (!kept)
          log::warning("sandbox.drive_not_kept",
                       {{"id", core_.id()}, {"reason", kept.reason().message}});
        over();
      });
    });
  }
  if (*left > 1)
    core_.after(limits::drive_patience, [left, over] {
      if (*left == 0)
        return;
      *left = 1;
      over();
    });
  over();
}

/// Nothing of it runs any more, so it writes nothing.
void drives::stopped(const error&) {
  now_ = state::unknown;
  held_.clear();
}

} // namespace insula::actors::inside_sandbox
