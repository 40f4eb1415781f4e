#include "storage/etcd/key_ledger.hpp"

#include "storage/etcd/gateway_json.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <deque>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace insula::storage::etcd {

namespace {

using namespace std::chrono_literals;

constexpr auto patience = 5'000ms;
/// So often another node may have been faster.
constexpr unsigned most_rounds = 64;
/// So often nobody knows how a question has ended.
constexpr unsigned most_failures = 3;
/// A client waits no longer, in the queue of its key and at its head.
constexpr auto patience_of_client = 15s;
/// What has just ended may be on its way out: whoever finds no place looks once more.
constexpr auto pause_before_refusal = 200ms;
constexpr auto pause_before_repeat = 500ms;
constexpr auto until_nothing_arrives = 30s;
/// A node that cannot reach etcd for so long has no lease any more.
constexpr unsigned most_repeats = 60;
/// Of one key, that wait for each other.
constexpr std::size_t most_waiting = 4'096;

std::int64_t number_of(std::string_view text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

} // namespace

struct key_ledger::state : std::enable_shared_from_this<state> {
  state(client& c, const membership& m, std::string p, std::function<std::int64_t()> now)
      : with(c)
      , member(m)
      , prefix(std::move(p) + "keys/")
      , now_us(std::move(now)) {}

  client& with;
  const membership& member;
  const std::string prefix;
  const std::function<std::int64_t()> now_us;

  struct reservation {
    place_wish wish;
    key_ceilings most;
    std::string token;
    std::function<void(result<void>)> then;
    std::chrono::nanoseconds asked{0}; ///< By client::now().
    unsigned rounds = 0, failures = 0;
    bool looks_again = false;
  };

  /// A place of the server before this one.
  struct left_place {
    std::string key;
    std::string sandbox;
  };

  // All of it is the client's thread's.
  bool over = false;
  std::map<std::string, std::deque<reservation>> waiting; ///< By key; the first is being asked for.
  std::map<std::uint64_t, reservation> resting;           ///< Those that will look once more.
  std::uint64_t rests = 0;                                ///< Counts them.
  /// Of the server before this one: keys of its places, with their sandboxes. None: not read yet.
  std::optional<std::map<std::string, std::string>> left;
  std::set<std::string> own; ///< Keys of this server's places, whatever has become of them.
  std::map<std::string, std::string>
    putting; ///< Those that are on their way, with their sandboxes.
  bool tidies = false;

  std::string guard_of(const std::string& key) const { return prefix + key; }
  std::string places_of(const std::string& key) const { return prefix + key + '/'; }
  std::string place_of(const place_wish& wish, const std::string& token) const {
    return places_of(wish.key) + wish.sandbox + '/' + token;
  }

  // ---- New places, of one key one after the other

  void reserve(reservation asked) {
    auto& queue = waiting[asked.wish.key];
    if (queue.size() >= most_waiting)
      return asked.then(error{errc::node_unreachable, "too many sandboxes wait for their start"});
    queue.push_back(std::move(asked));
    if (queue.size() == 1)
      look(queue.front().wish.key);
  }

  bool is_late(const reservation& of) const { return with.now() - of.asked >= patience_of_client; }

  std::vector<operation> questions(const std::string& key) const {
    return {operation::read(guard_of(key)),
            operation::read(places_of(key), end_of_prefix(places_of(key)))};
  }

  void look(const std::string& key) {
    with.transact({{}, questions(key), {}}, patience,
                  [self = shared_from_this(), key](result<outcome> got) {
                    if (!self->over)
                      got ? self->decide(key, got->found) : self->failed(key, got.reason());
                  });
  }

  void failed(const std::string& key, const error& why) {
    auto& first = waiting[key].front();
    if (++first.failures >= most_failures || is_late(first))
      return answer_all(key, error{errc::node_unreachable, why.message});
    look(key);
  }

