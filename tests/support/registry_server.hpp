#pragma once

#include "base/unique_fd.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace insula::test {

/// A registry on 127.0.0.1 as a test wants it: it serves what has been put into it by the rules,
/// but for what the test's script takes over. Each connection has a thread.
class registry_server {
public:
  struct request {
    std::string method, target;
    std::map<std::string, std::string> fields; ///< Names in lower case.
    std::string body;

    std::string field(const std::string& name) const;
  };

  /// The other end of a request.
  class client {
  public:
    virtual ~client() = default;
    /// False: it has gone.
    virtual bool send(std::string_view bytes) = 0;
    /// Until the client goes, or the server does.
    virtual void hang() = 0;
    virtual void close() = 0;

    /// A whole answer. `fields`: complete lines.
    void answer(int status, std::string_view body = {}, std::string_view fields = {});
  };

  /// True: it has answered, or hung up. Called by any thread.
  using script = std::function<bool(const request&, client&)>;

  struct tls_files {
    std::string certificate, key;
  };

  explicit registry_server(script what = {}, const tls_files* tls = nullptr);
  ~registry_server();
  registry_server(const registry_server&) = delete;
  registry_server& operator=(const registry_server&) = delete;

  /// Under a tag and its digest, in any repository. Gives back the digest.
  std::string put_manifest(const std::string& tag, const std::string& text,
                           const std::string& media_type);
  std::string put_blob(const std::string& bytes);

  std::uint16_t port() const { return port_; }
  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  /// All that there were, in their order.
  std::vector<request> requests() const;
  std::size_t count(std::string_view part_of_target) const;
  /// Of bodies of blobs, by the rules.
  std::uint64_t blob_bytes() const { return blob_bytes_; }

private:
  class connection;
  struct manifest {
    std::string text, media_type;
  };

  void accept_all();
  void serve(connection& one);
  void answer_by_rules(const request& what, client& to);

  const script script_;
  void* tls_ = nullptr; ///< SSL_CTX
  unique_fd listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> ends_ = false;
  std::atomic<std::uint64_t> blob_bytes_ = 0;
  mutable std::mutex guard_;
  std::map<std::string, manifest> manifests_;
  std::map<std::string, std::string> blobs_;
  std::vector<request> requests_;
  std::list<std::unique_ptr<connection>> connections_;
  std::thread thread_;
};

} // namespace insula::test
