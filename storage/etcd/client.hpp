#pragma once

#include "base/error.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// The engine that decides in a cluster: a few words of etcd's, as they are used here.
namespace insula::storage::etcd {

/// Counts all changes of the cluster; each has its own. 0: before all of them.
using revision = std::int64_t;
/// Names a lease of etcd's. 0: none.
using lease_id = std::int64_t;
/// Counts etcd's leaders.
using term = std::int64_t;

struct key_value {
  std::string key;
  std::string value;
  revision created = 0; ///< When there came to be such a key, since it was last removed.
  revision modified = 0;
  lease_id lease = 0; ///< With which it goes.
};

/// What has to hold for a transaction to take place.
struct condition {
  enum class of : std::uint8_t { created, modified };
  std::string key;
  of what = of::created;
  revision is = 0; ///< 0: there is no such key.
};

/// One step of a transaction. Keys are any bytes; `end`, if set, makes it all keys from `key` up to
/// but without `end`.
struct operation {
  enum class of : std::uint8_t { put, remove, read };
  of what = of::read;
  std::string key;
  std::string end;
  std::string value;
  lease_id lease = 0;
  std::int64_t limit = 0; ///< 0: as many as there are.
  bool keys_only = false;
  bool count_only = false; ///< No key is told of, only how many there are.

  static operation put(std::string key, std::string value, lease_id lease = 0) {
    return {of::put, std::move(key), {}, std::move(value), lease};
  }
  static operation remove(std::string key, std::string end = {}) {
    return {of::remove, std::move(key), std::move(end), {}};
  }
  static operation read(std::string key, std::string end = {}, bool keys_only = false,
                        std::int64_t limit = 0) {
    return {of::read, std::move(key), std::move(end), {}, 0, limit, keys_only};
  }
  static operation count(std::string key, std::string end) {
    return {of::read, std::move(key), std::move(end), {}, 0, 0, false, true};
  }
};

struct transaction {
  std::vector<condition> conditions;
  std::vector<operation> then;      ///< If all of them hold.
  std::vector<operation> otherwise; ///< If not.
  bool ahead = false;               ///< A lease depends on it: it waits for no other question.
};

struct outcome {
  bool held = false;                         ///< The conditions did.
  revision at = 0;                           ///< Of the cluster, with it.
  term in = 0;                               ///< Of the member that answered, once it was done.
  std::vector<std::vector<key_value>> found; ///< One for each step that took place.
  std::vector<std::int64_t> counts = {};     ///< The same: keys there are, whatever the limit.
};

struct renewal {
  std::chrono::seconds left{0}; ///< It lives so long from now on; 0: it is gone.
  /// Of the member that was asked, before it renewed anything. The answer alone proves nothing: a
  /// leader that was deposed while it hung gives it from memory.
  term in = 0;
};

struct event {
  bool removed = false;
  key_value what; ///< Of a removed one only the key and when.
};

/// Calls of etcd's and a clock, with which the rest of storage/etcd/ is made. Every callback runs
/// on its one thread, never inside the call, exactly once where not said otherwise.
///
/// Threads: every function may be called from any.
/// Errors:  node_unreachable when no member answered in time; what was asked for may have been
///          done, or be done later. disk_full: etcd takes no more. invalid_request: it refuses the
///          question as such. limit_reached: too many calls are open. io_failed at the end.
/// End:     the destructor answers what is open. Not to be called on its thread.
class client {
public:
  using milliseconds = std::chrono::milliseconds;

  virtual ~client() = default;

  virtual void transact(transaction what, milliseconds patience,
                        std::function<void(result<outcome>)> then) = 0;

  virtual void grant(std::chrono::seconds lives, milliseconds patience,
                     std::function<void(result<lease_id>)> then) = 0;
  virtual void renew(lease_id which, milliseconds patience,
                     std::function<void(result<renewal>)> then) = 0;
  virtual void revoke(lease_id which, milliseconds patience,
                      std::function<void(result<void>)> then) = 0;

  /// Tells of changes of keys that begin with `prefix`, from revision `from` on, in their order,
  /// as long as what is returned is held; `ended` is the last that is heard of it, with result_gone
  /// if etcd does not have the changes since `from` any more.
  virtual std::shared_ptr<void> watch(std::string prefix, revision from,
                                      std::function<void(std::vector<event>, revision at)> tell,
                                      std::function<void(error)> ended) = 0;

  virtual void post(std::function<void()> what) = 0;
  /// Dropped unheard at the end.
  virtual void after(std::chrono::nanoseconds pause, std::function<void()> what) = 0;

  /// Goes on while the machine sleeps, and never jumps.
  virtual std::chrono::nanoseconds now() const = 0;
};

} // namespace insula::storage::etcd
