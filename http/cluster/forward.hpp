#pragma once

#include "base/error.hpp"
#include "base/io_pool.hpp"
#include "http/api/other_nodes.hpp"
#include "http/cluster/peer_links.hpp"
#include "http/cluster/routing.hpp"
#include "http/transport/exchange.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace insula::http::cluster {

/// What is left of a request when its header has gone.
struct forwarded {
  concern about;
  std::optional<peer> to; ///< Known already.
  bool peek = false;      ///< The body says the sandbox, or its image. It has a length.
  /// It has come from another node, which takes this one for the owner: this is so, or the other
  /// one is told who is.
  bool at_owner = false;
  std::string head; ///< For the owner, whole.
  std::string came; ///< As it has come, whole.
  std::uint64_t length = 0;
  bool chunked = false;
  bool asks_first = false;
  bool head_only = false;
  bool old_protocol = false;
  bool keep_alive = false;
  bool upgrade = false;
  bool repeatable = false;        ///< Twice is as good as once, and there is no body.
  bool wants_page = false;        ///< It is a browser that shows what it gets.
  std::optional<key_check> key;   ///< This node's, if it is to go no further.
  std::string connection_options; ///< What its Connection names.

  bool has_body() const { return chunked || length > 0; }
};

/// What is answered where the sandbox's node cannot be asked: trying again soon may help.
response unreachable(const std::string& why, bool as_page = false);

/// Carries requests to the nodes that have their sandboxes, and the answers back, byte by byte: no
/// more is in memory than is under way.
///
/// Threads: those of `io`, but where said.
/// Owner:   shared by the server and what is under way; `io` outlives it.
class forwarder : public std::enable_shared_from_this<forwarder> {
public:
  forwarder(io_pool& io, std::shared_ptr<routing> way, tls_files tls);

  /// Errors: invalid_request, for unusable TLS files.
  result<void> prepare();

  routing& way() const { return *way_; }

  /// Finds out who has the sandbox and passes the request on; gives the connection back, to be
  /// served here if that is who has it. On the connection's strand.
  void serve(std::shared_ptr<const forwarded> wanted, std::shared_ptr<connection> client,
             request_track track);

  /// That member is lost, or, if not `all`, does not answer any more: whatever waits for it ends,
  /// and all that is open to it. Any thread.
  void break_off(const std::string& member, bool all) { links_->break_off(member, all); }

  /// Nothing waits or is kept any more, once `io` has settled. Any thread.
  void stop();

private:
  class session;

  void keep(const std::shared_ptr<session>& waiting);
  void let_go(const session* waited);

  const std::shared_ptr<routing> way_;
  const std::shared_ptr<peer_links> links_;
  std::mutex mutex_;
  bool stopped_ = false; ///< Guarded by mutex_. So is the next:
  std::unordered_map<const session*, std::shared_ptr<session>> waiting_; ///< For way_.
};

} // namespace insula::http::cluster
