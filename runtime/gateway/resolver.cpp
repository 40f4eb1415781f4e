#include "runtime/gateway/resolver.hpp"

#include "base/limits.hpp"
#include "runtime/gateway/sockets.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <unistd.h>

namespace insula::runtime::gateway {

namespace {

using namespace std::chrono_literals;
using boost::system::error_code;
using egress::dns::status;

constexpr auto patience = 2s; ///< For one server, once.
constexpr int rounds = 2;     ///< Through all of them.
constexpr std::uint32_t longest_memory_s = limits::gateway_name_memory.count(),
                        shortest_memory_s = 1;
constexpr std::uint32_t failure_memory_s = limits::gateway_failure_memory.count();
/// A longer answer is not remembered: there is none that says no so verbosely.
constexpr std::size_t largest_remembered = egress::dns::plain_udp;

} // namespace

/// One question, until somebody has answered it.
struct resolver::lookup : std::enable_shared_from_this<resolver::lookup> {
  lookup(boost::asio::io_context& io, std::vector<server> all, std::shared_ptr<turns::share> of)
      : socket(io)
      , deadline(io)
      , time(std::move(of))
      , servers(std::move(all)) {}

  void ask_next();
  void heard_from(int type);
  void read_datagram();
  void read_stream();
  void heard(std::string_view message, bool by_tcp);
  void ask_by_tcp();
  void finish(std::optional<std::string> answer);
  void connect(int type);
  /// It is not there: the next one has its turn.
  void later() {
    time->add([self = shared_from_this(), mine = attempt] {
      if (self->attempt == mine)
        self->ask_next();
    });
  }

