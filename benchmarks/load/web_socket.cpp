#include "benchmarks/load/web_socket.hpp"

#include "benchmarks/load/http_connection.hpp"

#include <boost/beast/http/error.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <boost/beast/websocket/stream.hpp>

#include <array>
#include <variant>

namespace insula::load {

namespace {

namespace ssl = asio::ssl;
namespace websocket = boost::beast::websocket;
using asio::ip::tcp;

constexpr std::size_t read_size = 16 * 1024;
/// A longer message is nothing that a terminal sends: its replay has 256 KiB.
constexpr std::size_t longest_message = 16u << 20;

template <class Layer>
using stream_over = websocket::stream<Layer&, false>; // Compressing is for whoever has time.

template <class Stream>
task<> shake(Stream& with, const std::string& host, const std::string& target,
             websocket::response_type& answer, error_code& failed) {
  co_await with.async_handshake(answer, host, target, into(failed));
}

template <class Stream>
task<std::size_t> read_some(Stream& from, asio::mutable_buffer to, error_code& failed) {
  const auto got = co_await from.async_read_some(to, into(failed));
  co_return got;
}

template <class Stream>
task<> write_all(Stream& to, asio::const_buffer what, error_code& failed) {
  co_await to.async_write(what, into(failed));
}

} // namespace

struct web_socket::parts {
  parts(http_client& by, asio::io_context& io)
      : under(io)
      , counted(std::in_place, by, under) {}

  /// The same with either kind of stream. Only after the handshake has begun.
  template <class Call>
  auto with(Call call) {
    return plain ? call(*plain) : call(*encrypted);
  }

  http_client::connection under;
  std::optional<http_client::in_use> counted;
  std::optional<stream_over<tcp::socket>> plain;
  std::optional<stream_over<ssl::stream<tcp::socket&>>> encrypted;
  std::array<char, read_size> bytes{};
};

web_socket::web_socket(http_client& by)
    : by_(by)
    , parts_(std::make_unique<parts>(by, by.io_)) {}

web_socket::~web_socket() {
  end();
}

void web_socket::end() {
  if (failure_.empty())
    failure_ = by_.why_ended(parts_->under, failure::cut);
  parts_->under.end(parts_->under.ended_because);
  parts_->counted.reset();
}

void web_socket::expect_by(clock::time_point when) {
  parts_->under.deadline = when;
}

void web_socket::note(const error_code& why) {
  if (!failure_.empty())
    return;
  const auto& under = parts_->under;
  if (under.ended_because != nullptr)
    failure_ = under.ended_because;
  else if (why == websocket::error::closed)
    failure_ = "closed " + std::to_string(parts_->with([](auto& it) { return it.reason().code; }));
  else if (why == websocket::condition::protocol_violation ||
           why == websocket::error::message_too_big)
    failure_ = failure::malformed;
  else
    failure_ = failure::cut;
}

task<std::string> web_socket::shake_hands(std::string target) {
  const auto prepare = [this](auto& with) {
    with.read_message_max(longest_message);
    with.auto_fragment(false);
    with.set_option(websocket::stream_base::decorator([this](websocket::request_type& asks) {
      asks.set(boost::beast::http::field::user_agent, "insula-bench");
      if (!by_.options_.key.empty())
        asks.set(boost::beast::http::field::authorization, "Bearer " + by_.options_.key);
    }));
  };
  auto& under = parts_->under;
  if (under.encrypted)
    prepare(parts_->encrypted.emplace(*under.encrypted));
  else
    prepare(parts_->plain.emplace(under.socket));

  const auto host = by_.options_.url.authority();
  const auto whole = by_.options_.url.prefix + target;
  websocket::response_type answer;
  answer.result(0u);
  error_code failed;
  co_await parts_->with([&](auto& it) { return shake(it, host, whole, answer, failed); });
  if (!failed)
    co_return std::string{};
  if (under.ended_because != nullptr)
    co_return under.ended_because;
  if (failed == websocket::error::upgrade_declined)
    co_return "status " + std::to_string(answer.result_int());
  const bool no_answer = failed == boost::beast::http::error::end_of_stream ||
                         failed == boost::beast::http::error::partial_message ||
                         failed.category() == asio::error::get_system_category() ||
                         failed == asio::error::eof || failed == ssl::error::stream_truncated;
  co_return no_answer ? failure::cut : failure::malformed;
}

task<web_socket::opened> web_socket::open(http_client& by, std::string target,
                                          std::chrono::milliseconds patience) {
  opened made;
  if (by.ending_) {
    made.failure = failure::let_go;
    co_return made;
  }
  made.socket.reset(new web_socket{by});
  made.socket->expect_by(clock::now() + patience);
  made.failure = co_await by.connect(made.socket->parts_->under);
  if (made.failure.empty())
    made.failure = co_await made.socket->shake_hands(std::move(target));
  if (made.failure.empty())
    made.socket->expect_nothing();
  else
    made.socket.reset();
  co_return made;
}

task<std::optional<message_part>> web_socket::read() {
  if (!failure_.empty())
    co_return std::nullopt;
  error_code failed;
  const auto room = asio::buffer(parts_->bytes);
  const auto got = co_await parts_->with([&](auto& it) { return read_some(it, room, failed); });
  if (failed || !failure_.empty()) {
    note(failed);
    co_return std::nullopt;
  }
  message_part part;
  part.bytes = {parts_->bytes.data(), got};
  part.text = parts_->with([](auto& it) { return it.got_text(); });
  part.last = parts_->with([](auto& it) { return it.is_message_done(); });
  co_return part;
}

task<bool> web_socket::write(std::string_view bytes, bool text) {
  if (!failure_.empty())
    co_return false;
  error_code failed;
  parts_->with([text](auto& it) { it.text(text); });
  co_await parts_->with(
    [&](auto& it) { return write_all(it, asio::buffer(bytes.data(), bytes.size()), failed); });
  if (failed)
    note(failed);
  co_return !failed;
}

} // namespace insula::load