  void decide(const std::string& key, const std::vector<std::vector<key_value>>& found) {
    auto& first = waiting[key].front();
    if (found.size() != 2)
      return answer(key, error{errc::node_unreachable, "etcd has not said all that it was asked"});
    if (!member.good())
      return answer_all(key, error{errc::node_unreachable, "this node is cut off from the others"});
    const auto mine = place_of(first.wish, first.token);
    key_usage has;
    if (!found[0].empty())
      has.empty_us = number_of(found[0].front().value);
    const auto before = places_of(key).size();
    for (const auto& each : found[1]) {
      if (each.key == mine) // An earlier question has arrived after all.
        return answer(key, {});
      const auto sandbox = each.key.substr(before, each.key.find('/', before) - before);
      if (sandbox == first.wish.sandbox)
        continue;
      ++has.sandboxes;
      has.cpu_percent += static_cast<std::uint64_t>(number_of(each.value));
    }
    const auto next = admit(first.wish, first.most, has, now_us());
    if (!next)
      return next.reason().retry_s != 0 || first.looks_again ? answer(key, next.reason())
                                                             : look_later(key);
    if (++first.rounds > most_rounds || (first.rounds > 1 && is_late(first)))
      return answer(key, error{errc::node_unreachable, "too many nodes ask for the key's places"});
    own.insert(mine);
    transaction write{
      {{guard_of(key), condition::of::modified, found[0].empty() ? 0 : found[0].front().modified}},
      {operation::put(guard_of(key), std::to_string(*next)),
       operation::put(mine, std::to_string(first.wish.cpu_percent), member.lease())},
      questions(key)};
    with.transact(std::move(write), patience,
                  [self = shared_from_this(), key](result<outcome> got) {
                    if (self->over)
                      return;
                    if (!got)
                      return self->failed(key, got.reason());
                    got->held ? self->answer(key, {}) : self->decide(key, got->found);
                  });
  }

  reservation take_first(const std::string& key) {
    auto& queue = waiting[key];
    auto first = std::move(queue.front());
    queue.pop_front();
    ask_next(key);
    return first;
  }

  void ask_next(const std::string& key) {
    auto& queue = waiting[key];
    std::vector<reservation> late;
    while (!queue.empty() && is_late(queue.front())) {
      late.push_back(std::move(queue.front()));
      queue.pop_front();
    }
    if (queue.empty())
      waiting.erase(key);
    else
      look(key);
    for (const auto& each : late)
      finish(each, error{errc::node_unreachable, "too many sandboxes wait for their start"});
  }

  /// Meanwhile the others have their turn.
  void look_later(const std::string& key) {
    const auto number = ++rests;
    auto& rests_now = resting.emplace(number, take_first(key)).first->second;
    rests_now.looks_again = true;
    with.after(pause_before_refusal, [self = shared_from_this(), number] {
      if (auto one = self->resting.extract(number))
        self->reserve(std::move(one.mapped()));
    });
  }

  void answer(const std::string& key, const result<void>& how) { finish(take_first(key), how); }

  /// Nobody of the queue would hear more than the first has heard.
  void answer_all(const std::string& key, const error& why) {
    for (const auto queue = waiting.extract(key); const auto& each : queue.mapped())
      finish(each, why);
  }

  void finish(const reservation& done, const result<void>& how) {
    if (const auto mine = place_of(done.wish, done.token); !how && own.contains(mine)) {
      const auto lease = member.lease();
      drop(mine, lease); // It may have arrived,
      with.after(until_nothing_arrives, [self = shared_from_this(), mine, lease] {
        if (!self->over)
          self->drop(mine, lease); // or have been on its way.
      });
    }
    done.then(how);
  }

  // ---- What needs no leave

  void put(const place_wish& wish, const std::string& token, lease_id lease, unsigned round = 0) {
    const auto mine = place_of(wish, token);
    if (round == 0) {
      own.insert(mine);
      putting.emplace(mine, wish.sandbox);
    }
    if (!own.contains(mine) || lease != member.lease() || round > most_repeats)
      return static_cast<void>(putting.erase(mine));
    transaction write{{}, {operation::put(mine, std::to_string(wish.cpu_percent), lease)}, {}};
    with.transact(std::move(write), patience, [=, self = shared_from_this()](result<outcome> got) {
      if (self->over)
        return;
      if (got) {
        self->putting.erase(mine);
        if (!self->own.contains(mine)) // It has gone meanwhile.
          self->drop(mine, lease);
        return;
      }
      self->with.after(pause_before_repeat, [=] {
        if (!self->over)
          self->put(wish, token, lease, round + 1);
      });
    });
  }

