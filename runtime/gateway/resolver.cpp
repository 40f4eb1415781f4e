#include "runtime/gateway/resolver.hpp"

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
constexpr std::uint32_t longest_memory_s = 60, shortest_memory_s = 1;

} // namespace

/// One question, until somebody has answered it.
struct resolver::lookup : std::enable_shared_from_this<resolver::lookup> {
  lookup(boost::asio::io_context& io, std::vector<server> all)
      : socket(io)
      , deadline(io)
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
    boost::asio::post(socket.get_executor(), [self = shared_from_this()] { self->ask_next(); });
  }

  boost::asio::posix::stream_descriptor socket;
  boost::asio::steady_timer deadline;
  std::vector<server> servers;
  std::size_t tries = 0;
  std::uint16_t id = 0;
  std::function<std::uint16_t()> next_id;
  std::function<std::string(std::uint16_t)> write;
  std::string asked, out, in;
  std::array<char, 2> length{};
  std::function<void(std::optional<std::string>)> tell;
  bool by_stream = false;
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
  by_stream = false;
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
  deadline.expires_after(patience);
  deadline.async_wait([self = shared_from_this()](const error_code& stopped) {
    if (!stopped)
      self->ask_next();
  });
  if (!made) // There is no way to it: its time is waited for, since this may be so for a moment
             // only.
    return;
  socket.assign(made.release());
  socket.async_wait(socket.wait_write, [self = shared_from_this(), type](const error_code& failed) {
    if (!failed && !self->over)
      self->heard_from(type);
  });
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
  boost::asio::async_write(socket, boost::asio::buffer(out),
                           [self = shared_from_this()](const error_code& failed, std::size_t) {
                             if (!failed && !self->over)
                               self->read_stream();
                           });
}

void resolver::lookup::read_datagram() {
  socket.async_wait(socket.wait_read, [self = shared_from_this()](const error_code& failed) {
    if (failed || self->over)
      return;
    std::array<char, egress::dns::largest_udp> bytes;
    const auto n = ::recv(self->socket.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (n > 0)
      self->heard({bytes.data(), static_cast<std::size_t>(n)}, false);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
      return self->later();
    if (!self->over && !self->by_stream)
      self->read_datagram();
  });
}

void resolver::lookup::read_stream() {
  boost::asio::async_read(
    socket, boost::asio::buffer(length),
    [self = shared_from_this()](const error_code& failed, std::size_t) {
      if (failed || self->over)
        return;
      self->in.resize(static_cast<std::size_t>(static_cast<unsigned char>(self->length[0]) << 8 |
                                               static_cast<unsigned char>(self->length[1])));
      boost::asio::async_read(self->socket, boost::asio::buffer(self->in),
                              [self](const error_code& cut, std::size_t) {
                                if (!cut && !self->over)
                                  self->heard(self->in, true);
                              });
    });
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
  by_stream = true; // No more datagrams are read.
  connect(SOCK_STREAM);
}

void resolver::use(std::vector<server> servers) {
  servers_ = std::move(servers);
  known_.clear();
}

void resolver::begin(std::function<std::string(std::uint16_t)> write,
                     std::function<void(std::optional<std::string>)> tell) {
  if (servers_.empty() || questions_ >= most_questions)
    return boost::asio::post(io_, [tell = std::move(tell)] { tell(std::nullopt); });
  ++questions_;
  const auto made = std::make_shared<lookup>(io_, servers_);
  made->write = std::move(write);
  made->next_id = [this] { return static_cast<std::uint16_t>(random_()); };
  made->tell = [this, tell = std::move(tell)](std::optional<std::string> answer) {
    --questions_;
    tell(std::move(answer));
  };
  made->ask_next();
}

void resolver::ask(const egress::dns::question& asked,
                   std::function<void(std::optional<std::string>)> tell) {
  begin([asked](std::uint16_t id) { return egress::dns::forward(asked, id); }, std::move(tell));
}

void resolver::resolve(const std::string& name, std::function<void(const addresses&)> tell) {
  const auto now = std::chrono::steady_clock::now();
  if (const auto at = known_.find(name); at != known_.end() && at->second.until > now)
    return boost::asio::post(io_, [tell = std::move(tell), what = at->second.what] { tell(what); });
  const auto [at, is_new] = pending_.try_emplace(name);
  at->second.waiting.push_back(std::move(tell));
  if (!is_new)
    return;
  for (const auto type : {egress::dns::type_a, egress::dns::type_aaaa}) {
    const auto write = [name, type](std::uint16_t id) {
      return egress::dns::write_question(id, name, type);
    };
    begin(write, [this, name, asked = write(0)](const std::optional<std::string>& message) {
      half_resolved(name, message, asked);
    });
  }
}

void resolver::half_resolved(const std::string& name, const std::optional<std::string>& message,
                             const std::string& asked) {
  const auto at = pending_.find(name);
  auto& mine = at->second;
  const auto said = message ? egress::dns::read_reply(*message, asked) : std::nullopt;
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
  const auto done = std::move(pending_.extract(at).mapped());
  if (done.so_far.how != status::failed) {
    const auto now = std::chrono::steady_clock::now();
    if (known_.size() >= most_remembered)
      std::erase_if(known_, [&](const auto& each) { return each.second.until <= now; });
    if (known_.size() >= most_remembered)
      known_.clear();
    known_[name] = {done.so_far, now + std::chrono::seconds{std::clamp(done.ttl, shortest_memory_s,
                                                                       longest_memory_s)}};
  }
  for (const auto& tell : done.waiting)
    tell(done.so_far);
}

} // namespace insula::runtime::gateway
