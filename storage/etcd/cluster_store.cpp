#include "storage/etcd/cluster_store.hpp"

#include "storage/etcd/gateway_json.hpp"

#include <algorithm>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace insula::storage::etcd {

namespace {

using namespace std::chrono_literals;

constexpr auto patience = 5'000ms;
constexpr auto pause_after_failure = 300ms;
constexpr std::size_t most_steps = 4'000; ///< etcd is told to take 4,096.
constexpr std::int64_t page = 2'000;

const error not_a_member{errc::node_unreachable, "this node is cut off from its cluster"};
const error going_down{errc::io_failed, "the node is shutting down"};

template <class T>
using answer = std::function<void(result<T>)>;

/// A key in a line of its own.
std::string as_line(std::string_view key) {
  std::string line;
  for (const char each : key)
    line += each == '\n' ? "\\n" : each == '\\' ? "\\\\" : std::string(1, each);
  return line;
}

std::string as_key(std::string_view line) {
  std::string key;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool escaped = line[i] == '\\' && i + 1 < line.size();
    if (escaped)
      ++i;
    key += escaped && line[i] == 'n' ? '\n' : line[i];
  }
  return key;
}

bool begins_with_any(std::string_view key, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const auto& each) { return key.starts_with(each); });
}

} // namespace

struct cluster_store::state : std::enable_shared_from_this<state> {
  struct waiting_batch {
    write_batch batch;
    answer<void> tell;
    std::size_t bytes = 0;
  };

  /// What this node owns.
  struct owned {
    revision since = 0;          ///< Of the ownership.
    revision known = 0;          ///< When this server came to know of it: its epochs begin there.
    revision written = 0;        ///< Of the head; 0: there is none, and no data.
    bool gone = false;           ///< All data has been removed.
    std::set<std::string> marks; ///< Keys that find() finds.
    std::uint64_t activations = 0;
    epoch newest = 0;          ///< Written, or handed out.
    epoch held = 0;            ///< 0: nobody holds the lease.
    bool leaving = false;      ///< It is being given up.
    bool busy = false;         ///< A write is under way.
    bool unsure = false;       ///< Of a write nobody knows whether it took place.
    bool found_unused = false; ///< Since it was last asked for.
    std::deque<waiting_batch> queue;
    std::vector<std::function<void()>> afterwards; ///< Once it has been given up.

    /// Nobody holds it, and nothing is remembered of it: nobody need own it.
    bool unused() const {
      return held == 0 && !leaving && !busy && queue.empty() && (written == 0 || gone);
    }
  };

  state(client& c, const membership& m, cluster_store_options o)
      : with(c)
      , member(m)
      , options(std::move(o)) {}

  client& with;
  const membership& member;
  const cluster_store_options options;

  mutable std::mutex mutex; ///< Over what is_mine() and mine() look at; written by one thread.
  std::unordered_map<std::string, owned> all;
  std::unordered_set<std::string> unwritten; ///< Of those, what has never been written to.

  std::mutex budget_mutex;
  std::size_t waiting = 0;
  std::size_t waiting_bytes = 0;

  // The client's thread:
  bool over = false;
  std::uint64_t life = 0; ///< Counts memberships.
  std::uint64_t writes = 0;
  std::unordered_map<std::string, std::vector<answer<owning>>> asked; ///< On their way.

  // ---- Keys

  std::string owner_key(std::string_view id) const {
    return options.prefix + "owner/" + std::string{id};
  }
  std::string head_key(std::string_view id) const {
    return options.prefix + "head/" + std::string{id};
  }
  std::string data_key(std::string_view id, std::string_view key = {}) const {
    return options.prefix + "data/" + std::string{id} + "/" + std::string{key};
  }
  bool is_kept_marked(std::string_view key) const {
    return is_marked(key) || begins_with_any(key, options.found_by);
  }
  std::string mark_key(std::string_view key, std::string_view id) const {
    return marks() + std::string{key} + "/" + std::string{id};
  }

  std::string marks() const { return options.prefix + "mark/"; }

