#include "actors/sandbox/drive.hpp"

#include "actors/drive_record.hpp"
#include "actors/record_keys.hpp"
#include "actors/sandbox/persistence.hpp"
#include "base/id.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace insula::actors::inside_sandbox {

static_assert(std::string_view{drive_directory} == runtime::drive_directory);

namespace {

const std::string& name_for(const drive_use& by) {
  return by.name.empty() ? by.sandbox : by.name;
}

} // namespace

void drive::attach(const attach_drive& wanted, const reply<attached_drive>& to) {
  core_.when_there(
    wanted.context,
    [=, this] { core_.when_running(to, wanted.context, [=, this] { attach_now(wanted, to); }); },
    to.otherwise());
}

void drive::attach_now(const attach_drive& wanted, const reply<attached_drive>& to) {
  if (wanted.mode == drive_mode::snapshot)
    return show_as_it_is(wanted, to);
  const bool writes = wanted.mode == drive_mode::read_write;
  const auto other = std::find_if(users_.begin(), users_.end(), [&](const auto& each) {
    return each.second.writes && each.second.by.sandbox != wanted.by.sandbox;
  });
  if (writes && !wanted.has_it && other != users_.end())
    return to.fail(
      {errc::drive_in_use, "the sandbox " + name_for(other->second.by) + " writes to it"});
  if (const auto awaited = awaited_user();
      writes && !wanted.has_it && awaited && awaited->sandbox != wanted.by.sandbox)
    return to.fail({errc::drive_in_use, "the sandbox " + name_for(*awaited) + " has it"});
  attached_drive is{engine_sandbox(), {}, enter(wanted)};
  if (writes)
    is.keep = [this, number = last_, start = core_.start(),
               post = core_.post()](std::function<void(const result<void>&)> then) {
      static const error away{errc::sandbox_not_running, "the drive has ended"};
      const bool asked = post([=, this] {
        if (!has(start, number))
          return then(away);
        core_.mark_used();
        persistence_.keep(reply<caf::ok_atom>::function{[then](const result<caf::ok_atom>& kept) {
          then(kept ? result<void>{} : kept.reason());
        }});
      });
      if (!asked)
        then(away);
    };
  to.deliver(std::move(is));
}

/// The snapshot is in no record: the sweep of the next server takes one that this server leaves,
/// and a sweep of this server's waits.
void drive::show_as_it_is(const attach_drive& wanted, const reply<attached_drive>& to) {
  if (being_shown_ >= limits::drives_shown_at_once)
    return to.fail({errc::limit_reached, "too many sandboxes want the drive as it is now"});
  ++being_shown_;
  const auto name = "drive-" + sandbox_id::generate().str();
  const auto dropped = [engine = options().engine, name,
                        noted = options().objects->note_snapshot(name)](const void*) {
    engine->drop_snapshot(name, [](const result<void>&) {});
  };
  engine_sandbox()->take_snapshot(
    name, [this, to, name, dropped, of = engine_sandbox(), post = core_.post(),
           use = core_.keep_awake()](const result<runtime::disk_snapshot>& taken) {
      const auto shown =
        taken ? std::shared_ptr<void>{const_cast<char*>(""), dropped} : std::shared_ptr<void>{};
      post([=, this] {
        --being_shown_;
        shown ? to.deliver({of, name, shown}) : to.fail(taken.reason());
      });
    });
  log::debug("drive.shown", {{"id", core_.id()}, {"to", wanted.by.sandbox}});
}

/// One that had it before, under an earlier server or in an earlier run, has it anew.
std::shared_ptr<void> drive::enter(const attach_drive& wanted) {
  const auto number = ++last_;
  users_.emplace(number, user{wanted.by, wanted.mode == drive_mode::read_write, wanted.on_gone});
  note_user();
  log::info("drive.attached", {{"id", core_.id()},
                               {"to", wanted.by.sandbox},
                               {"mode", insula::name_of(wanted.mode)},
                               {"request", wanted.context.id}});
  return {const_cast<char*>(""),
          [this, number, start = core_.start(), post = core_.post(), use = core_.keep_awake()](
            const void*) { post([this, number, start, use] { leave(start, number); }); }};
}

/// The files that were written are kept, as those of any other sandbox.
void drive::leave(std::uint64_t start, std::uint64_t number) {
  if (start != core_.start() || *options().node_ends) // The next server has both.
    return;
  const auto gone = users_.extract(number);
  if (!gone)
    return;
  note_user();
  log::info("drive.detached", {{"id", core_.id()}, {"from", gone.mapped().by.sandbox}});
  if (!gone.mapped().writes)
    return;
  core_.mark_used();
  persistence_.keep(reply<caf::ok_atom>::function{[](const result<caf::ok_atom>&) {}});
}

const drive::user* drive::first_user() const {
  const auto writer =
    std::find_if(users_.begin(), users_.end(), [](const auto& each) { return each.second.writes; });
  if (writer != users_.end())
    return &writer->second;
  return users_.empty() ? nullptr : &users_.begin()->second;
}

/// For lists, whose readers do not wait for a drive.
void drive::note_user() {
  if (awaited_user()) // It stays noted until it has asked, or is no more.
    return;
  const auto* now = first_user();
  const auto* noted = record().find(drive_user_key);
  if (now == nullptr && noted == nullptr)
    return;
  auto text = now == nullptr ? std::nullopt : std::optional{actors::text_of(now->by)};
  if (noted == nullptr || !text || *noted != *text)
    record().write({{drive_user_key, std::move(text)}});
}

/// A sandbox of the server before this one that has the drive and has not asked for it again.
std::optional<drive_use> drive::awaited_user() const {
  if (!record().loaded())
    return std::nullopt;
  auto noted = read_drive_use(record().value(drive_user_key));
  const bool has_asked = noted && std::any_of(users_.begin(), users_.end(), [&](const auto& each) {
                           return each.second.by.sandbox == noted->sandbox;
                         });
  return noted && !has_asked && options().engine->survives(noted->sandbox) ? noted : std::nullopt;
}

std::optional<drive_use> drive::any_user() const {
  const auto* now = first_user();
  return now != nullptr ? std::optional{now->by} : awaited_user();
}

/// The sandbox that is noted may have ended with its server.
void drive::running(bool) {
  note_user();
}

bool drive::is_written() const {
  const auto* now = first_user();
  return now != nullptr && now->writes;
}

void drive::stopped(const error&) {
  for (const auto& [number, each] : std::exchange(users_, {}))
    if (each.on_gone)
      each.on_gone();
}

std::optional<error> drive::forbids_leaving() const {
  const auto now = any_user();
  if (!now)
    return std::nullopt;
  return error{errc::drive_in_use, "the sandbox " + name_for(*now) + " has it at its node"};
}

void drive::describe(sandbox_description& into) const {
  into.drive_user = any_user();
}

} // namespace insula::actors::inside_sandbox
