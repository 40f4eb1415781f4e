#include "storage/store.hpp"

#include <limits>

namespace insula::storage {

namespace {

/// Changes without content still cost a row and a pass through the disk's cache.
constexpr std::size_t change_overhead_bytes = 64;

std::string bytes(std::size_t count) {
  return std::to_string(count) + " bytes";
}

} // namespace

std::size_t size_of(const write_batch& batch) {
  std::size_t total = batch.owner.size();
  for (const auto& one : batch.changes)
    total += change_overhead_bytes + one.key.size() + (one.value ? one.value->size() : 0);
  for (const auto& prefix : batch.cleared)
    total += change_overhead_bytes + prefix.size();
  return total;
}

std::optional<error> malformed(const write_batch& batch) {
  const auto refused = [](std::string why) { return error{errc::invalid_request, std::move(why)}; };
  if (batch.owner.empty() || batch.owner.size() > store::max_owner_bytes)
    return refused("an owner's id is 1 to 128 bytes long, this one has " +
                   bytes(batch.owner.size()));
  if (batch.owner.find('/') != std::string::npos)
    return refused("an owner's id has no '/' in it: " + batch.owner);
  if (batch.written_at == 0 ||
      batch.written_at > static_cast<epoch>(std::numeric_limits<std::int64_t>::max()))
    return refused("not an epoch: " + std::to_string(batch.written_at));
  for (const auto& one : batch.changes) {
    if (one.key.empty() || one.key.size() > store::max_key_bytes)
      return refused("a key is 1 to 1,024 bytes long, this one has " + bytes(one.key.size()));
    if (one.value && one.value->size() > store::max_value_bytes)
      return refused("a value has at most 1 MiB, that of " + one.key + " has " +
                     bytes(one.value->size()));
  }
  for (const auto& prefix : batch.cleared)
    if (prefix.size() > store::max_key_bytes)
      return refused("a prefix has at most 1,024 bytes, this one has " + bytes(prefix.size()));
  if (const auto total = size_of(batch); total > store::max_batch_bytes)
    return refused("a batch has at most 16 MiB, this one has " + bytes(total));
  return std::nullopt;
}

std::optional<error> malformed_scan(std::string_view mark, std::size_t limit) {
  const auto refused = [](std::string why) { return error{errc::invalid_request, std::move(why)}; };
  if (!is_marked(mark) || mark.size() > store::max_key_bytes)
    return refused("a mark begins with '@' and has at most 1,024 bytes");
  if (limit == 0 || limit > store::max_page_lines)
    return refused("a page has 1 to 1,000 lines, not " + std::to_string(limit));
  return std::nullopt;
}

std::optional<error> malformed_places(const std::vector<mark_position>& places) {
  if (places.size() > store::max_page_lines)
    return error{errc::invalid_request,
                 "1,000 entries can be read at once, not " + std::to_string(places.size())};
  return std::nullopt;
}

std::size_t size_of(const owned_entry& line) {
  return line.owner.size() + line.key.size() + line.value.size();
}

std::string end_of(std::string_view prefix) {
  // Keys are ordered as bytes, and no byte follows 0xff.
  while (!prefix.empty() && prefix.back() == '\xff')
    prefix.remove_suffix(1);
  if (prefix.empty())
    return std::string(store::max_key_bytes + 1, '\xff');
  std::string end{prefix};
  end.back() = static_cast<char>(static_cast<unsigned char>(end.back()) + 1);
  return end;
}

error stale(const write_batch& batch, epoch newest) {
  return {errc::stale_epoch, batch.owner + " was written at epoch " + std::to_string(newest) +
                               ", this write comes from " + std::to_string(batch.written_at)};
}

} // namespace insula::storage
