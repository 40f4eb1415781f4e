#pragma once

#include "storage/etcd/client.hpp"
#include "storage/etcd/membership.hpp"
#include "storage/lease.hpp"
#include "storage/store.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace insula::storage::etcd {

/// Of an epoch, for the count of activations.
inline constexpr unsigned activation_bits = 20;

struct cluster_store_options {
  std::string prefix; ///< As the membership's.
  /// find() finds what is marked and what begins with one of these, and nothing else. At least one.
  std::vector<std::string> found_by;
  /// find_owner() tells the values of these keys, each of which is marked or begins with one of
  /// found_by.
  std::vector<std::string> told_of_owned = {};
  /// Something that begins with the first of found_by belongs to what has come to be this node's.
  /// On the client's thread.
  std::function<void()> found = [] {};
  /// With a reason, nothing that nobody owns comes to be this node's. What etcd says is this
  /// node's does, so that it can be given up. On the client's thread.
  std::function<std::optional<error>()> refuses = [] { return std::nullopt; };
  /// Of an id, from one revision on; then a later one is asked for. At most as many as fit in
  /// activation_bits.
  std::uint64_t most_activations = (std::uint64_t{1} << activation_bits) - 1;
};

/// Who owns what, and what it remembers: the records of a cluster's objects. An id is owned by a
/// node, with that node's lease, from its first use until it is deleted, handed over or its node
/// is lost. Each write takes place only as long as the ownership that it was made under stands and
/// nothing has been written since: whatever comes late is refused by etcd itself.
///
/// An epoch is the revision at which this server came to know that the id is its node's, and below
/// that a count of its activations.
/// Owners that begin with '_' belong to everybody: their keys can be made, and not be changed.
///
/// Differs from storage::store: only who holds the lease can write; read() and the like wait for
/// the network, up to seconds; a write whose outcome nobody knows is answered with
/// node_unreachable, and is found out about before the next.
/// Errors of acquire() beyond storage::lease_service: stale_epoch: another node owns it, the
///          message says which. What options.refuses says.
///
/// Threads: any; none of the client's for what waits. Answers come on the client's thread.
/// Owner:   client and membership must outlive it. It does not end on the client's thread.
class cluster_store final : public store, public lease_service {
public:
  static constexpr std::size_t max_owned = 65'536;
  /// scan() and read_each() read so many lines at a time, which one answer has room for however
  /// large they are. So of a page that its bytes end they have read fewer than so many lines beyond
  /// it.
  static constexpr std::size_t lines_at_once = 24;

  cluster_store(client& with, const membership& member, cluster_store_options options);
  ~cluster_store() override;

  // ---- storage::store
  void commit(write_batch batch, std::function<void(result<void>)> on_durable) override;
  result<std::vector<entry>> read(std::string_view owner, std::string_view prefix = {}) override;
  result<std::vector<owned_entry>> find(std::string_view prefix) override;
  result<mark_page> scan(std::string_view mark, const mark_position& after,
                         std::size_t limit) override;
  result<mark_page> scan_keys(std::string_view mark, const mark_position& after,
                              std::size_t limit) override;
  result<mark_page> read_each(const std::vector<mark_position>& places) override;
  result<std::uint64_t> count(std::string_view mark) override;
  result<std::vector<std::string>> owners() override;

  // ---- storage::lease_service
  void acquire(std::string owner, std::function<void(result<epoch>)> on_held) override;
  /// With 0: nobody has come to hold it, and nobody wants to. Of what has nothing written the
  /// ownership goes as well.
  void release(const std::string& owner, epoch held) override;

  // ---- Ownership

  struct owning {
    std::string node;
    revision since = 0;
  };

  /// Owns it if nobody does; the answer is who does now. Errors: what options.refuses says, which
  /// is not asked if it is to own it `anyhow`.
  void own(std::string id, std::function<void(result<owning>)> then, bool anyhow = false);
  struct found_owner {
    std::string node;              ///< Empty: nobody.
    bool has_been = false;         ///< There is a record of it.
    std::vector<std::string> told; ///< The values of told_of_owned in it; empty: there is none.
  };
  /// As etcd has it now.
  void find_owner(std::string id, std::function<void(result<found_owner>)> then);
  /// This node owns it, as far as it knows: with membership::good() that is certain.
  bool is_mine(std::string_view id) const;
  /// When this node came to own it, as etcd counts, also while it is being given up; 0: it does
  /// not.
  revision tenure(std::string_view id) const;
  /// The same, or it is just being given up.
  bool knows(std::string_view id) const;
  std::vector<std::pair<std::string, revision>> mine() const;
  /// It can be another's from now on. Nobody may hold its lease. not_found: it is not ours.
  void give_up(const std::string& id, std::function<void(result<void>)> then);
  /// Whatever has not been asked for since the last call, is held by nobody and has nothing written
  /// can be another's from now on.
  void give_up_unused();
  /// The membership is over: nothing is ours.
  void forget_all();

private:
  struct state;
  std::shared_ptr<state> state_;
};

} // namespace insula::storage::etcd
