#pragma once

#include "benchmarks/child.hpp"
#include "benchmarks/clock.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace insula::bench {

/// `insula serve` with a fresh state directory, a key and any free port, from its ready line until
/// stop().
class insula_server {
public:
  /// `program`: the insula to start. `directory` is made for it and removed with it. `yaml`:
  /// sections of cluster.yaml other than `runtime`. Throws std::runtime_error.
  insula_server(const std::string& program, std::string directory, const std::string& yaml);
  ~insula_server();
  insula_server(const insula_server&) = delete;
  insula_server& operator=(const insula_server&) = delete;

  std::uint16_t port() const { return port_; }
  const std::string& key() const { return key_; }
  pid_t pid() const { return process_->pid(); }

  /// The processes that make its sandboxes and are not below it.
  std::vector<pid_t> spawners() const;

  /// Kills it and starts another one on the same state, which has another port; between,
  /// `meanwhile` is called. Answers the moment just before that one's start. Throws
  /// std::runtime_error; stop() then ends what there is.
  clock::time_point kill_and_replace(const std::function<void()>& meanwhile = [] {});

  /// The file of the store with its sandboxes' records.
  std::string records() const { return directory_ + "/state/records/insula.db"; }

  /// As Ctrl-C would. Throws std::runtime_error when it does not end well; its directory then
  /// stays.
  void stop();

private:
  void start();
  std::string last_words() const;

  std::string program_;
  std::string directory_;
  std::string key_;
  std::optional<child> process_;
  std::uint16_t port_ = 0;
};

} // namespace insula::bench
