#include "runtime/gateway/connection.hpp"

#include "base/limits.hpp"
#include "runtime/egress/hello.hpp"
#include "runtime/gateway/broker_link.hpp"
#include "runtime/gateway/tenant.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <sys/socket.h>
#include <utility>

namespace insula::runtime::gateway {

namespace {

using namespace std::chrono_literals;
using boost::system::error_code;
using answer = egress::policy::answer;

/// For a client to say whom it wants. Where whoever tells no name may pass, clients that wait for
/// the server to speak first are not kept for long.
constexpr std::chrono::milliseconds hello_patience = 5s;
constexpr std::chrono::milliseconds silence_patience = 300ms;

/// Between two looks at what has not grown.
constexpr auto look_pause = 20ms;

constexpr auto dial_patience = 10s; ///< For one address.

/// For a broker that follows one which has ended.
constexpr auto broker_patience = 10s;

/// For a client that is let in to come. It is here at once, unless it has gone.
constexpr auto arrival_patience = 3s;

/// A client that is told by ICMP does not hear it in the moment in which it still sends (the kernel
/// has its socket locked), so it is told twice.
constexpr auto second_answer = 20ms;
constexpr std::size_t most_dialled = 6;

constexpr std::uint16_t https_port = 443, http_port = 80;

constexpr const char* too_many_questions = "too many questions to the DNS at once";
constexpr const char* no_socket = "the gateway has no socket left";
constexpr const char* too_many_dials = "too many connections at once that are not there yet";
constexpr const char* no_broker = "nothing carries its requests now";
constexpr const char* name_too_late = "it has said too late that it is for a name with rules";
constexpr const char* only_by_https = "a name with rules is reached by HTTPS alone";

/// None: it is the gateway that has run short of something.
std::optional<connection_failure> failure_of(int why) {
  switch (why) {
    case ECONNREFUSED: return connection_failure::refused;
    case ECONNRESET:
    case EPIPE: return connection_failure::reset;
    case ETIMEDOUT: return connection_failure::timed_out;
    // The last three: of this machine's own rules, or it has no address of that kind.
    case EHOSTUNREACH:
    case EHOSTDOWN:
    case ENETUNREACH:
    case ENETDOWN:
    case EACCES:
    case EPERM:
    case EADDRNOTAVAIL: return connection_failure::unreachable;
    default: return std::nullopt;
  }
}

} // namespace

connection::connection(std::shared_ptr<tenant> from, const egress::opening& held)
    : connection(std::move(from), held, held.flow().to, held.flow().to_port) {}

connection::connection(std::shared_ptr<tenant> from, unique_fd client, const socket_address& wanted)
    : connection(std::move(from), std::nullopt, wanted.address(), wanted.port()) {
  client_.assign(client.release());
}

connection::connection(std::shared_ptr<tenant> from, std::optional<egress::opening> held,
                       const egress::ip_address& address, std::uint16_t port)
    : tenant_(std::move(from))
    , opening_(std::move(held))
    , client_(tenant_->shared().io)
    , server_(tenant_->shared().io)
    , deadline_(tenant_->shared().io)
    , pause_(tenant_->shared().io)
    , port_(port)
    , waits_(opening_.has_value()) {
  if (!egress::name_table::is_inner(address))
    address_ = address;
  else if (const auto* name = tenant_->names().name_of(address))
    inner_name_ = *name;
}

void connection::start() {
  if (!address_ && inner_name_.empty())
    return refuse("an address that stands for no name");
  decide();
}

/// By the client, or by the address that it has chosen.
const std::string& connection::asked_for() const {
  return told_name_ && !told_name_->empty() ? *told_name_ : inner_name_;
}

/// By what is known by now.
connection::verdict connection::judge(const egress::policy& by) const {
  if (address_)
    return by.judge(&*address_, told_name_);
  return by.judge(nullptr, asked_for());
}

connection::verdict connection::judge_nameless(const egress::policy& by) const {
  return address_ ? by.judge(&*address_, std::string_view{}) : by.judge(nullptr, inner_name_);
}

/// By where it really goes. Who has not said a name, or was not asked for one, has none.
connection::verdict connection::judge_open(const egress::policy& by) const {
  if (dialled_name_.empty()) {
    const auto found = by.judge(&*dialled_, told_name_.value_or(std::string{}));
    // Only where the name leads, and that is not known to be here.
    return found.what == answer::by_name ? judge_nameless(by) : found;
  }
  if (auto rule = by.denies(*dialled_); !rule.empty())
    return {answer::refuse, std::move(rule)};
  auto found = by.judge(&*dialled_, dialled_name_);
  // Who was silent for long may have told another one since.
  if (found.what != answer::refuse && told_name_ && !told_name_->empty())
    found = by.judge(&*dialled_, *told_name_);
  return found;
}

/// Does what the client says count, even if a name is known? On other ports it reaches the server
/// of that name, whatever it says to it.
bool connection::is_looked_into() const {
  return !address_ && !told_name_ && (port_ == https_port || port_ == http_port);
}

bool connection::needs_name(const verdict& found) const {
  const bool may_be_carried = port_ == https_port && !told_name_ && tenant_->has_domains();
  return found.what == answer::need_name ||
         (found.what != answer::refuse && (is_looked_into() || may_be_carried));
}

/// It has said a name whose requests are looked into one by one. The broker dials the name, so the
/// name itself has to be allowed: an address that is allowed is reached without it.
bool connection::is_for_broker() const {
  if (port_ != https_port || !told_name_ || told_name_->empty() ||
      !tenant_->is_carried(*told_name_))
    return false;
  const auto& policy = *tenant_->policy();
  return policy.dry_run() || policy.judge(nullptr, *told_name_).what != answer::refuse;
}

/// The address stands for a name with rules, and nobody could look at the requests.
bool connection::goes_past_rules() const {
  if ((port_ != https_port && port_ != http_port) || is_for_broker())
    return false;
  const bool has_said = told_name_ && !told_name_->empty();
  if (has_said && port_ == https_port)
    return false; // It goes to where that name is.
  const auto& wanted = asked_for();
  return !wanted.empty() && tenant_->is_carried(wanted);
}

/// It was let through without being asked for a name, which may be one with rules.
bool connection::is_unseen() const {
  return port_ == https_port && !told_name_ && !quiet_ && tenant_->has_domains();
}

void connection::decide() {
  const auto& policy = tenant_->policy();
  if (!policy)
    return refuse("it is not known yet what it may reach");
  const auto found = judge(*policy);
  if (!needs_name(found))
    return act(found);
  if (waits_)
    return decide_nameless();
  peek();
}

/// Where it would go without a name is dialled first, and shows whether there is anything. What
/// must not go there is let in if a name could help.
void connection::decide_nameless() {
  const auto& policy = *tenant_->policy();
  const auto found = judge_nameless(policy);
  if (!address_ && port_ == https_port && tenant_->is_carried(inner_name_))
    return let_in(); // Rules may answer for it: whether there is a server does not matter yet.
  if (!address_)     // By its name, which may go there.
    return dial_name();
  const auto* kind = tenant_->shared().reserved().kind_of(*address_);
  if (kind == nullptr && (found.what != answer::refuse || policy.dry_run()))
    return dial({*address_});
  if (policy.best(*address_) == answer::by_name)
    return let_in();
  refuse(kind != nullptr ? kind : found.rule);
}

void connection::let_in() {
  let_in_ = true;
  deadline_.expires_after(arrival_patience);
  deadline_.async_wait(tenant_->time().wrap([self = shared_from_this()](const error_code& stopped) {
    if (!stopped && self->waits_)
      self->finish();
  }));
  tenant_->let_in(*opening_);
}

void connection::asked_again() {
  if (let_in_)
    tenant_->let_in(*opening_);
}

void connection::arrived(unique_fd client) {
  waits_ = false;
  deadline_.cancel();
  client_.assign(client.release());
  if (!there_) // The policy may be another one by now, here and below.
    decide();
  else if (needs_name(judge(*tenant_->policy())))
    peek();
  else
    pass_on();
}

// ---- Whom is it for?

void connection::peek() {
  const bool needs_none = judge_nameless(*tenant_->policy()).what != answer::refuse &&
                          (port_ != https_port || !tenant_->has_domains());
  wait_for_name(needs_none ? silence_patience : hello_patience);
  if (there_)
    listen_to_server();
  look();
}

/// One that speaks first is not kept waiting.
void connection::listen_to_server() {
  server_.async_wait(socket::wait_read,
                     tenant_->time().wrap([self = shared_from_this()](const error_code& stopped) {
                       if (!stopped && !self->over_ && self->there_ && !self->told_name_ &&
                           !self->quiet_ && self->peeked_ == 0)
                         self->go_on_nameless();
                     }));
}

void connection::wait_for_name(std::chrono::milliseconds patience) {
  deadline_.expires_after(patience);
  deadline_.async_wait(
    tenant_->time().wrap([self = shared_from_this(), patience](const error_code& stopped) {
      if (!stopped && !self->over_ && !self->told_name_)
        self->out_of_patience(patience);
    }));
}

/// Half a name is none that may pass: it would be said once nobody listens any more.
void connection::out_of_patience(std::chrono::milliseconds patience) {
  if (quiet_ && peeked_ == 0)
    return; // The server has spoken meanwhile.
  if (peeked_ > 0 && patience < hello_patience)
    return wait_for_name(hello_patience);
  if (peeked_ > 0 && tenant_->policy()->dry_run())
    return named({});
  if (peeked_ > 0)
    return refuse("it has not said in time whom it is for");
  go_on_nameless();
}

void connection::go_on_nameless() {
  error_code ignored;
  client_.cancel(ignored);
  deadline_.cancel();
  const auto found = judge_nameless(*tenant_->policy());
  if (found.what == answer::refuse)
    return named({});
  quiet_ = true;
  act(found);
}

/// What is looked at stays in the socket: it goes on to the server as it came.
void connection::look() {
  auto& from = relay_ ? relay_->inner() : client_;
  from.async_wait(socket::wait_read, tenant_->time().wrap([self = shared_from_this(),
                                                           &from](const error_code& stopped) {
    // While it is dialled all the same, nobody looks.
    if (stopped || !from.is_open() || self->over_ || self->told_name_ ||
        (self->quiet_ && !self->relay_))
      return;
    std::array<char, egress::max_hello> bytes;
    const int fd = from.native_handle();
    const auto n = ::recv(fd, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
      return self->look();
    const auto seen = static_cast<std::size_t>(std::max<ssize_t>(n, 0));
    const std::string_view text{bytes.data(), seen};
    egress::hello_name found;
    if (egress::is_tls(text))
      found = egress::read_client_hello(text);
    else if (self->port_ == http_port && self->tenant_->policy()->match_host())
      found = egress::read_http_host(text);
    const auto before = std::exchange(self->peeked_, seen);
    // Where the kernel is short of memory for sockets, one is readable before there is enough, and
    // without that anything has come. Only its end says that there is no name.
    const bool has_grown = seen > before;
    if (found.is == egress::hello_name::state::too_long && !self->tenant_->policy()->dry_run())
      return self->refuse("it says too much before its name");
    if (found.is != egress::hello_name::state::more || (!has_grown && has_ended(fd)) ||
        seen == bytes.size())
      return self->named(std::move(found.name));
    if (self->quiet_ && before == 0)
      self->wait_for_name(hello_patience);
    if (!has_grown)
      return self->look_again_soon();
    // Not before there is more, or the end.
    const int enough = static_cast<int>(seen) + 1;
    ::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &enough, sizeof enough);
    self->look();
  }));
}

void connection::look_again_soon() {
  pause_.expires_after(look_pause);
  pause_.async_wait(tenant_->time().wrap([self = shared_from_this()](const error_code& stopped) {
    if (!stopped && !self->over_ && !self->told_name_)
      self->look();
  }));
}

void connection::named(std::string name) {
  deadline_.cancel();
  pause_.cancel();
  const int as_usual = 1;
  const int fd = (relay_ ? relay_->inner() : client_).native_handle();
  ::setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &as_usual, sizeof as_usual);
  told_name_ = std::move(name);
  const auto found = judge(*tenant_->policy());
  if (!std::exchange(quiet_, false))
    return act(found);
  if (is_for_broker())
    return refuse(name_too_late);
  if (may_pass(found)) { // It is where it goes already.
    const auto running = relay_;
    running->start_out();
  }
}

