#include "runtime/gateway/dns_stream.hpp"

#include "runtime/egress/dns.hpp"
#include "runtime/gateway/tenant.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <chrono>
#include <string>
#include <utility>

namespace insula::runtime::gateway {

namespace {

using boost::system::error_code;

constexpr std::chrono::seconds patience{10};

class dns_stream : public std::enable_shared_from_this<dns_stream> {
public:
  dns_stream(std::shared_ptr<tenant> whose, unique_fd client, std::function<void()> on_over)
      : tenant_(std::move(whose))
      , client_(tenant_->shared().io, client.release())
      , deadline_(tenant_->shared().io)
      , on_over_(std::move(on_over)) {}
  ~dns_stream() { on_over_(); }
  dns_stream(const dns_stream&) = delete;
  dns_stream& operator=(const dns_stream&) = delete;

  void read_next() {
    deadline_.expires_after(patience);
    deadline_.async_wait([weak = weak_from_this()](const error_code& stopped) {
      error_code ignored;
      if (const auto self = weak.lock(); self && !stopped)
        self->client_.close(ignored);
    });
    boost::asio::async_read(
      client_, boost::asio::buffer(length_),
      tenant_->time().wrap([self = shared_from_this()](const error_code& failed, std::size_t) {
        if (failed)
          return;
        self->text_.resize(
          static_cast<std::size_t>(static_cast<unsigned char>(self->length_[0]) << 8 |
                                   static_cast<unsigned char>(self->length_[1])));
        boost::asio::async_read(
          self->client_, boost::asio::buffer(self->text_),
          self->tenant_->time().wrap([self](const error_code& cut, std::size_t) {
            if (!cut)
              self->answer();
          }));
      }));
  }

private:
  void answer() {
    tenant_->answer(text_, true, [self = shared_from_this()](const std::string& said) {
      if (said.empty())
        return; // It was no question, and nothing more is read.
      self->text_.assign(
        {static_cast<char>(said.size() >> 8 & 0xff), static_cast<char>(said.size() & 0xff)});
      self->text_ += said;
      boost::asio::async_write(
        self->client_, boost::asio::buffer(self->text_),
        self->tenant_->time().wrap([self](const error_code& failed, std::size_t) {
          if (!failed)
            self->read_next();
        }));
    });
  }

  const std::shared_ptr<tenant> tenant_;
  boost::asio::posix::stream_descriptor client_;
  boost::asio::steady_timer deadline_;
  std::function<void()> on_over_;
  std::array<char, 2> length_{};
  std::string text_;
};

} // namespace

void serve_dns_stream(std::shared_ptr<tenant> whose, unique_fd client,
                      std::function<void()> on_over) {
  std::make_shared<dns_stream>(std::move(whose), std::move(client), std::move(on_over))
    ->read_next();
}

} // namespace insula::runtime::gateway