  void drop(const std::string& place, lease_id lease, unsigned round = 0) {
    own.erase(place);
    if (lease != member.lease() || round > most_repeats)
      return; // It has gone with its lease.
    with.transact({{}, {operation::remove(place)}, {}}, patience,
                  [=, self = shared_from_this()](result<outcome> got) {
                    if (self->over || got)
                      return;
                    self->with.after(pause_before_repeat, [=] {
                      if (!self->over)
                        self->drop(place, lease, round + 1);
                    });
                  });
  }

  // ---- After another server

  void tidy(std::function<bool(const std::string&)> lives) {
    if (tidies || !member.good())
      return;
    if (left)
      return tidy_known(lives);
    tidies = true;
    with.transact({{}, {operation::read(prefix, end_of_prefix(prefix))}, {}}, patience,
                  [self = shared_from_this(), lives = std::move(lives)](result<outcome> got) {
                    self->tidies = false;
                    if (self->over || !got || got->found.empty())
                      return;
                    self->left.emplace();
                    for (const auto& each : got->found.front())
                      self->note(each);
                    self->tidy_known(lives);
                  });
  }

  void note(const key_value& of) {
    const auto key_end = of.key.find('/', prefix.size());
    if (key_end == of.key.npos || of.lease == 0 || of.lease != member.lease() ||
        own.contains(of.key))
      return;
    const auto sandbox_end = of.key.find('/', key_end + 1);
    left->emplace(of.key, of.key.substr(key_end + 1, sandbox_end - key_end - 1));
  }

  /// One that was taken over has a place of this server's, which has to be there first. It is asked
  /// for before the sandbox stops being a survivor, so it is on its way once all that is posted has
  /// run.
  void tidy_known(const std::function<bool(const std::string&)>& lives) {
    std::vector<left_place> ended;
    for (const auto& [key, sandbox] : *left)
      if (!lives(sandbox))
        ended.push_back({key, sandbox});
    if (ended.empty())
      return;
    with.post([self = shared_from_this(), ended = std::move(ended)] {
      if (!self->over)
        for (const auto& each : ended)
          self->drop_left(each);
    });
  }

  void drop_left(const left_place& which) {
    const bool is_put = std::any_of(putting.begin(), putting.end(),
                                    [&](const auto& each) { return each.second == which.sandbox; });
    if (!is_put && left->erase(which.key) != 0)
      drop(which.key, member.lease());
  }
};

key_ledger::key_ledger(client& with, const membership& member, std::string prefix,
                       std::function<std::int64_t()> now_us)
    : state_(std::make_shared<state>(with, member, std::move(prefix), std::move(now_us))) {}

key_ledger::~key_ledger() {
  std::promise<void> ended;
  state_->with.post([&] {
    state_->over = true;
    const error why{errc::node_unreachable, "the node is going down"};
    for (auto& [key, queue] : std::exchange(state_->waiting, {}))
      for (auto& each : queue)
        each.then(why);
    for (auto& [number, each] : std::exchange(state_->resting, {}))
      each.then(why);
    ended.set_value();
  });
  ended.get_future().wait();
}

void key_ledger::reserve(place_wish wish, key_ceilings most, std::string token,
                         std::function<void(result<void>)> then) {
  state_->with.post([kept = state_, asked = state::reservation{std::move(wish), most,
                                                               std::move(token), std::move(then)}] {
    if (kept->over)
      return asked.then(error{errc::node_unreachable, "the node is going down"});
    auto now = asked;
    now.asked = kept->with.now();
    kept->reserve(std::move(now));
  });
}

void key_ledger::put(place_wish wish, std::string token) {
  state_->with.post([kept = state_, wish = std::move(wish), token = std::move(token)] {
    if (!kept->over)
      kept->put(wish, token, kept->member.lease());
  });
}

void key_ledger::drop(place_wish wish, std::string token) {
  state_->with.post([kept = state_, wish = std::move(wish), token = std::move(token)] {
    if (!kept->over)
      kept->drop(kept->place_of(wish, token), kept->member.lease());
  });
}

void key_ledger::tidy(std::function<bool(const std::string& sandbox)> lives) {
  state_->with.post([kept = state_, lives = std::move(lives)]() mutable {
    if (!kept->over)
      kept->tidy(std::move(lives));
  });
}

} // namespace insula::storage::etcd