  /// What was read below marks(), as entries.
  std::vector<owned_entry> marked(std::vector<key_value> found) const {
    const auto first = marks().size();
    std::vector<owned_entry> entries;
    for (auto& each : found)
      if (const auto slash = each.key.rfind('/'); slash != std::string::npos && slash >= first)
        entries.push_back({each.key.substr(slash + 1), each.key.substr(first, slash - first),
                           std::move(each.value)});
    return entries;
  }

  /// The head: which write it was, and the marks that there are. With a sign before it, it is all
  /// that there is: what was written has been removed. It stays until the ownership goes, since
  /// without it a write that comes late would find what it was made for, nothing.
  static std::string head_of(const std::string& tag, const std::set<std::string>& marks,
                             bool gone) {
    auto text = (gone ? "-" : "") + tag;
    for (const auto& each : marks)
      text += '\n' + as_line(each);
    return text;
  }
  static bool is_gone(const std::string& head) { return head.starts_with('-'); }
  static std::string tag_of(const std::string& head) {
    const std::size_t from = is_gone(head) ? 1 : 0;
    return head.substr(from, head.find('\n') - from);
  }
  static std::set<std::string> marks_of(const std::string& head) {
    std::set<std::string> marks;
    auto at = head.find('\n');
    while (at != std::string::npos) {
      const auto end = head.find('\n', at + 1);
      marks.insert(as_key(head.substr(at + 1, end == std::string::npos ? end : end - at - 1)));
      at = end;
    }
    return marks;
  }

  /// How the tags of all writes begin that are made from what is known now: nobody else's do.
  std::string tags_of(const owned& mine) const {
    return member.self() + "." + std::to_string(mine.known) + ".";
  }

  owned* find(const std::string& id) {
    const auto at = all.find(id);
    return at == all.end() ? nullptr : &at->second;
  }

  void remove(const std::string& id) {
    owned gone;
    {
      const std::lock_guard lock{mutex};
      const auto at = all.find(id);
      if (at == all.end())
        return;
      gone = std::move(at->second);
      all.erase(at);
      unwritten.erase(id);
    }
    for (auto& each : gone.queue)
      settle(each, error{errc::stale_epoch, id + " is not this node's any more"});
    for (auto& each : gone.afterwards)
      each();
  }

  // ---- Owning

  void own(const std::string& id, answer<owning> then, bool anyhow = false) {
    if (over)
      return then(going_down);
    if (!member.good())
      return then(not_a_member);
    if (auto* known = find(id)) {
      known->found_unused = false;
      if (!known->leaving)
        return then(owning{member.self(), known->since});
      known->afterwards.emplace_back([self = shared_from_this(), id, then = std::move(then),
                                      anyhow] { self->own(id, then, anyhow); });
      return;
    }
    auto& waiters = asked[id];
    if (waiters.size() >= store::max_waiting)
      return then(error{errc::limit_reached, "too many wait for " + id});
    waiters.push_back(std::move(then));
    if (waiters.size() > 1)
      return;
    if (all.size() + asked.size() > max_owned)
      return owned_by(id, error{errc::limit_reached, "this node owns too many sandboxes"});
    transaction what;
    const auto node_key = options.prefix + "nodes/" + member.self();
    what.conditions = {{owner_key(id), condition::of::created, 0},
                       {node_key, condition::of::created, member.since()}};
    auto refused = anyhow ? std::nullopt : options.refuses();
    if (!refused)
      what.then = {operation::put(owner_key(id), member.self(), member.lease()),
                   operation::read(head_key(id))};
    what.otherwise = {operation::read(owner_key(id)), operation::read(head_key(id)),
                      operation::read(node_key)};
    with.transact(std::move(what), patience,
                  [self = shared_from_this(), id, of = life, lease = member.lease(),
                   since = member.since(), refused = std::move(refused)](result<outcome> got) {
                    if (got && got->held && refused && of == self->life)
                      return self->owned_by(id, *refused); // It is nobody's still.
                    self->have_owned(id, of, lease, since, std::move(got));
                  });
  }

