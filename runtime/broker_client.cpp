#include "runtime/broker_client.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "base/packed_text.hpp"
#include "base/request_rules.hpp"
#include "base/secret_box.hpp"
#include "runtime/broker/protocol.hpp"
#include "runtime/packet_socket.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

namespace insula::runtime {

namespace {

using namespace std::chrono_literals;
using broker::frame;
using broker::question;
using clock = std::chrono::steady_clock;
using on_set_function = std::function<void(result<void>)>;
using on_figures_function = std::function<void(result<broker_figures>)>;

/// Between the end of a broker and its next start: it grows. One that has lived for longer than
/// the last has not failed at its start.
constexpr auto first_pause = 10ms, longest_pause = 5000ms, good_life = 30000ms;

/// A stop waits for figures, which matter less.
constexpr auto figures_patience = 1s;

const error silent{errc::node_unreachable, "the broker of the sandbox's requests does not answer"};
const error ended{errc::sandbox_not_running, "the sandbox has ended"};
const error too_many{errc::limit_reached, "too many ask the broker of the sandbox's requests"};

result<broker_figures> read_figures(std::string_view text) {
  packed_reader from{text};
  broker_figures all;
  all.rules.resize(from.count(max_request_rules));
  for (auto& each : all.rules) {
    each.requests = from.number();
    each.bytes_in = from.number();
    each.bytes_out = from.number();
    each.last_status = static_cast<unsigned>(from.count(999));
  }
  all.from_clients = from.number();
  all.to_clients = from.number();
  return from.is_over() ? result<broker_figures>{std::move(all)}
                        : error{errc::io_failed, "the broker has told no figures"};
}

} // namespace

/// Everything on the thread of io_.
class broker_client::shared : public std::enable_shared_from_this<shared> {
public:
  shared(boost::asio::io_context& io, spawner_client& spawner)
      : io_(io)
      , spawner_(&spawner)
      , deadline_(io) {}

  void use(held_slot where, broker_orders orders, on_set_function on_set);
  void end(held_slot where);
  void measure(std::uint32_t slot, on_figures_function tell);
  void forget(std::uint32_t slot);
  void let_go();
  /// The spawner is not asked any more. Any thread.
  void part() {
    const std::lock_guard hold{guard_};
    spawner_ = nullptr;
  }

  boost::asio::io_context& io_;

private:
  using socket = boost::asio::local::stream_protocol::socket;

  /// One way to a broker, until another takes its place.
  struct connection {
    connection(boost::asio::io_context& io, unique_fd way)
        : stream(io, boost::asio::local::stream_protocol{}, way.release()) {}

    socket stream;
    frame head{};
    std::string text;            ///< That arrives,
    std::deque<std::string> out; ///< and what leaves.
  };
  using way = std::shared_ptr<connection>;

  /// The broker of a slot.
  struct one {
    explicit one(boost::asio::io_context& io)
        : pause(io) {}

    /// Signing takes a processor a millisecond.
    bool may_have_token() {
      constexpr unsigned most_tokens = 20;
      const auto now = clock::now();
      if (now - tokens_since > 1s) {
        tokens = 0;
        tokens_since = now;
      }
      return ++tokens <= most_tokens;
    }

    held_slot where;
    broker_orders orders;
    unsigned tokens = 0; ///< Within a second.
    clock::time_point tokens_since{};
    way to; ///< Null: there is none now.
    bool opening = false;
    std::uint64_t asked = 0; ///< By which question the orders were told last.
    std::vector<std::pair<clock::time_point, on_set_function>> waiting; ///< Each until then.
    std::map<std::uint64_t, std::pair<clock::time_point, on_figures_function>> figures;
    boost::asio::steady_timer pause;
    std::chrono::milliseconds next_pause = first_pause;
    clock::time_point opened{};
  };
  using pointer = std::shared_ptr<one>;

  pointer find(std::uint32_t slot) const {
    const auto at = all_.find(slot);
    return at == all_.end() ? nullptr : at->second;
  }
  bool is_current(const pointer& which) const { return find(which->where.slot) == which; }

  /// False: there is no spawner to be asked any more.
  template <class Ask>
  bool with_spawner(Ask ask) {
    const std::lock_guard hold{guard_};
    if (spawner_ != nullptr)
      ask(*spawner_);
    return spawner_ != nullptr;
  }
  void open(const pointer& which);
  void open_later(const pointer& which);
  void opened(const pointer& which, result<unique_fd> made);
  void tell_orders(const pointer& which);
  void lost(const pointer& which, const way& its);
  void settle(const pointer& which, const result<void>& outcome);
  void push(const way& to, frame head, const std::string& text);
  void write_next(const way& to);
  void read_next(const pointer& which, const way& from);
  void heard(const pointer& which, const way& from);
  void watch();
  void look_at_clock();

