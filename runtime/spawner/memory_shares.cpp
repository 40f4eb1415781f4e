#include "runtime/spawner/memory_shares.hpp"

#include <algorithm>

namespace insula::runtime::spawner {

namespace {

constexpr std::uint64_t page = 4096;

constexpr std::uint64_t usual_files = 65'536;
constexpr std::uint64_t usual_segments = UINT64_MAX - (1u << 24);
constexpr std::uint64_t usual_queues = 32'000;
constexpr std::uint64_t usual_semaphores = 1'024'000'000;

/// Of semaphores. There is room for one of them.
constexpr std::uint64_t largest_set = 250;

// What one of them takes of the kernel's memory, at most.
constexpr std::uint64_t file_bytes = 1024, queue_bytes = 1u << 20, semaphore_bytes = 64;

} // namespace

memory_shares share_memory(const limits& wanted, bool disk_in_memory) {
  const auto all = wanted.memory_bytes;
  if (all == 0)
    return {wanted.shm_bytes, usual_files,      usual_segments,
            usual_queues,     usual_semaphores, wanted.disk_bytes};
  const auto shared = all / (disk_in_memory ? 4 : 2);
  memory_shares given{};
  // Something is left for segments: databases begin with a small one.
  given.shm_bytes = std::min(wanted.shm_bytes, shared / 4 * 3 / page * page);
  given.segments = (shared - given.shm_bytes) / page * page;
  given.shm_files = std::min(usual_files, all / 16 / file_bytes);
  given.queues = std::clamp(all / 16 / queue_bytes, std::uint64_t{1}, usual_queues);
  given.semaphores = std::clamp(all / 32 / semaphore_bytes, largest_set, usual_semaphores);
  given.disk_bytes = wanted.disk_bytes;
  if (disk_in_memory)
    given.disk_bytes = wanted.disk_bytes > 0 ? std::min(wanted.disk_bytes, all / 2) : all / 2;
  return given;
}

} // namespace insula::runtime::spawner
