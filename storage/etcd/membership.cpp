#include "storage/etcd/membership.hpp"

#include "storage/etcd/gateway_json.hpp"

#include <algorithm>
#include <charconv>
#include <future>
#include <optional>
#include <utility>

namespace insula::storage::etcd {

namespace {

using namespace std::chrono_literals;
using nanoseconds = std::chrono::nanoseconds;

constexpr auto pause_between_tries = 250ms;
constexpr auto join_patience = 2'000ms;
/// Where the two answers of one renewal come from different terms, etcd has a new leader by now.
constexpr auto pause_between_terms = 100ms;
constexpr std::uint32_t first_format = 1; ///< Of versions that wrote no number.
constexpr std::size_t most_of_a_format = 32;

} // namespace

struct membership::state : std::enable_shared_from_this<state> {
  state(client& c, membership_options o, listener l)
      : with(c)
      , options(std::move(o))
      , tell(std::move(l))
      , all_keys(options.prefix + "nodes/")
      , own_key(all_keys + options.self)
      , format_key(options.prefix + "format") {}

  client& with;
  const membership_options options;
  const listener tell;
  const std::string all_keys;
  const std::string own_key;
  const std::string format_key;

  // Read by any thread:
  std::atomic<std::int64_t> until{0}; ///< Nanoseconds of client::now(). 0: no member.
  std::atomic<revision> since{0};
  std::atomic<lease_id> lease{0};

  // The client's thread:
  bool over = false; ///< Nothing is begun any more.
  bool evicting = false;
  bool first = true;      ///< It has not been a member yet.
  std::uint64_t turn = 0; ///< Counts joinings: what belongs to an earlier one counts no more.
  std::string said;       ///< The last reason it waits for.
  std::uint64_t renewals = 0;
  revision format_at = 0; ///< When the format was written that this node has seen.

  nanoseconds deadline_of(nanoseconds sent) const { return sent + options.lives - options.margin; }

  template <class Do>
  auto mine(Do what) {
    return [self = shared_from_this(), of = turn, what = std::move(what)](auto&&... got) {
      if (!self->over && self->turn == of)
        what(*self, std::forward<decltype(got)>(got)...);
    };
  }

  void waits(const error& why) {
    if (std::exchange(said, why.message) != why.message)
      tell.waits(why);
  }

  void join_later() {
    with.after(pause_between_tries, mine([](state& st) { st.join(); }));
  }

  // ---- Joining

  void join() {
    ++turn;
    look_around(mine([](state& st, const result<outcome>& got) {
      const auto format = st.judge(got);
      if (!format) {
        st.waits(format.reason());
        return st.join_later();
      }
      if (*format < st.options.format)
        return st.raise_format();
      if (st.first && st.options.resumed != 0)
        return st.resume();
      st.begin();
    }));
  }

  template <class Then>
  void look_around(Then then) {
    with.transact(
      {{}, {operation::read(format_key), operation::read(all_keys, end_of_prefix(all_keys))}, {}},
      join_patience, std::move(then));
  }

  /// Of what look_around() has found: the number of what is stored. Errors: this node cannot read
  /// that, or does not fit to the others; those of etcd.
  result<std::uint32_t> judge(const result<outcome>& got) {
    if (!got)
      return got.reason();
    auto format = look_at_format(*got);
    if (!format)
      return format;
    const auto fits = look_at_others(*got);
    return fits ? std::move(format) : fits.reason();
  }

  /// The number of what is stored. Nobody has written one: 1.
  result<std::uint32_t> look_at_format(const outcome& got) {
    const auto found = got.found.empty() ? std::vector<key_value>{} : got.found[0];
    format_at = found.empty() ? 0 : found[0].modified;
    if (found.empty())
      return first_format;
    const auto& text = found[0].value;
    std::uint32_t number = 0;
    const auto* const end = text.data() + text.size();
    const auto [at, why] = std::from_chars(text.data(), end, number);
    if (why == std::errc{} && at == end && number >= first_format && number <= options.format)
      return number;
    return error{errc::invalid_request,
                 "what is stored in etcd below " + options.prefix + " has format " +
                   text.substr(0, most_of_a_format) + ", and this version knows none beyond " +
                   std::to_string(options.format) +
                   ": start the version that the other nodes had, or a later one"};
  }

  /// Then it looks again: another node may have written it at the same time.
  void raise_format() {
    transaction what;
    what.conditions = {{format_key, condition::of::modified, format_at}};
    what.then = {operation::put(format_key, std::to_string(options.format))};
    with.transact(std::move(what), join_patience, mine([](state& st, result<outcome> got) {
                    if (got)
                      return st.join();
                    st.waits(got.reason());
                    st.join_later();
                  }));
  }

