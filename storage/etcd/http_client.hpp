#pragma once

#include "storage/etcd/client.hpp"

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::storage::etcd {

struct http_options {
  std::vector<std::string> endpoints; ///< "http://10.0.0.1:2379", at least one.
  std::string authority;              ///< PEM files, for https; empty: none.
  std::string certificate;
  std::string key;
  /// What one member gets to answer; then the next is asked. Large questions get more, and so does
  /// every round in which nobody has answered.
  std::chrono::milliseconds attempt{300};
  /// A few questions are under way at a time, each for itself; so many more may wait for their
  /// turn.
  std::size_t max_waiting = 4096;
};

/// etcd by its JSON gateway, with libcurl.
class http_client final : public client {
public:
  /// Errors: invalid_request for endpoints that make no sense.
  static result<std::unique_ptr<http_client>> open(http_options options);
  ~http_client() override;

  void transact(transaction what, milliseconds patience,
                std::function<void(result<outcome>)> then) override;
  void grant(std::chrono::seconds lives, milliseconds patience,
             std::function<void(result<lease_id>)> then) override;
  void renew(lease_id which, milliseconds patience,
             std::function<void(result<renewal>)> then) override;
  void revoke(lease_id which, milliseconds patience,
              std::function<void(result<void>)> then) override;
  std::shared_ptr<void> watch(std::string prefix, revision from,
                              std::function<void(std::vector<event>, revision at)> tell,
                              std::function<void(error)> ended) override;
  void post(std::function<void()> what) override;
  void after(std::chrono::nanoseconds pause, std::function<void()> what) override;
  std::chrono::nanoseconds now() const override;

  /// What a member says of itself.
  struct member_status {
    /// How far its clock is ahead of this machine's, to a second. None: it does not say.
    std::optional<milliseconds> ahead;
    std::string version; ///< Empty: it does not say.
  };
  /// Asks each member, by its endpoint. Of those that have answered by then.
  void look_at_members(milliseconds patience,
                       std::function<void(std::map<std::string, member_status>)> then);

  /// So many questions have been asked, repeated ones counted once.
  std::uint64_t questions() const;

private:
  class core;
  explicit http_client(std::unique_ptr<core> made);
  std::unique_ptr<core> core_;
};

} // namespace insula::storage::etcd
