#include "runtime/gateway_client.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "runtime/gateway/protocol.hpp"
#include "runtime/not_held.hpp"
#include "runtime/packet_socket.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <cerrno>
#include <deque>
#include <map>
#include <utility>

namespace insula::runtime {

namespace {

using gateway::frame;
using gateway::question;
using on_set_function = std::function<void(result<void>)>;
using on_text_function = std::function<void(result<std::string>)>;
using clock = std::chrono::steady_clock;

const error silent{errc::io_failed, "the egress gateway does not answer"};
const error refused{errc::io_failed, "the egress gateway does not understand"};
const error nobody{errc::sandbox_not_running, "the sandbox has ended"};
const error too_many{errc::limit_reached, "too many ask the egress gateway"};

} // namespace

/// Everything on the thread of io_.
class gateway_client::shared : public std::enable_shared_from_this<shared> {
public:
  shared(boost::asio::io_context& io, gateway_settings settings)
      : io_(io)
      , settings_(std::move(settings))
      , deadline_(io) {}

  void connect(unique_fd way);
  void set_policy(std::uint32_t slot, std::uint64_t epoch, std::string text,
                  on_set_function on_set);
  void ask(question what, std::uint32_t slot, on_text_function tell);
  void forget(std::uint32_t slot);
  void let_go();

  boost::asio::io_context& io_;

private:
  using socket = boost::asio::local::stream_protocol::socket;

  struct policy_of_slot {
    std::string text;
    std::uint64_t epoch = 0;
    std::uint64_t asked = 0; ///< By which question it was told last; 0: it is yet to be.
    bool queued = false;
    std::vector<std::pair<clock::time_point, on_set_function>> waiting; ///< Each until then.
  };
  struct asked_text {
    clock::time_point deadline;
    on_text_function tell;
  };
  struct order {
    question what;
    std::uint32_t slot;
    std::uint64_t id; ///< Of what is asked; a policy gets one when it is sent.
  };
  /// One way to a gateway, until another takes its place.
  struct connection {
    connection(boost::asio::io_context& io, unique_fd way)
        : stream(io, boost::asio::local::stream_protocol{}, way.release()) {}

    socket stream;
    frame head{};
    std::string text; ///< That arrives,
    std::string out;  ///< and that leaves.
    bool writing = false;
  };
  using way = std::shared_ptr<connection>;

  void push(order next);
  void send_next(const way& to);
  std::string frame_for(const order& next);
  void read_next(const way& from);
  void heard(const frame& head, const std::string& text);
  void lost(const way& which);
  void watch();
  void look_at_clock();