  /// What is stored is as it was when this node looked.
  condition same_format() const { return {format_key, condition::of::modified, format_at}; }

  result<void> look_at_others(const outcome& got) const {
    std::map<std::string, std::string> others;
    for (const auto& each : got.found.size() < 2 ? std::vector<key_value>{} : got.found[1])
      if (each.key != own_key)
        others.emplace(each.key.substr(all_keys.size()), each.value);
    return tell.fits(others);
  }

  void resume() {
    const auto sent = with.now();
    with.renew(options.resumed, join_patience, mine([sent](state& st, auto left) {
                 if (!left) {
                   st.waits(left.reason());
                   return st.join_later();
                 }
                 if (left->left.count() == 0)
                   return st.begin();
                 st.look_at_own_key(st.options.resumed, sent, left->in);
               }));
  }

  void look_at_own_key(lease_id which, nanoseconds sent, term in) {
    with.transact({{}, {operation::read(own_key)}, {}}, join_patience,
                  mine([which, sent, in](state& st, result<outcome> got) {
                    if (!got) {
                      st.waits(got.reason());
                      return st.join_later();
                    }
                    const auto& found =
                      got->found.empty() ? std::vector<key_value>{} : got->found[0];
                    if (found.empty() || found[0].lease != which)
                      return st.begin();
                    st.go_on(which, found[0].created, sent, in);
                  }));
  }

  /// The record is written once more: from here on every revision is a later one than any that
  /// the server before has seen, and epochs grow. With the keepalive's term the write also shows
  /// that the lease has been renewed, as the read of a later renewal does.
  void go_on(lease_id which, revision from, nanoseconds sent, term in) {
    transaction what;
    what.conditions = {{own_key, condition::of::created, from}, same_format()};
    what.then = {operation::put(own_key, options.record, which)};
    with.transact(std::move(what), join_patience,
                  mine([which, from, sent, in](state& st, result<outcome> got) {
                    if (!got) {
                      st.waits(got.reason());
                      return st.join_later();
                    }
                    if (!got->held)
                      return st.begin();
                    if (!same_term(in, got->in))
                      return st.join_later();
                    st.is_member(which, from, sent, true);
                  }));
  }

  void begin() {
    const auto sent = with.now();
    with.grant(std::chrono::duration_cast<std::chrono::seconds>(options.lives), join_patience,
               mine([sent](state& st, result<lease_id> got) {
                 if (!got) {
                   st.waits(got.reason());
                   return st.join_later();
                 }
                 st.enter(*got, sent);
               }));
  }

  void enter(lease_id which, nanoseconds sent) {
    transaction what;
    what.conditions = {{own_key, condition::of::created, 0}, same_format()};
    what.then = {operation::put(own_key, options.record, which)};
    what.otherwise = {operation::read(own_key)};
    with.transact(std::move(what), join_patience, mine([which, sent](state& st, auto got) {
                    st.have_entered(which, sent, std::move(got));
                  }));
  }

  void have_entered(lease_id which, nanoseconds sent, result<outcome> got) {
    if (got && got->held)
      return is_member(which, got->at, sent, false);
    if (got && !got->found.empty() && !got->found[0].empty() && got->found[0][0].lease == which)
      return is_member(which, got->found[0][0].created, sent, false); // By an earlier attempt.
    with.revoke(which, join_patience, [](const auto&) {});
    if (got && (got->found.empty() || got->found[0].empty()))
      return join_later(); // The format is another one by now.
    waits(got ? error{errc::already_exists, "a node " + options.self +
                                              " is a member already; if it is this one, as it "
                                              "was before, that is over in a moment"}
              : got.reason());
    join_later();
  }

  void is_member(lease_id which, revision from, nanoseconds sent, bool resumed) {
    if (deadline_of(sent) <= with.now())
      return join_later();
    first = false;
    said.clear();
    lease = which;
    since = from;
    until = deadline_of(sent).count();
    tell.joined(resumed);
    tell.renewed(deadline_of(sent));
    renew_later();
    look_later();
  }

  // ---- Being a member

  void renew_later() {
    with.after(options.renewal, mine([](state& st) {
                 st.renew();
                 st.renew_later();
               }));
  }

  /// A keepalive and a read of the node's own key, sent together. A leader of etcd's that hangs,
  /// and was deposed without knowing it, goes on answering keepalives; a read takes a majority. If
  /// both answers are of one term, then either that term's leader has renewed the lease and still
  /// led after the sending, or a later one was elected after it, which gives every lease its whole
  /// time (docs/decisions/0031). It does not matter which members have answered.
  struct renewing {
    nanoseconds sent;
    std::uint64_t number;
    std::optional<term> renewed{}, read{}; ///< In which term, once it is answered.
  };

