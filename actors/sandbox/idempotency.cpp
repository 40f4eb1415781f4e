#include "actors/sandbox/idempotency.hpp"

#include "actors/run_record.hpp"
#include "base/failpoint.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <algorithm>

namespace insula::actors::inside_sandbox {

namespace {

constexpr std::string_view all_records = "idempotency/";
constexpr std::string_view hydrate_records = "idempotency/hydrate/";
/// A run whose commands are known on this node, if it has had any.
constexpr std::string_view run_marks = "known_run/";

/// Requests that wait for one command to run.
constexpr std::size_t max_waiting = 256;

/// In place of the name of a sandbox: whether it has run in any is not known.
constexpr std::string_view in_doubt = "?";

const error too_many_results{errc::limit_reached, "the sandbox keeps as many results as it may"};
const error result_gone{errc::result_gone,
                        "what this request has done is over, and its result is gone"};

std::string key_of(std::string_view kind, const std::string& key) {
  return std::string{kind} + key;
}

std::string mark_of_run(std::uint64_t run) {
  return std::string{run_marks} + key_of_run(run).substr(run_keys.size());
}

template <class Do>
void for_each_record(const kept_record& in, Do what) {
  const auto& all = in.entries();
  for (auto at = all.lower_bound(all_records);
       at != all.end() && at->first.starts_with(all_records); ++at)
    what(at->first, idempotency_record::read(at->second));
}

} // namespace

/// This start of the sandbox: what ran in another one is gone with it.
std::string idempotency::this_start() const {
  return record().value(started_key);
}

/// The node's own is the newer one.
const std::string* idempotency::find_text(const std::string& key) const {
  const auto* const own = local().find(key);
  return own != nullptr ? own : record().find(key);
}

std::optional<idempotency_record> idempotency::find_record(const std::string& key) const {
  const auto* const found = find_text(key);
  if (found == nullptr)
    return std::nullopt;
  auto known = idempotency_record::read(*found);
  return known.expired(options().time->unix_ms()) ? std::nullopt : std::optional{known};
}

std::optional<idempotency_record> idempotency::find_remembered(const std::string& key) const {
  const auto* const found = local().find(key_of(exec_records, key));
  if (found == nullptr)
    return std::nullopt;
  auto known = idempotency_record::read(*found);
  return known.status.empty() ? std::nullopt : std::optional{std::move(known)};
}

void idempotency::each_remembered(
  const std::function<void(const std::string&, const idempotency_record&)>& tell) const {
  for_each_record(local(), [&](const std::string& key, const idempotency_record& known) {
    if (key.starts_with(exec_records) && !known.status.empty())
      tell(key.substr(exec_records.size()), known);
  });
}

kept_command* idempotency::find(const std::string& key) {
  const auto at = commands_.find(key);
  return at == commands_.end() ? nullptr : &at->second;
}

std::size_t idempotency::count_own() const {
  const auto& all = local().entries();
  std::size_t count = 0;
  for (auto at = all.lower_bound(all_records);
       at != all.end() && at->first.starts_with(all_records); ++at)
    ++count;
  return count;
}

std::size_t idempotency::count_records() const {
  auto count = count_own();
  const auto now = options().time->unix_ms();
  for_each_record(record(), [&](const std::string& key, const idempotency_record& known) {
    count += !known.expired(now) && local().find(key) == nullptr ? 1 : 0;
  });
  return count;
}

/// There is an alarm as long as there are records, at the first one's time or before.
void idempotency::write_record(const std::string& key, const idempotency_record& made) {
  const bool first = count_own() == 0;
  std::vector<storage::change> changes{{key, made.text()}};
  if (first)
    local().set_alarm(limits::results_kept, std::move(changes));
  else
    local().write(std::move(changes));
}

std::size_t idempotency::bytes_of_own() const {
  const auto& all = local().entries();
  std::size_t bytes = 0;
  for (auto at = all.lower_bound(exec_records);
       at != all.end() && at->first.starts_with(exec_records); ++at)
    bytes += at->second.size();
  return bytes;
}

/// Of the remembered commands that have ended. False: there is none.
bool idempotency::forget_oldest() {
  std::string oldest;
  std::int64_t made_ms = 0;
  each_remembered([&](const std::string& key, const idempotency_record& known) {
    if (!oldest.empty() && known.made_ms >= made_ms)
      return;
    const auto state = command_state_of(known);
    // How it ended is not known of each command whose run is over.
    if (!state.end && (state.run == 0 || commands_.contains(key)))
      return;
    oldest = key;
    made_ms = known.made_ms;
  });
  if (oldest.empty())
    return false;
  std::vector<storage::change> changes;
  forget(oldest, changes);
  local().write(std::move(changes));
  return true;
}

/// For one that is to run, with a text of so many bytes.
void idempotency::make_room(std::size_t bytes) {
  while (count_records() >= limits::kept_results_per_sandbox ||
         bytes_of_own() + bytes > limits::kept_result_bytes)
    if (!forget_oldest())
      return;
}

/// With what it has said.
void idempotency::forget(const std::string& key, std::vector<storage::change>& changes) {
  commands_.erase(key);
  changes.push_back({key_of(exec_records, key), std::nullopt});
  if (options().logs != nullptr)
    options().logs->remove(core_.id(), key);
}

/// The text of the command that an earlier server was asked for in the same words, and of which it
/// has told nobody. None: there is no such command.
std::optional<std::string> idempotency::unanswered(const idempotency_key& wanted) {
  const auto since = options().served_since_ms;
  const std::chrono::milliseconds served{options().time->unix_ms() - since};
  if (!wanted.by_digest || served >= limits::repeat_patience || find_remembered(wanted.key))
    return std::nullopt;
  std::string key, text;
  each_remembered([&](const std::string& each, const idempotency_record& known) {
    const auto state = command_state_of(known);
    if (!key.empty() || known.digest != wanted.digest || known.which != this_start() ||
        known.made_ms >= since || state.told || repeated_.contains(each))
      return;
    key = each;
    text = state.text;
  });
  if (key.empty())
    return std::nullopt;
  repeated_.insert(key);
  return text;
}

/// Null: it has not run, and may. Errors: those of find_result.
result<kept_command*> idempotency::look_up(const idempotency_key& wanted) {
  const auto at = commands_.find(wanted.key);
  const auto* const text = find_text(key_of(exec_records, wanted.key));
  auto known = text != nullptr ? std::optional{idempotency_record::read(*text)} : std::nullopt;
  const bool runs = at != commands_.end() && !at->second.over;
  if (known && known->expired(options().time->unix_ms()) && !runs)
    known.reset();
  if (!known) {
    if (at != commands_.end())
      commands_.erase(at);
    if (text == nullptr && count_records() >= limits::kept_results_per_sandbox)
      return too_many_results;
    return nullptr;
  }
  if (known->digest != wanted.digest)
    return key_conflict;
  if (at != commands_.end())
    return &at->second;
  if (knows_all_ && known->which == this_start())
    return nullptr;
  return result_gone;
}

/// Two concurrent requests may use one key for different things: the second is refused while it
/// still can be told by its status. The first client may never follow up, so the reservation
/// expires.
bool idempotency::reserve(const find_result& asked) {
  constexpr auto patience = std::chrono::seconds{10};
  const auto now = options().time->now();
  std::erase_if(reserved_, [&](const auto& each) { return each.second.until <= now; });
  const auto at = reserved_.find(asked.idempotency.key);
  if (at != reserved_.end())
    return at->second.digest == asked.idempotency.digest;
  if (asked.runs_it && reserved_.size() < limits::kept_results_per_sandbox)
    reserved_.emplace(asked.idempotency.key, reservation{asked.idempotency.digest, now + patience});
  return true;
}

void idempotency::fail(const std::string& key, const error& why) {
  const auto failed = commands_.extract(key);
  if (!failed)
    return;
  for (const auto& each : failed.mapped().waiting)
    each.fail(why);
  for (const auto& each : failed.mapped().when_known)
    each.ask();
}

/// It certainly has not run: the same request may come again, as if it never had.
void idempotency::take_back(const std::string& key, const error& why) {
  const auto record_key = key_of(exec_records, key);
  if (core_.epoch() != 0 && local().loaded() && local().find(record_key) != nullptr)
    local().write({{record_key, std::nullopt}});
  fail(key, why);
}

void idempotency::claim(waiting_command what, const run_function& run,
                        const reply<process_actor>& to) {
  const auto key = what.wanted.idempotency.key;
  auto& command = commands_[key];
  command.waiting.push_back(to);
  command.notes_answer = what.wanted.idempotency.by_digest;
  reserved_.erase(key); // From here on its record says so.
  const auto record_key = key_of(exec_records, key);
  if (!find_record(record_key)) {
    idempotency_record made{what.wanted.idempotency.digest, options().time->unix_ms(),
                            this_start()};
    if (auto& kept = what.wanted.remembered)
      made.status = text_of({.known = true,
                             .output = kept->output,
                             .text = std::move(kept->text),
                             .run = what.wanted.context.run});
    write_record(record_key, made);
  }
  what.on_over = over(key);
  const auto shared = std::make_shared<waiting_command>(std::move(what));
  local().when_durable(
    [=, this, start = core_.start()] {
      if (core_.start() != start || core_.now() != phase::running)
        return take_back(key, has_ended);
      failpoint("idempotency.claimed");
      run(std::move(*shared), told(key));
      failpoint("idempotency.asked");
    },
    [this, key](const error& why) { fail(key, why); });
}

void idempotency::run(waiting_command what, const run_function& run,
                      const reply<process_actor>& to) {
  const auto shared = std::make_shared<waiting_command>(std::move(what));
  local().load(
    [=, this] {
      const auto& wanted = shared->wanted;
      if (auto first = unanswered(wanted.idempotency))
        return to.fail({errc::request_known, std::move(*first)});
      const auto bytes = wanted.remembered ? wanted.remembered->text.size() : 0;
      if (wanted.remembered)
        make_room(bytes);
      const auto found = look_up(wanted.idempotency);
      if (!found)
        return to.fail(found.reason());
      if (*found == nullptr && bytes_of_own() + bytes > limits::kept_result_bytes)
        return to.fail(too_many_results);
      if (*found == nullptr)
        return claim(std::move(*shared), run, to);
      auto& known = **found;
      if (known.process) {
        to.deliver(known.process->handle());
        return wanted.idempotency.by_digest ? note_answer(wanted.idempotency.key) : void();
      }
      if (known.waiting.size() >= max_waiting)
        return to.fail({errc::limit_reached, "too many wait for this command"});
      known.waiting.push_back(to);
      known.notes_answer = wanted.idempotency.by_digest;
    },
    to.otherwise());
}

void idempotency::find_process(const find_result& asked, const reply<replay_status>& to) {
  local().load(
    [=, this] {
      const auto found = look_up(asked.idempotency);
      if (!found)
        return to.fail(found.reason());
      if (*found == nullptr && !reserve(asked))
        return to.fail(key_conflict);
      replay_status answer;
      answer.known = *found != nullptr;
      if (answer.known && (*found)->resuming)
        return (*found)->when_known.push_back(
          {[=, this] { find_process(asked, to); }, to.otherwise()});
      if (!answer.known || !(*found)->process)
        return to.deliver(std::move(answer));
      answer.process = (*found)->process->handle();
      using extent = reply<std::uint64_t, std::uint64_t>;
      (*found)->process->measure(
        extent::function{[answer, to](const result<extent::value>& read) mutable {
          if (!read)
            return to.fail(read.reason());
          std::tie(answer.begin, answer.end) = *read;
          to.deliver(std::move(answer));
        }});
    },
    to.otherwise());
}

then_function idempotency::over(const std::string& key) {
  return [this, key, post = core_.post()] { post([this, key] { on_over(key); }); };
}

std::optional<reply<process_actor>> idempotency::resume(const std::string& key) {
  const auto [at, fresh] = commands_.try_emplace(key);
  at->second.resuming = at->second.resuming || fresh;
  return fresh ? std::optional{told(key)} : std::nullopt;
}

void idempotency::drop_unknown() {
  if (commands_.empty())
    return;
  local().load(
    [this] {
      std::erase_if(commands_, [&](const auto& each) {
        return each.second.waiting.empty() &&
               local().find(key_of(exec_records, each.first)) == nullptr;
      });
    },
    [](const error&) {}); // The next request for one of them hears of that.
}

reply<process_actor> idempotency::told(const std::string& key) {
  return reply<process_actor>::function{[this, key](const result<process_actor>& outcome) {
    outcome ? on_running(key, *outcome) : on_not_running(key, outcome.reason());
  }};
}

void idempotency::on_running(const std::string& key, const process_actor& process) {
  auto* known = find(key);
  if (known == nullptr)
    return; // It is not known any more: no request waits for it, and nothing keeps it.
  failpoint("idempotency.runs");
  known->process = core_.process_of(process);
  known->resuming = false;
  const auto asking = std::exchange(known->when_known, {});
  for (const auto& each : std::exchange(known->waiting, {}))
    each.deliver(process);
  if (std::exchange(known->notes_answer, false))
    note_answer(key);
  for (const auto& each : asking)
    each.ask();
}

bool idempotency::certainly_not_run(const std::string& key, const error& why) const {
  switch (why.code) {
    case errc::limit_reached:
    case errc::launch_failed:
    case errc::machine_full:
    case errc::forbidden:
    case errc::sandbox_mismatch:
    case errc::image_refused:
    case errc::image_pending:
    case errc::run_over:
    case errc::key_ceiling:
    case errc::invalid_request:
    case errc::session_ended: return true;
    case errc::node_unreachable: { // The next server has the sandbox. It may have this one, too.
      const auto at = commands_.find(key);
      return at == commands_.end() || !at->second.resuming;
    }
    default: return false;
  }
}

/// The same request may come again, and then it is run, unless it cannot be told whether it has.
void idempotency::on_not_running(const std::string& key, const error& why) {
  if (core_.now() == phase::deleting)
    return fail(key, why);
  if (certainly_not_run(key, why))
    return take_back(key, why);
  // As long as the store does not say so, this actor does.
  const auto unsaid = [=, this](const error&) {
    knows_all_ = false;
    fail(key, why);
  };
  local().load(
    [=, this] {
      const auto record_key = key_of(exec_records, key);
      if (auto known = find_record(record_key); known && core_.epoch() != 0) {
        known->which = in_doubt;
        local().write({{record_key, known->text()}});
      }
      local().when_durable([=, this] { fail(key, why); }, unsaid);
    },
    unsaid);
}

/// `change`: false: it stays as it is.
void idempotency::update(const std::string& key,
                         const std::function<bool(command_state&)>& change) {
  auto remembered = find_remembered(key);
  if (!remembered || core_.epoch() == 0)
    return;
  auto known = command_state_of(*remembered);
  if (!change(known))
    return;
  remembered->status = text_of(known);
  local().write({{key_of(exec_records, key), remembered->text()}});
}

void idempotency::note_end(const std::string& key, const process_end& end) {
  update(key, [&](command_state& known) {
    if (known.end)
      return false;
    known.end = end;
    known.ended_ms = options().time->unix_ms();
    return true;
  });
}

/// From then on the same words are another command.
void idempotency::note_answer(const std::string& key) {
  failpoint("idempotency.told");
  update(key, [](command_state& known) { return !std::exchange(known.told, true); });
}

/// How much there is of what it has said, so that nobody takes a part of it for all.
void idempotency::note_extent(const std::string& key) {
  using extent = reply<std::uint64_t, std::uint64_t>;
  const pending_operation mine{core_};
  find(key)->process->measure(
    extent::function{[this, key, mine](const result<extent::value>& read) {
      if (read)
        update(key, [&](command_state& known) {
          return std::exchange(known.log_end, std::get<1>(*read)) != std::get<1>(*read);
        });
      drop_if_done(key);
      mine.over();
    }});
}

/// What it has said is elsewhere.
void idempotency::drop_if_done(const std::string& key) {
  const auto* known = find(key);
  const auto remembered = known == nullptr ? std::nullopt : find_remembered(key);
  if (!remembered || !known->over)
    return;
  const auto run = command_state_of(*remembered).run;
  if (run != 0 && run <= let_go_)
    commands_.erase(key);
}

/// A remembered command without output needs its process no more.
void idempotency::on_over(const std::string& key) {
  auto* known = find(key);
  if (known == nullptr)
    return;
  known->over = true;
  if (!local().loaded() || !known->process || !find_remembered(key))
    return;
  const pending_operation mine{core_};
  known->process->status(
    reply<process_status>::function{[this, key, mine](const result<process_status>& status) {
      if (status) {
        note_end(key, status->end);
        const auto remembered = find_remembered(key);
        const auto state = remembered ? command_state_of(*remembered) : command_state{};
        if (remembered && !state.output)
          commands_.erase(key); // Its readers have it as well.
        else if (state.run != 0 && find(key) != nullptr)
          note_extent(key);
      }
      mine.over();
    }});
}

void idempotency::when_known(const then_function& then) {
  const auto left = std::make_shared<std::size_t>(1);
  const then_function one_less = [left, then] {
    if (--*left == 0)
      then();
  };
  for (auto& [key, each] : commands_)
    if (!each.process) {
      ++*left;
      each.when_known.push_back({one_less, [one_less](const error&) { one_less(); }});
    }
  one_less();
}

// ---- Runs

std::vector<std::pair<std::string, std::shared_ptr<child_process>>>
idempotency::outputs_of(std::uint64_t run) const {
  std::vector<std::pair<std::string, std::shared_ptr<child_process>>> all;
  if (!local().loaded())
    return all;
  for (const auto& [key, each] : commands_) {
    const auto remembered = each.process ? find_remembered(key) : std::nullopt;
    const auto state = remembered ? command_state_of(*remembered) : command_state{};
    if (state.output && state.run == run)
      all.emplace_back(key, each.process);
  }
  return all;
}

void idempotency::let_go_of(std::uint64_t run) {
  let_go_ = run;
  for (const auto& [key, process] : outputs_of(run))
    drop_if_done(key);
}

void idempotency::forget_runs_before(std::uint64_t run) {
  local().load(
    [=, this] {
      std::vector<std::string> over;
      each_remembered([&](const std::string& key, const idempotency_record& known) {
        const auto of = command_state_of(known).run;
        if (of != 0 && of < run)
          over.push_back(key);
      });
      std::vector<storage::change> changes;
      for (const auto& key : over)
        forget(key, changes);
      const auto& all = local().entries();
      const auto end = all.lower_bound(mark_of_run(run));
      for (auto at = all.lower_bound(run_marks); at != end; ++at)
        changes.push_back({at->first, std::nullopt});
      if (!changes.empty() && core_.epoch() != 0)
        local().write(std::move(changes));
    },
    [](const error&) {});
}

void idempotency::note_run(std::uint64_t run) {
  local().load(
    [=, this] {
      if (!knows_run(run) && core_.epoch() != 0)
        local().write({{mark_of_run(run), "1"}});
    },
    [](const error&) {});
}

bool idempotency::knows_run(std::uint64_t run) const {
  return local().find(mark_of_run(run)) != nullptr;
}

// ---- Trees

void idempotency::write_once(const write_once_request& asked, const reply<write_once_answer>& to) {
  local().load(
    [=, this] {
      const auto key = key_of(hydrate_records, asked.idempotency.key);
      const auto known = find_record(key);
      if (known && known->digest != asked.idempotency.digest)
        return to.fail(key_conflict);
      const auto start = this_start();
      const bool tells = !asked.written_in.empty();
      if (tells && asked.written_in != start)
        return to.fail(has_ended);
      const bool written = known && known->which == start;
      if (!written && tells)
        write_record(key, {asked.idempotency.digest, options().time->unix_ms(), start});
      else if (!known && count_records() >= limits::kept_results_per_sandbox)
        return to.fail(too_many_results);
      local().answer(to, write_once_answer{written || tells, start});
    },
    to.otherwise());
}

// ---- Their end

void idempotency::expire(const alarm_due& due) {
  const auto now = options().time->unix_ms();
  std::vector<storage::change> changes;
  std::vector<std::string> over;
  std::optional<std::int64_t> next;
  for_each_record(local(), [&](const std::string& key, const idempotency_record& known) {
    const auto state = known.status.empty() ? command_state{} : command_state_of(known);
    auto left = std::max(known.made_ms, state.ended_ms) + limits::results_kept.count() - now;
    if (state.run != 0) // It goes with its run; for others there is an alarm as ever.
      left = limits::results_kept.count();
    const auto at = key.starts_with(exec_records) ? commands_.find(key.substr(exec_records.size()))
                                                  : commands_.end();
    const bool runs = at != commands_.end() && !at->second.over;
    if (left <= 0 && runs)
      left = limits::kept_result_pause.count();
    if (left > 0) {
      next = std::min(next.value_or(left), left);
      return;
    }
    changes.push_back({key, std::nullopt});
    if (at != commands_.end())
      over.push_back(at->first);
  });
  log::debug("sandbox.results_expired", {{"id", core_.id()}, {"count", changes.size()}});
  if (next)
    local().set_alarm(std::chrono::milliseconds{*next}, std::move(changes));
  else
    local().alarm_over(due, std::move(changes));
  local().when_durable(
    [this, over] {
      for (const auto& key : over)
        commands_.erase(key);
    },
    [](const error&) {});
}

void idempotency::leave(const then_function& then, const otherwise_function& otherwise) {
  const auto take = [=, this] {
    std::vector<storage::change> taken, dropped;
    if (core_.exists())
      note_start(taken);
    const auto now = options().time->unix_ms();
    for (const auto& [key, value] : local().entries())
      if (key.starts_with(run_marks))
        dropped.push_back({key, std::nullopt});
    for_each_record(local(), [&](const std::string& key, const idempotency_record& known) {
      dropped.push_back({key, std::nullopt});
      if (core_.exists() && known.status.empty() && !known.expired(now))
        taken.push_back({key, known.text()});
    });
    record().write(std::move(taken));
    record().when_durable(
      [=, this] {
        local().write(dropped);
        if (options().logs != nullptr)
          options().logs->remove(core_.id());
        local().when_durable(then, otherwise);
      },
      otherwise);
  };
  local().load(
    [=, this] {
      if (count_own() == 0)
        return then();
      record().load([=, this] { core_.with_lease(take, otherwise); }, otherwise);
    },
    otherwise);
}

void idempotency::note_start(std::vector<storage::change>& changes) const {
  const auto now = options().time->unix_ms();
  for_each_record(record(), [&](const std::string& key, const idempotency_record& known) {
    if (known.expired(now))
      changes.push_back({key, std::nullopt});
  });
}

void idempotency::ends(const error& why) {
  for (auto& [key, each] : std::exchange(commands_, {})) {
    for (const auto& asking : each.waiting)
      asking.fail(why);
    for (const auto& asking : each.when_known)
      asking.otherwise(why);
    if (each.process)
      each.process->kill();
  }
}

} // namespace insula::actors::inside_sandbox
