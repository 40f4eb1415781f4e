#pragma once

#include "runtime/broker/message.hpp"
#include "runtime/broker/stream.hpp"

#include <optional>
#include <string_view>
#include <utility>

/// A request and its answer between a client in a sandbox and a server, in whatever versions of
/// HTTP the two speak. One piece of a body at a time: what is not taken waits in the kernel.
///
/// An await stands in a statement of its own: behind && and || g++ 12 comes to it in any case.
namespace insula::runtime::broker {

/// A piece of a body, good until the next one is asked for. None: there is no more.
using piece = std::optional<std::string_view>;

/// What somebody sends: its body, and what comes behind it.
class message_source {
public:
  virtual ~message_source() = default;
  virtual task<result<piece>> body() = 0;
  /// Once there is no more of the body.
  virtual const fields& trailers() const = 0;
};

/// To whom somebody sends.
class message_sink {
public:
  virtual ~message_sink() = default;
  virtual task<result<void>> send(std::string_view some) = 0;
  virtual task<result<void>> end(const fields& trailers) = 0;
};

/// A request that has come, with the way back to its client.
class incoming : public message_source, public message_sink {
public:
  request_head head;

  /// Those below 200 are followed by another one.
  virtual task<result<void>> answer(const response_head& with) = 0;
  /// After a 101: all that comes and goes from now on. Null: there is no such thing.
  virtual stream* tunnel() = 0;
  /// What came behind the head of the request, for the tunnel.
  virtual std::string_view early() const = 0;
  /// Nothing more of it is wanted: a task that waits for its body, or for its client to go, is
  /// told. It can still be answered.
  virtual void cut_reading() = 0;
  /// It is wanted again.
  virtual void resume_reading() = 0;
  /// Once there is no more of the body: waits until its client has gone, which is true, or until
  /// cut_reading().
  virtual task<bool> wait_until_gone() = 0;
  /// Whoever waits is told: nothing more comes and goes.
  virtual void cut() = 0;
};

/// A request that goes out, with its answer.
class outgoing : public message_source, public message_sink {
public:
  virtual task<result<void>> begin(const request_head& head) = 0;
  /// The next one; after one of 200 and above comes its body.
  virtual task<result<response_head>> answer() = 0;
  virtual stream* tunnel() = 0;
  virtual std::string_view early() const = 0;
  virtual void cut() = 0;
  /// Another request can follow.
  virtual bool can_be_used_again() const = 0;
  /// Something of an answer has come.
  virtual bool was_answered() const = 0;
  /// The server has said that it does nothing about it, and that it can be sent again.
  virtual bool was_not_begun() const = 0;
};

/// What became of it.
struct exchanged {
  unsigned status = 0; ///< 0: there was no answer.
  bool whole = false;  ///< All of it has been passed on, and the client can ask again.
};

/// How far it came before it failed.
struct attempt {
  bool body_was_taken = false; ///< Some of it: it cannot be sent again.
  bool was_answered = false;   ///< Something has come from the server.
  bool was_not_begun = false;  ///< The server says so.
  bool client_is_gone = false;
};

/// Passes a request on, and its answer back, both at once. `in` has `head`, as it is to go out. A
/// client that goes ends its request at the server.
/// Errors: invalid_request, for a body that is none; limit_reached, for a head that is too large to
/// be sent. All others are the server's. No last answer has been given then.
/// Ceilings: most_interim_answers.
task<result<exchanged>> exchange(incoming& in, const request_head& head, outgoing& out,
                                 attempt* how = nullptr);
inline constexpr unsigned most_interim_answers = 16;

/// Calls it at the end of a block, also if that ends by an exception.
template <class Call>
class at_end {
public:
  explicit at_end(Call what)
      : what_(std::move(what)) {}
  ~at_end() { what_(); }
  at_end(const at_end&) = delete;
  at_end& operator=(const at_end&) = delete;

private:
  Call what_;
};

/// An answer of the broker's own.
task<exchanged> answer(incoming& in, response_head head, std::string_view body);
/// In plain words.
task<exchanged> refuse(incoming& in, unsigned status, std::string_view why);

} // namespace insula::runtime::broker
