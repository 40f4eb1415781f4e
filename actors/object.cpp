#include "actors/object.hpp"

#include "actors/record_keys.hpp"
#include "base/failpoint.hpp"
#include "base/limits.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <cassert>
#include <utility>

namespace insula::actors {

namespace {

/// Changes that wait are put together up to here.
constexpr std::size_t batch_bytes = 1u << 20;

const error read_too_early{errc::stale_epoch, "its record has changed since it was read"};

void restore(object_storage::entries_map& in,
             const std::map<std::string, std::optional<std::string>>& before) {
  for (const auto& [key, value] : before)
    if (value)
      in.insert_or_assign(key, *value);
    else
      in.erase(key);
}

} // namespace

object_storage::object_storage(caf::scheduled_actor* self, std::shared_ptr<const keepers> with,
                               kept_in where, std::string owner, std::string prefix)
    : self_(self)
    , with_(std::move(with))
    , where_(where)
    , owner_(std::move(owner))
    , prefix_(std::move(prefix)) {
  assert(prefix_.empty() || prefix_.ends_with('/'));
}

object_storage::~object_storage() {
  const error why{errc::sandbox_not_running, "the node is going down"};
  for (auto& batch : queue_)
    for (auto& each : batch.waiting)
      if (each.at_end)
        each.otherwise(why);
}

void object_storage::ask(bool holding_all_else, caf::message question, caf::behavior answer) {
  const auto id = self_->new_request_id(caf::message_priority::normal);
  const auto whom = caf::actor_cast<caf::strong_actor_ptr>(with_->of(where_));
  whom->enqueue(self_->ctrl(), id, std::move(question), self_->context());
  if (holding_all_else)
    self_->add_awaited_response_handler(id.response_id(), std::move(answer));
  else
    self_->add_multiplexed_response_handler(id.response_id(), std::move(answer));
}

// ---- Reading

std::uint64_t object_storage::tenure() const {
  return where_ == kept_in::cluster && with_->tenure ? with_->tenure(owner_) : 0;
}

/// Another node may have had it between the reading and the lease. Without an ownership the store
/// refuses what is written.
bool object_storage::is_stale() const {
  const auto now = tenure();
  return loaded_ && now != 0 && now != read_under_;
}

void object_storage::load(on_done then, on_failed otherwise, request_context context) {
  if (loaded_)
    return then();
  const auto under = tenure();
  const auto failed = [otherwise](caf::error& why) { otherwise(from_caf(why)); };
  ask(true, caf::make_message(read_owner_atom::value, owner_, prefix_, context),
      {[=, this](const std::vector<storage::entry>& found) {
         if (loaded_) // It was asked for twice, and has been written since.
           return then();
         take(found);
         if (prefix_.empty()) {
           loaded_ = true;
           read_under_ = under;
           catch_up();
           return then();
         }
         ask(true, caf::make_message(read_owner_atom::value, owner_, alarm_key(), context),
             {[=, this](const std::vector<storage::entry>& alarms) {
                if (loaded_)
                  return then();
                take_alarm(alarms);
                loaded_ = true;
                read_under_ = under;
                catch_up();
                then();
              },
              failed});
       },
       failed});
}

void object_storage::take(const std::vector<storage::entry>& found) {
  entries_.clear();
  for (const auto& [key, value] : found)
    if (!prefix_.empty() || !key.starts_with(alarm_keys))
      entries_.emplace(key.substr(prefix_.size()), value);
  if (prefix_.empty())
    take_alarm(found);
}

void object_storage::take_alarm(const std::vector<storage::entry>& found) {
  const auto key = alarm_key();
  for (const auto& each : found)
    if (each.key == key)
      alarm_ = each.value;
}

const std::string* object_storage::find(std::string_view key) const {
  const auto at = entries_.find(key);
  return at == entries_.end() ? nullptr : &at->second;
}

std::string object_storage::value(std::string_view key) const {
  const auto* found = find(key);
  return found == nullptr ? std::string{} : *found;
}

// ---- Writing

object_storage::pending& object_storage::open_batch() {
  const bool first_is_gone = under_way_ && queue_.size() == 1;
  if (queue_.empty() || first_is_gone ||
      (queue_.back().bytes >= batch_bytes && !queue_.back().doomed))
    queue_.emplace_back();
  return queue_.back();
}

void object_storage::add(pending& to, storage::change what) {
  const auto bytes = what.key.size() + (what.value ? what.value->size() : 0);
  if (to.doomed || queued_bytes_ + bytes > limits::object_pending_bytes) {
    to.doomed = true;
    return;
  }
  to.bytes += bytes;
  queued_bytes_ += bytes;
  to.changes.push_back(std::move(what));
}

void object_storage::change_entry(pending& in, const std::string& key,
                                  std::optional<std::string> value) {
  const auto at = entries_.find(key);
  in.before.try_emplace(key, at == entries_.end() ? std::nullopt : std::optional{at->second});
  if (value)
    entries_.insert_or_assign(key, std::move(*value));
  else if (at != entries_.end())
    entries_.erase(at);
}

void object_storage::change_entries(pending& in, std::vector<storage::change> changes) {
  for (auto& [key, value] : changes) {
    change_entry(in, key, value);
    add(in, {prefix_ + key, std::move(value)});
  }
  for (auto& [key, value] : underived()) {
    change_entry(in, key, value);
    add(in, {prefix_ + key, std::move(value)});
  }
}

void object_storage::derive(std::vector<std::string> prefixes,
                            std::function<std::vector<storage::entry>(const entries_map&)> rule) {
  derived_at_ = std::move(prefixes);
  derived_by_ = std::move(rule);
}

std::vector<storage::change> object_storage::underived() const {
  return derived_by_ ? actors::underived(entries_, derived_at_, derived_by_(entries_))
                     : std::vector<storage::change>{};
}

void object_storage::write_at(storage::epoch now) {
  epoch_ = now;
  destroyed_ = false;
  catch_up();
}

void object_storage::catch_up() {
  if (loaded_ && epoch_ != 0 && !destroyed_)
    write(underived());
}

void object_storage::change_alarm(pending& in, std::string record) {
  if (!in.alarm_before)
    in.alarm_before = alarm_;
  alarm_ = std::move(record);
}

void object_storage::write(std::vector<storage::change> changes, std::vector<std::string> cleared,
                           request_context context) {
  if (destroyed_ || (changes.empty() && cleared.empty()))
    return;
  assert(epoch_ != 0);
  // What is cleared goes before the changes of its batch, so it begins one of its own.
  if (!cleared.empty() && !queue_.empty() && !(under_way_ && queue_.size() == 1))
    queue_.emplace_back();
  auto& batch = open_batch();
  batch.context = std::move(context);
  for (const auto& prefix : cleared) {
    for (auto at = entries_.lower_bound(prefix);
         at != entries_.end() && at->first.starts_with(prefix);) {
      const auto key = (at++)->first;
      change_entry(batch, key, std::nullopt);
    }
    if (prefix.empty())
      change_alarm(batch, {});
    const auto full = prefix_ + prefix;
    batch.cleared.push_back(full);
    batch.cleared.push_back(std::string{alarm_keys} + full);
    batch.afterwards.emplace_back([this, full] {
      tell_alarms(caf::make_message(alarms_forgotten{{where_, owner_, full}}));
    });
  }
  change_entries(batch, std::move(changes));
  send_next();
}

void object_storage::send_next() {
  if (under_way_ || queue_.empty())
    return;
  if (is_stale())
    return confirm();
  if (is_doubtful_)
    return read_again();
  auto& batch = queue_.front();
  under_way_ = true;
  const auto number = ++number_;
  if (batch.doomed)
    return refused(number, {errc::limit_reached, "more is written than the disk takes"});
  failpoint("object.write");
  storage::write_batch sent{owner_, epoch_, std::move(batch.changes), std::move(batch.cleared)};
  ask(false, caf::make_message(std::move(sent), batch.context),
      {[this, number](caf::ok_atom) { settled(number); },
       [this, number](caf::error& why) { refused(number, from_caf(why)); }});
}

/// What waits was made from what was read before the lease: is that still there?
void object_storage::confirm() {
  under_way_ = true;
  const auto number = ++number_;
  compare(
    [this, number] {
      if (number != number_ || !under_way_)
        return;
      under_way_ = false;
      send_next();
    },
    [this, number](const error& why) {
      const bool before = is_doubtful_; // Of these nothing was sent.
      refused(number, why);
      is_doubtful_ = before;
    },
    queue_.front().context);
}

/// Of keys that are another object's in the same record, this one has what they were.
void object_storage::leave_others_out(entries_map& in) const {
  for (const auto& prefix : others_)
    in.erase(in.lower_bound(prefix), in.lower_bound(prefix + '\x7f'));
}

/// `same` is called if the record is what this object has as durable. What was read under no
/// ownership at all, as that of a sandbox which is taken over, is read anew.
void object_storage::compare(on_done same, on_failed otherwise, const request_context& context) {
  auto has = entries_;
  auto alarm = alarm_;
  for (auto batch = queue_.rbegin(); batch != queue_.rend(); ++batch) {
    restore(has, batch->before);
    alarm = batch->alarm_before.value_or(alarm);
  }
  leave_others_out(has);
  const auto failed = [otherwise](caf::error& why) { otherwise(from_caf(why)); };
  const auto read = [=, this](const std::string& prefix, auto then) {
    ask(false, caf::make_message(read_owner_atom::value, owner_, prefix, context), {then, failed});
  };
  const auto judge = [=, this, under = tenure(), has = std::move(has),
                      alarm = std::move(alarm)](const std::vector<storage::entry>& found,
                                                const std::vector<storage::entry>& alarms) {
    if (loaded_ && !is_stale()) // Another question has found that already.
      return same();
    entries_map is;
    std::string set;
    for (const auto& [key, value] : found)
      if (!prefix_.empty() || !key.starts_with(alarm_keys))
        is.emplace(key.substr(prefix_.size()), value);
    for (const auto& [key, value] : alarms)
      if (key == alarm_key())
        set = value;
    leave_others_out(is);
    if (under == 0 || under != tenure())
      return otherwise(read_too_early);
    if (is != has || set != alarm) {
      if (read_under_ != 0)
        return otherwise(read_too_early);
      if (!destroyed_)
        base_on(found, prefix_.empty() ? nullptr : &alarms);
    }
    read_under_ = under;
    same();
  };
  read(prefix_, [=, this](const std::vector<storage::entry>& found) {
    if (prefix_.empty())
      return judge(found, found);
    read(alarm_key(), [=](const std::vector<storage::entry>& alarms) { judge(found, alarms); });
  });
}

/// A batch without changes goes first: what was left open has come to be by then, or never will.
void object_storage::read_again() {
  under_way_ = true;
  const auto number = ++number_;
  const auto when_refused = [this, number](caf::error& why) { refused(number, from_caf(why)); };
  const auto read = [=, this](const std::string& prefix, auto then) {
    ask(false, caf::make_message(read_owner_atom::value, owner_, prefix, queue_.front().context),
        {[this, number, then](const std::vector<storage::entry>& found) {
           if (number == number_ && under_way_)
             then(found);
         },
         when_refused});
  };
  const auto go_on = [this](const auto& found, const std::vector<storage::entry>* alarms) {
    base_on(found, alarms);
    is_doubtful_ = under_way_ = false;
    send_next();
  };
  const auto read_all = [=, this] {
    read(prefix_, [=, this](const std::vector<storage::entry>& found) {
      if (prefix_.empty())
        return go_on(found, nullptr);
      read(alarm_key(), [=](const std::vector<storage::entry>& alarms) { go_on(found, &alarms); });
    });
  };
  ask(false,
      caf::make_message(storage::write_batch{owner_, epoch_, {}, {}}, queue_.front().context),
      {[this, number, read_all](caf::ok_atom) {
         if (number == number_ && under_way_)
           read_all();
       },
       when_refused});
}

/// The batches that wait are made anew, of what the record has.
void object_storage::base_on(const std::vector<storage::entry>& found,
                             const std::vector<storage::entry>* alarms) {
  const auto first = std::find_if(queue_.begin(), queue_.end(),
                                  [](const auto& each) { return each.alarm_before.has_value(); });
  const auto alarm_before = first == queue_.end() ? alarm_ : *first->alarm_before;
  alarm_.clear();
  take(found);
  if (alarms != nullptr)
    take_alarm(*alarms);
  if (const auto set = alarm_record::parse(alarm_); set && alarm_ != alarm_before)
    tell_alarms(caf::make_message(alarm_set{alarm_of(), *set})); // Which nobody has been told.
  const auto is_derived = [this](std::string_view key) {
    return std::any_of(derived_at_.begin(), derived_at_.end(),
                       [key](const auto& each) { return key.starts_with(each); });
  };
  for (auto& batch : queue_) {
    queued_bytes_ -= batch.bytes;
    batch.bytes = 0;
    batch.before.clear();
    batch.alarm_before.reset();
    for (const auto& prefix : batch.cleared) {
      if (prefix.starts_with(alarm_keys))
        continue;
      const auto own = prefix.substr(prefix_.size());
      for (auto at = entries_.lower_bound(own);
           at != entries_.end() && at->first.starts_with(own);) {
        const auto key = (at++)->first;
        change_entry(batch, key, std::nullopt);
      }
      if (own.empty())
        change_alarm(batch, {});
    }
    std::vector<storage::change> mine;
    for (auto& each : std::exchange(batch.changes, {}))
      if (each.key == alarm_key()) {
        change_alarm(batch, each.value.value_or(std::string{}));
        add(batch, std::move(each));
      } else if (auto key = each.key.substr(prefix_.size()); !is_derived(key)) {
        mine.push_back({std::move(key), std::move(each.value)});
      }
    change_entries(batch, std::move(mine));
  }
}

void object_storage::settled(std::uint64_t number) {
  if (number != number_ || !under_way_)
    return;
  failpoint("object.durable");
  auto done = std::move(queue_.front());
  queue_.pop_front();
  under_way_ = false;
  queued_bytes_ -= done.bytes;
  send_next();
  for (auto& each : done.afterwards)
    each();
  for (auto& each : done.waiting)
    each.then();
}

void object_storage::refused(std::uint64_t number, const error& why) {
  if (number != number_ || !under_way_)
    return;
  const auto lost = std::exchange(queue_, {});
  under_way_ = false;
  queued_bytes_ = 0;
  // The reason may be that of the last attempt alone, and an earlier one have been made.
  is_doubtful_ |= why.code != errc::stale_epoch;
  for (auto batch = lost.rbegin(); batch != lost.rend(); ++batch) {
    restore(entries_, batch->before);
    if (batch->alarm_before)
      alarm_ = *batch->alarm_before;
  }
  for (const auto& batch : lost)
    for (const auto& each : batch.waiting)
      each.otherwise(why);
}

void object_storage::gate(waiter who) {
  if (destroyed_)
    return who.otherwise(being_deleted);
  if (queue_.empty())
    return who.then();
  queue_.back().waiting.push_back(std::move(who));
}

void object_storage::when_durable(on_done then, on_failed otherwise) {
  gate({std::move(then), std::move(otherwise), false});
}

void object_storage::destroy(on_done then, on_failed otherwise, request_context context) {
  if (destroyed_) // By an earlier request, whose answer has yet to come.
    return otherwise(being_deleted);
  if (is_stale()) // It may be another object by now.
    return compare([=, this] { destroy(then, otherwise, context); }, otherwise, context);
  assert(prefix_.empty() && epoch_ != 0);
  // What is under way goes ahead of this one to the store; what became of it is nobody's concern.
  const auto cut = std::exchange(queue_, {});
  under_way_ = false;
  queued_bytes_ = 0;
  ++number_;
  entries_.clear();
  alarm_.clear();
  loaded_ = is_doubtful_ = false;
  destroyed_ = true;
  for (const auto& batch : cut)
    for (const auto& each : batch.waiting)
      each.otherwise(being_deleted);
  failpoint("object.destroy");
  // With the epoch of the next lease, at most: whatever comes later with this one's is refused.
  storage::write_batch all{owner_, std::exchange(epoch_, 0) + 1, {}, {""}};
  ask(false, caf::make_message(std::move(all), std::move(context)),
      {[=, this](caf::ok_atom) {
         failpoint("object.destroyed");
         tell_alarms(caf::make_message(alarms_forgotten{{where_, owner_, ""}}));
         then();
       },
       [otherwise](caf::error& why) { otherwise(from_caf(why)); }});
}

void object_storage::abandon(const error& why) {
  const auto cut = std::exchange(queue_, {});
  under_way_ = false;
  queued_bytes_ = 0;
  ++number_;
  destroyed_ = true;
  for (const auto& batch : cut)
    for (const auto& each : batch.waiting)
      each.otherwise(why);
}

// ---- The alarm

void object_storage::set_alarm(std::chrono::milliseconds delay,
                               std::vector<storage::change> changes) {
  if (destroyed_)
    return;
  assert(epoch_ != 0);
  auto record = alarm_record::in(delay, *with_->time,
                                 std::to_string(epoch_) + "." + std::to_string(++alarms_set_));
  auto& batch = open_batch();
  change_entries(batch, std::move(changes));
  change_alarm(batch, record.text());
  add(batch, {alarm_key(), record.text()});
  batch.afterwards.emplace_back([this, record] {
    tell_alarms(caf::make_message(alarm_set{alarm_of(), record}));
  });
  send_next();
}

void object_storage::cancel_alarm(std::vector<storage::change> changes) {
  if (alarm_.empty() && !is_doubtful_)
    return write(std::move(changes));
  if (destroyed_)
    return;
  assert(epoch_ != 0);
  auto& batch = open_batch();
  change_entries(batch, std::move(changes));
  change_alarm(batch, {});
  add(batch, {alarm_key(), std::nullopt});
  batch.afterwards.emplace_back(
    [this] { tell_alarms(caf::make_message(alarm_cancelled{alarm_of()})); });
  send_next();
}

bool object_storage::is_set(const alarm_due& due) const {
  return !alarm_.empty() && alarm_ == due.record;
}

std::optional<std::chrono::milliseconds> object_storage::alarm_left() const {
  const auto set = alarm_record::parse(alarm_);
  return set ? std::optional{set->left(*with_->time)} : std::nullopt;
}

void object_storage::alarm_over(const alarm_due& due, std::vector<storage::change> changes) {
  if (is_set(due))
    cancel_alarm(std::move(changes));
  else
    write(std::move(changes)); // It has been set anew meanwhile.
}

void object_storage::tell_alarms(caf::message what) const {
  if (with_->alarms)
    caf::anon_send(caf::actor_cast<caf::actor>(with_->alarms), std::move(what));
}

} // namespace insula::actors
