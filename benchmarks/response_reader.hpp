#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace insula::bench {

/// Reads one HTTP/1.1 response from bytes as they come, and hands out its body piece by piece.
/// Believes what it reads: it only ever talks to servers that the benchmark has started. Throws
/// std::runtime_error on nonsense.
class response_reader {
public:
  using body_fn = std::function<void(std::string_view)>;

  /// Ready for the next response. `on_body` may be empty.
  void start(body_fn on_body);

  /// Takes all of `bytes`: nothing may follow a response, since nothing is asked before it has
  /// ended.
  void feed(std::string_view bytes);

  bool begun() const { return state_ != part::head || !head_.empty(); }
  bool done() const { return state_ == part::done; }
  int status() const { return status_; }
  bool keeps_alive() const { return keeps_alive_; }

private:
  enum class part { head, body, chunk_size, chunk_data, chunk_end, trailer, done };

  void read_head();
  void read_chunk_size();
  void pass_on(std::string_view piece);

  part state_ = part::done;
  body_fn on_body_;
  std::string head_; ///< The head, or a line between chunks, as far as it is there.
  std::uint64_t left_ = 0;
  int status_ = 0;
  bool keeps_alive_ = true;
};

} // namespace insula::bench
