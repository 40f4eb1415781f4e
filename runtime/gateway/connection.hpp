#pragma once

#include "base/unique_fd.hpp"
#include "runtime/egress/address.hpp"
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

class tenant;

/// One connection that wants to leave a sandbox, from its arrival: whom it is for is found out, the
/// policy is asked, the place is dialled, and then its bytes are passed on. What is refused is
/// reset. Who may pass without a name and is silent is connected after a moment, since it may be
/// the server that speaks first; what it says then is still looked at before the server sees it.
class connection : public std::enable_shared_from_this<connection> {
public:
  connection(std::shared_ptr<tenant> from, unique_fd client, const socket_address& wanted);

  void start();
  /// The policy has changed: goes on or is cut.
  void judge_again();
  void cut();

private:
  using socket = boost::asio::posix::stream_descriptor;
  using verdict = egress::policy::verdict;

  verdict judge(const egress::policy& by) const;
  verdict judge_nameless(const egress::policy& by) const;
  verdict judge_open(const egress::policy& by) const;
  const std::string& asked_for() const;
  bool is_looked_into() const;
  void decide();
  void peek();
  void wait_for_name(std::chrono::milliseconds patience);
  void out_of_patience(std::chrono::milliseconds patience);
  void look();
  void look_again_soon();
  void named(std::string name);
  bool may_pass(const verdict& on);
  void act(const verdict& on);
  void refuse(std::string rule);
  void dial_name();
  void dial(std::vector<egress::ip_address> where);
  void dial_next();
  void begin_dial();
  void leave_dial();
  void dialled();
  void finish();

  const std::shared_ptr<tenant> tenant_;
  socket client_, server_;
  boost::asio::steady_timer deadline_, pause_;
  const std::uint16_t port_;
  std::optional<egress::ip_address> address_; ///< None: an address was asked for that stands for
  std::string inner_name_;                    ///< this name.
  std::optional<std::string> told_name_; ///< By the client. None: not asked; empty: there is none.
  std::vector<egress::ip_address> left_; ///< To dial, the next one last.
  std::optional<egress::ip_address> dialled_;
  unsigned attempt_ = 0;     ///< Addresses so far: what belongs to an earlier one may still come.
  bool dialling_ = false;    ///< It has one of the places for that.
  std::string dialled_name_; ///< Which led there; empty: the client has chosen the address.
  bool quiet_ = false;       ///< It has passed without a name, and has yet to say something.
  std::size_t peeked_ = 0;
  std::shared_ptr<relay> relay_;
  bool over_ = false;
};

} // namespace insula::runtime::gateway
