#pragma once

#include "base/unique_fd.hpp"
#include "runtime/egress/address.hpp"
#include "runtime/gateway/resolver.hpp"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::runtime::gateway {

class tenant;

/// A connection to the host of that name, which a broker asks for: the DNS is asked, and no address
/// is dialled that is reserved or denied. What the policy allows does not matter: who has said
/// where a request goes has said that it may. It is paid by the tenant, and dialled in one of the
/// places for that.
class outbound : public std::enable_shared_from_this<outbound> {
public:
  /// The connection and its address, or why there is none. Called once.
  using function = std::function<void(unique_fd connected, const egress::ip_address* address,
                                      const std::string& why_not)>;

  outbound(std::shared_ptr<tenant> from, std::string host, std::uint16_t port, function tell);
  ~outbound();

  void start();

private:
  void dial_next();
  void begin();
  void not_there(const std::string& why);
  void end(unique_fd connected, const std::string& why_not);
  void leave_place();

  const std::shared_ptr<tenant> tenant_;
  const std::string host_;
  const std::uint16_t port_;
  function tell_;
  boost::asio::posix::stream_descriptor server_;
  boost::asio::steady_timer deadline_;
  std::vector<egress::ip_address> left_; ///< To dial, the next one last.
  std::optional<egress::ip_address> dialled_;
  std::string why_; ///< Not there: of the last that was dialled.
  unsigned attempt_ = 0;
  bool has_place_ = false;
};

} // namespace insula::runtime::gateway
