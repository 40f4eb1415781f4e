#pragma once

#include "base/network.hpp"
#include "base/unique_fd.hpp"
#include "runtime/broker/authority.hpp"
#include "runtime/broker/exchange.hpp"
#include "runtime/broker/rule_set.hpp"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace insula::runtime::broker {

/// What a broker asks of the processes around it.
class surroundings {
public:
  virtual ~surroundings() = default;
  /// A connection to that host, not blocking. The gateway makes it: it asks the DNS, and dials no
  /// address that is not to be reached. Errors: any, with a sentence.
  virtual task<result<unique_fd>> dial(const std::string& host, std::uint16_t port) = 0;
  /// Who the sandbox is, as a signed token for that audience.
  virtual task<result<std::string>> token(const std::string& audience) = 0;
  /// A request was not what its connection is for.
  virtual void refused(const std::string& name, std::uint16_t port, const std::string& why) = 0;
};

/// Of a connection of a client's.
struct served {
  std::uint64_t from_client = 0, to_client = 0; ///< In bytes, when it is over.
  std::function<void()> cut = nullptr;          ///< While it is there.
};

/// One sandbox's: opens the connections for names that have rules, and does with each request what
/// the rules say. One thread.
/// Ceilings: 10,000 connections of clients; 1,024 to servers, 128 to each host, and 8 idle ones of
/// those.
class broker {
public:
  /// `trusted`: as of make_client_context().
  /// `sandbox`: its name in the log.
  broker(boost::asio::io_context& io, surroundings& around, std::shared_ptr<SSL_CTX> trusted,
         std::string sandbox = {});
  ~broker();
  broker(const broker&) = delete;
  broker& operator=(const broker&) = delete;

  /// In place of those before. Connections that were opened under those end within a second.
  void use(std::shared_ptr<const rule_set> rules, std::shared_ptr<authority> of_sandbox);
  /// All connections to servers end within a second, and with them those of clients.
  void end_servers();
  std::vector<rule_figures> figures() const;

  /// A connection of a client's that wants `name` at `port`, with nothing of it read yet. Ends with
  /// it, and `told` stays until then.
  task<void> serve(unique_fd client, std::string name, std::uint16_t port, served& told);

  /// Of clients that are there, from them and to them.
  std::pair<std::uint64_t, std::uint64_t> open_bytes() const;
  std::size_t open_connections() const;
  /// Cuts all.
  void end();

private:
  class impl;
  const std::shared_ptr<impl> impl_;
};

} // namespace insula::runtime::broker
