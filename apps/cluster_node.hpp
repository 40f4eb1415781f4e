#pragma once

#include "actors/cluster/links.hpp"
#include "actors/image_catalogue.hpp"
#include "actors/instance_count.hpp"
#include "actors/node.hpp"
#include "actors/object_routes.hpp"
#include "apps/config.hpp"
#include "http/cluster/routing.hpp"
#include "http/sandboxes/cluster_control.hpp"
#include "runtime/engine.hpp"
#include "storage/etcd/cluster_store.hpp"
#include "storage/key_places.hpp"

#include <memory>
#include <string>
#include <vector>

namespace insula {

/// This node as one of a cluster: its membership, what it owns, its links to the others, and where
/// requests are to go.
///
/// Threads: any, but what waits is not for HTTP's and the actors'.
/// Owner:   ends after the server and the node's actors, and before the actor system's pool.
class cluster_node final : public http::cluster::routing,
                           public http::cluster_control,
                           public actors::object_routes {
public:
  /// Becomes a member, or goes on as the one that the server before on this state was; waits for
  /// that. `records`: a directory for what the next server has to know. Errors: node_unreachable,
  /// already_exists, in words for who starts it; io_failed.
  static result<std::unique_ptr<cluster_node>> join(const cluster_config& values,
                                                    const std::string& records);
  ~cluster_node() override;
  /// Whether a node of this version, with this machine's clock, could be a member among those that
  /// there are; waits for a few seconds at most. Changes nothing. Errors: as join().
  static result<void> check(const cluster_config& values);

  /// What the server before has left is still this node's.
  bool resumed() const;
  storage::etcd::cluster_store& records();
  /// Of the places of named API keys. It goes with this.
  storage::key_ledger& key_ledger();
  /// How often etcd was asked.
  std::uint64_t questions() const;

  /// Before there is anybody who could ask, and when what may not go on is ended.
  void set_engine(runtime::engine& engine);
  void set_node(actors::node& node, std::shared_ptr<actors::instance_count> instances,
                std::uint32_t pool_target);
  /// How many sandboxes could not be made here, so far: others are placed elsewhere for a moment.
  /// Quick; not asked any more after forget_node().
  void on_failures(std::function<std::uint64_t()> count);
  /// What this node tells of its images, and the signs by which another node may have one; none: it
  /// is the default image. Quick; not asked any more after forget_node().
  void set_images(std::shared_ptr<const actors::image_catalogue> here,
                  std::function<actors::image_signs(const actors::image_wish&)> signs_of);
  /// Listens for the other nodes, and takes part. `inherited`: as of link_options. Errors: those of
  /// links::start().
  result<void> start_links(caf::actor_system& system, io_pool& pool, const cluster_config& values,
                           std::vector<int> inherited);
  /// That node's lease is over, or, if not `for_good`, nothing is heard of it.
  void on_peer_lost(std::function<void(const std::string& name, bool for_good)> tell);
  /// No sandbox can be made here any more: this node says so to the others, and owns nothing new.
  void take_no_more();
  /// The node has no actors any more: what is lost from now on is nobody's business, and not joined
  /// again.
  void forget_node();
  /// Before the actor system ends.
  void end_links();
  /// No longer a member. `end_lease`: what it owns is free at once; else the next server of this
  /// state has a few seconds to go on with it. Waits for etcd, for a moment.
  void leave(bool end_lease);

  /// As of actors::keepers.
  std::uint64_t tenure(std::string_view id) const;

  // ---- routing
  bool is_here(std::string_view id) const override;
  void find(std::string id, bool make, const actors::image_wish& image,
            std::function<void(result<std::optional<http::cluster::peer>>)> then) override;
  void doubt(const std::string& id, const std::string& node) override;
  std::optional<http::cluster::peer> place(const actors::image_wish& image) override;
  bool starts_differ() const override;

  // ---- object_routes
  void locate(const std::string& owner, bool make,
              std::function<void(result<std::string>)> then) override;
  void ask_object(const std::string& node, std::string question,
                  std::function<void(result<std::string>)> then) override;
  void claim(const std::string& owner, std::function<void(result<void>)> then) override;
  void bring(const std::string& owner, std::function<void(result<void>)> then) override;

  bool may_serve() const override;
  std::string self() const override;
  std::string member(std::string_view certificate_name) const override;
  std::optional<http::cluster::peer> node(const std::string& name) const override;

  // ---- control
  http::cluster_status look() const override;
  http::cluster_pool_totals others() const override;
  void drain(std::string node, std::function<void(result<void>)> then) override;

private:
  struct core;
  explicit cluster_node(std::shared_ptr<core> made);
  std::shared_ptr<core> core_;
};

} // namespace insula