  /// What is ours already is written once more, so that nothing which the server before this one
  /// has sent, and which may come late, takes place any more.
  void fence(const std::string& id, std::uint64_t of, lease_id lease, revision since,
             revision last) {
    transaction what;
    const auto node_key = options.prefix + "nodes/" + member.self();
    what.conditions = {{owner_key(id), condition::of::modified, last},
                       {node_key, condition::of::created, since}};
    what.then = {operation::put(owner_key(id), member.self(), lease), operation::read(head_key(id)),
                 operation::read(owner_key(id))};
    what.otherwise = {operation::read(owner_key(id)), operation::read(head_key(id)),
                      operation::read(node_key)};
    with.transact(std::move(what), patience,
                  [self = shared_from_this(), id, of, lease, since](result<outcome> got) {
                    self->have_owned(id, of, lease, since, std::move(got), true);
                  });
  }

  void have_owned(const std::string& id, std::uint64_t of, lease_id lease, revision since,
                  result<outcome> got, bool was_ours = false) {
    // Of a membership that is over it means nothing: its lease takes the key with it, and who had
    // asked has been told. Whoever waits now has asked a later one.
    if (over || of != life)
      return;
    if (!got && got.reason().code == errc::not_found) { // There is no such lease.
      const_cast<membership&>(member).doubt();
      return owned_by(id, not_a_member);
    }
    if (!got)
      return owned_by(id, got.reason());
    const auto one = [&](std::size_t step) -> const key_value* {
      return step < got->found.size() && !got->found[step].empty() ? &got->found[step][0] : nullptr;
    };
    const auto* head = one(1);
    revision began = got->at;
    if (!got->held) {
      const auto* owner = one(0);
      const auto* node = one(2);
      if (node == nullptr || node->created != since) {
        const_cast<membership&>(member).doubt();
        return owned_by(id, not_a_member);
      }
      if (owner == nullptr)
        return owned_by(id, error{errc::node_unreachable, "its owner has just gone"});
      if (owner->value != member.self() || owner->lease != lease)
        return owned_by(id, owning{owner->value, owner->created});
      // By the server before this one, or an earlier attempt of this very question.
      return fence(id, of, lease, since, owner->modified);
    }
    if (was_ours && one(2) != nullptr)
      began = one(2)->created;
    if (!member.good())
      return owned_by(id, not_a_member);
    {
      const std::lock_guard lock{mutex};
      auto& mine = all[id];
      mine.since = began;
      mine.known = got->at;
      mine.written = head == nullptr ? 0 : head->modified;
      mine.gone = head != nullptr && is_gone(head->value);
      if (head != nullptr && !mine.gone)
        mine.marks = marks_of(head->value);
      else
        unwritten.insert(id);
    }
    const auto& marks = find(id)->marks;
    // What was the server's before may have alarms that are kept at this node alone.
    if (const auto first = marks.lower_bound(options.found_by.front());
        was_ours || (first != marks.end() && first->starts_with(options.found_by.front())))
      options.found();
    owned_by(id, owning{member.self(), began});
  }

  void owned_by(const std::string& id, const result<owning>& outcome) {
    const auto at = asked.find(id);
    if (at == asked.end())
      return;
    const auto waiters = std::move(at->second);
    asked.erase(at);
    for (const auto& each : waiters)
      each(outcome);
  }

  // ---- The lease of an object

  void acquire(const std::string& id, answer<epoch> on_held) {
    own(id, [self = shared_from_this(), id, on_held = std::move(on_held)](result<owning> who) {
      if (!who)
        return on_held(who.reason());
      auto* const mine = self->find(id);
      if (mine == nullptr || who->node != self->member.self())
        return on_held(error{errc::stale_epoch, id + " is on node " + who->node});
      if (mine->held != 0)
        return on_held(error{errc::limit_reached, "the lease of " + id + " is held already"});
      if (mine->activations == self->options.most_activations) {
        if (mine->busy || !mine->queue.empty())
          return on_held(error{errc::limit_reached, id + " is still being written"});
        // Known from a later revision on, it has as many epochs again.
        self->remove(id);
        return self->acquire(id, on_held);
      }
      ++mine->activations;
      mine->held = (static_cast<epoch>(mine->known) << activation_bits) + mine->activations;
      mine->newest = mine->held;
      on_held(mine->held);
    });
  }

