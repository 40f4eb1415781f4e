#include "runtime/port_list.hpp"

#include "base/limits.hpp"
#include "runtime/gateway/protocol.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <charconv>
#include <memory>
#include <string>
#include <tuple>

namespace insula::runtime {

namespace {

std::string_view take_word(std::string_view& line) {
  const auto end = line.find(' ');
  const auto word = line.substr(0, end);
  line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
  return word;
}

template <class Number>
bool read(std::string_view word, Number& into) {
  const auto [end, why] = std::from_chars(word.data(), word.data() + word.size(), into);
  return !word.empty() && why == std::errc{} && end == word.data() + word.size();
}

bool is_address(const std::string& text) {
  std::array<unsigned char, 16> bytes;
  return ::inet_pton(AF_INET, text.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1;
}

bool is_gateways(const listening_port& each) {
  return each.port == gateway::tcp_port && (each.address == "127.0.0.1" || each.address == "::1");
}

/// One list on its way.
struct port_list_read : std::enable_shared_from_this<port_list_read> {
  port_list_read(boost::asio::io_context& io, unique_fd channel)
      : stream(io, boost::asio::local::stream_protocol{}, channel.release())
      , deadline(io) {}

  boost::asio::local::stream_protocol::socket stream;
  boost::asio::steady_timer deadline;
  std::string text;
  bool late = false;
};

} // namespace

std::vector<listening_port> parse_port_list(std::string_view text) {
  std::vector<listening_port> all;
  while (!text.empty()) {
    const auto end = text.find('\n');
    auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    listening_port each;
    const auto port = take_word(line);
    each.address = take_word(line);
    const auto pid = take_word(line);
    constexpr std::size_t longest_name = 15;
    each.process = line == "?" ? "" : std::string{line.substr(0, longest_name)};
    const bool printable = std::all_of(each.process.begin(), each.process.end(),
                                       [](char c) { return c > ' ' && c <= '~'; });
    if (read(port, each.port) && read(pid, each.pid) && each.pid >= 0 && is_address(each.address) &&
        printable && !is_gateways(each))
      all.push_back(std::move(each));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::tie(a.port, a.address) < std::tie(b.port, b.address);
  });
  return all;
}

void read_port_list(boost::asio::io_context& io, unique_fd channel,
                    std::function<void(result<std::vector<listening_port>>)> tell) {
  const auto reading = std::make_shared<port_list_read>(io, std::move(channel));
  reading->deadline.expires_after(limits::port_list_patience);
  reading->deadline.async_wait([reading](const boost::system::error_code& stopped) {
    boost::system::error_code ignored;
    reading->late = !stopped;
    if (!stopped)
      reading->stream.close(ignored);
  });
  boost::asio::async_read(
    reading->stream, boost::asio::dynamic_buffer(reading->text, limits::port_list_bytes),
    [reading, tell = std::move(tell)](const boost::system::error_code& failed, std::size_t) {
      reading->deadline.cancel();
      if (reading->late)
        return tell(error{errc::deadline_exceeded, "the sandbox did not list its ports in time"});
      if (failed != boost::asio::error::eof)
        return tell(error{errc::io_failed, "the sandbox's list of ports was cut"});
      tell(parse_port_list(reading->text));
    });
}

} // namespace insula::runtime
