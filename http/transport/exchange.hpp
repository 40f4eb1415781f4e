#pragma once

#include "http/transport/request_track.hpp"
#include "http/transport/web_socket.hpp"

#include <boost/asio/any_io_executor.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// One request and its answer, as the routes see them. What carries them (RESTinio, TLS, sockets)
/// is the front door's business.
namespace insula::http {

class connection;

enum class verb : std::uint8_t { get, put, post, patch, del, other };
inline constexpr verb all_verbs[] = {verb::get,   verb::put, verb::post,
                                     verb::patch, verb::del, verb::other};

/// A request's header. A view: valid only while it is handed over.
class request_head {
public:
  virtual ~request_head() = default;

  verb method = verb::other; ///< HEAD counts as GET; the front door leaves out the body.
  bool head_only = false;
  std::string_view method_name;                ///< As on the request line.
  std::string_view path;                       ///< As on the request line, nothing decoded.
  std::string_view query;                      ///< After the first '?', nothing decoded.
  std::optional<std::uint64_t> content_length; ///< None: no body, or a chunked one.
  bool chunked = false;                        ///< It has a body, of a length to be seen.
  bool asks_first = false;                     ///< It sends its body once it has been told to.
  bool old_protocol = false;                   ///< HTTP/1.0: knows no chunks.
  bool keep_alive = false;                     ///< Another may follow on its connection.
  connection* client = nullptr;                ///< Whose request it is; null in tests.

  /// Empty when there is no such field; of several, the first.
  virtual std::string_view field(std::string_view name) const = 0;

  /// Every field, in the order in which they came.
  virtual void each_field(
    const std::function<void(std::string_view name, std::string_view value)>& tell) const = 0;
};

struct header_field {
  std::string_view name; ///< A literal.
  std::string value;
};

/// A whole answer.
struct response {
  int status = 200;
  std::string body;
  std::string_view content_type = "application/json"; ///< A literal. Ignored when there is no body.
  std::vector<header_field> fields = {};              ///< Further ones.
  /// Instead of `body`, if set: bytes that many answers share.
  std::shared_ptr<const std::string> shared_body = nullptr;

  std::string_view content() const { return shared_body ? *shared_body : body; }
};

/// How an answer begins that goes out bit by bit.
struct stream_head {
  std::string_view content_type; ///< A literal.
  std::vector<header_field> fields = {};
  bool at_once = false; ///< The head leaves now, otherwise with the first bytes.
  int status = 200;
  /// Of the whole body, in bytes. One that ends earlier cuts the connection. None: it is told in
  /// chunks.
  std::optional<std::uint64_t> length = {};
};

/// Where a connection's handlers run, one at a time. It keeps what runs them, so that whoever
/// answers late may hold it beyond the server's end.
class strand_handle {
public:
  strand_handle() = default;
  strand_handle(std::shared_ptr<void> keeper, boost::asio::any_io_executor executor)
      : keeper_(std::move(keeper))
      , executor_(std::move(executor)) {}

  const boost::asio::any_io_executor& executor() const { return executor_; }

private:
  std::shared_ptr<void> keeper_; // Before the executor, which must not outlive it.
  boost::asio::any_io_executor executor_;
};

/// An answer that goes out bit by bit. Whoever drops it unfinished cuts the connection, so that an
/// incomplete body never looks complete.
///
/// Threads: any; the callbacks come on the connection's strand.
class answer_stream {
public:
  virtual ~answer_stream() = default;

  /// `taken` is the credit for more: it is called once the socket has taken everything (true) or
  /// the client has gone (false). One write at a time.
  virtual void write(std::string bytes, std::function<void(bool)> taken) = 0;

  /// The last bytes, and the end.
  virtual void finish(std::string bytes) = 0;

  /// Called once if the client goes before the end. Notices it also while nothing is being written.
  virtual void on_gone(std::function<void()> tell) = 0;

  /// Sends `bytes` whenever nothing else has been written for so long.
  virtual void fill_silence(std::string bytes, std::chrono::milliseconds after) = 0;
};

/// A request that waits for its answer. Exactly one is sent: the first. If the last reference goes
/// and there was none, the client gets a 500. Any thread.
class exchange {
public:
  virtual ~exchange() = default;

  virtual void respond(response answer) = 0;

  /// Begins a streamed answer. Null if there is nothing to stream to: a HEAD request, or answered
  /// already.
  virtual std::shared_ptr<answer_stream> stream(stream_head head) = 0;

  /// Becomes a WebSocket; the offer is one that is usable. `opened` comes on the strand, or never
  /// if there was an answer already.
  virtual void upgrade(web_socket_offer offer,
                       std::function<void(std::shared_ptr<web_socket>)> opened) = 0;

  /// If nothing has been answered by then, `late` is. Replaces what was set before.
  virtual void answer_within(std::chrono::milliseconds patience, response late) = 0;

  virtual strand_handle strand() const = 0;

  /// Whose messages it causes.
  virtual const request_context& context() const = 0;
};

using reply = std::shared_ptr<exchange>;

/// Takes a request's body while it arrives. On the connection's strand, except where said.
/// Destroyed without end(): the client went away before the body was complete.
class body_sink {
public:
  enum class verdict : std::uint8_t {
    more,   ///< Go on reading.
    wait,   ///< Read nothing more until `resume` is called. What has been read already still comes.
    refuse, ///< Answer with refusal() now and close.
  };

  virtual ~body_sink() = default;

  /// Before anything else. `resume` may be called from any thread, and after the sink's end.
  virtual void begin(strand_handle strand, std::function<void()> resume, request_context of) = 0;
  virtual verdict write(std::string_view bytes) = 0;
  virtual response refusal() = 0;
  /// What is answered once the body is complete, whatever still comes of it; none, yet. A client
  /// that stops sending before that gets it when its time is up.
  virtual const std::optional<response>& settled() const = 0;

  /// The body is complete.
  virtual void end(reply to) = 0;
};

/// What a client has shown, in rising order: nothing, yet; what a preview or execd takes, which is
/// a token, its cookie, or nothing where previews are public; the key, or the cookie of a browser
/// that is signed in.
enum class caller : std::uint8_t { stranger, visitor, holder };

/// What becomes of a request, decided when its header is there and none of its body has been read.
struct admission {
  using answer_fn = std::function<void(std::string body, reply to)>;

  std::optional<response> refusal; ///< If set, that is the answer and nothing else counts.
  std::uint64_t body_limit = 0;    ///< For `answer`. Zero: a body is thrown away, however large.
  answer_fn answer;
  std::shared_ptr<body_sink> sink; ///< Instead of `answer`.
  /// Instead of both: takes over the connection itself, from the end of the header on, and gives it
  /// back. On its strand.
  std::function<void(std::shared_ptr<connection> client, request_track track)> take_over;
  /// What is answered when body_limit is passed. `bytes`: as many as are known of.
  response (*too_large)(std::uint64_t bytes, std::uint64_t limit) = nullptr;
  caller from = caller::stranger; ///< What its client has shown by it.
  std::string key = {};           ///< The name of the named key that it has shown; empty: none.
  /// The request itself, from here to its answer's end.
  request_track track = {};
};

} // namespace insula::http
