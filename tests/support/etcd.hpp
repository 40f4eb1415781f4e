#pragma once

#include "tests/support/child_program.hpp"
#include "tests/support/temp_dir.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace insula::test {

/// A real etcd of one member on loopback, with nothing in it. What it keeps goes with it.
class etcd_server {
public:
  /// PEM files. Clients need a certificate of the same authority then.
  struct tls_files {
    std::string certificate;
    std::string key;
    std::string authority;
    std::string revoked = {}; ///< A list of the authority's; empty: there is none.
  };

  /// Throws when it does not get ready.
  explicit etcd_server(std::optional<tls_files> tls = std::nullopt);
  ~etcd_server();

  const std::string& url() const { return url_; }
  void stop();  ///< Killed, as by a power cut.
  void start(); ///< Where it was, with what it had.
  /// Changes up to that one cannot be told any more. Without TLS only.
  void forget_before(std::int64_t revision) const;
  void stand_still() const;
  void go_on() const;

private:
  temp_dir where_{"/dev/shm"}; ///< Else its leases wait for whatever this machine's disk does.
  const std::optional<tls_files> tls_;
  std::uint16_t port_ = 0, peer_port_ = 0, health_port_ = 0;
  std::string url_;
  std::unique_ptr<child_program> program_;
};

/// A port that nobody listens at right now.
std::uint16_t free_port();

} // namespace insula::test
