#include "storage/local_lease.hpp"

#include <charconv>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

namespace insula::storage {

namespace {

constexpr auto record_owner = "_lease";
constexpr auto record_key = "reserved_until";

using answer = std::function<void(result<epoch>)>;

/// Answers are collected under the lock and given outside of it: each may acquire or release.
struct due_answer {
  answer to;
  result<epoch> outcome;
};

void give(std::deque<due_answer> due) {
  for (auto& [to, outcome] : due)
    to(std::move(outcome));
}

} // namespace

struct local_lease::book : std::enable_shared_from_this<book> {
  struct waiter {
    std::string owner;
    answer on_held;
  };

  explicit book(store& s, epoch from)
      : where(s)
      , last(from)
      , reserved_until(from) {}

  store& where;
  std::mutex mutex;
  epoch last;           ///< The last one handed out, or skipped.
  epoch reserved_until; ///< Up to here the store will not let us hand out twice.
  bool reserving = false;
  bool closed = false;
  std::unordered_map<std::string, epoch> held; ///< 0: its epoch is still waited for.
  std::deque<waiter> waiting;

  /// With the mutex held: the block to ask for, when it is time to.
  std::optional<epoch> next_block() {
    if (reserving || closed || reserved_until - last > block_size / 2)
      return std::nullopt;
    reserving = true;
    return reserved_until + block_size;
  }

  /// Without the mutex: the answer may come inside commit().
  void reserve(std::optional<epoch> until) {
    if (!until)
      return;
    // The counter is its own epoch: a reservation that comes late can never turn it back.
    where.commit({record_owner, *until, {{record_key, std::to_string(*until)}}},
                 [self = shared_from_this(), until = *until](result<void> kept) {
                   self->reserved(until, std::move(kept));
                 });
  }

  void reserved(epoch until, result<void> kept) {
    std::deque<due_answer> due;
    std::optional<epoch> more;
    {
      const std::lock_guard lock{mutex};
      reserving = false;
      if (kept) {
        reserved_until = until;
        for (; !waiting.empty() && last < reserved_until; waiting.pop_front()) {
          held[waiting.front().owner] = ++last;
          due.push_back({std::move(waiting.front().on_held), last});
        }
        more = next_block();
      } else {
        // No second try by itself: the next acquire() is one, and somebody waits for its answer.
        refuse_waiting(kept.reason(), due);
      }
    }
    reserve(more);
    give(std::move(due));
  }

  void refuse_waiting(const error& why, std::deque<due_answer>& due) {
    for (; !waiting.empty(); waiting.pop_front()) {
      held.erase(waiting.front().owner);
      due.push_back({std::move(waiting.front().on_held), why});
    }
  }
};

result<std::unique_ptr<local_lease>> local_lease::open(store& where) {
  auto records = where.read(record_owner);
  if (!records)
    return records.reason();
  epoch until = 0;
  for (const auto& [key, value] : *records) {
    const auto end = value.data() + value.size();
    if (key != record_key)
      continue;
    if (const auto [stop, bad] = std::from_chars(value.data(), end, until);
        bad != std::errc{} || stop != end)
      return error{errc::io_failed, "the record of handed out epochs is damaged: " + value};
  }
  auto kept = std::make_shared<book>(where, until);
  kept->reserve([&] {
    const std::lock_guard lock{kept->mutex};
    return kept->next_block();
  }());
  return std::unique_ptr<local_lease>{new local_lease{std::move(kept)}};
}

local_lease::~local_lease() {
  std::deque<due_answer> due;
  {
    const std::lock_guard lock{book_->mutex};
    book_->closed = true;
    book_->refuse_waiting({errc::io_failed, "the node is shutting down"}, due);
  }
  give(std::move(due));
}

void local_lease::acquire(std::string owner, std::function<void(result<epoch>)> on_held) {
  if (auto why = malformed({owner, 1, {}}))
    return on_held(std::move(*why));
  auto& b = *book_;
  std::optional<result<epoch>> outcome; // None: it has to wait for the store.
  std::optional<epoch> block;
  {
    const std::lock_guard lock{b.mutex};
    if (b.held.contains(owner)) {
      outcome = error{errc::limit_reached, "the lease of " + owner + " is held already"};
    } else if (b.held.size() >= max_held) {
      outcome = error{errc::limit_reached, "too many leases are held"};
    } else if (b.last < b.reserved_until) {
      b.held.emplace(std::move(owner), ++b.last);
      outcome = b.last;
    } else if (b.waiting.size() >= store::max_waiting) {
      outcome = error{errc::limit_reached, "too many wait for a lease"};
    } else {
      b.held.emplace(owner, 0);
      b.waiting.push_back({std::move(owner), std::exchange(on_held, nullptr)});
    }
    block = b.next_block();
  }
  b.reserve(block);
  if (outcome)
    on_held(std::move(*outcome));
}

void local_lease::release(const std::string& owner, epoch held) {
  const std::lock_guard lock{book_->mutex};
  // An epoch still waited for is recorded as 0, which is nobody's: it cannot be given back.
  const auto found = book_->held.find(owner);
  if (held != 0 && found != book_->held.end() && found->second == held)
    book_->held.erase(found);
}

} // namespace insula::storage