  gateway_settings settings_;
  way way_; ///< Null: there is none now.
  std::deque<order> orders_;
  std::map<std::uint32_t, policy_of_slot> policies_;
  std::map<std::uint64_t, asked_text> asked_; ///< By question.
  std::uint64_t last_id_ = 0;
  boost::asio::steady_timer deadline_;
  bool watching_ = false;
};

void gateway_client::shared::connect(unique_fd fd) {
  if (way_)
    lost(way_);
  way_ = std::make_shared<connection>(io_, std::move(fd));
  orders_.clear();
  push({question::settings, 0, 0});
  for (auto& [slot, each] : policies_) {
    each.queued = true;
    push({question::policy, slot, 0});
  }
  read_next(way_);
}

void gateway_client::shared::set_policy(std::uint32_t slot, std::uint64_t epoch, std::string text,
                                        on_set_function on_set) {
  auto& mine = policies_[slot];
  mine.text = std::move(text);
  mine.epoch = epoch;
  mine.asked = 0;
  mine.waiting.emplace_back(clock::now() + limits::gateway_patience, std::move(on_set));
  watch();
  if (!std::exchange(mine.queued, true))
    push({question::policy, slot, 0});
}

void gateway_client::shared::ask(question what, std::uint32_t slot, on_text_function tell) {
  if (!way_)
    return tell(silent);
  if (asked_.size() >= limits::gateway_questions)
    return tell(too_many);
  const auto id = ++last_id_;
  asked_.emplace(id, asked_text{clock::now() + limits::gateway_patience, std::move(tell)});
  watch();
  push({what, slot, id});
}

void gateway_client::shared::forget(std::uint32_t slot) {
  const auto gone = policies_.extract(slot);
  if (gone)
    for (const auto& [until, on_set] : gone.mapped().waiting)
      on_set(nobody);
}

void gateway_client::shared::let_go() {
  boost::system::error_code ignored;
  if (way_)
    way_->stream.close(ignored);
  way_.reset();
  deadline_.cancel();
  policies_.clear();
  asked_.clear();
  orders_.clear();
}

void gateway_client::shared::push(order next) {
  orders_.push_back(next);
  if (way_ && !way_->writing)
    send_next(way_);
}

std::string gateway_client::shared::frame_for(const order& next) {
  frame head{};
  head.what = next.what;
  head.slot = next.slot;
  head.id = next.id;
  std::string text;
  if (next.what == question::settings) {
    for (const auto& each : settings_.resolvers)
      ((text += "resolver ") += each) += '\n';
    for (const auto& each : settings_.allowed_private)
      ((text += "allow ") += each) += '\n';
  } else if (next.what == question::policy) {
    const auto at = policies_.find(next.slot);
    if (at == policies_.end())
      return {}; // It has ended meanwhile.
    at->second.queued = false;
    head.id = at->second.asked = ++last_id_;
    head.epoch = at->second.epoch;
    text = at->second.text;
  }
  head.bytes = static_cast<std::uint32_t>(text.size());
  return std::string{as_bytes(head)}.append(text);
}

void gateway_client::shared::send_next(const way& to) {
  to->out.clear();
  while (to->out.empty() && !orders_.empty()) {
    const auto next = orders_.front();
    orders_.pop_front();
    to->out = frame_for(next);
  }
  to->writing = !to->out.empty();
  if (!to->writing)
    return;
  boost::asio::async_write(
    to->stream, boost::asio::buffer(to->out),
    [self = shared_from_this(), to](const boost::system::error_code& failed, std::size_t) {
      if (!failed && self->way_ == to)
        self->send_next(to); // If it failed, so does the reader.
    });
}

void gateway_client::shared::read_next(const way& from) {
  boost::asio::async_read(
    from->stream, boost::asio::buffer(&from->head, sizeof from->head),
    [self = shared_from_this(), from](const boost::system::error_code& failed, std::size_t) {
      if (failed || from->head.bytes > gateway::max_frame)
        return self->lost(from);
      from->text.resize(from->head.bytes);
      boost::asio::async_read(from->stream, boost::asio::buffer(from->text),
                              [self, from](const boost::system::error_code& cut, std::size_t) {
                                if (cut)
                                  return self->lost(from);
                                if (self->way_ != from)
                                  return;
                                self->heard(from->head, from->text);
                                self->read_next(from);
                              });
    });
}

void gateway_client::shared::heard(const frame& head, const std::string& text) {
  const auto failure = head.error == ESRCH ? nobody : head.error == ESTALE ? not_held : refused;
  if (head.what == question::figures || head.what == question::totals) {
    if (const auto asked = asked_.extract(head.id))
      asked.mapped().tell(head.error != 0 ? result<std::string>{failure} : text);
    return;
  }
  if (head.what == question::settings && head.error != 0)
    return log::error("gateway.settings_refused");
  const auto at = policies_.find(head.slot);
  if (head.what != question::policy || at == policies_.end() || at->second.asked != head.id)
    return; // A later one is on its way.
  for (auto& [until, on_set] : std::exchange(at->second.waiting, {}))
    on_set(head.error == 0 ? result<void>{} : result<void>{failure});
}

/// What waits for a policy waits on: the next gateway is told it.
void gateway_client::shared::lost(const way& which) {
  if (way_ != which)
    return;
  boost::system::error_code ignored;
  which->stream.close(ignored);
  way_.reset();
  for (auto& [id, each] : std::exchange(asked_, {}))
    each.tell(silent);
}

/// As long as somebody waits, the clock is looked at now and then.
void gateway_client::shared::watch() {
  if (std::exchange(watching_, true))
    return;
  deadline_.expires_after(limits::gateway_patience / 4);
  deadline_.async_wait([self = shared_from_this()](const boost::system::error_code& stopped) {
    self->watching_ = false;
    if (!stopped)
      self->look_at_clock();
  });
}

void gateway_client::shared::look_at_clock() {
  const auto now = clock::now();
  std::vector<on_set_function> late;
  bool more = false;
  for (auto& [slot, each] : policies_) {
    std::erase_if(each.waiting, [&](auto& waiter) {
      if (waiter.first > now)
        return false;
      late.push_back(std::move(waiter.second));
      return true;
    });
    more = more || !each.waiting.empty();
  }
  std::vector<on_text_function> late_answers;
  std::erase_if(asked_, [&](auto& each) {
    if (each.second.deadline > now)
      return false;
    late_answers.push_back(std::move(each.second.tell));
    return true;
  });
  if (more || !asked_.empty())
    watch();
  for (const auto& each : late)
    each(silent);
  for (const auto& each : late_answers)
    each(silent);
}

gateway_client::gateway_client(boost::asio::io_context& io, gateway_settings settings)
    : shared_(std::make_shared<shared>(io, std::move(settings))) {}

gateway_client::~gateway_client() {
  let_go();
}

void gateway_client::connect(unique_fd way) {
  boost::asio::post(shared_->io_, [self = shared_, way = std::move(way)]() mutable {
    self->connect(std::move(way));
  });
}

void gateway_client::set_policy(std::uint32_t slot, std::uint64_t epoch,
                                const egress_policy& policy, const std::string& carried,
                                std::function<void(result<void>)> on_set) {
  boost::asio::post(shared_->io_, [self = shared_, slot, epoch, text = carried + to_text(policy),
                                   on_set = std::move(on_set)]() mutable {
    self->set_policy(slot, epoch, std::move(text), std::move(on_set));
  });
}

void gateway_client::measure(std::uint32_t slot,
                             std::function<void(result<network_figures>)> tell) {
  boost::asio::post(shared_->io_, [self = shared_, slot, tell = std::move(tell)] {
    self->ask(question::figures, slot, [tell](const result<std::string>& text) {
      tell(text ? figures_from_text(*text) : text.reason());
    });
  });
}

void gateway_client::total(std::function<void(result<network_totals>)> tell) {
  boost::asio::post(shared_->io_, [self = shared_, tell = std::move(tell)] {
    self->ask(question::totals, 0, [tell](const result<std::string>& text) {
      tell(text ? totals_from_text(*text) : text.reason());
    });
  });
}

void gateway_client::forget(std::uint32_t slot) {
  boost::asio::post(shared_->io_, [self = shared_, slot] { self->forget(slot); });
}

void gateway_client::let_go() {
  boost::asio::post(shared_->io_, [self = shared_] { self->let_go(); });
}

} // namespace insula::runtime