  void release(const std::string& id, epoch held) {
    auto* const mine = find(id);
    if (mine == nullptr || mine->held != held)
      return;
    mine->held = 0;
    if (mine->unused())
      give_up(id, [](const auto&) {});
  }

  void give_up_unused() {
    std::vector<std::string> ids;
    for (auto& [id, mine] : all)
      if (mine.unused() && std::exchange(mine.found_unused, true))
        ids.push_back(id);
    // A few at a time: who asks for something else is not to wait for all of them.
    constexpr int at_once = 16;
    const auto left = std::make_shared<std::vector<std::string>>(std::move(ids));
    for (int i = 0; i < at_once; ++i)
      give_up_next(left);
  }

  void give_up_next(const std::shared_ptr<std::vector<std::string>>& ids) {
    while (!ids->empty()) {
      const auto id = std::move(ids->back());
      ids->pop_back();
      if (const auto* mine = find(id); mine != nullptr && mine->unused() && mine->found_unused)
        return give_up(id,
                       [self = shared_from_this(), ids](const auto&) { self->give_up_next(ids); });
    }
  }

  void give_up(const std::string& id, answer<void> then) {
    auto* const mine = find(id);
    if (mine == nullptr)
      return then(error{errc::not_found, id + " is not this node's"});
    if (mine->held != 0 || mine->leaving)
      return then(error{errc::limit_reached, id + " is in use"});
    {
      const std::lock_guard lock{mutex};
      mine->leaving = true;
    }
    mine->afterwards.emplace_back([then = std::move(then)] { then({}); });
    remove_owner(id);
  }

  /// Until etcd says so, or the membership is over: then the key goes with that.
  void remove_owner(const std::string& id) {
    auto* const mine = find(id);
    if (mine == nullptr)
      return;
    transaction what;
    what.conditions = {{owner_key(id), condition::of::modified, mine->known}};
    what.then = {operation::remove(owner_key(id))};
    if (mine->gone && !mine->unsure) {
      what.conditions.push_back({head_key(id), condition::of::modified, mine->written});
      what.then.push_back(operation::remove(head_key(id)));
    }
    with.transact(std::move(what), patience,
                  [self = shared_from_this(), id, of = life](result<outcome> got) {
                    if (self->over || of != self->life)
                      return;
                    if (got)
                      return self->remove(id);
                    self->with.after(pause_after_failure, [self, id, of] {
                      if (!self->over && of == self->life)
                        self->remove_owner(id);
                    });
                  });
  }

  // ---- Writing

  void settle(waiting_batch& which, result<void> outcome) {
    {
      const std::lock_guard lock{budget_mutex};
      --waiting;
      waiting_bytes -= which.bytes;
    }
    which.tell(std::move(outcome));
  }

  void enqueue(waiting_batch which) {
    if (over)
      return settle(which, going_down);
    const auto id = which.batch.owner;
    if (id.starts_with('_'))
      return make_common(std::move(which));
    auto* const mine = find(id);
    if (mine == nullptr || mine->leaving)
      return settle(which, error{errc::stale_epoch, id + " is not this node's"});
    const auto since = static_cast<epoch>(mine->known) << activation_bits;
    if (const auto least = std::max(mine->newest, since); which.batch.written_at < least)
      return settle(which, stale(which.batch, least));
    mine->newest = which.batch.written_at;
    if (mine->written == 0 || mine->gone) {
      const std::lock_guard lock{mutex};
      unwritten.erase(id);
    }
    mine->queue.push_back(std::move(which));
    write_next(id);
  }

  /// What several nodes may make at the same time: the first one's counts.
  void make_common(waiting_batch which) {
    transaction what;
    for (const auto& each : which.batch.changes) {
      what.conditions.push_back({data_key(which.batch.owner, each.key), condition::of::created, 0});
      if (each.value)
        what.then.push_back(operation::put(data_key(which.batch.owner, each.key), *each.value));
    }
    with.transact(
      std::move(what), patience,
      [self = shared_from_this(),
       held = std::make_shared<waiting_batch>(std::move(which))](result<outcome> got) {
        if (got && got->held)
          return self->settle(*held, {});
        self->settle(*held, got ? error{errc::stale_epoch, "somebody has made it"} : got.reason());
      });
  }

