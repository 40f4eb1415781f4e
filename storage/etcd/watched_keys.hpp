#pragma once

#include "storage/etcd/client.hpp"

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace insula::storage::etcd {

/// All keys that begin with a prefix, as they were a moment ago: read once, then told of by a
/// watch. One that breaks off is begun anew from the last change that was heard of. All is read
/// anew when etcd has forgotten that change, and every refresh in any case, since a member that is
/// cut off from the others tells nothing. Keys are without the prefix.
///
/// Threads: any; `changed` is called on the client's.
/// Owner:   the client must outlive it. It does not end on the client's thread, and waits for what
///          runs there: `changed` is not called any more when it has ended.
class watched_keys {
public:
  static constexpr std::chrono::seconds refresh{10};

  watched_keys(client& with, std::string prefix, std::function<void()> changed);
  ~watched_keys();

  void start();

  std::optional<key_value> find(const std::string& key) const;
  std::map<std::string, key_value> all() const;
  std::size_t size() const;
  /// There is a key that begins so.
  bool has_any(const std::string& prefix) const;
  /// It has been read at least once.
  bool ready() const;

private:
  struct table;
  std::shared_ptr<table> table_; ///< Shared with what the client has been asked.
};

} // namespace insula::storage::etcd
