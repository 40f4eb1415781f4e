#include "http/bridge/exec_words.hpp"

#include "base/size_text.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/bridge/error_response.hpp"
#include "http/json/json.hpp"
#include "http/text/event_stream.hpp"
#include "http/text/utf8.hpp"

#include <utility>

namespace insula::http::bridge {

namespace {

/// As `timeout` and every shell report it.
constexpr int timed_out_code = 124;

std::string_view name_of(output_stream stream) {
  switch (stream) {
    case output_stream::out: return "stdout";
    case output_stream::err: return "stderr";
  }
  return "stdout";
}

/// Said where people and programs look when a command has failed; the exit code is 137 in any case.
std::string out_of_memory_text(const process_end& end) {
  return end.memory_bytes == 0 ? "Command killed: out of memory\n"
                               : "Command killed: out of memory (the sandbox's limit is " +
                                   size_text(end.memory_bytes) + ")\n";
}

class words final : public command_words {
public:
  words(bool is_keyed, std::optional<stream_position> from, std::string timeout_text,
        bool shows_times)
      : is_keyed_(is_keyed)
      , from_(std::move(from))
      , timeout_text_(std::move(timeout_text))
      , shows_times_(shows_times) {}

  /// Of the output, as base64 it is a third more.
  manner how() const override { return {.opens_early = true}; }
  stream_head head() const override {
    return {"text/event-stream", {{"Cache-Control", "no-cache"}}, !shows_times_};
  }
  std::string silence() const override { return std::string{sse::heartbeat}; }

  response refusal(question_stage at, const error& why) const override {
    return error_response(step_of(at, step::exec), why);
  }
  std::optional<response> start_refusal(const error&) const override { return std::nullopt; }

  /// Frames of one stream that follow each other become one event.
  void output(std::string& to, const std::vector<output_frame>& frames) override {
    for (std::size_t i = 0; i < frames.size();) {
      const auto stream = frames[i].stream;
      std::string bytes = frames[i].bytes;
      for (++i; i < frames.size() && frames[i].stream == stream; ++i)
        bytes += frames[i].bytes;
      passed_ = frames[i - 1].end;
      auto& holdback = stream == output_stream::out ? out_ : err_;
      append(to, stream, holdback.feed(std::move(bytes)));
    }
  }

  void ended(std::string& to, const process_end& how) override {
    append_held(to);
    const auto text = end_text(how);
    if (!text.empty() && !std::exchange(end_told_, true))
      append(to, output_stream::err, text);
    sse::append_event(to, "exit", write_exit_code(how.timed_out ? timed_out_code : how.exit_code),
                      id());
  }

  void failed(std::string& to, const error& why) override {
    switch (why.code) {
      case errc::launch_failed:
      case errc::invalid_request:
        return append_error(to, "Command execution failed", "exec_error", why.message);
      case errc::session_ended:
      case errc::node_unreachable:
      case errc::sandbox_not_running: return append_error(to, why.message, "exec_error");
      default: return append_error(to, "exec failed: " + why.message, "exec_transport_error");
    }
  }

  bool is_at_beginning() const override { return !from_ || *from_ == stream_position{}; }

  result<std::uint64_t> resume(const replay_status& found) override {
    const error gone{errc::result_gone, "what follows this Last-Event-ID is not there any more"};
    if (!found.process)
      return is_at_beginning() ? result<std::uint64_t>{std::uint64_t{0}} : gone;
    const auto from = from_.value_or(stream_position{});
    if (from.offset < found.begin)
      return gone;
    if (from.offset > found.end)
      return error{errc::invalid_request, "Last-Event-ID is none of this stream's"};
    passed_ = from.offset;
    out_.hold(from.out);
    err_.hold(from.err);
    end_told_ = from.end_told;
    return from.offset;
  }

private:
  /// Of what has been put into events, for a client that can go on from there.
  std::string id() const {
    return is_keyed_ ? stream_position{passed_, out_.held(), err_.held(), end_told_}.text()
                     : std::string{};
  }

  void append(std::string& to, output_stream stream, std::string_view bytes) {
    if (!bytes.empty())
      sse::append_base64_event(to, name_of(stream), bytes, id());
  }

  void append_held(std::string& to) {
    const auto out = out_.flush();
    append(to, output_stream::out, out);
    const auto err = err_.flush();
    append(to, output_stream::err, err);
  }

  void append_error(std::string& to, std::string_view message, std::string_view code,
                    std::string_view reason = {}) {
    append_held(to);
    sse::append_event(to, "error", json::write_error(message, code, reason), id());
  }

  /// What is said of some ends besides the exit code.
  std::string end_text(const process_end& end) const {
    if (end.timed_out)
      return "Command timed out after " +
             (timeout_text_.empty() ? std::to_string(end.timeout_ms) : timeout_text_) + "ms\n";
    return end.out_of_memory ? out_of_memory_text(end) : std::string{};
  }

  const bool is_keyed_;
  const std::optional<stream_position> from_;
  const std::string timeout_text_;
  const bool shows_times_;
  std::uint64_t passed_ = 0; ///< What has gone into events, or is held back.
  bool end_told_ = false;    ///< Of the end, all but the exit code.
  utf8_holdback out_;
  utf8_holdback err_;
};

} // namespace

std::unique_ptr<command_words> exec_words(bool is_keyed, std::optional<stream_position> from,
                                          std::string timeout_text, bool shows_times) {
  return std::make_unique<words>(is_keyed, std::move(from), std::move(timeout_text), shows_times);
}

} // namespace insula::http::bridge
