#pragma once

#include "base/network.hpp"
#include "base/unique_fd.hpp"
#include "runtime/egress/address.hpp"
#include "runtime/egress/opening.hpp"
#include "runtime/egress/policy.hpp"
#include "runtime/gateway/relay.hpp"
#include "runtime/gateway/sockets.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::runtime::gateway {

class broker_link;
class tenant;

/// One connection that wants to leave a sandbox, from its opening: whom it is for is found out, the
/// policy is asked, the place is dialled, and then its bytes are passed on.
///
/// Its client is held until the place has answered, and is told what the place has said: it is
/// refused, there is no way there, or nothing. Only where it depends on a name that the client has
/// not said yet is it let in before anything is dialled, if there is a name that could pass; if
/// things go wrong then, it is reset.
///
/// Who may pass without a name is connected when the server speaks first, and after a moment of
/// silence; what it says then is still looked at before the server sees it.
class connection : public std::enable_shared_from_this<connection> {
public:
  connection(std::shared_ptr<tenant> from, const egress::opening& held);
  /// One whose opening was not held: it is let in already.
  connection(std::shared_ptr<tenant> from, unique_fd client, const socket_address& wanted);

  void start();
  /// None: its opening was not held.
  const std::optional<egress::opening>& held() const { return opening_; }
  bool is_let_in() const { return let_in_; } ///< Its client may come.
  /// The client has asked once more.
  void asked_again();
  /// The client has gone before it was let in.
  void gone() { finish(); }
  /// The client is let in.
  void arrived(unique_fd client);
  /// There is another broker.
  void broker_came();
  /// The policy has changed: goes on or is cut.
  void judge_again();
  void cut();

private:
  using socket = boost::asio::posix::stream_descriptor;
  using verdict = egress::policy::verdict;

  connection(std::shared_ptr<tenant> from, std::optional<egress::opening> held,
             const egress::ip_address& address, std::uint16_t port);

  verdict judge(const egress::policy& by) const;
  verdict judge_nameless(const egress::policy& by) const;
  verdict judge_open(const egress::policy& by) const;
  const std::string& asked_for() const;
  bool is_looked_into() const;
  bool is_for_broker() const;
  bool goes_past_rules() const;
  bool is_unseen() const;
  void hand_over();
  void wait_for_broker();
  /// Does it depend on a name where the connection goes, or whether it may?
  bool needs_name(const verdict& found) const;
  void decide();
  void decide_nameless();
  void let_in();
  void peek();
  void listen_to_server();
  void go_on_nameless();
  void wait_for_name(std::chrono::milliseconds patience);
  void out_of_patience(std::chrono::milliseconds patience);
  void look();
  void look_again_soon();
  void named(std::string name);
  bool may_pass(const verdict& on);
  void act(const verdict& on);
  void refuse(std::string rule);
  void fail(connection_failure how);
  void answer(connection_failure how);
  void dial_name();
  void dial(std::vector<egress::ip_address> where);
  void dial_next();
  void begin_dial();
  void not_there(int why);
  void leave_dial();
  void dialled();
  void pass_on();
  void ended(int why);
  void finish();

  const std::shared_ptr<tenant> tenant_;
  const std::optional<egress::opening> opening_;
  socket client_, server_;
  boost::asio::steady_timer deadline_, pause_;
  const std::uint16_t port_;
  bool waits_; ///< Its opening is held, or its client has yet to come.
  std::optional<egress::ip_address> address_; ///< None: an address was asked for that stands for
  std::string inner_name_;                    ///< this name.
  std::optional<std::string> told_name_; ///< By the client. None: not asked; empty: there is none.
  std::vector<egress::ip_address> left_; ///< To dial, the next one last.
  std::optional<egress::ip_address> dialled_;
  unsigned attempt_ = 0;     ///< Addresses so far: what belongs to an earlier one may still come.
  bool dialling_ = false;    ///< It has one of the places for that.
  bool there_ = false;       ///< What was dialled is connected.
  std::string dialled_name_; ///< Which led there; empty: the client has chosen the address.
  std::optional<connection_failure> failure_; ///< Of what was dialled: what says most.
  bool no_network_ = false;                   ///< The same: there is no way to any network of it.
  bool let_in_ = false;                       ///< What was held is sent on.
  bool quiet_ = false; ///< It has passed without a name, and has yet to say something.
  std::size_t peeked_ = 0;
  std::shared_ptr<relay> relay_;
  bool lacks_broker_ = false;           ///< It waits for the next one.
  std::shared_ptr<broker_link> broker_; ///< That has the client.
  std::uint64_t number_ = 0;            ///< By which it has it.
  bool over_ = false;
};

} // namespace insula::runtime::gateway
