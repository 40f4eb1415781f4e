#pragma once

#include "runtime/broker/message.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace insula::runtime::broker {

/// Reads messages of HTTP/1.1 and 1.0, one after the other, as RFC 9112 writes them and no other
/// way: what two readers could take for two different messages is refused. So there are no bare
/// line feeds, no folded lines, one length at most, and no coding but `chunked`. Pure.
/// Ceilings: limits of a head and of trailers below; of a body none is kept.
class http1_reader {
public:
  enum class side : std::uint8_t { requests, responses };

  static constexpr std::size_t max_head_bytes = 64u << 10, max_fields = 256,
                               max_trailer_bytes = 16u << 10;

  enum class event : std::uint8_t {
    none,    ///< There has to be more before there is something.
    head,    ///< request() or response() has it.
    body,    ///< A piece of the body, which is `body`.
    end,     ///< Of the message; trailers() has what came behind it.
    refused, ///< It is none: refusal() says why. Nothing is read after it.
  };
  struct step {
    event what;
    std::size_t used = 0; ///< Bytes of the input that are over with.
    std::string_view body = {};
  };

  explicit http1_reader(side of)
      : side_(of) {}

  /// Looks at what has come and has not been used. Called again and again until it is none.
  step read(std::string_view input);
  /// No more comes. True: this is a good place for it; a body without a length ends so.
  bool ended();

  /// Responses: the next one answers such a request.
  void expect_response_to(std::string method) { method_ = std::move(method); }

  request_head& request() { return request_; }
  response_head& response() { return response_; }
  const fields& trailers() const { return trailers_; }
  /// After this message the connection ends.
  bool closes() const { return closes_; }
  bool is_1_0() const { return is_1_0_; }
  bool is_between_messages() const { return state_ == state::start; }
  /// The status that a client is told, and a sentence.
  unsigned refusal_status() const { return refusal_status_; }
  const std::string& refusal() const { return refusal_; }

private:
  enum class state : std::uint8_t {
    start, ///< The head.
    counted,
    until_end,
    chunk_size,
    chunk_data,
    chunk_end,
    trailers,
    over, ///< Of the message, which has to be told.
    refused,
  };

  step refuse(unsigned status, std::string why);
  step read_head(std::string_view input);
  step read_counted(std::string_view input, state behind);
  step read_chunk_size(std::string_view input);
  step read_trailers(std::string_view input);
  step end(std::size_t used);
  bool read_fields(std::string_view text, fields& into);
  bool read_request_line(std::string_view line);
  bool read_status_line(std::string_view line);
  bool read_target(std::string_view target);
  bool take_framing(fields& in);
  bool take_request_words(fields& in);
  bool no(unsigned status, std::string why);

  const side side_;
  state state_ = state::start;
  std::string method_;
  request_head request_;
  response_head response_;
  fields trailers_;
  std::uint64_t left_ = 0;
  std::size_t looked_ = 0; ///< Of a head that is not whole: where no end is.
  bool is_1_0_ = false, closes_ = false, is_chunked_ = false;
  unsigned refusal_status_ = 0;
  std::string refusal_;
};

/// As bytes of HTTP/1.1. A body whose length is not known is sent in chunks.
std::string http1_text(const request_head& head);
/// `is_1_0`: to such a client, which takes no chunks. `closes`: the connection ends behind it.
std::string http1_text(const response_head& head, bool closes, bool is_1_0 = false);
std::string http1_chunk_head(std::size_t bytes);
std::string http1_last_chunk(const fields& trailers);

/// "a.example" of "a.example:443". Empty: it is no authority.
std::string host_of(std::string_view authority);
/// The port it names, or the usual one. None: it is no authority.
std::optional<std::uint16_t> port_of(std::string_view authority, std::uint16_t usual);

/// Fields that say how a message is carried are not passed on. So are those that `connection`
/// names.
void drop_hop_by_hop(fields& in);

/// Neither are fields of trailers that say something about the whole message, in any version.
void drop_from_trailers(fields& in);

/// Has it neither blanks nor control characters?
bool is_target(std::string_view text);
/// Why a request of that method is not passed on. Null: it is.
const char* why_no_method(std::string_view method);

} // namespace insula::runtime::broker