  /// Removes all keys from `first` up to `end` but those in `kept`: etcd wants no step to undo
  /// another one of its transaction.
  static void remove_but(std::vector<operation>& steps, std::string first, const std::string& end,
                         const std::map<std::string, std::string>& kept) {
    for (auto at = kept.lower_bound(first); at != kept.end() && at->first < end; ++at) {
      if (first < at->first)
        steps.push_back(operation::remove(first, at->first));
      first = at->first + '\0';
    }
    if (first < end)
      steps.push_back(operation::remove(first, end));
  }

  /// The steps of a batch, and the marks there are then.
  std::vector<operation> steps_of(const write_batch& batch, std::set<std::string>& marks) const {
    std::map<std::string, std::optional<std::string>> last;
    for (const auto& each : batch.changes)
      last[each.key] = each.value;
    std::map<std::string, std::string> puts;
    for (const auto& [key, value] : last)
      if (value)
        puts.emplace(data_key(batch.owner, key), *value);
    std::vector<operation> steps;
    for (const auto& prefix : batch.cleared) {
      const auto first = data_key(batch.owner, prefix);
      remove_but(steps, first, end_of_prefix(first), puts);
      for (auto at = marks.lower_bound(prefix); at != marks.end() && at->starts_with(prefix);) {
        const auto again = last.find(*at);
        if (again == last.end() || !again->second || !is_kept_marked(*at))
          steps.push_back(operation::remove(mark_key(*at, batch.owner)));
        at = marks.erase(at);
      }
    }
    for (const auto& [key, value] : last) {
      const bool marked = is_kept_marked(key);
      if (value) {
        if (marked) {
          steps.push_back(operation::put(mark_key(key, batch.owner), *value));
          marks.insert(key);
        }
        continue;
      }
      if (!begins_with_any(key, batch.cleared))
        steps.push_back(operation::remove(data_key(batch.owner, key)));
      if (marked && marks.erase(key) != 0)
        steps.push_back(operation::remove(mark_key(key, batch.owner)));
    }
    // An earlier version has marked other keys.
    for (auto at = marks.begin(); at != marks.end();) {
      const bool stays = is_kept_marked(*at);
      if (!stays)
        steps.push_back(operation::remove(mark_key(*at, batch.owner)));
      at = stays ? std::next(at) : marks.erase(at);
    }
    for (auto& [key, value] : puts)
      steps.push_back(operation::put(key, std::move(value)));
    return steps;
  }

  void write_next(const std::string& id) {
    auto* const mine = find(id);
    if (mine == nullptr || mine->busy || mine->queue.empty())
      return;
    mine->busy = true;
    const auto& batch = mine->queue.front().batch;
    auto marks = mine->marks;
    transaction what;
    what.conditions = {{owner_key(id), condition::of::modified, mine->known},
                       {head_key(id), condition::of::modified, mine->written}};
    what.then = steps_of(batch, marks);
    const auto& cleared = batch.cleared;
    const bool all_gone =
      batch.changes.empty() && std::find(cleared.begin(), cleared.end(), "") != cleared.end();
    const auto tag = tags_of(*mine) + std::to_string(++writes);
    what.then.push_back(operation::put(head_key(id), head_of(tag, marks, all_gone)));
    what.otherwise = {operation::read(owner_key(id)), operation::read(head_key(id))};
    if (what.then.size() > most_steps)
      return answer_first(id, error{errc::invalid_request, "a batch has too many changes"});
    with.transact(std::move(what), patience,
                  [self = shared_from_this(), id, of = life, since = mine->known, tag, all_gone,
                   marks = std::move(marks)](result<outcome> got) mutable {
                    if (self->over || of != self->life)
                      return;
                    // It may have been given up meanwhile, and have come back.
                    if (const auto* now = self->find(id); now != nullptr && now->known == since)
                      self->written(id, tag, all_gone, std::move(marks), std::move(got));
                  });
  }

