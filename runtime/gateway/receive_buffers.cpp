#include "runtime/gateway/receive_buffers.hpp"

#include "runtime/gateway/sockets.hpp"

#include <utility>

namespace insula::runtime::gateway {

namespace {

/// At once. Those that hold something are put behind, so all have been looked at soon.
constexpr int looked_at = 4;

} // namespace

receive_buffers::one::one(std::shared_ptr<receive_buffers> in, tenant_number whose, int socket)
    : in_(std::move(in))
    , whose_(whose)
    , socket_(socket) {
  limit_receive_buffer(socket_, in_->most_.small_bytes * 2);
}

void receive_buffers::one::moved(std::size_t bytes) {
  if (is_ == size::small) {
    moved_ += bytes;
    if (moved_ < in_->most_.small_bytes || !in_->grow(*this))
      return;
  }
  if (std::exchange(held_, false))
    free_receive_buffer(socket_);
  last_ = std::chrono::steady_clock::now();
  auto& all = in_->tenants_.at(whose_).growing;
  all.splice(all.end(), all, at_);
  if (grows_ || is_ == size::middle)
    in_->enlarge(*this);
}

void receive_buffers::one::stands_still() {
  if (!grows_ || std::exchange(held_, true))
    return;
  limit_receive_buffer(socket_,
                       is_ == size::large ? in_->most_.large_bytes : in_->most_.middle_bytes);
}

std::size_t receive_buffers::growing(tenant_number whose) const {
  const auto at = tenants_.find(whose);
  return at == tenants_.end() ? 0 : at->second.growing.size();
}

std::size_t receive_buffers::large(tenant_number whose) const {
  const auto at = tenants_.find(whose);
  return at == tenants_.end() ? 0 : at->second.large;
}

bool receive_buffers::grow(one& which) {
  auto& mine = tenants_[which.whose_];
  if (mine.growing.size() >= most_.growing && !make_room(mine))
    return false;
  which.is_ = one::size::middle;
  which.grows_ = true;
  which.at_ = mine.growing.insert(mine.growing.end(), &which);
  free_receive_buffer(which.socket_);
  return true;
}

/// What waits in one that is made small would be counted nowhere.
bool receive_buffers::make_room(tenant& in) {
  const auto now = std::chrono::steady_clock::now();
  for (int i = 0; i < looked_at && !in.growing.empty(); ++i) {
    auto& quietest = *in.growing.front();
    if (now - quietest.last_ < most_.quiet)
      return false;
    if (waiting_bytes(quietest.socket_) <= most_.small_bytes) {
      limit_receive_buffer(quietest.socket_, most_.small_bytes * 2);
      in.large -= quietest.is_ == one::size::large ? 1 : 0;
      quietest.is_ = one::size::small;
      quietest.grows_ = quietest.held_ = false;
      quietest.moved_ = 0;
      in.growing.pop_front();
      return true;
    }
    quietest.last_ = now;
    in.growing.splice(in.growing.end(), in.growing, in.growing.begin());
  }
  return false;
}

/// A buffer can more than double from one read to the next, so a middle one is held early: what is
/// held at less than it has is cut, to less than that where net.core.rmem_max says so.
void receive_buffers::enlarge(one& which) {
  auto& mine = tenants_.at(which.whose_);
  if (which.is_ == one::size::middle &&
      (!which.grows_ || receive_buffer(which.socket_) >= most_.middle_bytes / 2)) {
    if (mine.large < most_.large) {
      ++mine.large;
      which.is_ = one::size::large;
      if (!std::exchange(which.grows_, true))
        free_receive_buffer(which.socket_);
    } else if (std::exchange(which.grows_, false)) {
      limit_receive_buffer(which.socket_, most_.middle_bytes);
    }
  }
  if (which.is_ == one::size::large && receive_buffer(which.socket_) >= most_.large_bytes) {
    which.grows_ = false;
    limit_receive_buffer(which.socket_, most_.large_bytes);
  }
}

void receive_buffers::leave(one& which) {
  if (which.is_ == one::size::small)
    return;
  const auto at = tenants_.find(which.whose_);
  at->second.large -= which.is_ == one::size::large ? 1 : 0;
  at->second.growing.erase(which.at_);
  if (at->second.growing.empty())
    tenants_.erase(at);
}

} // namespace insula::runtime::gateway