// ---- What is done with it

/// Or it is refused. In a dry run it is noted that it would have been.
bool connection::may_pass(const verdict& on) {
  if (on.what != answer::refuse)
    return true;
  if (!tenant_->policy()->dry_run()) {
    refuse(on.rule);
    return false;
  }
  tenant_->refused({.name = told_name_.value_or(inner_name_),
                    .address = address_ ? address_->text() : "",
                    .port = port_,
                    .rule = on.rule},
                   true);
  return true;
}

void connection::act(const verdict& on) {
  if (!may_pass(on))
    return;
  if (is_for_broker())
    return hand_over();
  if (goes_past_rules())
    return refuse(only_by_https);
  if (!address_ || on.what == answer::by_name)
    return dial_name();
  if (const auto* kind = tenant_->shared().reserved().kind_of(*address_))
    return refuse(kind);
  dial({*address_});
}

/// What was dialled for it is not needed: the broker asks for what it needs.
void connection::hand_over() {
  error_code ignored;
  deadline_.cancel();
  server_.close(ignored);
  leave_dial();
  ++attempt_;
  there_ = false;
  const auto to = tenant_->broker();
  if (to == nullptr || !to->is_open())
    return wait_for_broker();
  unique_fd client{client_.release()};
  tune(client.get());
  number_ = to->give(client, *told_name_, port_,
                     [self = shared_from_this()](std::uint64_t from, std::uint64_t back) {
                       self->tenant_->bytes_out() += from;
                       self->tenant_->bytes_in() += back;
                       self->number_ = 0;
                       self->finish();
                     });
  if (number_ == 0) {
    client_.assign(client.release());
    return to->is_open() ? refuse(no_broker) : wait_for_broker();
  }
  broker_ = to;
  tenant_->connected();
}

