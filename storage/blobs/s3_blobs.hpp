#pragma once

#include "base/bucket.hpp"
#include "storage/blobs/blob_store.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

namespace insula::storage {

struct s3_settings {
  std::string endpoint; ///< http://host[:port] or https://host[:port].
  std::string bucket;   ///< It is there. Its name is part of the path.
  std::string region = "us-east-1";
  bucket_credentials credentials;
  // What a service may take; what fails in a way that may pass is tried again so often.
  std::chrono::milliseconds connect_patience{5'000};
  std::chrono::milliseconds silence_patience{10'000};
  std::chrono::milliseconds request_patience{120'000};
  unsigned tries = 3;
  std::chrono::milliseconds first_pause{200}; ///< Before the second try; doubled for the next.
};

/// Blobs in a bucket of an S3-compatible service. Redirects are not followed.
class s3_blobs final : public blob_store {
public:
  explicit s3_blobs(s3_settings settings);
  ~s3_blobs() override;
  s3_blobs(const s3_blobs&) = delete;
  s3_blobs& operator=(const s3_blobs&) = delete;

  result<void> put(const std::string& name, std::string_view bytes) override;
  result<std::string> get(const std::string& name, std::size_t max_bytes) override;
  result<bool> exists(const std::string& name) override;
  result<void> remove(const std::string& name) override;
  result<void> list(const std::string& prefix,
                    const std::function<bool(const blob_info&)>& tell) override;
  void close() override { closed_ = true; }

private:
  struct request;
  struct answer;
  class handle;

  /// One answer of the service, whatever it says, after as many tries as there are to be.
  result<answer> ask(const request& wanted);
  result<answer> try_once(const request& wanted, bool& may_pass);
  error refused(const request& wanted, const answer& said) const;
  bool pause(std::chrono::milliseconds how_long) const;

  const s3_settings settings_;
  std::atomic<bool> closed_ = false;
  std::mutex guard_;
  std::vector<std::unique_ptr<handle>> idle_; ///< With connections that can be used again.
};

} // namespace insula::storage
