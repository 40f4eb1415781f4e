#include "runtime/gateway/gateway.hpp"

#include "base/log.hpp"
#include "runtime/descriptors.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace insula::runtime::gateway {

namespace {

using boost::system::error_code;

/// Answers that a server does not take: it has hung, and is let go of.
constexpr std::size_t most_waiting_bytes = 16u << 20;

std::string_view take_until(std::string_view& text, char separator) {
  const auto end = text.find(separator);
  const auto part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return part;
}

/// What is no policy allows nothing.
void confine(tenant& which, std::string_view reach) {
  constexpr std::string_view port = "port ";
  const auto line = take_until(reach, '\n');
  std::uint16_t number = 0;
  if (line.starts_with(port))
    std::from_chars(line.data() + port.size(), line.data() + line.size(), number);
  tenant::known_hosts hosts;
  while (reach.starts_with("host ")) {
    auto known = take_until(reach, '\n');
    take_until(known, ' ');
    const std::string name{take_until(known, ' ')};
    if (const auto address = egress::ip_address::parse(std::string{known}))
      hosts[name].push_back(*address);
  }
  const auto policy = policy_from_text(reach);
  which.confine(policy && number != 0 ? *policy : egress_policy::deny_all(), number,
                std::move(hosts));
}

} // namespace

gateway::gateway(boost::asio::io_context& io, unique_fd spawner)
    : io_(io)
    , world_(io)
    , spawner_(io, spawner.release()) {}

/// What the io_context still holds of them goes after the world that they share.
gateway::~gateway() {
  for (const auto& [slot, each] : tenants_)
    each->close();
}

void gateway::run() {
  begin();
  io_.run();
}

// ---- The spawner

void gateway::wait_for_spawner() {
  spawner_.async_wait(spawner_.wait_read, [this](const error_code& failed) {
    if (failed || !hear_spawner())
      return io_.stop();
    wait_for_spawner();
  });
}

bool gateway::hear_spawner() {
  for (;;) {
    struct {
      request said;
      char text[max_reach];
    } packet;
    int fds[max_fds], count = 0;
    const auto n = receive_packet(spawner_.native_handle(), {&packet, sizeof packet}, fds, count,
                                  MSG_DONTWAIT | MSG_TRUNC); // Its whole length is told.
    if (n < 0 && errno == EAGAIN)
      return true;
    std::vector<unique_fd> owned;
    for (int i = 0; i < count; ++i)
      owned.emplace_back(fds[i]);
    if (n < static_cast<ssize_t>(sizeof packet.said) || n > static_cast<ssize_t>(sizeof packet))
      return false;
    handle(packet.said, {packet.text, static_cast<std::size_t>(n) - sizeof packet.said},
           std::move(owned));
  }
}

void gateway::handle(const request& said, std::string_view text, std::vector<unique_fd> fds) {
  const auto forget = [this](std::uint32_t slot) {
    if (const auto gone = tenants_.extract(slot))
      gone.mapped()->close();
  };
  switch (said.what) {
    case op::add: {
      forget(said.slot);
      const auto pays = tenants_.find(said.pays);
      const auto made = std::make_shared<tenant>(
        world_, std::move(fds), pays == tenants_.end() ? nullptr : pays->second.get());
      tenants_.emplace(said.slot, made);
      if (!text.empty())
        confine(*made, text);
      return made->listen();
    }
    case op::remove: return forget(said.slot);
    case op::name:
      if (const auto at = tenants_.find(said.slot); at != tenants_.end())
        at->second->set_host_name(std::string{text});
      return;
    case op::broker:
      if (const auto at = tenants_.find(said.slot); at != tenants_.end())
        at->second->set_broker(fds.empty() ? unique_fd{} : std::move(fds.front()));
      return;
    case op::serve: {
      error_code ignored;
      if (server_)
        server_->stream.close(ignored);
      if (!fds.empty()) {
        server_ = std::make_shared<server>(io_, std::move(fds.front()));
        read_next(server_);
      }
      return;
    }
  }
}

// ---- The server

void gateway::read_next(const server_pointer& from) {
  boost::asio::async_read(from->stream, boost::asio::buffer(&from->head, sizeof from->head),
                          [this, from](const error_code& failed, std::size_t) {
                            if (failed || from != server_)
                              return;
                            if (from->head.bytes > max_frame)
                              return server_.reset();
                            from->text.resize(from->head.bytes);
                            boost::asio::async_read(
                              from->stream, boost::asio::buffer(from->text),
                              [this, from](const error_code& cut, std::size_t) {
                                if (cut || from != server_)
                                  return;
                                // It knows of nothing of which the spawner has not spoken before.
                                if (!hear_spawner())
                                  return io_.stop();
                                if (from != server_)
                                  return;
                                handle(from);
                                read_next(from);
                              });
                          });
}

void gateway::handle(const server_pointer& from) {
  auto head = from->head;
  const auto at = tenants_.find(head.slot);
  std::string text;
  head.error = 0;
  if (head.what == question::settings) {
    head.error = apply_settings(from->text);
  } else if (head.what == question::totals) {
    text = to_text(world_.totals());
  } else if (at == tenants_.end()) {
    head.error = ESRCH;
  } else if (head.what == question::policy) {
    std::string_view left = from->text;
    auto names = take_carried(left);
    const auto policy = policy_from_text(left);
    if (!policy || !names)
      head.error = EINVAL;
    else if (!at->second->set_policy(*policy, head.epoch, std::move(*names)))
      head.error = ESTALE;
  } else if (head.what == question::figures) {
    text = to_text(at->second->figures());
  } else {
    head.error = EINVAL;
  }
  answer(from, head, std::move(text));
}

int gateway::apply_settings(std::string_view text) {
  std::vector<resolver::server> resolvers;
  std::vector<egress::subnet> allowed;
  while (!text.empty()) {
    auto line = take_until(text, '\n');
    const auto what = take_until(line, ' ');
    if (what == "allow") {
      const auto net = egress::subnet::parse(line);
      if (!net)
        return EINVAL;
      allowed.push_back(*net);
      continue;
    }
    resolver::server made;
    const auto address = egress::ip_address::parse(std::string{take_until(line, ' ')});
    if (!line.empty())
      std::from_chars(line.data(), line.data() + line.size(), made.port);
    if (what != "resolver" || !address || made.port == 0)
      return EINVAL;
    made.address = *address;
    resolvers.push_back(made);
  }
  world_.names.use(std::move(resolvers));
  world_.allow(std::move(allowed));
  return 0;
}

void gateway::answer(const server_pointer& to, frame head, std::string text) {
  head.bytes = static_cast<std::uint32_t>(text.size());
  std::string bytes(sizeof head, '\0');
  std::memcpy(bytes.data(), &head, sizeof head);
  bytes += text;
  to->waiting_bytes += bytes.size();
  if (to->waiting_bytes > most_waiting_bytes)
    return server_.reset();
  to->answers.push_back(std::move(bytes));
  if (to->answers.size() == 1)
    write_next(to);
}

void gateway::write_next(const server_pointer& to) {
  boost::asio::async_write(to->stream, boost::asio::buffer(to->answers.front()),
                           [this, to](const error_code& failed, std::size_t) {
                             if (failed)
                               return;
                             to->waiting_bytes -= to->answers.front().size();
                             to->answers.pop_front();
                             if (!to->answers.empty())
                               write_next(to);
                           });
}

} // namespace insula::runtime::gateway