/// One that has ended is followed by another.
void connection::wait_for_broker() {
  lacks_broker_ = true;
  deadline_.expires_after(broker_patience);
  deadline_.async_wait(tenant_->time().wrap([self = shared_from_this()](const error_code& stopped) {
    if (!stopped && !self->over_ && self->lacks_broker_)
      self->refuse(no_broker);
  }));
}

void connection::broker_came() {
  if (!over_ && std::exchange(lacks_broker_, false))
    hand_over();
}

void connection::refuse(std::string rule) {
  tenant_->refused({.name = asked_for(),
                    .address = dialled_   ? dialled_->text()
                               : address_ ? address_->text()
                                          : "",
                    .port = port_,
                    .rule = std::move(rule)});
  cut();
}

/// There is nothing at the other end.
void connection::fail(connection_failure how) {
  tenant_->failed({.name = asked_for(),
                   .address = dialled_   ? dialled_->text()
                              : address_ ? address_->text()
                                         : "",
                   .port = port_},
                  how);
  if (!waits_ || let_in_)
    return cut();
  answer(how);
}

/// Who is held is told as it would be without a gateway.
void connection::answer(connection_failure how) {
  using missing = egress::opening::missing;
  switch (how) {
    case connection_failure::refused:
    case connection_failure::reset: return cut();
    case connection_failure::timed_out: return finish(); // Nobody says anything.
    case connection_failure::unreachable:
    case connection_failure::unresolved: break;
  }
  const auto packet = opening_->unreachable(no_network_ ? missing::network : missing::host);
  tenant_->answer_client(*opening_, packet);
  pause_.expires_after(second_answer);
  pause_.async_wait(
    tenant_->time().wrap([self = shared_from_this(), packet](const error_code& stopped) {
      if (stopped || self->over_)
        return;
      self->tenant_->answer_client(*self->opening_, packet);
      self->finish();
    }));
}

