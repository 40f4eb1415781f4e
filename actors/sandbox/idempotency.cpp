#include "actors/sandbox/sandbox_state.hpp"

#include "base/failpoint.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <charconv>

/// Requests that have their effect once. Of each there is a record in the node's store, durable
/// before anything is done. The command itself is kept by the engine, with its output and its end,
/// over any number of servers: a record whose command is not there, although nothing was lost since
/// in which sandbox it was to run, is one of a command that was never started.
namespace insula::actors::inside_sandbox {

std::string once_record::text() const {
  return digest + '\n' + std::to_string(made_ms) + '\n' + which +
         (about.empty() ? "" : '\n' + about);
}

once_record once_record::read(std::string_view text) {
  once_record found;
  const auto next = [&text] {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    return line;
  };
  found.digest = next();
  const auto made = next();
  std::from_chars(made.data(), made.data() + made.size(), found.made_ms);
  found.which = next();
  found.about = text;
  return found;
}

bool once_record::expired(std::int64_t now_ms) const {
  return now_ms - made_ms >= limits::results_kept.count();
}

namespace {

constexpr std::string_view records = "idempotency/";
constexpr std::string_view commands = "idempotency/exec/";
constexpr std::string_view trees = "idempotency/hydrate/";

/// Who waits for one command to run.
constexpr std::size_t max_waiting = 256;

/// In place of the name of a sandbox: whether it has run in any is not known.
constexpr std::string_view in_doubt = "?";

const error too_many{errc::limit_reached, "the sandbox keeps as many results as it may"};
const error has_ended{errc::sandbox_not_running, "the sandbox has ended"};
const error gone{errc::result_gone, "what this request has done is over, and its result is gone"};

std::string key_of(std::string_view kind, const std::string& key) {
  return std::string{kind} + key;
}

/// This start of the sandbox: what ran in another one is gone with it.
std::string this_start(const sandbox_state& st) {
  return st.record->value("started_ms");
}

std::optional<once_record> find_record(const sandbox_state& st, const std::string& key) {
  const auto* const found = st.local->find(key);
  if (found == nullptr)
    return std::nullopt;
  auto record = once_record::read(*found);
  return record.expired(st.options->time->unix_ms()) ? std::nullopt : std::optional{record};
}

// ---- What is known of a remembered command: numbers in one line, and its text behind it.

std::string about(const known_command_state& known) {
  const auto end = known.end.value_or(process_end{});
  std::string text = known.output ? "1" : "0";
  for (const std::int64_t each :
       {known.ended_ms, std::int64_t{end.exit_code}, std::int64_t{end.signal},
        std::int64_t{end.timed_out}, end.timeout_ms, std::int64_t{end.out_of_memory},
        static_cast<std::int64_t>(end.memory_bytes), std::int64_t{end.lost}})
    text += ' ' + std::to_string(each);
  return text + '\n' + known.text;
}

known_command_state read_about(const once_record& record) {
  known_command_state known;
  const std::string_view text = record.about;
  auto numbers = text.substr(0, text.find('\n'));
  const auto next = [&numbers] {
    std::int64_t value = 0;
    const auto one = numbers.substr(0, numbers.find(' '));
    std::from_chars(one.data(), one.data() + one.size(), value);
    numbers.remove_prefix(std::min(numbers.size(), one.size() + 1));
    return value;
  };
  known.known = true;
  known.text = text.substr(std::min(text.size(), numbers.size() + 1));
  known.started_ms = record.made_ms;
  known.output = next() != 0;
  known.ended_ms = next();
  process_end end;
  end.exit_code = static_cast<std::int32_t>(next());
  end.signal = static_cast<std::int32_t>(next());
  end.timed_out = next() != 0;
  end.timeout_ms = next();
  end.out_of_memory = next() != 0;
  end.memory_bytes = static_cast<std::uint64_t>(next());
  end.lost = next() != 0;
  if (known.ended_ms != 0)
    known.end = end;
  return known;
}

/// Of a command that is remembered.
std::optional<once_record> find_remembered(const sandbox_state& st, const std::string& key) {
  const auto* const found = st.local->find(std::string{commands} + key);
  if (found == nullptr)
    return std::nullopt;
  auto record = once_record::read(*found);
  return record.about.empty() ? std::nullopt : std::optional{std::move(record)};
}

template <class Do>
void for_each_record(const sandbox_state& st, Do what) {
  const auto& all = st.local->entries();
  for (auto at = all.lower_bound(records); at != all.end() && at->first.starts_with(records); ++at)
    what(at->first, once_record::read(at->second));
}

std::size_t count_records(const sandbox_state& st) {
  const auto& all = st.local->entries();
  std::size_t count = 0;
  for (auto at = all.lower_bound(records); at != all.end() && at->first.starts_with(records); ++at)
    ++count;
  return count;
}

/// There is an alarm as long as there are records, at the first one's time or before.
void write_record(sandbox_state& st, const std::string& key, const once_record& record) {
  const bool first = count_records(st) == 0;
  std::vector<storage::change> changes{{key, record.text()}};
  if (first)
    st.local->set_alarm(limits::results_kept, std::move(changes));
  else
    st.local->write(std::move(changes));
}

/// One that has ended goes for one that is to run, the oldest first.
void forget_one(sandbox_state& st) {
  if (count_records(st) < limits::kept_results_per_sandbox)
    return;
  std::string oldest;
  std::int64_t made_ms = 0;
  for_each_record(st, [&](const std::string& key, const once_record& record) {
    if (record.about.empty() || (!oldest.empty() && record.made_ms >= made_ms) ||
        !read_about(record).end)
      return;
    oldest = key;
    made_ms = record.made_ms;
  });
  if (oldest.empty())
    return;
  st.results.erase(oldest.substr(commands.size()));
  st.local->write({{oldest, std::nullopt}});
}

/// Null: it has not run, and may. Errors: those of find_result.
result<kept_result*> look_up(sandbox_state& st, const once& wanted) {
  auto at = st.results.find(wanted.key);
  const auto* const text = st.local->find(key_of(commands, wanted.key));
  auto record = text != nullptr ? std::optional{once_record::read(*text)} : std::nullopt;
  const bool runs = at != st.results.end() && !at->second.over;
  if (record && record->expired(st.options->time->unix_ms()) && !runs)
    record.reset();
  if (!record) {
    if (at != st.results.end())
      st.results.erase(at);
    if (text == nullptr && count_records(st) >= limits::kept_results_per_sandbox)
      return too_many;
    return nullptr;
  }
  if (record->digest != wanted.digest)
    return once_conflict;
  if (at != st.results.end())
    return &at->second;
  if (st.knows_all && record->which == this_start(st))
    return nullptr;
  return gone;
}

/// Of two who ask with one key for different things at the same time, the second is refused while
/// it still can be told by its status. Who was told does not have to come: others wait no longer
/// for it.
bool announce(sandbox_state& st, const find_result& asked) {
  constexpr auto patience = std::chrono::seconds{10};
  const auto now = st.options->time->now();
  std::erase_if(st.announced, [&](const auto& each) { return each.second.until <= now; });
  const auto at = st.announced.find(asked.once.key);
  if (at != st.announced.end())
    return at->second.digest == asked.once.digest;
  if (asked.runs_it && st.announced.size() < limits::kept_results_per_sandbox)
    st.announced.emplace(asked.once.key, announced_once{asked.once.digest, now + patience});
  return true;
}

void fail(sandbox_pointer self, const std::string& key, const error& why) {
  auto failed = self->state.results.extract(key);
  if (!failed)
    return;
  for (auto& each : failed.mapped().waiting)
    each.deliver(to_caf(why));
  for (auto& [asked, asking] : failed.mapped().asking)
    find_result_of(self, asked, asking);
  for (auto& each : failed.mapped().when_known)
    each();
}

/// It certainly has not run: the same request may come again, as if it never had.
void take_back(sandbox_pointer self, const std::string& key, const error& why) {
  auto& st = self->state;
  const auto record_key = key_of(commands, key);
  if (st.epoch != 0 && st.local->loaded() && st.local->find(record_key) != nullptr)
    st.local->write({{record_key, std::nullopt}});
  fail(self, key, why);
}

/// Its record is durable.
void start_once(sandbox_pointer self, exec_request wanted, std::shared_ptr<void> memory,
                reply_to<process_actor> reply) {
  failpoint("idempotency.claimed");
  if (!wanted.session.empty())
    run_in_session(self, std::move(wanted), std::move(memory), std::move(reply));
  else
    start_command(self, std::move(wanted), std::move(reply));
  failpoint("idempotency.asked");
}

void claim(sandbox_pointer self, exec_request wanted, std::shared_ptr<void> memory,
           const reply_to<process_actor>& reply) {
  auto& st = self->state;
  const auto key = wanted.once.key;
  st.results[key].waiting.push_back(reply);
  st.announced.erase(key); // From here on its record says so.
  const auto record_key = key_of(commands, key);
  const auto record = find_record(st, record_key);
  if (!record) {
    once_record made{wanted.once.digest, st.options->time->unix_ms(), this_start(st)};
    if (auto& kept = wanted.remembered)
      made.about = about({true, kept->output, std::move(kept->text)});
    write_record(st, record_key, made);
  }
  const auto shared = std::make_shared<exec_request>(std::move(wanted));
  st.local->when_durable(
    [=, start = st.start, memory = std::move(memory)]() mutable {
      auto& now = self->state;
      if (now.start != start || now.now != phase::running)
        return take_back(self, key, has_ended);
      start_once(self, std::move(*shared), std::move(memory), reply);
    },
    [self, key](const error& why) { fail(self, key, why); });
}

} // namespace

void run_once(sandbox_pointer self, exec_request wanted, std::shared_ptr<void> memory,
              reply_to<process_actor> reply) {
  const auto shared = std::make_shared<exec_request>(std::move(wanted));
  self->state.local->load(
    [=, memory = std::move(memory)]() mutable {
      auto& st = self->state;
      if (shared->remembered)
        forget_one(st);
      const auto found = look_up(st, shared->once);
      if (!found)
        return static_cast<void>(reply.deliver(to_caf(found.reason())));
      if (*found == nullptr)
        return claim(self, std::move(*shared), std::move(memory), reply);
      auto& known = **found;
      if (known.process)
        return static_cast<void>(reply.deliver(caf::actor_cast<process_actor>(known.process)));
      if (known.waiting.size() >= max_waiting)
        return static_cast<void>(
          reply.deliver(to_caf({errc::limit_reached, "too many wait for this command"})));
      known.waiting.push_back(reply);
    },
    [reply](const error& why) mutable { reply.deliver(to_caf(why)); });
}

void find_result_of(sandbox_pointer self, const find_result& asked, reply_to<known_result> reply) {
  self->state.local->load(
    [=]() mutable {
      const auto found = look_up(self->state, asked.once);
      if (!found)
        return static_cast<void>(reply.deliver(to_caf(found.reason())));
      if (*found == nullptr && !announce(self->state, asked))
        return static_cast<void>(reply.deliver(to_caf(once_conflict)));
      known_result answer;
      answer.known = *found != nullptr;
      if (answer.known && (*found)->resuming)
        return static_cast<void>((*found)->asking.emplace_back(asked, reply));
      if (!answer.known || !(*found)->process)
        return static_cast<void>(reply.deliver(std::move(answer)));
      const auto process = (*found)->process;
      answer.process = caf::actor_cast<process_actor>(process);
      self->request(process, caf::infinite, measure_atom::value)
        .then(
          [=](std::uint64_t begin, std::uint64_t end) mutable {
            answer.begin = begin;
            answer.end = end;
            reply.deliver(std::move(answer));
          },
          [=](caf::error& why) mutable { reply.deliver(std::move(why)); });
    },
    [reply](const error& why) mutable { reply.deliver(to_caf(why)); });
}

std::function<void()> over_with_result(sandbox_pointer self, const std::string& key,
                                       std::function<void()> also) {
  return [me = self->address(), key, also = std::move(also)] {
    if (also)
      also();
    tell(me, result_over{key});
  };
}

bool resume_result(sandbox_pointer self, const std::string& key) {
  const auto [at, fresh] = self->state.results.try_emplace(key);
  at->second.resuming = at->second.resuming || fresh;
  return fresh;
}

void drop_unknown_results(sandbox_pointer self) {
  self->state.local->load(
    [self] {
      auto& st = self->state;
      std::erase_if(st.results, [&](const auto& each) {
        return each.second.waiting.empty() &&
               st.local->find(key_of(commands, each.first)) == nullptr;
      });
    },
    [](const error&) {}); // Who asks for one will hear of that.
}

void result_runs(sandbox_pointer self, const std::string& key, const process_actor& process) {
  auto& all = self->state.results;
  const auto at = all.find(key);
  if (at == all.end())
    return; // It is not known any more: nobody waits for it, and nobody keeps it.
  failpoint("idempotency.runs");
  at->second.process = caf::actor_cast<started_process_actor>(process);
  at->second.resuming = false;
  for (auto& each : std::exchange(at->second.waiting, {}))
    each.deliver(process);
  for (auto& [asked, asking] : std::exchange(at->second.asking, {}))
    find_result_of(self, asked, asking);
  for (auto& each : std::exchange(at->second.when_known, {}))
    each();
}

// ---- Remembered commands

namespace {

/// When its end was seen first is when it ended, from then on, and that is durable.
void note_end(sandbox_pointer self, const std::string& key, const process_end& end) {
  auto& st = self->state;
  auto record = find_remembered(st, key);
  if (!record)
    return;
  auto known = read_about(*record);
  if (known.end || st.epoch == 0)
    return;
  known.end = end;
  known.ended_ms = st.options->time->unix_ms();
  record->about = about(known);
  st.local->write({{key_of(commands, key), record->text()}});
}

using told_function = std::function<void(result<known_command>)>;

void tell_of(sandbox_pointer self, const std::string& key, const told_function& told) {
  auto& st = self->state;
  const auto record = find_remembered(st, key);
  if (!record)
    return told(known_command{});
  const auto at = st.results.find(key);
  if (at != st.results.end() && !at->second.process)
    return at->second.when_known.push_back([=] { tell_of(self, key, told); });
  known_command answer{read_about(*record)};
  if (at == st.results.end()) {
    if (!answer.end) { // It was there when its sandbox ended.
      answer.end = process_end{};
      answer.end->lost = true;
      answer.ended_ms = answer.started_ms;
    }
    return told(std::move(answer));
  }
  const auto process = at->second.process;
  answer.process = caf::actor_cast<process_actor>(process);
  const auto failed = [told](const caf::error& why) { told(from_caf(why)); };
  // Its end first: what is measured then is all of its output.
  self->request(process, caf::infinite, status_atom::value)
    .then(
      [=](const process_status& status) mutable {
        if (status.ended) {
          note_end(self, key, status.end);
          if (const auto now = find_remembered(self->state, key))
            static_cast<known_command_state&>(answer) = read_about(*now);
          if (!answer.end) { // It could not be written down.
            answer.end = status.end;
            answer.ended_ms = self->state.options->time->unix_ms();
          }
        }
        if (!answer.output)
          return told(std::move(answer));
        self->request(process, caf::infinite, measure_atom::value)
          .then(
            [=](std::uint64_t begin, std::uint64_t end) mutable {
              answer.begin_offset = begin;
              answer.end_offset = end;
              told(std::move(answer));
            },
            failed);
      },
      failed);
}

} // namespace

void find_command_of(sandbox_pointer self, const find_command& asked,
                     reply_to<known_command> reply) {
  const auto tell = [self, id = asked.id](const told_function& told) {
    self->state.local->load([=] { tell_of(self, id, told); },
                            [told](const error& why) { told(why); });
  };
  const auto told = [reply](const result<known_command>& known) {
    auto to = reply;
    if (known)
      to.deliver(*known);
    else
      to.deliver(to_caf(known.reason()));
  };
  if (lives(self->state))
    return when_running(self, reply, asked.context, [=] { tell(told); });
  with_record(self, reply, asked.context, [=](errand mine) {
    tell([=](const result<known_command>& known) {
      told(known);
      mine.over();
    });
  });
}

void interrupt(sandbox_pointer self, const interrupt_command& asked, reply_to<caf::ok_atom> reply) {
  static const error unknown{errc::not_found, "there is no such command"};
  static const error over{errc::invalid_request, "the command has ended"};
  const auto go = [=] {
    self->state.local->load(
      [=] {
        auto& st = self->state;
        auto to = reply;
        const auto at = st.results.find(asked.id);
        const auto known = find_remembered(st, asked.id);
        if (!known)
          return static_cast<void>(to.deliver(to_caf(unknown)));
        if (at == st.results.end() || !at->second.process)
          return static_cast<void>(to.deliver(to_caf(over)));
        to.delegate(at->second.process, interrupt_atom::value);
      },
      [reply](const error& why) {
        auto to = reply;
        to.deliver(to_caf(why));
      });
  };
  if (lives(self->state))
    return when_running(self, reply, asked.context, go);
  with_record(self, reply, asked.context, [=](errand mine) {
    go();
    mine.over();
  });
}

void result_is_over(sandbox_pointer self, const std::string& key) {
  auto& st = self->state;
  const auto at = st.results.find(key);
  if (at == st.results.end())
    return;
  at->second.over = true;
  if (!st.local->loaded() || !at->second.process || !find_remembered(st, key))
    return;
  self->request(at->second.process, caf::infinite, status_atom::value)
    .then(
      [self, key](const process_status& status) {
        note_end(self, key, status.end);
        const auto record = find_remembered(self->state, key);
        if (record && !read_about(*record).output)
          self->state.results.erase(key); // Who reads it has it as well.
      },
      [](const caf::error&) {});
}

namespace {

bool certainly_not_run(const sandbox_state& st, const std::string& key, const error& why) {
  switch (why.code) {
    case errc::limit_reached:
    case errc::launch_failed:
    case errc::machine_full:
    case errc::invalid_request:
    case errc::session_ended: return true;
    case errc::node_unreachable: { // The next server has the sandbox. It may have this one, too.
      const auto at = st.results.find(key);
      return at == st.results.end() || !at->second.resuming;
    }
    default: return false;
  }
}

} // namespace

/// The same request may come again, and then it is run, unless it cannot be told whether it has.
void result_does_not_run(sandbox_pointer self, const std::string& key, const error& why) {
  if (self->state.now == phase::deleting)
    return fail(self, key, why);
  if (certainly_not_run(self->state, key, why))
    return take_back(self, key, why);
  // As long as the store does not say so, this actor does.
  const auto unsaid = [=](const error&) {
    self->state.knows_all = false;
    fail(self, key, why);
  };
  self->state.local->load(
    [=] {
      auto& st = self->state;
      const auto record_key = key_of(commands, key);
      if (auto record = find_record(st, record_key); record && st.epoch != 0) {
        record->which = in_doubt;
        st.local->write({{record_key, record->text()}});
      }
      st.local->when_durable([=] { fail(self, key, why); }, unsaid);
    },
    unsaid);
}

void refuse_command(sandbox_pointer self, const exec_request& wanted, const error& why,
                    reply_to<process_actor> reply) {
  if (wanted.once.key.empty())
    reply.deliver(to_caf(why));
  else
    result_does_not_run(self, wanted.once.key, why);
}

// ---- Trees

void write_once(sandbox_pointer self, const write_once_request& asked,
                reply_to<write_once_answer> reply) {
  self->state.local->load(
    [=]() mutable {
      auto& st = self->state;
      const auto key = key_of(trees, asked.once.key);
      const auto record = find_record(st, key);
      if (record && record->digest != asked.once.digest)
        return static_cast<void>(reply.deliver(to_caf(once_conflict)));
      const auto start = this_start(st);
      const bool tells = !asked.written_in.empty();
      if (tells && asked.written_in != start)
        return static_cast<void>(reply.deliver(to_caf(has_ended)));
      const bool written = record && record->which == start;
      if (!written && tells)
        write_record(st, key, {asked.once.digest, st.options->time->unix_ms(), start});
      else if (!record && count_records(st) >= limits::kept_results_per_sandbox)
        return static_cast<void>(reply.deliver(to_caf(too_many)));
      st.local->answer(reply, write_once_answer{written || tells, start});
    },
    [reply](const error& why) mutable { reply.deliver(to_caf(why)); });
}

// ---- Their end

void expire_results(sandbox_pointer self, const alarm_due& due) {
  auto& st = self->state;
  const auto now = st.options->time->unix_ms();
  std::vector<storage::change> changes;
  std::vector<std::string> over;
  std::optional<std::int64_t> next;
  for_each_record(st, [&](const std::string& key, const once_record& record) {
    const auto since =
      record.about.empty() ? record.made_ms : std::max(record.made_ms, read_about(record).ended_ms);
    auto left = since + limits::results_kept.count() - now;
    const auto at =
      key.starts_with(commands) ? st.results.find(key.substr(commands.size())) : st.results.end();
    const bool runs = at != st.results.end() && !at->second.over;
    if (left <= 0 && runs)
      left = limits::kept_result_pause.count();
    if (left > 0) {
      next = std::min(next.value_or(left), left);
      return;
    }
    changes.push_back({key, std::nullopt});
    if (at != st.results.end())
      over.push_back(at->first);
  });
  log::debug("sandbox.results_expired", {{"id", st.id->str()}, {"count", changes.size()}});
  if (next)
    st.local->set_alarm(std::chrono::milliseconds{*next}, std::move(changes));
  else
    st.local->alarm_over(due, std::move(changes));
  st.local->when_durable(
    [self, over] {
      for (const auto& key : over)
        self->state.results.erase(key);
    },
    [](const error&) {});
}

} // namespace insula::actors::inside_sandbox
