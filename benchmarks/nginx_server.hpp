#pragma once

#include "benchmarks/child.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace insula::bench {

/// nginx with one worker that answers everything with 200: what an HTTP server costs that does
/// nothing.
class nginx_server {
public:
  /// `program`: the nginx to start. `directory` is made for it and removed with it. Throws
  /// std::runtime_error.
  nginx_server(const std::string& program, std::string directory);
  ~nginx_server();
  nginx_server(const nginx_server&) = delete;
  nginx_server& operator=(const nginx_server&) = delete;

  std::uint16_t port() const { return port_; }
  pid_t pid() const { return process_->pid(); }

private:
  std::string directory_;
  std::uint16_t port_ = 0;
  std::optional<child> process_;
};

} // namespace insula::bench
