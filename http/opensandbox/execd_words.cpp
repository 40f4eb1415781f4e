#include "http/opensandbox/commands.hpp"
#include "http/opensandbox/execd_json.hpp"
#include "http/opensandbox/lines.hpp"

#include <chrono>
#include <utility>

namespace insula::http::opensandbox {

namespace {

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

/// execd's events: lines, pings, and how the command has ended.
class words final : public command_words {
public:
  explicit words(told_as how)
      : told_(std::move(how)) {}

  manner how() const override {
    using namespace std::chrono_literals;
    return {.read_bytes = 256 * 1024,
            .reads_ahead = true,
            .ping_pause = 3s,
            .rest_patience = told_.tells_rest ? 200ms : 0ms}; // A prompt never ends its line.
  }
  stream_head head() const override {
    return {"text/event-stream", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
  }

  response refusal(question_stage, const error& why) const override { return execd_failure(why); }

  /// The client's directory is looked at before anything is told; what else does not start is told
  /// as an event.
  std::optional<response> start_refusal(const error& why) const override {
    if (why.code == errc::not_found && told_.needs_session)
      return execd_failure(404, "CONTEXT_NOT_FOUND", why.message);
    if (why.code != errc::launch_failed)
      return execd_failure(why);
    if (told_.cwd_named && why.message.starts_with("entering the working directory"))
      return execd_failure(400, "INVALID_REQUEST_BODY", why.message);
    return std::nullopt;
  }

  void begin(std::string& to) override {
    began_ms_ = now_ms();
    to += write_text_event("init", told_.id, began_ms_);
    to += write_text_event("ping", "pong", began_ms_);
  }

  void output(std::string& to, const std::vector<output_frame>& frames) override {
    read_ms_ = now_ms();
    std::size_t bytes = 0;
    for (const auto& each : frames)
      bytes += each.bytes.size();
    to.reserve(2 * bytes);
    for (const auto& each : frames) {
      const bool is_out = told_.merges || each.stream == output_stream::out;
      (is_out ? out_ : err_).feed(each.bytes, [&](std::string_view line, std::string_view end) {
        append_line(to, is_out ? "stdout" : "stderr", line, end);
      });
    }
  }

  void ended(std::string& to, const process_end& end) override {
    append_rest(to, true);
    const auto how = outcome_of(end);
    to += how.words.empty() ? write_complete_event(now_ms() - began_ms_, now_ms())
                            : write_error_event(how.value, how.words, now_ms());
  }

  void failed(std::string& to, const error& why) override {
    append_rest(to, true);
    const auto text = why.code == errc::internal ? std::string{"internal error"} : why.message;
    to += write_error_event(text, text, now_ms());
  }

  void left(std::string& to) override { to += write_complete_event(0, began_ms_); }
  void ping(std::string& to) override { to += write_text_event("ping", "pong", now_ms()); }
  void rest(std::string& to) override { append_rest(to, false); }
  bool has_rest() const override { return out_.has_rest() || err_.has_rest(); }

private:
  void append_line(std::string& to, std::string_view type, std::string_view line,
                   std::string_view end) const {
    if (told_.keeps_ends)
      append_line_event(to, type, line, end, read_ms_);
    else
      append_line_event(to, type, line, line.empty() ? "\n" : "", read_ms_);
  }

  /// `for_good`: nothing follows it.
  void append_rest(std::string& to, bool for_good) {
    for (auto* each : {&out_, &err_}) {
      const auto tell = [&](std::string_view line, std::string_view end) {
        append_line(to, each == &out_ ? "stdout" : "stderr", line, end);
      };
      for_good ? each->finish(tell) : each->flush(tell);
    }
  }

  const told_as told_;
  std::int64_t began_ms_ = 0;
  std::int64_t read_ms_ = 0; ///< What is told now was read then.
  line_splitter out_, err_;
};

} // namespace

std::unique_ptr<command_words> execd_command_words(told_as how) {
  return std::make_unique<words>(std::move(how));
}

void start_command(execd_job job) {
  // In a session it has to wait for its turn, which clients are patient with.
  constexpr std::chrono::hours turn_patience{24};
  command_job stream;
  if (!job.command.session.empty())
    stream.patience = turn_patience;
  stream.with = std::move(job.with);
  stream.sandbox = std::move(job.sandbox);
  stream.starts_sandbox = job.makes_sandbox;
  stream.command = std::move(job.command);
  stream.background = job.background;
  stream.ends_with_client = job.ends_with_client;
  stream.words = execd_command_words(std::move(job.told));
  stream.to = std::move(job.to);
  run_command(std::move(stream));
}

} // namespace insula::http::opensandbox
