#pragma once

#include "tests/support/child_program.hpp"
#include "tests/support/temp_dir.hpp"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::test {

/// A real S3 service, s3rver, at a free port of this machine's loopback, with one pair of
/// credentials and these buckets. See tests/clients/s3_server.mjs.
class s3_server {
public:
  /// Returns once it serves. Throws when it does not get ready.
  explicit s3_server(std::vector<std::string> buckets = {"data"});

  /// Like those that services give out, with all that stands in the way of whoever splits texts.
  static const std::string key, secret;

  std::uint16_t port() const { return port_; }
  std::string endpoint() const { return "http://127.0.0.1:" + std::to_string(port_); }
  pid_t pid() const { return program_->pid(); }

  /// From here on it takes connections and answers nothing, until resume().
  void stop() const;
  void resume() const;
  /// Whoever is connected is cut off, and nobody connects any more, until start().
  void kill();
  /// At the same port, with what has been stored.
  void start();

private:
  std::string try_to_start();

  std::vector<std::string> buckets_;
  temp_dir files_;
  std::uint16_t port_ = 0; ///< 0: any.
  std::unique_ptr<child_program> program_;
};

/// What opens it to servers that are started meanwhile, as a place of snapshots: in their
/// environment.
struct snapshot_keys {
  snapshot_keys() {
    ::setenv("SNAPSHOTS_ACCESS_KEY_ID", s3_server::key.c_str(), 1);
    ::setenv("SNAPSHOTS_SECRET_ACCESS_KEY", s3_server::secret.c_str(), 1);
  }
  ~snapshot_keys() {
    ::unsetenv("SNAPSHOTS_ACCESS_KEY_ID");
    ::unsetenv("SNAPSHOTS_SECRET_ACCESS_KEY");
  }
};

/// Another client of the service than those that are tested: the program curl. Throws when it does
/// not get what it asks for.
class s3_client {
public:
  explicit s3_client(const s3_server& server, const std::string& bucket = "data",
                     const std::string& secret = s3_server::secret)
      : at_(server.endpoint() + "/" + bucket)
      , user_(s3_server::key + ":" + secret) {}

  void put(const std::string& object, const std::string& content) const;
  /// None: there is no such object.
  std::optional<std::string> get(const std::string& object) const;
  bool has(const std::string& object) const { return get(object).has_value(); }
  /// The names of all objects that begin like this, with their sizes.
  std::map<std::string, std::uint64_t> list(const std::string& prefix = {}) const;
  void remove(const std::string& object) const;

private:
  struct answer {
    int status = 0;
    std::string body;
  };
  answer ask(const std::string& target, std::vector<std::string> words = {}) const;
  std::string path_of(const std::string& object) const;

  std::string at_, user_;
};

} // namespace insula::test