  void answer_first(const std::string& id, result<void> outcome) {
    auto* const mine = find(id);
    if (mine == nullptr || mine->queue.empty())
      return;
    auto first = std::move(mine->queue.front());
    mine->queue.pop_front();
    mine->busy = false;
    settle(first, std::move(outcome));
    write_next(id);
  }

  void written(const std::string& id, const std::string& tag, bool all_gone,
               std::set<std::string> marks, result<outcome> got) {
    auto* const mine = find(id);
    if (mine == nullptr)
      return;
    if (!got) {
      // It may have come to be, or come to be later: the next one finds out. Whatever the reason
      // is, it is that of the last attempt alone.
      mine->unsure = true;
      return answer_first(id, got.reason());
    }
    const auto took_place = [&](revision at) {
      mine->written = at;
      mine->gone = all_gone;
      mine->marks = std::move(marks);
      mine->unsure = false;
      answer_first(id, {});
    };
    if (got->held)
      return took_place(got->at);
    const auto one = [&](std::size_t step) -> const key_value* {
      return step < got->found.size() && !got->found[step].empty() ? &got->found[step][0] : nullptr;
    };
    const auto* owner = one(0);
    const auto* head = one(1);
    if (owner == nullptr || owner->modified != mine->known) {
      // Somebody else's, or nobody's: with our lease all of ours has gone.
      const_cast<membership&>(member).doubt();
      return answer_first(id, error{errc::stale_epoch, id + " is not this node's any more"});
    }
    if (head != nullptr && tag_of(head->value) == tag)
      return took_place(head->modified); // By an earlier attempt.
    if (head == nullptr || !tag_of(head->value).starts_with(tags_of(*mine)))
      return answer_first(id, error{errc::store_failed, "somebody else has written " + id});
    // What nobody knew of had come to be. This one goes on top of it.
    mine->unsure = false;
    mine->written = head->modified;
    mine->gone = is_gone(head->value);
    mine->marks = marks_of(head->value);
    mine->busy = false;
    write_next(id);
  }

  void forget_all() {
    ++life;
    std::unordered_map<std::string, owned> gone;
    {
      const std::lock_guard lock{mutex};
      gone.swap(all);
      unwritten.clear();
    }
    for (auto& [id, mine] : gone) {
      for (auto& each : mine.queue)
        settle(each, error{errc::stale_epoch, id + " is not this node's any more"});
      for (auto& each : mine.afterwards)
        each();
    }
    for (auto waiters = std::exchange(asked, {}); auto& [id, each] : waiters)
      for (auto& one : each)
        one(not_a_member);
  }

  // ---- Reading, on threads that may wait

  result<outcome> ask(std::vector<operation> steps) {
    auto told = std::make_shared<std::promise<result<outcome>>>();
    auto got = told->get_future();
    with.transact({{}, std::move(steps), {}}, patience,
                  [told](result<outcome> answer) { told->set_value(std::move(answer)); });
    return got.get();
  }

  result<std::vector<key_value>> range(const std::string& prefix, bool keys_only) {
    std::vector<key_value> all_found;
    auto from = prefix;
    const auto end = end_of_prefix(prefix);
    while (true) {
      auto got = ask({operation::read(from, end, keys_only, page)});
      if (!got)
        return got.reason();
      if (got->found.empty() || got->found[0].empty())
        return all_found;
      auto& found = got->found[0];
      const bool more = found.size() == static_cast<std::size_t>(page);
      from = found.back().key + '\0';
      std::move(found.begin(), found.end(), std::back_inserter(all_found));
      if (!more)
        return all_found;
    }
  }

