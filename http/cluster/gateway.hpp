#pragma once

#include "http/api/other_nodes.hpp"
#include "http/cluster/forward.hpp"

#include <memory>
#include <optional>
#include <string>

namespace insula::http::cluster {

/// What one of this node's doors has of the others: says of each request whether it is served here.
/// Any thread.
class gateway final : public other_nodes {
public:
  /// By which door requests come. own: their clients' own; node: another node's, which has let them
  /// in.
  enum class door : std::uint8_t { own, node };

  /// `encrypted`: clients speak TLS to this door. `name`: of the door where the owner serves what
  /// comes by this one; empty: the main one.
  gateway(std::shared_ptr<forwarder> by, door kind, bool encrypted = false, std::string name = {});

  bool is_behind_node() const override { return kind_ == door::node; }
  std::optional<admission> admit(const request_head& head, concern about,
                                 const std::string& request_id,
                                 const key_check* key = nullptr) const override;

  /// The request's header for its owner, whole: what concerns this connection stays on it, and what
  /// this node knows is said. `named`: the name of the named key that was shown; empty: none.
  std::string write_head(const request_head& head, const std::string& request_id,
                         const key_check* key = nullptr, std::string_view named = {}) const;

private:
  bool has_to_peek(const request_head& head, const concern& about) const;

  const std::shared_ptr<forwarder> by_;
  const door kind_;
  const bool encrypted_;
  const std::string name_;
};

} // namespace insula::http::cluster