/// To where its name is, whatever address the client has chosen.
void connection::dial_name() {
  if (there_ && dialled_name_ == asked_for())
    return pass_on();
  dialled_name_ = asked_for();
  tenant_->resolve(dialled_name_, [self = shared_from_this()](const resolver::addresses& found) {
    if (self->over_ || self->broker_)
      return;
    if (found.too_many)
      return self->refuse(too_many_questions);
    const auto& policy = *self->tenant_->policy();
    std::string why;
    std::vector<egress::ip_address> good;
    for (const auto& each : found.all) {
      const auto* kind = self->tenant_->shared().reserved().kind_of(each);
      auto rule = kind != nullptr ? kind : policy.denies(each);
      if (!rule.empty() && (kind != nullptr || !policy.dry_run())) {
        self->dialled_ = each;
        why = std::move(rule);
      } else if (good.size() < most_dialled) {
        good.push_back(each);
      }
    }
    if (good.empty() && !why.empty())
      return self->refuse(why);
    if (good.empty()) // It is nowhere, or nobody knows where.
      return self->fail(connection_failure::unresolved);
    if (self->there_ && std::find(good.begin(), good.end(), *self->dialled_) != good.end())
      return self->pass_on();
    std::stable_partition(good.begin(), good.end(), [](auto& each) { return each.is_ipv4(); });
    self->dial(std::move(good));
  });
}

void connection::dial(std::vector<egress::ip_address> where) {
  if (there_ && dialled_name_.empty() && where.size() == 1 && where.front() == *dialled_)
    return pass_on(); // It was dialled before the name was known.
  there_ = false;
  failure_.reset();
  no_network_ = true;
  left_ = std::move(where);
  std::reverse(left_.begin(), left_.end());
  dial_next();
}

