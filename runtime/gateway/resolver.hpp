#pragma once

#include "runtime/egress/address.hpp"
#include "runtime/egress/dns.hpp"
#include "runtime/gateway/fair_places.hpp"
#include "runtime/gateway/payer.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace insula::runtime::gateway {

/// Asks the machine's resolvers: each question from a socket of its own with a number of its own,
/// so that nobody can guess what an answer must look like. The next one is asked when one does not
/// answer in time; what does not fit a datagram is asked for by TCP.
///
/// Each tenant has a share of the questions that are under way, whether it asks them or dials a
/// name, and a memory of its own: what one tenant asks for, and how that ends, is nothing to
/// another.
///
/// Single-threaded. Ceilings: limits::gateway_lookups and those behind it.
class resolver {
public:
  struct server {
    egress::ip_address address;
    std::uint16_t port = 53;
  };

  explicit resolver(boost::asio::io_context& io);

  void use(std::vector<server> servers);

  struct outcome {
    std::optional<std::string> message; ///< The whole one, under an id that means nothing. None:
                                        ///< nobody has answered.
    bool too_many = false;              ///< It was not asked: the tenant asks for too much.
  };
  /// A question of somebody's. Failures, and that there is no such name, are remembered for a
  /// moment.
  void ask(const payer& by, const egress::dns::question& asked, std::function<void(outcome)> tell);

  struct addresses {
    egress::dns::status how = egress::dns::status::failed;
    std::vector<egress::ip_address> all; ///< Empty, if it is not good, or has none.
    bool too_many = false;               ///< As above.
  };
  /// Where a name is. Remembered for as long as the answer says, a minute at most.
  void resolve(const payer& by, const std::string& name,
               std::function<void(const addresses&)> tell);

  /// The tenant has gone. Those that still wait for an answer are told that there is none.
  void forget(tenant_number whose);

  const fair_places& places() const { return places_; }

private:
  struct lookup;
  struct remembered {
    addresses what; ///< Of a name,
    outcome answer; ///< or of a question.
    std::chrono::steady_clock::time_point until;
  };
  struct pending {
    std::vector<std::function<void(const addresses&)>> waiting;
    addresses so_far;
    std::uint32_t ttl = 0, negative_ttl = 0;
    int missing = 2; ///< Answers, of IPv4 and of IPv6.
    bool any_good = false;
  };
  /// Of one tenant.
  struct memory {
    std::map<std::string, remembered> known; ///< By name, and by question, which begins with a NUL.
    std::deque<std::string> order;           ///< The oldest in front.
    std::map<std::string, pending> asked;
  };

  void begin(const payer& by, std::function<std::string(std::uint16_t id)> write,
             std::function<void(outcome)> tell);
  void half_resolved(tenant_number whose, const std::string& name, const outcome& got,
                     const std::string& asked);
  const remembered* recall(tenant_number whose, const std::string& what) const;
  void remember(tenant_number whose, const std::string& what, remembered as,
                std::chrono::seconds time);

  boost::asio::io_context& io_;
  std::vector<server> servers_;
  std::random_device random_;
  fair_places places_;
  std::map<tenant_number, memory> memories_;
};

} // namespace insula::runtime::gateway
