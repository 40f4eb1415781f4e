#include "actors/cluster/peer.hpp"

#include "actors/cluster/basp.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace insula::actors::cluster {

/// What a peer is to be told.
struct given_answer {
  std::uint64_t passage = 0; ///< Through which it has asked.
  std::uint64_t number = 0;  ///< Of its question.
  result<std::string> how = std::string{};
};

} // namespace insula::actors::cluster

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::cluster::given_answer)

namespace insula::actors::cluster {

namespace {

using tick_atom = caf::atom_constant<caf::atom("tick")>;

// On the wire. A hello is said by who has dialled, and said back.
constexpr wire_word hello = caf::atom("hello");
constexpr wire_word question = caf::atom("question");
constexpr wire_word answer = caf::atom("answer");

/// Sentences of failures are for people: longer ones are cut.
constexpr std::size_t longest_sentence = 4096;

/// To the peer's actor, for replies that may be given when it, and its actor system, have gone.
class way_back {
public:
  void lead_to(caf::actor to) {
    const std::lock_guard hold{guard_};
    to_ = std::move(to);
  }
  void send(given_answer what) {
    const std::lock_guard hold{guard_};
    if (to_)
      caf::anon_send(to_, std::move(what));
  }

private:
  std::mutex guard_;
  caf::actor to_;
};

struct waiting_call {
  call_pointer what;
  caf::actor_clock::time_point due;
};

struct peer_state {
  static inline const char* name = "peer";
  std::shared_ptr<peer_options> options;
  std::shared_ptr<passage> open; ///< None: nothing can be said.
  caf::actor there;              ///< The peer's actor, once it is known.
  std::map<std::uint64_t, waiting_call> waiting;
  std::set<std::pair<caf::actor_clock::time_point, std::uint64_t>> deadlines;
  std::uint64_t last_number = 0;
  std::size_t answering = 0; ///< Questions of the peer, through this passage.
  const std::shared_ptr<way_back> back = std::make_shared<way_back>();
  std::optional<caf::actor_clock::time_point> next_look;
  std::uint64_t looks = 0;

  ~peer_state() { back->lead_to({}); }

  bool up() const { return open && open->up; }
};

using peer_pointer = caf::stateful_actor<peer_state>*;

/// What answer_fn is given for its reply: one that is never given becomes a failure.
class open_answer {
public:
  open_answer(std::shared_ptr<way_back> to, std::uint64_t passage, std::uint64_t number)
      : to_(std::move(to))
      , passage_(passage)
      , number_(number) {}
  ~open_answer() { give(error{errc::internal, "the question was not answered"}); }