void connection::dial_next() {
  error_code ignored;
  server_.close(ignored);
  leave_dial();
  ++attempt_;
  if (left_.empty()) // As the place itself has done.
    return fail(failure_.value_or(connection_failure::unreachable));
  dialled_ = left_.back();
  left_.pop_back();
  // Called by a timer, or by what another tenant gives back: what follows is done in turn.
  const auto begin = [self = shared_from_this()](bool has_place) {
    const bool is_wanted = !self->over_ && !self->broker_;
    if (has_place && !is_wanted)
      return self->tenant_->shared().dials.give_back(self->tenant_->paid_by().number);
    if (!is_wanted)
      return;
    self->dialling_ = has_place;
    self->tenant_->time().add([self, has_place] {
      if (self->over_ || self->broker_)
        return;
      if (has_place)
        self->begin_dial();
      else
        self->refuse(too_many_dials);
    });
  };
  if (!tenant_->shared().dials.take(tenant_->paid_by().number, begin))
    refuse(too_many_dials);
}

void connection::begin_dial() {
  auto made = begin_connect({*dialled_, port_}, SOCK_STREAM);
  if (!made)
    return not_there(errno);
  server_.assign(made.release());
  const auto mine = attempt_;
  deadline_.expires_after(dial_patience);
  deadline_.async_wait(
    tenant_->time().wrap([self = shared_from_this(), mine](const error_code& stopped) {
      if (!stopped && !self->over_ && self->dialling_ && self->attempt_ == mine)
        self->not_there(ETIMEDOUT);
    }));
  server_.async_wait(socket::wait_write, tenant_->time().wrap([self = shared_from_this(),
                                                               mine](const error_code& stopped) {
    if (stopped || self->over_ || self->attempt_ != mine || !self->dialling_)
      return;
    if (const int why = connect_outcome(self->server_.native_handle()); why != 0)
      return self->not_there(why);
    self->dialled();
  }));
}

/// The next address, if there is one. Of all of them what says most is told.
void connection::not_there(int why) {
  const auto how = failure_of(why);
  if (!how)
    return refuse(no_socket);
  failure_ = std::min(failure_.value_or(*how), *how);
  no_network_ = no_network_ && (why == ENETUNREACH || why == EADDRNOTAVAIL);
  dial_next();
}

void connection::leave_dial() {
  if (std::exchange(dialling_, false))
    tenant_->shared().dials.give_back(tenant_->paid_by().number);
}

void connection::dialled() {
  deadline_.cancel();
  leave_dial();
  judge_again(); // The policy may be another one by now.
  if (over_)
    return;
  there_ = true;
  if (waits_)
    let_in();
  else if (is_unseen()) // Rules have come meanwhile.
    peek();
  else
    pass_on();
}

void connection::pass_on() {
  if (is_for_broker())
    return hand_over();
  if (goes_past_rules())
    return refuse(only_by_https);
  tenant_->connected();
  unique_fd inner{client_.release()}, outer{server_.release()};
  for (const int each : {inner.get(), outer.get()})
    tune(each);
  relay_ = std::make_shared<relay>(tenant_->shared(), tenant_->paid_by(), std::move(inner),
                                   std::move(outer), tenant_->bytes_in(), tenant_->bytes_out(),
                                   [self = shared_from_this()](int why) { self->ended(why); });
  const auto running = relay_; // It may be over at once.
  running->start_in();
  if (over_)
    return;
  if (quiet_)
    look();
  else
    running->start_out();
}

void connection::judge_again() {
  if (over_ || !tenant_->policy())
    return;
  const auto& policy = *tenant_->policy();
  if (broker_ || lacks_broker_) {
    auto found = judge(policy);
    if (!is_for_broker())
      cut(); // Without rules it goes there by itself, the next time.
    else if (found.what == answer::refuse && !policy.dry_run())
      refuse(std::move(found.rule));
    return;
  }
  if (relay_ && (is_for_broker() || goes_past_rules() || is_unseen()))
    return cut();
  if (!dialled_ || policy.dry_run())
    return; // It has yet to be judged.
  if (auto found = judge_open(policy); found.what == answer::refuse)
    refuse(std::move(found.rule));
}

/// `why`: as of relay.
void connection::ended(int why) {
  if (const auto how = failure_of(why))
    fail(*how);
  else
    finish();
}

void connection::cut() {
  if (over_)
    return;
  if (number_ != 0)
    broker_->cut(number_);
  if (relay_)
    relay_->cut();
  else if (waits_ && !let_in_)
    tenant_->answer_client(*opening_, opening_->reset());
  else if (client_.is_open())
    reset_on_close(client_.native_handle());
  finish();
}

void connection::finish() {
  if (std::exchange(over_, true))
    return;
  deadline_.cancel();
  pause_.cancel();
  error_code ignored;
  client_.close(ignored);
  server_.close(ignored);
  relay_.reset();
  broker_.reset();
  leave_dial();
  tenant_->over(shared_from_this());
}

} // namespace insula::runtime::gateway
