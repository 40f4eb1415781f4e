#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <functional>
#include <string>
#include <thread>

namespace insula::test {

/// Takes one connection on 127.0.0.1, makes it a WebSocket, and plays a part with it until that
/// returns or the other side has gone.
class scripted_web_socket {
  using tcp = boost::asio::ip::tcp;

public:
  using stream = boost::beast::websocket::stream<tcp::socket>;

  explicit scripted_web_socket(std::function<void(stream&)> part)
      : listener_(io_, {boost::asio::ip::address_v4::loopback(), 0})
      , port_(listener_.local_endpoint().port())
      , thread_([this, part = std::move(part)] {
        boost::system::error_code gone;
        stream with{listener_.accept()};
        with.accept(gone);
        try {
          if (!gone)
            part(with);
        } catch (const boost::system::system_error&) {
          // The client has what it wanted.
        }
      }) {}
  scripted_web_socket(const scripted_web_socket&) = delete;
  scripted_web_socket& operator=(const scripted_web_socket&) = delete;

  std::uint16_t port() const { return port_; }

private:
  boost::asio::io_context io_;
  tcp::acceptor listener_;
  const std::uint16_t port_;
  std::jthread thread_; ///< Last: it ends first.
};

// ---- What parts are made of

inline void say(scripted_web_socket::stream& to, const std::string& json) {
  to.text(true);
  to.write(boost::asio::buffer(json));
}
inline void print(scripted_web_socket::stream& to, const std::string& bytes) {
  to.binary(true);
  to.write(boost::asio::buffer(bytes));
}
/// Bytes that are no frame, or a wrong one.
inline void send_raw(scripted_web_socket::stream& to, const std::string& bytes) {
  boost::asio::write(to.next_layer(), boost::asio::buffer(bytes));
}
/// The next message.
inline std::string hear(scripted_web_socket::stream& from) {
  boost::beast::flat_buffer bytes;
  from.read(bytes);
  return boost::beast::buffers_to_string(bytes.data());
}
/// Until the other side has gone.
inline void wait_for_end(scripted_web_socket::stream& from) {
  for (;;)
    hear(from);
}

inline const std::string ready_message = R"({"type":"ready"})";

} // namespace insula::test