  std::mutex guard_;        ///< For the next.
  spawner_client* spawner_; ///< Null: this has let go.
  std::map<std::uint32_t, pointer> all_;
  std::uint64_t last_id_ = 0;
  boost::asio::steady_timer deadline_;
  bool watching_ = false;
};

void broker_client::shared::use(held_slot where, broker_orders orders, on_set_function on_set) {
  if (!with_spawner([&](spawner_client& spawner) {
        if (find(where.slot))
          return;
        spawner.hear_of_broker(where.slot, [weak = weak_from_this(), slot = where.slot] {
          if (const auto self = weak.lock())
            boost::asio::post(self->io_, [self, slot] {
              if (const auto gone = self->find(slot))
                self->lost(gone, gone->to);
            });
        });
      }))
    return;
  auto& which = all_[where.slot];
  if (!which)
    which = std::make_shared<one>(io_);
  const auto mine = which;
  mine->where = where;
  mine->orders = std::move(orders);
  mine->waiting.emplace_back(clock::now() + limits::gateway_patience, std::move(on_set));
  mine->next_pause = first_pause; // Somebody waits, also if the broker has just ended.
  watch();
  if (mine->to)
    tell_orders(mine);
  else
    open(mine);
}

void broker_client::shared::end(held_slot where) {
  const auto gone = find(where.slot);
  with_spawner([&](spawner_client& spawner) { spawner.end_broker(where); });
  if (gone && gone->where.epoch <= where.epoch) // Else the slot is another sandbox's by now.
    forget(where.slot);
}

void broker_client::shared::forget(std::uint32_t slot) {
  const auto gone = find(slot);
  if (!gone)
    return;
  all_.erase(slot);
  gone->pause.cancel();
  boost::system::error_code ignored;
  if (gone->to)
    gone->to->stream.close(ignored);
  settle(gone, ended);
  for (auto& [id, each] : std::exchange(gone->figures, {}))
    each.second(ended);
}

void broker_client::shared::let_go() {
  part();
  deadline_.cancel();
  boost::system::error_code ignored;
  for (auto& [slot, each] : std::exchange(all_, {})) {
    each->pause.cancel();
    each->waiting.clear();
    each->figures.clear();
    if (each->to)
      each->to->stream.close(ignored);
  }
}

void broker_client::shared::open(const pointer& which) {
  if (std::exchange(which->opening, true))
    return;
  with_spawner([&](spawner_client& spawner) {
    spawner.open_broker(which->where, [self = shared_from_this(), which](result<unique_fd> made) {
      const auto got = std::make_shared<result<unique_fd>>(std::move(made));
      boost::asio::post(self->io_, [self, which, got] { self->opened(which, std::move(*got)); });
    });
  });
}

void broker_client::shared::opened(const pointer& which, result<unique_fd> made) {
  which->opening = false;
  if (!is_current(which))
    return;
  if (!made) {
    const auto& why = made.reason();
    // The one before goes at once; what cannot be started is tried again.
    if (why.code != errc::limit_reached) {
      log::error("broker.not_started", {{"slot", which->where.slot}, {"reason", why.message}});
      settle(which, why);
    }
    return open_later(which);
  }
  which->to = std::make_shared<connection>(io_, std::move(*made));
  which->opened = clock::now();
  tell_orders(which);
  read_next(which, which->to);
}

void broker_client::shared::open_later(const pointer& which) {
  which->pause.expires_after(which->next_pause);
  which->next_pause = std::min<std::chrono::milliseconds>(which->next_pause * 2, longest_pause);
  which->pause.async_wait(
    [self = shared_from_this(), which](const boost::system::error_code& stopped) {
      if (!stopped && self->is_current(which) && !which->to)
        self->open(which);
    });
}

void broker_client::shared::tell_orders(const pointer& which) {
  auto text = which->orders.text();
  if (!text) { // As with another key than that of the record.
    log::error("broker.no_orders",
               {{"slot", which->where.slot}, {"reason", text.reason().message}});
    return settle(which, text.reason());
  }
  which->asked = ++last_id_;
  push(which->to, {0, question::use, which->asked, 0, 0}, *text);
  wipe(*text);
}

/// What waits for its orders waits on: the next one is told them.
void broker_client::shared::lost(const pointer& which, const way& its) {
  if (!its || which->to != its)
    return;
  boost::system::error_code ignored;
  its->stream.close(ignored);
  which->to.reset();
  for (auto& [id, each] : std::exchange(which->figures, {}))
    each.second(silent);
  if (!is_current(which))
    return;
  if (clock::now() - which->opened > good_life)
    which->next_pause = first_pause;
  open_later(which);
}

void broker_client::shared::settle(const pointer& which, const result<void>& outcome) {
  for (auto& [until, tell] : std::exchange(which->waiting, {}))
    tell(outcome);
}

void broker_client::shared::push(const way& to, frame head, const std::string& text) {
  if (to->out.size() >= limits::gateway_questions) { // It does not read: another way is opened.
    boost::system::error_code ignored;
    return void(to->stream.close(ignored));
  }
  head.bytes = static_cast<std::uint32_t>(text.size());
  to->out.push_back(std::string{as_bytes(head)}.append(text));
  if (to->out.size() == 1)
    write_next(to);
}

void broker_client::shared::write_next(const way& to) {
  boost::asio::async_write(
    to->stream, boost::asio::buffer(to->out.front()),
    [self = shared_from_this(), to](const boost::system::error_code& failed, std::size_t) {
      auto& written = to->out.front();
      std::fill(written.begin(), written.end(), '\0'); // It may have secrets.
      if (failed)
        return; // So does the reader.
      to->out.pop_front();
      if (!to->out.empty())
        self->write_next(to);
    });
}

void broker_client::shared::read_next(const pointer& which, const way& from) {
  boost::asio::async_read(
    from->stream, boost::asio::buffer(&from->head, sizeof from->head),
    [self = shared_from_this(), which, from](const boost::system::error_code& failed, std::size_t) {
      if (failed || from->head.bytes > broker::max_frame)
        return self->lost(which, from);
      from->text.resize(from->head.bytes);
      boost::asio::async_read(
        from->stream, boost::asio::buffer(from->text),
        [self, which, from](const boost::system::error_code& cut, std::size_t) {
          if (cut)
            return self->lost(which, from);
          if (which->to != from)
            return;
          self->heard(which, from);
          self->read_next(which, from);
        });
    });
}

void broker_client::shared::heard(const pointer& which, const way& from) {
  const auto& head = from->head;
  if (head.what == question::token && head.is_answer == 0) {
    auto answer = head;
    answer.is_answer = 1;
    auto token = result<std::string>{too_many};
    if (which->may_have_token())
      token = which->orders.token(from->text);
    answer.error = token ? 0 : static_cast<std::int32_t>(token.reason().code);
    return push(from, answer, token ? *token : token.reason().message);
  }
  if (head.is_answer == 0)
    return;
  const auto failure = error{static_cast<errc>(head.error), from->text};
  if (head.what == question::figures) {
    if (const auto asked = which->figures.extract(head.id))
      asked.mapped().second(head.error == 0 ? read_figures(from->text) : failure);
    return;
  }
  if (head.what == question::use && head.error != 0)
    log::error("broker.orders_refused", {{"slot", which->where.slot}, {"reason", from->text}});
  if (head.what == question::use && head.id == which->asked)
    settle(which, head.error == 0 ? result<void>{} : result<void>{failure});
}

void broker_client::shared::measure(std::uint32_t slot, on_figures_function tell) {
  const auto which = find(slot);
  if (!which)
    return tell(broker_figures{});
  if (!which->to)
    return tell(silent);
  if (which->figures.size() >= limits::gateway_questions)
    return tell(too_many);
  const auto id = ++last_id_;
  which->figures.emplace(id, std::pair{clock::now() + figures_patience, std::move(tell)});
  watch();
  push(which->to, {0, question::figures, id, 0, 0}, {});
}

/// As long as somebody waits, the clock is looked at now and then.
void broker_client::shared::watch() {
  if (std::exchange(watching_, true))
    return;
  deadline_.expires_after(limits::gateway_patience / 4);
  deadline_.async_wait([self = shared_from_this()](const boost::system::error_code& stopped) {
    self->watching_ = false;
    if (!stopped)
      self->look_at_clock();
  });
}

void broker_client::shared::look_at_clock() {
  const auto now = clock::now();
  std::vector<on_set_function> late;
  std::vector<on_figures_function> late_figures;
  bool more = false;
  for (auto& [slot, each] : all_) {
    std::erase_if(each->waiting, [&](auto& waiter) {
      if (waiter.first > now)
        return false;
      late.push_back(std::move(waiter.second));
      return true;
    });
    std::erase_if(each->figures, [&](auto& asked) {
      if (asked.second.first > now)
        return false;
      late_figures.push_back(std::move(asked.second.second));
      return true;
    });
    more = more || !each->waiting.empty() || !each->figures.empty();
  }
  if (more)
    watch();
  for (const auto& each : late)
    each(silent);
  for (const auto& each : late_figures)
    each(silent);
}

broker_client::broker_client(boost::asio::io_context& io, spawner_client& spawner)
    : shared_(std::make_shared<shared>(io, spawner)) {}

broker_client::~broker_client() {
  shared_->part();
  let_go();
}

void broker_client::use(held_slot where, broker_orders orders, on_set_function on_set) {
  boost::asio::post(shared_->io_, [self = shared_, where, orders = std::move(orders),
                                   on_set = std::move(on_set)]() mutable {
    self->use(where, std::move(orders), std::move(on_set));
  });
}

void broker_client::end(held_slot where) {
  boost::asio::post(shared_->io_, [self = shared_, where] { self->end(where); });
}

void broker_client::measure(std::uint32_t slot, on_figures_function tell) {
  boost::asio::post(shared_->io_, [self = shared_, slot, tell = std::move(tell)]() mutable {
    self->measure(slot, std::move(tell));
  });
}

void broker_client::forget(std::uint32_t slot) {
  boost::asio::post(shared_->io_, [self = shared_, slot] { self->forget(slot); });
}

void broker_client::let_go() {
  boost::asio::post(shared_->io_, [self = shared_] { self->let_go(); });
}

} // namespace insula::runtime
