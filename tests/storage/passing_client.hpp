#pragma once

#include "storage/etcd/client.hpp"

#include <utility>

namespace insula::test {

/// Passes everything on to another client, for tests that change some of it.
class passing_client : public storage::etcd::client {
public:
  using milliseconds = std::chrono::milliseconds;

  explicit passing_client(storage::etcd::client& to)
      : to_(to) {}

  void transact(storage::etcd::transaction what, milliseconds patience,
                std::function<void(result<storage::etcd::outcome>)> then) override {
    to_.transact(std::move(what), patience, std::move(then));
  }
  void grant(std::chrono::seconds lives, milliseconds patience,
             std::function<void(result<storage::etcd::lease_id>)> then) override {
    to_.grant(lives, patience, std::move(then));
  }
  void renew(storage::etcd::lease_id which, milliseconds patience,
             std::function<void(result<storage::etcd::renewal>)> then) override {
    to_.renew(which, patience, std::move(then));
  }
  void revoke(storage::etcd::lease_id which, milliseconds patience,
              std::function<void(result<void>)> then) override {
    to_.revoke(which, patience, std::move(then));
  }
  std::shared_ptr<void>
  watch(std::string prefix, storage::etcd::revision from,
        std::function<void(std::vector<storage::etcd::event>, storage::etcd::revision)> tell,
        std::function<void(error)> ended) override {
    return to_.watch(std::move(prefix), from, std::move(tell), std::move(ended));
  }
  void post(std::function<void()> what) override { to_.post(std::move(what)); }
  void after(std::chrono::nanoseconds pause, std::function<void()> what) override {
    to_.after(pause, std::move(what));
  }
  std::chrono::nanoseconds now() const override { return to_.now(); }

protected:
  storage::etcd::client& to_;
};

} // namespace insula::test
