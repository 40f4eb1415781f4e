#pragma once

#include "benchmarks/load/web_socket.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace insula::load {

/// What a server may say about a terminal beside its output.
struct terminal_message {
  enum class kind : std::uint8_t { ready, exit, error, other } what = kind::other;
  int code = 0; ///< Of an exit.
};
/// None: it is no JSON object, or not what the contract says.
std::optional<terminal_message> parse_terminal_message(std::string_view text);

/// A terminal in a sandbox as one of its clients sees it. Belongs to the client's thread, and ends
/// before the client does; the terminal itself lives on in its sandbox.
class terminal {
public:
  using printed_fn = std::function<void(std::string_view)>;

  struct opened {
    std::string failure; ///< Empty: there is a terminal.
    std::unique_ptr<terminal> is;
  };
  /// The one of this session, which begins with it if it is not there yet. Returns once the server
  /// has said that it is ready.
  static task<opened> open(http_client& by, std::string sandbox, std::string session,
                           std::chrono::milliseconds patience);

  ~terminal();
  terminal(const terminal&) = delete;
  terminal& operator=(const terminal&) = delete;

  /// Is given all that is printed from now on, piece by piece. Nothing else may end it meanwhile.
  void on_output(printed_fn what);
  /// Whether it could be handed on. One at a time.
  task<bool> type(std::string_view bytes);
  /// Types, and waits until that stands in what is printed. Returns why it does not; empty: it
  /// does.
  task<std::string> type_until(std::string bytes, std::string printed,
                               std::chrono::milliseconds patience);
  /// Reads nothing any more, as a client whose machine stands still.
  void stall();

  /// Something has to be printed by then, or it ends with a timeout.
  void expect_by(clock::time_point when);
  void expect_nothing() { expect_by(clock::time_point::max()); }

  /// Why it has ended: as web_socket's, or "exit 0" if its program has. Empty: it has not.
  const std::string& ended() const;
  std::uint64_t printed_bytes() const;

private:
  struct state;
  explicit terminal(std::shared_ptr<state> it)
      : state_(std::move(it)) {}

  std::shared_ptr<state> state_;
};

} // namespace insula::load
