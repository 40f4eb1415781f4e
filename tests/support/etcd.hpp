#pragma once

#include "tests/support/child_program.hpp"
#include "tests/support/temp_dir.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace insula::test {

/// A real etcd of one member on loopback, with nothing in it. What it keeps goes with it.
class etcd_server {
public:
  etcd_server(); ///< Throws when it does not get ready.
  ~etcd_server();

  const std::string& url() const { return url_; }
  void stop();  ///< Killed, as by a power cut.
  void start(); ///< Where it was, with what it had.
  void stand_still() const;
  void go_on() const;

private:
  temp_dir where_;
  std::uint16_t port_ = 0, peer_port_ = 0;
  std::string url_;
  std::unique_ptr<child_program> program_;
};

/// A port that nobody listens at right now.
std::uint16_t free_port();

} // namespace insula::test
