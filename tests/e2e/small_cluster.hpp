#pragma once

#include "tests/e2e/node.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/etcd.hpp"
#include "tests/support/made_authority.hpp"

#include <csignal>
#include <optional>
#include <rapidjson/document.h>
#include <set>
#include <unistd.h>

namespace insula::test {

/// A cluster on loopback: an etcd, and nodes that know each other. What they say to it costs
/// nobody else anything.
class small_cluster {
public:
  /// An etcd that speaks TLS, and each node's certificate for it.
  struct etcd_ways {
    etcd_server::tls_files server;
    std::vector<made_authority::files> clients;
  };

  /// `more`: of each node's configuration. `key`: the one that `more` has, for who looks at it.
  explicit small_cluster(std::size_t count = 3, const std::string& more = {},
                         std::optional<etcd_ways> ways = std::nullopt, const std::string& key = {})
      : etcd(ways ? std::optional{ways->server} : std::nullopt)
      , ways_(std::move(ways))
      , fields_(key.empty() ? "" : "Authorization: Bearer " + key + "\r\n") {
    for (std::size_t i = 0; i < count; ++i) {
      const auto name = name_of(i);
      certificates_.push_back(authority_.issue(name));
      const auto at = [] { return "\"127.0.0.1:" + std::to_string(free_port()) + "\""; };
      lines_.push_back("    " + name + ": {internal: " + at() + ", link: " + at() + "}\n");
    }
    more_ = more;
    for (std::size_t i = 0; i < count; ++i)
      all.push_back(std::make_unique<node>(yaml(i), nullptr, name_of(i)));
    for (const auto& each : all) // With a place for copies they keep disks.
      each->keeps_snapshots = more.find("snapshots:") != std::string::npos;
    for (const auto& each : all)
      REQUIRE(eventually([&] { return members(*each, fields_) == count; }));
  }
  ~small_cluster() {
    // The etcd goes last: whoever ends gives back what it has.
    for (const auto& each : all)
      if (each->running())
        each->stop(SIGINT);
  }

  static std::string name_of(std::size_t i) { return "n" + std::to_string(i + 1); }
  std::string yaml(std::size_t i) const { return yaml_without(i, lines_.size()); }
  /// The same as if the other one had never been.
  std::string yaml_without(std::size_t i, std::size_t other) const {
    return yaml_of(i, other, more_);
  }
  /// The same with this in place of what all have.
  std::string yaml_with(std::size_t i, const std::string& more) const {
    return yaml_of(i, lines_.size(), more);
  }
  node& operator[](std::size_t i) { return *all[i]; }

private:
  std::string yaml_of(std::size_t i, std::size_t other, const std::string& more) const {
    std::string shown;
    if (ways_)
      shown = ", authority: " + ways_->server.authority +
              ", certificate: " + ways_->clients[i].certificate + ", key: " + ways_->clients[i].key;
    auto text = "cluster:\n  etcd: {endpoints: [\"" + etcd.url() + "\"]" + shown +
                "}\n  authority: " + authority_.file() +
                "\n  certificate: " + certificates_[i].certificate +
                "\n  key: " + certificates_[i].key + "\n  nodes:\n";
    for (std::size_t each = 0; each < lines_.size(); ++each)
      text += each == other ? "" : lines_[each];
    return text + more;
  }

public:
  /// So many members have told this one of themselves.
  static std::size_t members(const node& of, const std::string& fields = {}) {
    rapidjson::Document seen;
    seen.Parse(of.ask("GET", "/v1/cluster", {}, fields).body.c_str());
    std::size_t count = 0;
    for (const auto& each : seen["nodes"].GetArray())
      if (std::string{each["state"].GetString()} == "member" && each["capacity"].GetInt() > 0)
        ++count;
    return count;
  }

  struct owner {
    std::string node;
    std::int64_t epoch = 0;
  };
  /// As the node sees it; an empty name: nobody's.
  static owner owner_of(const node& seen_by, const std::string& id,
                        const std::string& fields = {}) {
    rapidjson::Document seen;
    seen.Parse(seen_by.ask("GET", "/v1/cluster", {}, fields).body.c_str());
    for (const auto& each : seen["sandboxes"].GetArray())
      if (each["id"].GetString() == id)
        return {each["node"].GetString(), each["epoch"].GetInt64()};
    return {};
  }
  std::size_t owner_number(const std::string& id) {
    std::string name;
    REQUIRE(eventually([&] {
      name = owner_of(*all[some_running()], id, fields_).node;
      return !name.empty();
    }));
    return static_cast<std::size_t>(std::stoi(name.substr(1)) - 1);
  }
  std::size_t some_running() const {
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i]->running())
        return i;
    throw std::runtime_error("no node runs");
  }

  etcd_server etcd;
  std::vector<std::unique_ptr<node>> all;

private:
  const std::optional<etcd_ways> ways_;
  const std::string fields_; ///< That show the key. Empty: there is none.
  made_authority authority_;
  std::vector<made_authority::files> certificates_;
  std::vector<std::string> lines_; ///< Of the nodes, in the configuration.
  std::string more_;
};

/// Asks until it works: what a client does that was told to come again.
inline exec_outcome sh_patiently(const node& at, const std::string& id, const std::string& script) {
  exec_outcome last;
  REQUIRE(eventually([&] {
    try {
      last = at.sh(id, script);
      return last.exit_code.has_value();
    } catch (const std::exception&) {
      return false;
    }
  }));
  return last;
}

} // namespace insula::test
