#include "runtime/gateway/tenant.hpp"

#include "base/inner_network.hpp"
#include "base/limits.hpp"
#include "runtime/egress/dns.hpp"
#include "runtime/gateway/broker_link.hpp"
#include "runtime/gateway/connection.hpp"
#include "runtime/gateway/dns_stream.hpp"
#include "runtime/gateway/protocol.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <sys/socket.h>

namespace insula::runtime::gateway {

namespace {

namespace dns = egress::dns;

/// At most. The tenant's turn is over sooner.
constexpr int arrivals_per_turn = 64;

constexpr const char* not_a_destination = "the gateway is not a destination";
constexpr const char* too_many_questions = "too many questions to the DNS at once";

/// How long what is told of a name inside counts there. The address stays the name's own anyway.
constexpr std::uint32_t inner_ttl = 60;

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

int socket_option(int socket, int name) {
  int value = 0;
  socklen_t size = sizeof value;
  ::getsockopt(socket, SOL_SOCKET, name, &value, &size);
  return value;
}

bool is_own(const egress::ip_address& address) {
  static const auto loopback = *egress::subnet::parse("127.0.0.0/8");
  static const auto ipv4 = *egress::ip_address::parse(inner_ipv4),
                    ipv6 = *egress::ip_address::parse(inner_ipv6),
                    loopback6 = *egress::ip_address::parse("::1");
  return loopback.contains(address) || address == ipv4 || address == ipv6 || address == loopback6;
}

} // namespace

std::optional<carried_names> take_carried(std::string_view& text) {
  carried_names names;
  const auto take_until = [](std::string_view& from, char separator) {
    const auto end = from.find(separator);
    const auto part = from.substr(0, end);
    from.remove_prefix(end == std::string_view::npos ? from.size() : end + 1);
    return part;
  };
  while (text.starts_with("carry ") || text.starts_with("forward ")) {
    auto line = take_until(text, '\n');
    const auto what = take_until(line, ' ');
    const std::string name{take_until(line, ' ')};
    std::uint16_t port = 0;
    std::from_chars(line.data(), line.data() + line.size(), port);
    if (name.empty() || (what == "forward" && port == 0))
      return std::nullopt;
    if (what == "carry")
      names.domains.push_back(name);
    else
      names.forwards.emplace(name, port);
  }
  return names;
}

tenant::tenant(world& in, std::vector<unique_fd> sockets, const tenant* as)
    : world_(in)
    , payer_(as != nullptr ? as->payer_ : in.make_payer())
    , pause_(in.io) {
  world_.join(payer_.number);
  std::array<unique_fd, 3> holders;
  for (auto& each : sockets) {
    const auto family = socket_option(each.get(), SO_DOMAIN);
    const auto type = socket_option(each.get(), SO_TYPE);
    if (family == AF_NETLINK || type == SOCK_RAW)
      holders[family == AF_NETLINK ? 0 : family == AF_INET ? 1 : 2] = std::move(each);
    else
      (type == SOCK_STREAM ? streams_ : datagrams_)
        .push_back(std::make_unique<socket>(world_.io, each.release()));
  }
  if (holders[0])
    openings_.emplace(world_.io, std::move(holders[0]), std::move(holders[1]),
                      std::move(holders[2]));
}

void tenant::confine(const egress_policy& policy, std::uint16_t port, known_hosts hosts) {
  policy_ = std::make_shared<const egress::policy>(policy);
  only_port_ = port;
  hosts_ = std::move(hosts);
}

void tenant::listen() {
  if (openings_)
    hear();
  for (auto& each : streams_)
    accept(*each);
  for (auto& each : datagrams_)
    receive(*each);
}

void tenant::close() {
  if (std::exchange(closed_, true))
    return;
  boost::system::error_code ignored;
  for (auto* all : {&streams_, &datagrams_})
    for (auto& each : *all)
      each->close(ignored);
  pause_.cancel();
  set_broker({});
  const auto all = connections_; // Each leaves it.
  for (const auto& each : all)
    each->cut();
  if (openings_)
    openings_->close();
  for (; question_streams_ > 0; --question_streams_)
    world_.connections.give_back(payer_.number);
  world_.leave(payer_.number);
}

void tenant::over(const std::shared_ptr<connection>& which) {
  if (const auto& held = which->held()) {
    const auto at = held_.find(held->flow());
    if (at != held_.end() && at->second == which)
      held_.erase(at);
  }
  if (connections_.erase(which) > 0)
    world_.connections.give_back(payer_.number);
}

bool tenant::set_policy(const egress_policy& policy, std::uint64_t epoch, carried_names carried) {
  if (only_port_ || !fence_.admits(epoch))
    return false;
  carried_ = std::move(carried);
  policy_ = std::make_shared<const egress::policy>(policy);
  const auto all = connections_; // Those that are cut leave it.
  for (const auto& each : all)
    each->judge_again();
  if (broker_)
    broker_->judge_again();
  return true;
}

bool tenant::is_carried(std::string_view name) const {
  return std::any_of(carried_.domains.begin(), carried_.domains.end(),
                     [&](const auto& each) { return egress::matches(each, name); });
}

std::string tenant::why_not_for_broker(const std::string& host, std::uint16_t port) const {
  constexpr std::uint16_t https_port = 443;
  if (carried_.forwards.contains({host, port}))
    return {};
  if (port != https_port || !is_carried(host))
    return "it has no rules, and no rule forwards to it";
  if (!policy_)
    return "it is not known yet what it may reach";
  const auto found = policy_->judge(nullptr, host);
  return found.what == egress::policy::answer::refuse && !policy_->dry_run() ? found.rule
                                                                             : std::string{};
}

void tenant::set_broker(unique_fd way) {
  if (const auto before = std::exchange(broker_, nullptr))
    before->close();
  if (!way || closed_)
    return;
  broker_ = std::make_shared<broker_link>(shared_from_this(), std::move(way));
  broker_->listen();
  const auto all = connections_; // What is over leaves it.
  for (const auto& each : all)
    each->broker_came();
}

void tenant::refused(const refused_thing& what, bool let_through) {
  ++figures_.refusals;
  world_.count_refusal();
  auto& last = figures_.last_refusals;
  if (last.size() >= max_kept_refusals)
    last.pop_back();
  last.insert(last.begin(), {now_ms(), what.protocol, what.name, what.address, what.port, what.rule,
                             let_through});
}

void tenant::failed(const refused_thing& what, connection_failure how) {
  ++figures_.failures;
  world_.count(how);
  auto& last = figures_.last_failures;
  if (last.size() >= max_kept_refusals)
    last.pop_back();
  last.insert(last.begin(), {now_ms(), what.protocol, what.name, what.address, what.port, how});
}

const network_figures& tenant::figures() {
  figures_.open_connections = connections_.size();
  figures_.gateway_us = static_cast<std::uint64_t>(
    std::chrono::duration_cast<std::chrono::microseconds>(payer_.time->used()).count());
  return figures_;
}

// ---- TCP

void tenant::hear() {
  openings_->hears().async_wait(
    socket::wait_read,
    time().wrap([self = shared_from_this()](const boost::system::error_code& stopped) {
      if (!stopped && self->openings_->hears().is_open())
        self->hear_all();
    }));
}

void tenant::hear_all() {
  const auto take_one = [this](const egress::opening& held) { take(held); };
  for (int i = 0; i < arrivals_per_turn && (i == 0 || time().has_time()); ++i)
    if (!openings_->read(take_one))
      break;
  hear();
}

void tenant::take(const egress::opening& held) {
  const auto& flow = held.flow();
  if (const auto at = held_.find(flow); at != held_.end()) {
    const auto before = at->second;
    if (before->held()->number() == held.number())
      return before->asked_again();
    before->gone(); // Another client has its port.
  }
  const auto refuse = [&](std::string rule) {
    refused({.address = flow.to.text(), .port = flow.to_port, .rule = std::move(rule)});
    answer_client(held, held.reset());
  };
  if (auto why = why_not(flow.to, flow.to_port))
    return refuse(std::move(*why));
  if (flow.to_port == dns_port)
    return let_in(held);
  if (!world_.connections.take(payer_.number, [](bool) {}))
    return refuse(no_place());
  const auto made = std::make_shared<connection>(shared_from_this(), held);
  connections_.insert(made);
  held_.emplace(flow, made);
  made->start();
}

/// The kernel passes it on at once, so it need not be waited for.
void tenant::let_in(const egress::opening& held) {
  if (closed_)
    return;
  openings_->send_on(held);
  const std::size_t at = held.flow().to.is_ipv4() ? 0 : 1;
  if (at < streams_.size())
    accept_some(*streams_[at]);
}

void tenant::answer_client(const egress::opening& held, const std::string& packet) const {
  openings_->answer(held, packet);
}

void tenant::accept(socket& from) {
  from.async_wait(socket::wait_read, time().wrap([self = shared_from_this(),
                                                  &from](const boost::system::error_code& stopped) {
    if (!stopped && from.is_open())
      self->accept_all(from);
  }));
}

void tenant::accept_all(socket& from) {
  if (accept_some(from))
    accept(from);
  else
    accept_later(from);
}

/// False: there is no descriptor left.
bool tenant::accept_some(socket& from) {
  for (int i = 0; i < arrivals_per_turn && (i == 0 || time().has_time()); ++i) {
    socket_address by;
    unique_fd client{
      ::accept4(from.native_handle(), by.get(), by.room(), SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!client && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
      return false;
    if (!client)
      break;
    take(std::move(client), by);
  }
  return true;
}

/// There are no descriptors left: others have to end first.
void tenant::accept_later(socket& from) {
  constexpr std::chrono::milliseconds pause{20};
  pause_.expires_after(pause);
  pause_.async_wait([self = shared_from_this(), &from](const boost::system::error_code&) {
    if (from.is_open()) // If the other one waits too, this one's time has come a little early.
      self->accept(from);
  });
}

/// What is refused whatever the policy says.
std::optional<std::string> tenant::why_not(const egress::ip_address& address,
                                           std::uint16_t port) const {
  if (!only_port_ && is_own(address))
    return not_a_destination;
  const bool asks = port == dns_port;
  if (asks && questions_ >= most_questions)
    return too_many_questions;
  if (!asks && only_port_ && port != *only_port_)
    return "a port that is not the endpoint's";
  return std::nullopt;
}

void tenant::take(unique_fd client, const socket_address& by) {
  const auto wanted = original_destination(client.get());
  const auto refuse = [&](std::string rule) {
    refused({.address = wanted ? wanted->address().text() : "",
             .port = wanted ? wanted->port() : tcp_port,
             .rule = std::move(rule)});
    reset_on_close(client.get());
  };
  if (!wanted)
    return refuse(not_a_destination);
  const auto held = held_.find({by.address(), wanted->address(), by.port(), wanted->port()});
  if (held != held_.end() && held->second->is_let_in()) {
    const auto which = held->second;
    held_.erase(held);
    return which->arrived(std::move(client));
  }
  if (auto why = why_not(wanted->address(), wanted->port()))
    return refuse(std::move(*why));
  if (!world_.connections.take(payer_.number, [](bool) {}))
    return refuse(no_place());
  if (wanted->port() == dns_port)
    return take_questions(std::move(client));
  const auto made = std::make_shared<connection>(shared_from_this(), std::move(client), *wanted);
  connections_.insert(made);
  made->start();
}

std::string tenant::no_place() const {
  if (world_.connections.taken_by(payer_.number) < limits::gateway_connections)
    return "too many connections of all sandboxes at once";
  return "more than " + std::to_string(limits::gateway_connections) + " connections at once";
}

// ---- The DNS

void tenant::take_questions(unique_fd client) {
  ++questions_;
  ++question_streams_;
  serve_dns_stream(shared_from_this(), std::move(client), [self = shared_from_this()] {
    --self->questions_;
    if (self->closed_)
      return; // It has given all of them back.
    --self->question_streams_;
    self->world_.connections.give_back(self->payer_.number);
  });
}

void tenant::resolve(const std::string& name,
                     std::function<void(const resolver::addresses&)> tell) {
  const auto known = hosts_.find(name);
  if (known == hosts_.end())
    return world_.names.resolve(payer_, name, std::move(tell));
  time().add(
    [tell = std::move(tell),
     where = resolver::addresses{.how = dns::status::good, .all = known->second}] { tell(where); });
}

void tenant::receive(socket& from) {
  from.async_wait(socket::wait_read, time().wrap([self = shared_from_this(),
                                                  &from](const boost::system::error_code& stopped) {
    if (!stopped && from.is_open())
      self->receive_all(from);
  }));
}

void tenant::receive_all(socket& from) {
  for (int i = 0; i < arrivals_per_turn && (i == 0 || time().has_time()); ++i) {
    std::array<char, dns::largest_udp> bytes;
    socket_address asker;
    const auto n = ::recvfrom(from.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT,
                              asker.get(), asker.room());
    if (n < 0)
      break;
    const std::string_view message{bytes.data(), static_cast<std::size_t>(n)};
    const auto send = [&from, asker](const std::string& text) {
      if (!text.empty() && from.is_open())
        ::sendto(from.native_handle(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                 asker.get(), asker.size());
    };
    if (questions_ >= most_questions) {
      if (const auto asked = dns::read_question(message))
        overload(*asked, send);
      continue;
    }
    ++questions_;
    answer(message, false, [self = shared_from_this(), send](const std::string& text) {
      --self->questions_;
      send(text);
    });
  }
  receive(from);
}

void tenant::overload(const dns::question& asked, const std::function<void(std::string)>& tell) {
  refused({.protocol = "dns", .name = asked.name, .port = dns_port, .rule = too_many_questions});
  tell(dns::write_status(asked, dns::status::failed));
}

void tenant::answer(std::string_view message, bool by_tcp, std::function<void(std::string)> tell) {
  const auto asked = dns::read_question(message);
  if (!asked || closed_)
    return tell({});
  constexpr std::uint16_t internet = 1;
  const auto room = by_tcp ? dns::max_message : asked->udp_bytes;
  const auto refuse = [&](std::string rule, bool let_through) {
    refused({.protocol = "dns", .name = asked->name, .port = dns_port, .rule = std::move(rule)},
            let_through);
  };
  if (asked->of_class == internet && !host_name_.empty() && asked->name == host_name_)
    return tell(dns::write_addresses(*asked, own_addresses(), inner_ttl));
  if (!policy_ || asked->of_class != internet || asked->type == dns::type_any)
    return tell(dns::write_status(*asked, dns::status::refused));
  auto found = policy_->judge_question(asked->name);
  using kind = egress::policy::dns_answer;
  if (found.what == kind::refuse) {
    refuse(found.rule, policy_->dry_run());
    if (!policy_->dry_run())
      return tell(dns::write_status(*asked, dns::status::refused));
    found.what = kind::real;
  }
  // They carry keys that hide the name, and addresses of their own.
  if (asked->type == dns::type_https || asked->type == dns::type_svcb)
    return tell(dns::write_status(*asked, dns::status::good));
  const bool wants_address = asked->type == dns::type_a || asked->type == dns::type_aaaa;
  // Its broker knows where its requests go, which need not be there.
  if (wants_address && is_carried(asked->name)) {
    const auto inner = names_.address_of(asked->name);
    return tell(dns::write_addresses(*asked, {inner.ipv4, inner.ipv6}, inner_ttl));
  }
  if (found.what == kind::real)
    return reply_real(*asked, room, std::move(tell));
  if (!wants_address)
    return tell(dns::write_status(*asked, dns::status::good));
  resolve(asked->name, [self = shared_from_this(), asked = *asked,
                        tell = std::move(tell)](const resolver::addresses& where) {
    if (where.too_many)
      return self->overload(asked, tell);
    if (where.how != dns::status::good)
      return tell(dns::write_status(asked, where.how));
    if (where.all.empty())
      return tell(dns::write_status(asked, dns::status::good));
    const auto inner = self->names_.address_of(asked.name);
    tell(dns::write_addresses(asked, {inner.ipv4, inner.ipv6}, inner_ttl));
  });
}

std::vector<egress::ip_address> tenant::own_addresses() const {
  std::vector<egress::ip_address> all{*egress::ip_address::parse(inner_ipv4)};
  if (datagrams_.size() > 1) // Else the machine has no IPv6.
    all.push_back(*egress::ip_address::parse(inner_ipv6));
  return all;
}

void tenant::reply_real(const dns::question& asked, std::size_t room,
                        std::function<void(std::string)> tell) {
  world_.names.ask(
    payer_, asked,
    [self = shared_from_this(), asked, room, tell = std::move(tell)](const resolver::outcome& got) {
      if (got.too_many)
        return self->overload(asked, tell);
      const auto& message = got.message;
      const auto said = message ? dns::read_reply(*message, dns::forward(asked, 0)) : std::nullopt;
      if (!said || said->has_services)
        return tell(dns::write_status(asked, dns::status::failed));
      if (message->size() > room)
        return tell(dns::write_truncated(asked));
      tell(dns::with_id(*message, asked.id));
    });
}

} // namespace insula::runtime::gateway
