#include "runtime/agent_list.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>

#include <memory>
#include <utility>

namespace insula::runtime {

namespace {

/// One list on its way.
struct list_read {
  list_read(boost::asio::io_context& io, unique_fd channel)
      : stream(io, boost::asio::local::stream_protocol{}, channel.release())
      , deadline(io) {}

  boost::asio::local::stream_protocol::socket stream;
  boost::asio::steady_timer deadline;
  std::string text;
  bool late = false;
};

} // namespace

void read_agent_list(boost::asio::io_context& io, unique_fd channel,
                     std::chrono::milliseconds patience, std::size_t most_bytes,
                     std::function<void(result<std::string>)> tell) {
  const auto reading = std::make_shared<list_read>(io, std::move(channel));
  reading->deadline.expires_after(patience);
  reading->deadline.async_wait([reading](const boost::system::error_code& stopped) {
    boost::system::error_code ignored;
    reading->late = !stopped;
    if (!stopped)
      reading->stream.close(ignored);
  });
  boost::asio::async_read(
    reading->stream, boost::asio::dynamic_buffer(reading->text, most_bytes),
    [reading, tell = std::move(tell)](const boost::system::error_code& failed, std::size_t) {
      reading->deadline.cancel();
      if (reading->late)
        return tell(error{errc::deadline_exceeded, "the sandbox did not answer in time"});
      if (failed != boost::asio::error::eof)
        return tell(error{errc::io_failed, "the sandbox's list was cut"});
      tell(std::move(reading->text));
    });
}

} // namespace insula::runtime
