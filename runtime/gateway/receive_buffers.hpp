#pragma once

#include "runtime/gateway/fair_places.hpp"

#include <chrono>
#include <cstddef>
#include <list>
#include <map>
#include <memory>

namespace insula::runtime::gateway {

/// How far the receive buffers of connections grow: what has arrived and nobody takes waits there.
///
/// A buffer begins small. One that has moved as much as it holds may grow, as the kernel does that
/// for its connection, up to a middle size; some grow further. A tenant has so many places for
/// both. When these are taken, a buffer that has moved nothing for a while and holds next to
/// nothing is small again, for the sake of the one that moves. So idle connections keep no places,
/// and what a tenant's buffers hold together has a ceiling.
///
/// Single-threaded. Ceilings: those that it is made with.
class receive_buffers {
public:
  struct ceilings {
    std::size_t growing = 0;           ///< Buffers of one tenant that are not small.
    std::size_t large = 0;             ///< Of these, those that grow beyond the middle size.
    std::size_t small_bytes = 0;       ///< Of payload; the kernel counts twice of that.
    std::size_t middle_bytes = 0;      ///< As the kernel counts.
    std::size_t large_bytes = 0;       ///< The same.
    std::chrono::milliseconds quiet{}; ///< After so long it may be made small for another one.
  };

  explicit receive_buffers(const ceilings& most)
      : most_(most) {}

  /// That of one socket, which outlives this.
  class one {
  public:
    one(std::shared_ptr<receive_buffers> in, tenant_number whose, int socket);
    ~one() { in_->leave(*this); }
    one(const one&) = delete;
    one& operator=(const one&) = delete;

    /// So much has been read from the socket.
    void moved(std::size_t bytes);
    /// Nothing more is read for now: it stays as large as it is, whatever arrives.
    void stands_still();

  private:
    friend class receive_buffers;
    enum class size { small, middle, large };

    const std::shared_ptr<receive_buffers> in_;
    const tenant_number whose_;
    const int socket_;
    size is_ = size::small;
    bool grows_ = false;    ///< Not yet as large as it may be.
    bool held_ = false;     ///< It grows, and stands still.
    std::size_t moved_ = 0; ///< While it is small.
    std::chrono::steady_clock::time_point last_{};
    std::list<one*>::iterator at_{}; ///< Among those that are not small.
  };

  /// Of one tenant: buffers that are not small, and of these the large ones.
  std::size_t growing(tenant_number whose) const;
  std::size_t large(tenant_number whose) const;

private:
  struct tenant {
    std::list<one*> growing; ///< The one that has moved least lately in front.
    std::size_t large = 0;
  };

  bool grow(one& which);
  bool make_room(tenant& in);
  void enlarge(one& which);
  void leave(one& which);

  const ceilings most_;
  std::map<tenant_number, tenant> tenants_; ///< Those with a buffer that is not small.
};

} // namespace insula::runtime::gateway
