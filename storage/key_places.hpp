#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

/// How many sandboxes each named API key has running, and the ceilings on that
/// (docs/decisions/0055).
namespace insula::storage {

/// Of one key. 0: there is none.
struct key_ceilings {
  unsigned sandboxes = 0;        ///< At once.
  std::uint64_t cpu_percent = 0; ///< Of these, together: 100 is one processor.
  unsigned creates_per_minute = 0;

  bool any() const { return sandboxes != 0 || cpu_percent != 0 || creates_per_minute != 0; }
  bool operator==(const key_ceilings&) const = default;
};

/// A start of a sandbox that counts for a key.
struct place_wish {
  std::string key; ///< Its name.
  std::string sandbox;
  std::uint32_t cpu_percent = 0;
  bool is_new = false; ///< It is the sandbox's first: a create.
};

/// What counts for a key already.
struct key_usage {
  std::uint64_t sandboxes = 0;
  std::uint64_t cpu_percent = 0;
  /// Creates fill a bucket that has room for those of a minute and runs empty within one: when it
  /// is empty, in microseconds since 1970. 0: it is.
  std::int64_t empty_us = 0;
};

/// May it start as well? Then key_usage::empty_us as it is from now on. Errors: key_ceiling, with
/// a sentence for the client and, if it is about time, the seconds until it may.
result<std::int64_t> admit(const place_wish& wish, const key_ceilings& most, const key_usage& has,
                           std::int64_t now_us);

/// What all nodes of a cluster have in common of it. A token names one place; nobody else's is the
/// same.
///
/// Threads: any. What is told comes on a thread of its own, never inside the call. No call waits.
class key_ledger {
public:
  virtual ~key_ledger() = default;

  /// Errors: key_ceiling; node_unreachable: nobody can be asked, and there is no such place.
  virtual void reserve(place_wish wish, key_ceilings most, std::string token,
                       std::function<void(result<void>)> then) = 0;
  /// Of one that runs already: it counts in any case.
  virtual void put(place_wish wish, std::string token) = 0;
  virtual void drop(place_wish wish, std::string token) = 0;
};

/// The places of sandboxes of named keys at this node. Those of keys without ceilings are counted
/// here alone, and cost nothing.
///
/// Threads: any.
/// Owner:   outlives its places and whatever asks.
class key_places {
public:
  /// One sandbox's; gives itself back.
  class place {
  public:
    place(key_places& of, std::uint64_t number)
        : of_(of)
        , number_(number) {}
    ~place() { of_.leave(number_); }
    place(const place&) = delete;
    place& operator=(const place&) = delete;

  private:
    key_places& of_;
    const std::uint64_t number_;
  };
  using held = std::shared_ptr<place>; ///< Null: none is needed.
  using taken_function = std::function<void(result<held>)>;

  /// `now_us`: microseconds since 1970.
  explicit key_places(std::function<std::int64_t()> now_us);

  /// In a cluster, before anybody asks; null, before the ledger ends: nothing is told any more.
  void share(key_ledger* with);

  /// Of all keys by name, from now on. What runs goes on.
  void set_ceilings(std::map<std::string, key_ceilings, std::less<>> all);
  /// It has ceilings, and the server counts alone: it knows of no more than it has taken over.
  bool counts_here_alone(std::string_view key) const;

  /// `then` is called once: inside the call, or in a cluster on the ledger's thread. Errors: those
  /// of key_ledger::reserve().
  void take(place_wish wish, taken_function then);
  /// For one that runs already, also above the ceilings.
  held take_over(place_wish wish);

  /// How many each key has at this node; keys that have none, but ceilings, are there as well.
  std::map<std::string, unsigned> counts() const;

private:
  struct taken {
    place_wish by;
    bool is_shared = false; ///< The ledger has it.
    bool is_sure = true;    ///< It does not wait for the ledger's answer.
  };

  void leave(std::uint64_t number);
  std::string token_of(std::uint64_t number) const;
  key_ceilings ceilings_of(std::string_view key) const;
  key_usage usage_without(const place_wish& wish) const;

  const std::function<std::int64_t()> now_us_;
  key_ledger* shared_ = nullptr; ///< Null: a lone node. Guarded by guard_, as all below.
  const std::string life_;       ///< No other process's. Not guarded.
  mutable std::mutex guard_;
  std::map<std::string, key_ceilings, std::less<>> ceilings_;
  std::map<std::string, std::int64_t> empty_us_; ///< Of a lone node: as of key_usage, by key.
  std::map<std::uint64_t, taken> places_;
  std::uint64_t numbers_ = 0;
};

} // namespace insula::storage
