#include "storage/memory_store.hpp"

namespace insula::storage {

void memory_store::commit(write_batch batch, std::function<void(result<void>)> on_durable) {
  if (auto why = malformed(batch))
    return on_durable(std::move(*why));
  std::unique_lock lock{mutex_};
  const auto bytes = size_of(batch);
  if (waiting_.size() >= max_waiting || waiting_bytes_ + bytes > max_waiting_bytes) {
    lock.unlock();
    return on_durable(error{errc::limit_reached, "too many writes are waiting"});
  }
  waiting_.push_back({std::move(batch), std::move(on_durable)});
  waiting_bytes_ += bytes;
  if (answering_)
    return;
  // Whoever finds nobody here answers for all, outside the lock: an answer may commit again.
  answering_ = true;
  while (!waiting_.empty()) {
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= size_of(next.batch);
    auto outcome = apply(next.batch);
    lock.unlock();
    next.on_durable(std::move(outcome));
    next = {}; // What the answer holds goes before the lock is taken.
    lock.lock();
  }
  answering_ = false;
}

result<void> memory_store::apply(const write_batch& batch) {
  auto& [newest, entries] = owned_[batch.owner];
  if (batch.written_at < newest)
    return stale(batch, newest);
  newest = batch.written_at;
  for (const auto& [key, value] : batch.changes) {
    if (value)
      entries[key] = *value;
    else
      entries.erase(key);
  }
  return {};
}

result<std::vector<entry>> memory_store::read(std::string_view owner) {
  const std::lock_guard lock{mutex_};
  std::vector<entry> all;
  if (const auto found = owned_.find(owner); found != owned_.end())
    for (const auto& [key, value] : found->second.entries)
      all.push_back({key, value});
  return all;
}

result<std::vector<std::string>> memory_store::owners() {
  const std::lock_guard lock{mutex_};
  std::vector<std::string> ids;
  for (const auto& [id, held] : owned_)
    if (!held.entries.empty() && !id.starts_with('_'))
      ids.push_back(id);
  return ids;
}

} // namespace insula::storage