  result<mark_page> scan(std::string_view mark, const mark_position& after, std::size_t limit,
                         bool values) {
    const auto first = marks() + std::string{mark};
    auto from = std::max(first, mark_key(after.key, after.owner) + '\0');
    const auto end = end_of_prefix(first);
    if (from >= end)
      return mark_page{};
    // However large values are, one answer has room for all keys of a page.
    const auto at_once = values ? lines_at_once : max_page_lines + 1;
    mark_page page;
    std::size_t bytes = 0;
    while (true) {
      const auto wanted =
        bytes < max_page_bytes ? std::min(limit + 1 - page.lines.size(), at_once) : 1;
      auto got = ask({operation::read(from, end, !values, static_cast<std::int64_t>(wanted))});
      if (!got)
        return got.reason();
      auto found = got->found.empty() ? std::vector<key_value>{} : std::move(got->found[0]);
      const bool last = found.size() < wanted;
      if (!last)
        from = found.back().key + '\0';
      for (auto& each : marked(std::move(found))) {
        page.more = page.lines.size() == limit || bytes >= max_page_bytes;
        if (page.more)
          return page;
        bytes += size_of(each);
        page.lines.push_back(std::move(each));
      }
      if (last)
        return page;
    }
  }
};

cluster_store::cluster_store(client& with, const membership& member, cluster_store_options options)
    : state_(std::make_shared<state>(with, member, std::move(options))) {}

cluster_store::~cluster_store() {
  std::promise<void> quiet;
  state_->with.post([&] {
    state_->forget_all();
    state_->over = true;
    quiet.set_value();
  });
  quiet.get_future().wait();
}

void cluster_store::commit(write_batch batch, std::function<void(result<void>)> on_durable) {
  if (auto why = malformed(batch))
    return on_durable(std::move(*why));
  const auto bytes = size_of(batch);
  bool full = false;
  {
    const std::lock_guard lock{state_->budget_mutex};
    full = state_->waiting >= max_waiting || state_->waiting_bytes + bytes > max_waiting_bytes;
    if (!full) {
      ++state_->waiting;
      state_->waiting_bytes += bytes;
    }
  }
  if (full) // Told without the lock: it may be somebody who commits again.
    return on_durable(error{errc::limit_reached, "too much waits to be written"});
  state_->with.post(
    [st = state_, held = std::make_shared<state::waiting_batch>(
                    state::waiting_batch{std::move(batch), std::move(on_durable), bytes})] {
      st->enqueue(std::move(*held));
    });
}

result<std::vector<entry>> cluster_store::read(std::string_view owner, std::string_view prefix) {
  {
    // What has never been written, nobody need be asked for.
    const std::lock_guard lock{state_->mutex};
    if (state_->unwritten.contains(std::string{owner}) && state_->member.good())
      return std::vector<entry>{};
  }
  const auto first = state_->data_key(owner);
  auto found = state_->range(first + std::string{prefix}, false);
  if (!found)
    return found.reason();
  std::vector<entry> entries;
  for (auto& each : *found)
    entries.push_back({each.key.substr(first.size()), std::move(each.value)});
  return entries;
}

result<std::vector<owned_entry>> cluster_store::find(std::string_view prefix) {
  auto found = state_->range(state_->marks() + std::string{prefix}, false);
  if (!found)
    return found.reason();
  auto entries = state_->marked(std::move(*found));
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.owner, a.key) < std::tie(b.owner, b.key);
  });
  return entries;
}

result<mark_page> cluster_store::scan(std::string_view mark, const mark_position& after,
                                      std::size_t limit) {
  if (auto why = malformed_scan(mark, limit))
    return std::move(*why);
  return state_->scan(mark, after, limit, true);
}

result<mark_page> cluster_store::scan_keys(std::string_view mark, const mark_position& after,
                                           std::size_t limit) {
  if (auto why = malformed_scan(mark, limit))
    return std::move(*why);
  return state_->scan(mark, after, limit, false);
}

result<mark_page> cluster_store::read_each(const std::vector<mark_position>& places) {
  if (auto why = malformed_places(places))
    return std::move(*why);
  mark_page page;
  std::size_t bytes = 0;
  for (std::size_t at = 0; at < places.size();) {
    const auto count =
      bytes < max_page_bytes ? std::min(places.size() - at, lines_at_once) : std::size_t{0};
    page.more = count == 0;
    if (page.more)
      return page;
    std::vector<operation> reads;
    for (std::size_t i = 0; i < count; ++i)
      reads.push_back(operation::read(state_->data_key(places[at + i].owner, places[at + i].key)));
    auto got = state_->ask(std::move(reads));
    if (!got)
      return got.reason();
    for (std::size_t i = 0; i < std::min(count, got->found.size()); ++i) {
      page.more = bytes >= max_page_bytes;
      if (page.more)
        return page;
      for (auto& each : got->found[i])
        bytes += size_of(page.lines.emplace_back(
          owned_entry{places[at + i].owner, places[at + i].key, std::move(each.value)}));
    }
    at += count;
  }
  return page;
}

