#pragma once

#include "base/error.hpp"
#include "base/io_pool.hpp"
#include "http/cluster/routing.hpp"
#include "http/transport/front_door.hpp"
#include "http/transport/watchdog.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <openssl/ssl.h>
#include <string>
#include <unordered_map>
#include <vector>

namespace insula::http::cluster {

/// A connection to a member's internal listener, on the strand of the client that it serves.
class peer_link {
public:
  using stream_type = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;

  /// `lane`: the number of its thread.
  peer_link(const boost::asio::any_io_executor& executor, boost::asio::ssl::context& tls, peer to,
            std::size_t lane);

  stream_type& stream() { return stream_; }
  const peer& to() const { return to_; }

  bool is_open() const { return stream_.lowest_layer().is_open(); }
  /// The member may close what is idle whenever it likes.
  bool is_alive();
  /// To what is asked now something has been said.
  bool is_answered() const { return answered_; }
  void note_answer(bool there) { answered_ = there; }
  /// The member is lost: asking it again is of no use.
  bool is_broken_off() const { return broken_off_; }
  void break_off();
  void close();
  /// TLS has no end of one direction alone.
  void end_sending() { close(); }

private:
  friend class peer_links;

  void too_late();

  const peer to_;
  const std::size_t lane_;
  stream_type stream_;
  watchdog patience_;           ///< Until it is there; then, while it is idle.
  std::function<void()> tired_; ///< It has been idle for too long.
  bool broken_off_ = false;
  bool answered_ = false;
};

/// Connections to other members by TLS: some that wait for their next request, and new ones.
///
/// Threads: each of `io` has its own, and touches no other's; break_off() and close() from any.
/// Owner:   shared by whoever forwards; `io` outlives it.
class peer_links : public std::enable_shared_from_this<peer_links> {
public:
  using connected_fn = std::function<void(std::shared_ptr<peer_link>)>;

  peer_links(io_pool& io, tls_files tls);

  /// Errors: invalid_request, for unusable TLS files.
  result<void> prepare();

  /// One that is idle; null: there is none.
  std::shared_ptr<peer_link> take(const boost::asio::any_io_executor& on, const peer& to);
  /// A new one; null: the member does not answer in time, or is another one. On the strand.
  void connect(const boost::asio::any_io_executor& on, const peer& to, connected_fn done);
  /// Its answer is complete: it may serve another request, for a while.
  void rest(const std::shared_ptr<peer_link>& link);

  /// Ends what is open to that member: all, or what is idle and what has heard nothing yet.
  void break_off(const std::string& member, bool all);
  /// Ends all that is idle, and keeps none from now on.
  void close();

private:
  using idle_links = std::vector<std::shared_ptr<peer_link>>;
  struct session_free {
    void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
  };

  /// What one thread has.
  struct lane {
    std::unordered_map<std::string, idle_links> idle; ///< By the member's name.
    std::vector<std::weak_ptr<peer_link>> open;       ///< Whether idle or not.
    /// The last TLS session with each, which the next connection goes on with.
    std::unordered_map<std::string, std::unique_ptr<SSL_SESSION, session_free>> sessions;
    bool closed = false;
  };

  std::size_t number_of(const boost::asio::any_io_executor& on) const;
  void shake_hands(const std::shared_ptr<peer_link>& link, connected_fn done);

  io_pool& io_;
  const tls_files files_;
  boost::asio::ssl::context tls_;
  std::vector<lane> lanes_; ///< One for each of the pool's contexts.
  const std::size_t most_idle_;
};

} // namespace insula::http::cluster
