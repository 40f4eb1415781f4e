#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <cstdint>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace insula::test {

/// A wire between two nodes that can be cut, or carry nothing for a while. It listens on loopback,
/// and passes on to a port there. With a thread of its own.
class relay {
  using tcp = boost::asio::ip::tcp;
  static constexpr auto tuple = boost::asio::as_tuple(boost::asio::use_awaitable);

public:
  explicit relay(std::uint16_t to)
      : to_(to) {
    boost::asio::co_spawn(io_, accept(), boost::asio::detached);
    thread_ = std::thread{[this] { io_.run(); }};
  }
  ~relay() {
    io_.stop();
    thread_.join();
  }

  std::uint16_t port() const { return port_; }

  /// Connections end, as when a process at the other end does. New ones may come, unless it is to
  /// stay so.
  void cut(bool for_good = false) {
    on_thread([this, for_good] {
      open_ = !for_good;
      for (const auto& each : connections_) {
        each->first.close();
        each->second.close();
      }
      connections_.clear();
    });
  }
  void mend() {
    on_thread([this] { open_ = true; });
  }
  /// Nothing gets through, and nobody is told.
  void freeze(bool frozen) {
    on_thread([this, frozen] {
      frozen_ = frozen;
      thaw_.cancel();
    });
  }

private:
  using pair = std::pair<tcp::socket, tcp::socket>;

  template <class Work>
  void on_thread(Work what) {
    std::promise<void> done;
    boost::asio::post(io_, [&] {
      what();
      done.set_value();
    });
    done.get_future().get();
  }

  boost::asio::awaitable<void> accept() {
    for (;;) {
      auto [failed, socket] = co_await acceptor_.async_accept(tuple);
      if (failed)
        co_return;
      if (!open_)
        continue;
      const auto both = std::make_shared<pair>(std::move(socket), tcp::socket{io_});
      boost::system::error_code refused;
      both->second.connect({boost::asio::ip::address_v4::loopback(), to_}, refused);
      if (refused)
        continue;
      connections_.push_back(both);
      boost::asio::co_spawn(io_, pass(both, both->first, both->second), boost::asio::detached);
      boost::asio::co_spawn(io_, pass(both, both->second, both->first), boost::asio::detached);
    }
  }

  boost::asio::awaitable<void> pass(std::shared_ptr<pair> both, tcp::socket& from,
                                    tcp::socket& to) {
    std::array<char, 64 * 1024> bytes;
    for (;;) {
      auto [failed, count] = co_await from.async_read_some(boost::asio::buffer(bytes), tuple);
      if (failed)
        break;
      while (frozen_)
        co_await thaw_.async_wait(tuple);
      auto [unwritten, written] =
        co_await boost::asio::async_write(to, boost::asio::buffer(bytes.data(), count), tuple);
      if (unwritten)
        break;
    }
    boost::system::error_code ignored;
    both->first.close(ignored);
    both->second.close(ignored);
  }

  const std::uint16_t to_;
  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_{io_, {boost::asio::ip::address_v4::loopback(), 0}};
  const std::uint16_t port_ = acceptor_.local_endpoint().port();
  boost::asio::steady_timer thaw_{io_, boost::asio::steady_timer::time_point::max()};
  bool open_ = true;
  bool frozen_ = false;
  std::vector<std::shared_ptr<pair>> connections_;
  std::thread thread_;
};

} // namespace insula::test
