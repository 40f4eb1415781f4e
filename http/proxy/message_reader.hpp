#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

/// For whoever passes messages on while they come.
namespace insula::http {

inline constexpr std::uint32_t message_header_bytes = 64 * 1024;

/// What a chunk begins with.
inline std::string size_line(std::size_t size) {
  std::array<char, 20> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), size, 16).ptr;
  return std::string{digits.data(), end} + "\r\n";
}

inline std::string_view text_of(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

/// Reads one message's body while it comes; of a response, the header as well.
template <class Parser>
class message_reader {
public:
  std::function<void()> on_head; ///< The header is there, and nothing of the body.

  message_reader() {
    parser_.eager(false);
    parser_.header_limit(message_header_bytes);
    parser_.body_limit(boost::none);
  }

  Parser& parser() { return parser_; }

  /// Takes `bytes`, and answers how many it has used. What they say of the body is in `body`.
  std::size_t take(std::string_view bytes, std::string& body, boost::system::error_code& ec) {
    body.resize(bytes.size());
    auto& room = parser_.get().body();
    room.data = body.data();
    room.size = body.size();
    room.more = true;
    std::size_t used = 0;
    while (used < bytes.size() && !parser_.is_done() && !ec) {
      const auto some =
        parser_.put(boost::asio::buffer(bytes.data() + used, bytes.size() - used), ec);
      used += some;
      if (!ec && parser_.is_header_done() && !parser_.eager()) {
        parser_.eager(true);
        if (on_head)
          on_head(); // Before what follows the body is added to it.
        continue;
      }
      if (ec == boost::beast::http::error::need_more) {
        ec = {};
        break;
      }
      if (some == 0)
        break;
    }
    body.resize(body.size() - room.size);
    room.data = nullptr;
    room.size = 0;
    return used;
  }

  /// In on_head, of a body in chunks: what the header says is not asked for any more, so that the
  /// fields which are there at the end are those behind the body.
  void forget_head() {
    if (parser_.chunked())
      parser_.get().clear();
  }

  /// Those, when it is done. `tell(name, value)`.
  template <class Tell>
  void each_trailer(Tell tell) {
    if (parser_.chunked())
      for (const auto& each : parser_.get())
        tell(text_of(each.name_string()), text_of(each.value()));
  }

private:
  Parser parser_;
};

/// What a chunk ends with; the last one with those lines of trailing fields.
inline std::string chunk_end(bool any, bool last, std::string_view trailer) {
  std::string end = any ? "\r\n" : "";
  if (last)
    ((end += "0\r\n") += trailer) += "\r\n";
  return end;
}

/// What has come and is not used yet, and room for more: little at first, more for who fills it.
class inflow {
public:
  explicit inflow(std::size_t most)
      : most_(most) {}

  boost::asio::mutable_buffer room() {
    if (room_.size() < kept_ + least_read)
      room_.resize(kept_ + least_read);
    return boost::asio::buffer(room_.data() + kept_, room_.size() - kept_);
  }
  void came(std::size_t bytes) {
    kept_ += bytes;
    filled_ = kept_ == room_.size();
  }
  std::string_view bytes() const { return {room_.data(), kept_}; }
  void used(std::size_t bytes) {
    std::copy(room_.begin() + static_cast<std::ptrdiff_t>(bytes),
              room_.begin() + static_cast<std::ptrdiff_t>(kept_), room_.begin());
    kept_ -= bytes;
    if (std::exchange(filled_, false) && room_.size() < most_)
      room_.resize(2 * room_.size());
  }
  void clear() { *this = inflow{most_}; }

private:
  static constexpr std::size_t least_read = 16 * 1024;

  std::size_t most_;
  std::string room_;
  std::size_t kept_ = 0;
  bool filled_ = false; ///< By what came last.
};

using answer_reader =
  message_reader<boost::beast::http::response_parser<boost::beast::http::buffer_body>>;
using body_reader =
  message_reader<boost::beast::http::request_parser<boost::beast::http::buffer_body>>;

} // namespace insula::http
