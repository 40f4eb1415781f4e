#pragma once

#include "actors/object_routes.hpp"
#include "storage/etcd/client.hpp"

#include <functional>
#include <map>
#include <string>

namespace insula::simulation {

class history;
class node;

/// Where the objects of all nodes are, as a server knows it: in short words what apps/cluster_node
/// does.
class played_routes final : public actors::object_routes {
public:
  using answer_function = std::function<void(result<std::string>)>;
  using ask_function = std::function<void(const std::string& node, const std::string& what,
                                          std::string text, answer_function then)>;

  /// `ask`: a peer, over the link there.
  played_routes(history& in, node& of, ask_function ask)
      : all_(in)
      , node_(of)
      , ask_(std::move(ask)) {}

  void locate(const std::string& owner, bool make, answer_function then) override;
  void doubt(const std::string& owner, const std::string& node) override;
  void ask_object(const std::string& node, std::string question, answer_function then) override;
  void claim(const std::string& owner, std::function<void(result<void>)> then) override;
  /// No drives are played.
  void bring(const std::string&, std::function<void(result<void>)> then) override {
    then(error{errc::node_unreachable, "it stays where it is"});
  }

  /// A peer claims it, and its actor has gone.
  void give_up(const std::string& owner, const answer_function& reply);

private:
  void own(const std::string& owner, answer_function then);
  bool is_doubted(const std::string& owner, storage::etcd::revision ownership);

  history& all_;
  node& node_;
  const ask_function ask_;
  std::map<std::string, storage::etcd::revision> doubted_;
};

} // namespace insula::simulation