result<std::uint64_t> cluster_store::count(std::string_view mark) {
  if (auto why = malformed_scan(mark))
    return std::move(*why);
  const auto first = state_->marks() + std::string{mark};
  const auto got = state_->ask({operation::count(first, end_of_prefix(first))});
  if (!got)
    return got.reason();
  return got->counts.empty() ? 0 : static_cast<std::uint64_t>(got->counts[0]);
}

result<std::vector<std::string>> cluster_store::owners() {
  const auto first = state_->options.prefix + "head/";
  auto found = state_->range(first, false);
  if (!found)
    return found.reason();
  std::vector<std::string> ids;
  for (const auto& each : *found)
    if (!state::is_gone(each.value))
      ids.push_back(each.key.substr(first.size()));
  return ids;
}

void cluster_store::acquire(std::string owner, std::function<void(result<epoch>)> on_held) {
  if (auto why = malformed({owner, 1, {}}))
    return on_held(std::move(*why));
  state_->with.post([st = state_, owner = std::move(owner), on_held = std::move(on_held)] {
    st->acquire(owner, on_held);
  });
}

void cluster_store::release(const std::string& owner, epoch held) {
  state_->with.post([st = state_, owner, held] { st->release(owner, held); });
}

void cluster_store::own(std::string id, std::function<void(result<owning>)> then, bool anyhow) {
  state_->with.post([st = state_, id = std::move(id), then = std::move(then), anyhow] {
    st->own(id, then, anyhow);
  });
}

void cluster_store::find_owner(std::string id, std::function<void(result<found_owner>)> then) {
  auto& st = *state_;
  std::vector<operation> reads{operation::read(st.owner_key(id)), operation::read(st.head_key(id))};
  for (const auto& key : st.options.told_of_owned)
    reads.push_back(operation::read(st.mark_key(key, id)));
  st.with.transact(
    {{}, std::move(reads), {}}, patience, [then = std::move(then)](result<outcome> got) {
      if (!got)
        return then(got.reason());
      found_owner found;
      if (got->found.size() > 1) {
        found.node = got->found[0].empty() ? "" : got->found[0][0].value;
        found.has_been = !got->found[1].empty() && !state::is_gone(got->found[1][0].value);
      }
      for (std::size_t i = 2; i < got->found.size(); ++i)
        found.told.push_back(got->found[i].empty() ? std::string{}
                                                   : std::move(got->found[i][0].value));
      then(std::move(found));
    });
}

bool cluster_store::knows(std::string_view id) const {
  const std::lock_guard lock{state_->mutex};
  return state_->all.contains(std::string{id});
}

bool cluster_store::is_mine(std::string_view id) const {
  const std::lock_guard lock{state_->mutex};
  const auto at = state_->all.find(std::string{id});
  return at != state_->all.end() && !at->second.leaving;
}

revision cluster_store::tenure(std::string_view id) const {
  const std::lock_guard lock{state_->mutex};
  const auto at = state_->all.find(std::string{id});
  return at == state_->all.end() ? 0 : at->second.since;
}

std::vector<std::pair<std::string, revision>> cluster_store::mine() const {
  std::vector<std::pair<std::string, revision>> ids;
  const std::lock_guard lock{state_->mutex};
  for (const auto& [id, each] : state_->all)
    ids.emplace_back(id, each.since);
  return ids;
}

void cluster_store::give_up(const std::string& id, std::function<void(result<void>)> then) {
  state_->with.post([st = state_, id, then = std::move(then)] { st->give_up(id, then); });
}

void cluster_store::give_up_unused() {
  state_->with.post([st = state_] { st->give_up_unused(); });
}

void cluster_store::forget_all() {
  state_->with.post([st = state_] { st->forget_all(); });
}

} // namespace insula::storage::etcd