  void give(result<std::string> how) {
    if (!given_.exchange(true))
      to_->send({passage_, number_, std::move(how)});
  }

private:
  const std::shared_ptr<way_back> to_;
  const std::uint64_t passage_;
  const std::uint64_t number_;
  std::atomic<bool> given_ = false;
};

/// Numbers of a peer's build may be unknown here.
errc known_code(std::uint8_t code) {
  switch (static_cast<errc>(code)) {
    case errc::invalid_request:
    case errc::outside_workspace:
    case errc::unauthorized:
    case errc::not_found:
    case errc::payload_too_large:
    case errc::sandbox_not_running:
    case errc::capacity_exceeded:
    case errc::limit_reached:
    case errc::deadline_exceeded:
    case errc::launch_failed:
    case errc::io_failed:
    case errc::stale_epoch:
    case errc::node_unreachable:
    case errc::internal:
    case errc::already_exists:
    case errc::session_ended:
    case errc::disk_full:
    case errc::store_failed:
    case errc::idempotency_conflict:
    case errc::result_gone:
    case errc::machine_full:
    case errc::forbidden:
    case errc::sandbox_mismatch:
    case errc::image_refused:
    case errc::image_pending:
    case errc::run_over:
    case errc::key_ceiling:
    case errc::request_known:
    case errc::run_stopping:
    case errc::run_snapshotting:
    case errc::snapshot_gone:
    case errc::drive_in_use:
    case errc::drive_gone: return static_cast<errc>(code);
  }
  return errc::internal;
}

error unreachable(peer_pointer self) {
  return {errc::node_unreachable, "there is no link to node " + self->state.options->name};
}

void tell(peer_pointer self, wire_word word, std::uint64_t number = 0, std::uint8_t code = 0,
          std::string what = {}, std::string text = {}) {
  self->send(self->state.there, word, number, code, std::move(what), std::move(text));
}

// ---- Questions to the peer

/// One look at a time, since a delayed message cannot be taken back.
void look_later(peer_pointer self) {
  auto& st = self->state;
  if (st.deadlines.empty())
    return;
  const auto due = st.deadlines.begin()->first;
  if (st.next_look && *st.next_look <= due)
    return;
  st.next_look = due;
  const auto left = std::max(caf::actor_clock::duration_type{0}, due - self->clock().now());
  self->delayed_send(self, left, tick_atom::value, ++st.looks);
}

call_pointer take(peer_pointer self, std::uint64_t number) {
  auto& st = self->state;
  const auto at = st.waiting.find(number);
  if (at == st.waiting.end())
    return nullptr; // Its time was up before.
  st.deadlines.erase({at->second.due, number});
  auto what = std::move(at->second.what);
  st.waiting.erase(at);
  return what;
}

void ask(peer_pointer self, const call_pointer& what) {
  auto& st = self->state;
  if (!st.up())
    return what->answer(unreachable(self));
  if (st.waiting.size() >= limits::link_calls)
    return what->answer(
      error{errc::limit_reached, "too much waits for answers of node " + st.options->name});
  constexpr std::chrono::milliseconds longest = std::chrono::hours{24};
  const auto patience = std::clamp(what->patience, std::chrono::milliseconds{0}, longest);
  const auto number = ++st.last_number;
  const auto due = self->clock().now() + patience;
  st.waiting[number] = {what, due};
  st.deadlines.emplace(due, number);
  look_later(self);
  tell(self, question, number, 0, what->what, std::move(what->text));
}

void look(peer_pointer self, std::uint64_t which) {
  auto& st = self->state;
  if (which != st.looks)
    return;
  st.next_look.reset();
  const auto now = self->clock().now();
  while (!st.deadlines.empty() && st.deadlines.begin()->first <= now) {
    const auto what = take(self, st.deadlines.begin()->second);
    what->answer(
      error{errc::deadline_exceeded, "node " + st.options->name + " has not answered in time"});
  }
  look_later(self);
}

/// `when`: of a failure, after how many seconds to try again; empty: nothing is known of that.
void answered(peer_pointer self, std::uint64_t number, std::uint8_t code, const std::string& when,
              std::string& text) {
  const auto what = take(self, number);
  if (!what)
    return;
  if (code == 0)
    return what->answer(std::move(text));
  std::uint32_t retry_s = 0;
  std::from_chars(when.data(), when.data() + when.size(), retry_s);
  what->answer(error{known_code(code), std::move(text), retry_s});
}

void fail_all(peer_pointer self) {
  auto& st = self->state;
  st.deadlines.clear();
  for (const auto& [number, each] : std::exchange(st.waiting, {}))
    each.what->answer(unreachable(self));
}

// ---- Questions of the peer

void answer_peer(peer_pointer self, given_answer& given) {
  auto& st = self->state;
  if (!st.up() || st.open->number != given.passage)
    return;
  --st.answering;
  if (given.how && given.how->size() > limits::link_text_bytes)
    given.how = error{errc::payload_too_large, "the answer is too large for a link"};
  if (given.how)
    return tell(self, answer, given.number, 0, {}, std::move(*given.how));
  auto why = given.how.reason();
  why.message.resize(std::min(why.message.size(), longest_sentence));
  tell(self, answer, given.number, static_cast<std::uint8_t>(why.code),
       why.retry_s > 0 ? std::to_string(why.retry_s) : "", std::move(why.message));
}

void asked(peer_pointer self, std::uint64_t number, const std::string& what, std::string& text) {
  auto& st = self->state;
  const auto open = std::make_shared<open_answer>(st.back, st.open->number, number);
  ++st.answering;
  if (st.answering > limits::link_calls)
    return open->give(error{errc::limit_reached, "the node is answering too much already"});
  st.options->answers(st.options->name, what, std::move(text),
                      [open](result<std::string> how) { open->give(std::move(how)); });
}

// ---- The link

void now_up(peer_pointer self) {
  auto& st = self->state;
  st.open->up = true;
  log::info("link.up", {{"peer", st.options->name}});
  st.options->linked->set(st.options->name, true);
  st.options->changed(st.options->name, true);
}

void greeted(peer_pointer self) {
  auto& st = self->state;
  if (!st.open || st.open->up || !self->current_sender())
    return;
  if (!st.open->dialled) {
    st.there = caf::actor_cast<caf::actor>(self->current_sender());
    tell(self, hello);
  }
  now_up(self);
}

void opened(peer_pointer self, const passage_open& what) {
  auto& st = self->state;
  st.open = what.which;
  st.answering = 0;
  if (!st.open->dialled)
    return offer_on(self, st.options->broker, std::move(*what.socket), st.options->port);
  reach_over(self, st.options->broker, std::move(*what.socket), st.options->port,
             [self, number = st.open->number](const caf::actor& offered) {
               auto& state = self->state;
               if (!state.open || state.open->number != number)
                 return;
               state.there = offered;
               tell(self, hello);
             });
}

void gone(peer_pointer self, const passage_gone& what) {
  auto& st = self->state;
  if (!st.open || st.open->number != what.number)
    return;
  const bool was_up = st.open->up;
  st.open = nullptr;
  st.there = nullptr;
  if (was_up) {
    log::info("link.down", {{"peer", st.options->name}, {"why", what.why}});
    st.options->linked->set(st.options->name, false);
    fail_all(self);
    st.options->changed(st.options->name, false);
  }
}

caf::behavior peer(peer_pointer self, const std::shared_ptr<peer_options>& options) {
  self->state.options = options;
  self->state.back->lead_to(caf::actor_cast<caf::actor>(self));
  self->set_default_handler(caf::drop);
  return {
    [self](const call_pointer& what) { ask(self, what); },
    [self](const passage_open& what) { opened(self, what); },
    [self](const passage_gone& what) { gone(self, what); },
    [self](given_answer& what) { answer_peer(self, what); },
    [self](tick_atom, std::uint64_t which) { look(self, which); },
    [self](wire_word word, std::uint64_t number, std::uint8_t code, const std::string& what,
           std::string& text) {
      if (word == hello)
        greeted(self);
      else if (!self->state.up())
        return;
      else if (word == question)
        asked(self, number, what, text);
      else if (word == answer)
        answered(self, number, code, what, text);
    },
    [self](end_peer_atom) {
      fail_all(self);
      self->quit();
    },
  };
}

} // namespace

caf::actor spawn_peer(caf::actor_system& system, peer_options options) {
  return system.spawn(peer, std::make_shared<peer_options>(std::move(options)));
}

} // namespace insula::actors::cluster
