#include "storage/memory_store.hpp"

#include <algorithm>
#include <iterator>

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
  for (const auto& prefix : batch.cleared) {
    const auto end = entries.lower_bound(end_of(prefix));
    for (auto at = entries.lower_bound(prefix); at != end; at = entries.erase(at))
      marked_.erase({at->first, batch.owner});
  }
  for (const auto& [key, value] : batch.changes) {
    if (!value) {
      entries.erase(key);
      marked_.erase({key, batch.owner});
      continue;
    }
    entries[key] = *value;
    if (is_marked(key))
      marked_[{key, batch.owner}] = *value;
  }
  return {};
}

result<std::vector<entry>> memory_store::read(std::string_view owner, std::string_view prefix) {
  const std::lock_guard lock{mutex_};
  std::vector<entry> all;
  if (const auto found = owned_.find(owner); found != owned_.end()) {
    const auto& entries = found->second.entries;
    for (auto at = entries.lower_bound(std::string{prefix});
         at != entries.end() && at->first.starts_with(prefix); ++at)
      all.push_back({at->first, at->second});
  }
  return all;
}

result<std::vector<owned_entry>> memory_store::find(std::string_view prefix) {
  const std::lock_guard lock{mutex_};
  std::vector<owned_entry> all;
  for (const auto& [id, held] : owned_)
    if (!id.starts_with('_'))
      for (auto at = held.entries.lower_bound(std::string{prefix});
           at != held.entries.end() && at->first.starts_with(prefix); ++at)
        all.push_back({id, at->first, at->second});
  return all;
}

memory_store::marks::const_iterator memory_store::begin_of(std::string_view mark,
                                                           const mark_position& after) const {
  const std::pair first{std::string{mark}, std::string{}};
  return std::max(first, {after.key, after.owner}) == first
           ? marked_.lower_bound(first)
           : marked_.upper_bound({after.key, after.owner});
}

result<mark_page> memory_store::scan(std::string_view mark, const mark_position& after,
                                     std::size_t limit) {
  return scan(mark, after, limit, true);
}

result<mark_page> memory_store::scan_keys(std::string_view mark, const mark_position& after,
                                          std::size_t limit) {
  return scan(mark, after, limit, false);
}

result<mark_page> memory_store::scan(std::string_view mark, const mark_position& after,
                                     std::size_t limit, bool values) {
  if (auto why = malformed_scan(mark, limit))
    return std::move(*why);
  const std::lock_guard lock{mutex_};
  mark_page page;
  std::size_t bytes = 0;
  for (auto at = begin_of(mark, after); at != marked_.end() && at->first.first.starts_with(mark);
       ++at) {
    ++lines_read_;
    page.more = page.lines.size() == limit || bytes >= max_page_bytes;
    if (page.more)
      break;
    bytes += size_of(page.lines.emplace_back(
      owned_entry{at->first.second, at->first.first, values ? at->second : std::string{}}));
  }
  return page;
}

result<mark_page> memory_store::read_each(const std::vector<mark_position>& places) {
  if (auto why = malformed_places(places))
    return std::move(*why);
  const std::lock_guard lock{mutex_};
  mark_page page;
  std::size_t bytes = 0;
  for (const auto& [key, owner] : places) {
    page.more = bytes >= max_page_bytes;
    if (page.more)
      break;
    const auto held = owned_.find(owner);
    if (held == owned_.end())
      continue;
    if (const auto at = held->second.entries.find(key); at != held->second.entries.end()) {
      ++lines_read_;
      bytes += size_of(page.lines.emplace_back(owned_entry{owner, key, at->second}));
    }
  }
  return page;
}

result<std::uint64_t> memory_store::count(std::string_view mark) {
  if (auto why = malformed_scan(mark))
    return std::move(*why);
  const std::lock_guard lock{mutex_};
  const marks::const_iterator end = marked_.lower_bound({end_of(mark), {}});
  return static_cast<std::uint64_t>(std::distance(begin_of(mark, {}), end));
}

std::uint64_t memory_store::lines_read() const {
  const std::lock_guard lock{mutex_};
  return lines_read_;
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
