#pragma once

#include "runtime/egress/address.hpp"
#include "runtime/egress/dns.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
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
/// Single-threaded. Ceilings: most_questions at once, most_remembered names.
class resolver {
public:
  static constexpr std::size_t most_questions = 4096;
  static constexpr std::size_t most_remembered = 8192;

  struct server {
    egress::ip_address address;
    std::uint16_t port = 53;
  };

  explicit resolver(boost::asio::io_context& io)
      : io_(io) {}

  void use(std::vector<server> servers);

  /// A question of somebody's. Answers the whole message, under an id that means nothing; none:
  /// nobody has answered.
  void ask(const egress::dns::question& asked,
           std::function<void(std::optional<std::string>)> tell);

  struct addresses {
    egress::dns::status how = egress::dns::status::failed;
    std::vector<egress::ip_address> all; ///< Empty, if it is not good, or has none.
  };
  /// Where a name is. Remembered for as long as the answer says, a minute at most.
  void resolve(const std::string& name, std::function<void(const addresses&)> tell);

private:
  struct lookup;
  struct remembered {
    addresses what;
    std::chrono::steady_clock::time_point until;
  };
  struct pending {
    std::vector<std::function<void(const addresses&)>> waiting;
    addresses so_far;
    std::uint32_t ttl = 60;
    int missing = 2; ///< Answers, of IPv4 and of IPv6.
    bool any_good = false;
  };

  void begin(std::function<std::string(std::uint16_t id)> write,
             std::function<void(std::optional<std::string>)> tell);
  void half_resolved(const std::string& name, const std::optional<std::string>& message,
                     const std::string& asked);

  boost::asio::io_context& io_;
  std::vector<server> servers_;
  std::random_device random_;
  std::map<std::string, remembered> known_;
  std::map<std::string, pending> pending_;
  std::size_t questions_ = 0;
};

} // namespace insula::runtime::gateway
