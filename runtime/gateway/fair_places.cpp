#include "runtime/gateway/fair_places.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace insula::runtime::gateway {

fair_places::fair_places(boost::asio::io_context& io, const ceilings& most)
    : most_(most)
    , clock_(io) {}

bool fair_places::may_have(const tenant& mine) const {
  const auto room = mine.has < most_.few ? most_.all : most_.all - most_.kept;
  return mine.has < most_.each && taken_ < room;
}

void fair_places::drop_if_idle(tenant_number whose) {
  const auto at = tenants_.find(whose);
  if (at != tenants_.end() && at->second.has == 0 && at->second.queue.empty())
    tenants_.erase(at);
}

bool fair_places::take(tenant_number whose, function then) {
  auto& mine = tenants_[whose];
  if (mine.queue.empty() && may_have(mine)) {
    ++mine.has;
    ++taken_;
    then(true);
    return true;
  }
  if (mine.queue.size() >= most_.waiting) {
    drop_if_idle(whose);
    return false;
  }
  if (mine.queue.empty())
    turns_.push_back(whose);
  mine.queue.push_back({clock::now() + most_.patience, std::move(then)});
  ++waiting_;
  watch();
  return true;
}

void fair_places::give_back(tenant_number whose) {
  const auto at = tenants_.find(whose);
  if (at == tenants_.end() || at->second.has == 0)
    return;
  --at->second.has;
  --taken_;
  serve();
  drop_if_idle(whose);
}

/// One of each tenant in turn, as long as there are places. What is called may take and give back.
void fair_places::serve() {
  if (std::exchange(serving_, true))
    return;
  // As many in a row may have nothing as there are.
  for (std::size_t in_vain = 0; in_vain < turns_.size() && taken_ < most_.all;) {
    const auto whose = turns_.front();
    turns_.pop_front();
    auto& mine = tenants_.at(whose);
    if (!may_have(mine)) {
      turns_.push_back(whose);
      ++in_vain;
      continue;
    }
    auto next = std::move(mine.queue.front());
    mine.queue.pop_front();
    --waiting_;
    if (!mine.queue.empty())
      turns_.push_back(whose);
    ++mine.has;
    ++taken_;
    in_vain = 0;
    next.then(true);
  }
  serving_ = false;
}

void fair_places::forget(tenant_number whose) {
  const auto at = tenants_.find(whose);
  if (at == tenants_.end())
    return;
  const auto gone = std::exchange(at->second.queue, {});
  waiting_ -= gone.size();
  std::erase(turns_, whose);
  drop_if_idle(whose);
  for (const auto& each : gone)
    each.then(false);
}

std::size_t fair_places::taken_by(tenant_number whose) const {
  const auto at = tenants_.find(whose);
  return at == tenants_.end() ? 0 : at->second.has;
}

/// Only as long as something waits.
void fair_places::watch() {
  if (waiting_ == 0 || std::exchange(watching_, true))
    return;
  auto first = clock::time_point::max();
  for (const auto whose : turns_)
    first = std::min(first, tenants_.at(whose).queue.front().until);
  clock_.expires_at(first);
  clock_.async_wait([this](const boost::system::error_code& stopped) {
    if (stopped)
      return;
    watching_ = false;
    expire();
    watch();
  });
}

void fair_places::expire() {
  const auto now = clock::now();
  std::vector<function> late;
  for (const auto whose : turns_)
    for (auto& queue = tenants_.at(whose).queue; !queue.empty() && queue.front().until <= now;
         queue.pop_front()) {
      late.push_back(std::move(queue.front().then));
      --waiting_;
    }
  std::vector<tenant_number> done;
  std::erase_if(turns_, [&](tenant_number whose) {
    const bool over = tenants_.at(whose).queue.empty();
    if (over)
      done.push_back(whose);
    return over;
  });
  for (const auto whose : done)
    drop_if_idle(whose);
  for (const auto& each : late)
    each(false);
}

} // namespace insula::runtime::gateway
