#include "base/limits.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/pty_words.hpp"
#include "http/json/js_number.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/session_id.hpp"
#include "http/text/percent.hpp"
#include "http/transport/web_socket.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace insula::http::bridge {

namespace {

constexpr double largest_size = 65'535;

class bridge_words final : public terminal_words {
public:
  response refusal(question_stage at, const error& why) const override {
    return error_response(step_of(at, step::terminal), why);
  }
  web_socket_message printed(std::string bytes) const override { return {false, std::move(bytes)}; }
  web_socket_message replayed(std::uint64_t, std::string bytes) const override {
    return {false, std::move(bytes)};
  }
  std::optional<web_socket_message> ready() const override {
    return web_socket_message{true, write_terminal_ready()};
  }
  web_socket_message ended(const process_end& how) const override {
    return {true, write_terminal_exit(how.exit_code, signal_name(how.signal))};
  }
  web_socket_message failed(std::string_view why) const override {
    return {true, write_terminal_error(why)};
  }
  bool whole_characters() const override { return true; }

  terminal_wish read(web_socket_message said) const override {
    using kind = terminal_control::kind;
    if (!said.text)
      return {.typed = std::move(said.bytes)};
    const auto control = read_terminal_control(said.bytes);
    switch (control.what) {
      case kind::ignored: return {};
      case kind::malformed: return {.answer = failed("Invalid control message")};
      case kind::resize: break;
    }
    if (!(control.columns > 0) || !(control.rows > 0))
      return {.answer = failed("Invalid dimensions: cols and rows must be positive")};
    if (control.columns > largest_size || control.rows > largest_size)
      return {.answer = failed("Invalid control message")};
    const auto cut = [](double size) { return static_cast<std::uint16_t>(std::max(size, 1.0)); };
    return {.size = resize_terminal{cut(control.columns), cut(control.rows)}};
  }

private:
  static std::string signal_name(int number) {
    if (number == 0)
      return {};
    const char* const known = ::sigabbrev_np(number);
    return "SIG" + (known != nullptr ? std::string{known} : std::to_string(number));
  }
};

/// A size from the query. What no terminal can have is the default; none: no number at all.
std::optional<std::uint16_t> read_size(std::string_view query, std::string_view name,
                                       std::uint16_t otherwise) {
  const auto text = form_value(query, name);
  if (text.empty())
    return otherwise;
  const auto number = js_number(text);
  if (!number)
    return std::nullopt;
  const bool usable = *number >= 1 && *number <= std::numeric_limits<std::uint16_t>::max();
  return usable ? static_cast<std::uint16_t>(*number) : otherwise;
}

/// Everything that can be wrong with the request itself, in the contract's order.
result<open_terminal_request> read_request(const matched_request& what,
                                           const web_socket_offer& offer) {
  if (!offer.wanted)
    return error{errc::invalid_request, "WebSocket upgrade required"};
  const auto columns = read_size(what.query, "cols", 80);
  const auto rows = read_size(what.query, "rows", 24);
  if (!columns || !rows)
    return error{errc::invalid_request, "cols and rows must be valid numbers"};
  auto session = what.field("Session-Id");
  if (session.empty())
    session = form_value(what.query, "session");
  if (!session.empty() && !is_session_id(session))
    return error{errc::invalid_request, "Invalid session ID format"};
  if (!offer.usable)
    return error{errc::invalid_request, "Invalid WebSocket handshake"};
  open_terminal_request wanted;
  if (!session.empty())
    wanted.session = session;
  wanted.columns = *columns;
  wanted.rows = *rows;
  wanted.shell = form_value(what.query, "shell");
  if (wanted.shell.find('\0') != std::string::npos)
    return error{errc::invalid_request, "shell must not contain NUL"};
  return wanted;
}

} // namespace

std::shared_ptr<const terminal_words> bridge_terminal_words() {
  return std::make_shared<bridge_words>();
}

void add_terminal_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back(
    {verb::get,
     "/v1/sandbox/:id/pty",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       admission plan;
       auto offer = read_offer(what.head());
       auto wanted = read_request(what, offer);
       if (!wanted) {
         plan.refusal = error_response(step::request, wanted.reason());
         return plan;
       }
       plan.answer = [with, id = what.id(), wanted = std::move(*wanted),
                      offer = std::move(offer)](const std::string&, const reply& to) mutable {
         wanted.context = to->context();
         start_terminal_stream(
           {with, id, std::move(wanted), std::move(offer), bridge_terminal_words(), to});
       };
       return plan;
     },
     {.id = "ptyTerminal",
      .summary = "A terminal over a WebSocket: binary frames are what is typed and printed, text "
                 "frames are control messages in JSON.",
      .parameters = {{"cols", "query", "Columns of a new terminal; 80 unless given."},
                     {"rows", "query", "Rows of a new terminal; 24 unless given."},
                     {"shell", "query",
                      "The program of a new terminal; the image's shell unless given."},
                     {"session", "query", "The session whose terminal it is."},
                     {"Session-Id", "header", "The same; counts for more."}},
      .answers = {
        {"101", "A WebSocket."},
        {"400", "", "", "InvalidRequest"},
        {"502",
         "The terminal could not be opened, or there are as many as there may be, and each has a "
         "client or runs something.",
         "application/json", "ErrorResponse"},
        {"503", "No room for another sandbox.", "application/json", "ErrorResponse"}}}});
}

} // namespace insula::http::bridge