  boost::asio::posix::stream_descriptor socket;
  boost::asio::steady_timer deadline;
  const std::shared_ptr<turns::share> time;
  std::vector<server> servers;
  std::size_t tries = 0;
  std::uint16_t id = 0;
  std::function<std::uint16_t()> next_id;
  std::function<std::string(std::uint16_t)> write;
  std::string asked, out, in;
  std::array<char, 2> length{};
  std::function<void(std::optional<std::string>)> tell;
  unsigned attempt = 0; ///< Connections so far: what belongs to an earlier one may still come.
  bool over = false;
};

void resolver::lookup::finish(std::optional<std::string> answer) {
  if (std::exchange(over, true))
    return;
  error_code ignored;
  deadline.cancel();
  socket.close(ignored);
  std::exchange(tell, nullptr)(std::move(answer));
}

void resolver::lookup::ask_next() {
  if (over)
    return;
  if (tries >= servers.size() * rounds)
    return finish(std::nullopt);
  ++tries;
  id = next_id();
  asked = write(id);
  connect(SOCK_DGRAM);
}

/// To the server whose turn it is, which has this long.
void resolver::lookup::connect(int type) {
  const auto& to = servers[(tries - 1) % servers.size()];
  error_code ignored;
  socket.close(ignored);
  auto made = begin_connect({to.address, to.port}, type);
  const auto mine = ++attempt;
  deadline.expires_after(patience);
  deadline.async_wait(time->wrap([self = shared_from_this(), mine](const error_code& stopped) {
    if (!stopped && self->attempt == mine)
      self->ask_next();
  }));
  if (!made) // There is no way to it: its time is waited for, since this may be so for a moment
             // only.
    return;
  socket.assign(made.release());
  socket.async_wait(socket.wait_write,
                    time->wrap([self = shared_from_this(), type, mine](const error_code& failed) {
                      if (!failed && !self->over && self->attempt == mine)
                        self->heard_from(type);
                    }));
}

/// It is connected: the question goes out.
void resolver::lookup::heard_from(int type) {
  if (connect_outcome(socket.native_handle()) != 0)
    return later();
  if (type == SOCK_DGRAM) {
    if (::send(socket.native_handle(), asked.data(), asked.size(), MSG_NOSIGNAL) > 0)
      return read_datagram();
    return later();
  }
  out.assign({static_cast<char>(asked.size() >> 8), static_cast<char>(asked.size() & 0xff)});
  out += asked;
  boost::asio::async_write(
    socket, boost::asio::buffer(out),
    time->wrap([self = shared_from_this(), mine = attempt](const error_code& failed, std::size_t) {
      if (!failed && !self->over && self->attempt == mine)
        self->read_stream();
    }));
}

void resolver::lookup::read_datagram() {
  socket.async_wait(socket.wait_read, time->wrap([self = shared_from_this(),
                                                  mine = attempt](const error_code& failed) {
    if (failed || self->over || self->attempt != mine)
      return;
    std::array<char, egress::dns::largest_udp> bytes;
    const auto n = ::recv(self->socket.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n > 0)
      self->heard({bytes.data(), static_cast<std::size_t>(n)}, false);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
      return self->later();
    if (!self->over && self->attempt == mine)
      self->read_datagram();
  }));
}

void resolver::lookup::read_stream() {
  const auto mine = attempt;
  boost::asio::async_read(
    socket, boost::asio::buffer(length),
    time->wrap([self = shared_from_this(), mine](const error_code& failed, std::size_t) {
      if (failed || self->over || self->attempt != mine)
        return;
      self->in.resize(static_cast<std::size_t>(static_cast<unsigned char>(self->length[0]) << 8 |
                                               static_cast<unsigned char>(self->length[1])));
      boost::asio::async_read(self->socket, boost::asio::buffer(self->in),
                              self->time->wrap([self, mine](const error_code& cut, std::size_t) {
                                if (!cut && !self->over && self->attempt == mine)
                                  self->heard(self->in, true);
                              }));
    }));
}

void resolver::lookup::heard(std::string_view message, bool by_tcp) {
  const auto said = egress::dns::read_reply(message, asked);
  if (!said || said->id != id || !said->repeats)
    return; // Somebody else's, or nobody's.
  if (said->truncated && !by_tcp)
    return ask_by_tcp();
  if (said->how != status::good && said->how != status::no_name &&
      tries < servers.size()) // Another one may know more.
    return ask_next();
  finish(std::string{message});
}

void resolver::lookup::ask_by_tcp() {
  connect(SOCK_STREAM); // No more datagrams are read.
}

resolver::resolver(boost::asio::io_context& io)
    : io_(io)
    , places_(io, {.all = limits::gateway_all_lookups,
                   .kept = limits::gateway_kept_lookups,
                   .few = limits::gateway_few_lookups,
                   .each = limits::gateway_lookups,
                   .waiting = limits::gateway_waiting_lookups,
                   .patience = limits::gateway_lookup_patience}) {}

void resolver::use(std::vector<server> servers) {
  servers_ = std::move(servers);
  for (auto& [whose, each] : memories_) {
    each.known.clear();
    each.order.clear();
  }
}

void resolver::forget(tenant_number whose) {
  places_.forget(whose);
  auto gone = memories_.extract(whose);
  if (!gone)
    return;
  for (const auto& [name, each] : gone.mapped().asked)
    for (const auto& tell : each.waiting)
      tell({});
}

const resolver::remembered* resolver::recall(tenant_number whose, const std::string& what) const {
  const auto mine = memories_.find(whose);
  if (mine == memories_.end())
    return nullptr;
  const auto at = mine->second.known.find(what);
  const bool counts =
    at != mine->second.known.end() && at->second.until > std::chrono::steady_clock::now();
  return counts ? &at->second : nullptr;
}

/// Not of a tenant that has gone meanwhile.
void resolver::remember(tenant_number whose, const std::string& what, remembered as,
                        std::chrono::seconds time) {
  const auto at = memories_.find(whose);
  if (at == memories_.end())
    return;
  auto& mine = at->second;
  if (!mine.known.contains(what))
    mine.order.push_back(what);
  as.until = std::chrono::steady_clock::now() + time;
  mine.known[what] = std::move(as);
  if (mine.order.size() > limits::gateway_names) {
    mine.known.erase(mine.order.front());
    mine.order.pop_front();
  }
}

void resolver::begin(const payer& by, std::function<std::string(std::uint16_t)> write,
                     std::function<void(outcome)> tell) {
  if (servers_.empty())
    return by.time->add([tell = std::move(tell)] { tell({}); });
  const auto start = [this, by, write = std::move(write), tell](bool has_place) {
    if (!has_place)
      return by.time->add([tell] { tell({.too_many = true}); });
    const auto made = std::make_shared<lookup>(io_, servers_, by.time);
    made->write = write;
    made->next_id = [this] { return static_cast<std::uint16_t>(random_()); };
    made->tell = [this, number = by.number, tell](std::optional<std::string> answer) {
      places_.give_back(number);
      tell({std::move(answer)});
    };
    by.time->add([made] { made->ask_next(); });
  };
  if (!places_.take(by.number, start))
    start(false);
}

void resolver::ask(const payer& by, const egress::dns::question& asked,
                   std::function<void(outcome)> tell) {
  auto question = egress::dns::forward(asked, 0);
  if (const auto* known = recall(by.number, question))
    return by.time->add([tell = std::move(tell), answer = known->answer] { tell(answer); });
  memories_.try_emplace(by.number);
  const auto write = [asked](std::uint16_t id) { return egress::dns::forward(asked, id); };
  begin(by, write,
        [this, whose = by.number, question = std::move(question),
         tell = std::move(tell)](const outcome& got) {
          const auto said =
            got.message ? egress::dns::read_reply(*got.message, question) : std::nullopt;
          const bool is_small = !got.message || got.message->size() <= largest_remembered;
          if (!got.too_many && is_small && (!said || said->how != status::good)) {
            const bool no_name = said && said->how == status::no_name && said->negative_ttl;
            const auto time =
              no_name ? std::min(*said->negative_ttl, longest_memory_s) : failure_memory_s;
            remember(whose, question, {.answer = got}, std::chrono::seconds{time});
          }
          tell(got);
        });
}

void resolver::resolve(const payer& by, const std::string& name,
                       std::function<void(const addresses&)> tell) {
  if (const auto* known = recall(by.number, name))
    return by.time->add([tell = std::move(tell), what = known->what] { tell(what); });
  const auto [at, is_new] = memories_[by.number].asked.try_emplace(name);
  at->second.waiting.push_back(std::move(tell));
  if (!is_new)
    return;
  at->second.ttl = at->second.negative_ttl = longest_memory_s;
  for (const auto type : {egress::dns::type_a, egress::dns::type_aaaa}) {
    const auto write = [name, type](std::uint16_t id) {
      return egress::dns::write_question(id, name, type);
    };
    begin(by, write, [this, whose = by.number, name, asked = write(0)](const outcome& got) {
      half_resolved(whose, name, got, asked);
    });
  }
}

void resolver::half_resolved(tenant_number whose, const std::string& name, const outcome& got,
                             const std::string& asked) {
  const auto mine_of = memories_.find(whose);
  if (mine_of == memories_.end())
    return; // The tenant has gone, and those that waited have been told.
  const auto at = mine_of->second.asked.find(name);
  auto& mine = at->second;
  const auto said = got.message ? egress::dns::read_reply(*got.message, asked) : std::nullopt;
  mine.so_far.too_many = mine.so_far.too_many || got.too_many;
  if (said && (said->how == status::good || said->how == status::no_name))
    mine.negative_ttl = std::min(mine.negative_ttl, said->negative_ttl.value_or(longest_memory_s));
  if (said && said->how == status::good) {
    mine.any_good = true;
    mine.so_far.how = status::good;
    mine.so_far.all.insert(mine.so_far.all.end(), said->addresses.begin(), said->addresses.end());
    if (!said->addresses.empty())
      mine.ttl = std::min(mine.ttl, said->ttl);
  } else if (said && said->how == status::no_name && !mine.any_good) {
    mine.so_far.how = status::no_name;
  }
  if (--mine.missing > 0)
    return;
  const auto done = std::move(mine_of->second.asked.extract(at).mapped());
  // What was not asked says nothing about the name.
  if (!done.so_far.too_many) {
    const auto ttl = done.so_far.how == status::failed ? failure_memory_s
                     : done.so_far.all.empty()         ? done.negative_ttl
                                                       : done.ttl;
    remember(whose, name, {.what = done.so_far},
             std::chrono::seconds{std::clamp(ttl, shortest_memory_s, longest_memory_s)});
  }
  for (const auto& tell : done.waiting)
    tell(done.so_far);
}

} // namespace insula::runtime::gateway