  void renew() {
    const auto both = std::make_shared<renewing>(renewing{with.now(), ++renewals});
    const auto patience = options.lives - options.margin;
    // Several may be open: a member of etcd's that hangs must not cost us the next one's answer.
    with.renew(lease, patience, mine([both](state& st, const result<renewal>& got) {
                 if (st.until == 0 || !got)
                   return; // The clock says when that is too long.
                 if (got->left.count() == 0)
                   return st.lose();
                 both->renewed = got->in;
                 st.believe(*both);
               }));
    transaction look;
    look.then = {operation::read(own_key)};
    look.ahead = true;
    with.transact(std::move(look), patience, mine([both](state& st, const result<outcome>& got) {
                    if (st.until == 0 || !got)
                      return;
                    if (!st.is_own(*got))
                      return st.lose();
                    both->read = got->in;
                    st.believe(*both);
                  }));
  }

  /// Its record, and not another server's under its name.
  bool is_own(const outcome& got) const {
    return !got.found.empty() && !got.found[0].empty() && got.found[0][0].created == since &&
           got.found[0][0].lease == lease && got.found[0][0].value == options.record;
  }

  static bool same_term(term one, term other) { return one != 0 && one == other; }

  void believe(const renewing& both) {
    if (!both.renewed || !both.read)
      return;
    // What comes after the end changes nothing about that.
    if (until <= with.now().count())
      return lose();
    if (!same_term(*both.renewed, *both.read)) {
      if (both.number == renewals)
        with.after(pause_between_terms, mine([number = both.number](state& st) {
                     if (st.until != 0 && number == st.renewals)
                       st.renew();
                   }));
      return;
    }
    if (const auto now_until = deadline_of(both.sent).count(); now_until > until) {
      until = now_until;
      tell.renewed(nanoseconds{now_until});
    }
  }

  void look_later() {
    const auto left = nanoseconds{until} - with.now();
    with.after(std::max<nanoseconds>(left, 1ms), mine([](state& st) {
                 if (st.until == 0)
                   return;
                 if (st.until <= st.with.now().count())
                   return st.lose();
                 st.look_later();
               }));
  }

  void lose() {
    if (until == 0 || evicting)
      return;
    ++turn;
    until = 0;
    evicting = true;
    const auto old = lease.exchange(0);
    since = 0;
    // Nothing of ours is waited for longer than needed, if etcd can be reached.
    tell.lost([self = shared_from_this(), old] {
      self->with.post([self, old] {
        self->evicting = false;
        if (self->over)
          return;
        self->with.revoke(old, join_patience, [](const auto&) {});
        self->join();
      });
    });
  }
};

membership::membership(client& with, membership_options options, listener tell)
    : state_(std::make_shared<state>(with, std::move(options), std::move(tell))) {}

membership::~membership() {
  std::promise<void> quiet;
  state_->with.post([&] {
    state_->over = true;
    state_->until = 0;
    quiet.set_value();
  });
  quiet.get_future().wait();
}

void membership::check(client& with, membership_options options, listener tell,
                       std::function<void(result<void>)> then) {
  const auto st = std::make_shared<state>(with, std::move(options), std::move(tell));
  with.post([st, then = std::move(then)] {
    st->look_around([st, then](const result<outcome>& got) {
      const auto format = st->judge(got);
      then(format ? result<void>{} : format.reason());
    });
  });
}

void membership::start() {
  state_->with.post([st = state_] { st->join(); });
}

void membership::leave(bool end_lease, std::function<void()> then) {
  state_->with.post([st = state_, end_lease, then = std::move(then)] {
    st->over = true;
    ++st->turn;
    st->until = 0;
    const auto old = st->lease.load();
    if (!end_lease || old == 0)
      return then();
    st->with.revoke(old, join_patience, [then](const auto&) { then(); });
  });
}

bool membership::good() const {
  const auto until = state_->until.load();
  return until != 0 && state_->with.now().count() < until;
}

revision membership::since() const {
  return state_->since;
}

lease_id membership::lease() const {
  return state_->lease;
}

const std::string& membership::self() const {
  return state_->options.self;
}

void membership::look() {
  state_->with.post([st = state_] {
    if (!st->over && st->until != 0)
      st->renew();
  });
}

void membership::doubt() {
  state_->with.post([st = state_] {
    if (!st->over)
      st->lose();
  });
}

} // namespace insula::storage::etcd
