#include "http/bridge/file_upload.hpp"

#include "http/bridge/error_response.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/file_writer.hpp"

#include <optional>

namespace insula::http::bridge {

namespace {

/// At most one read's worth of body waits, and then the client's socket is not read. Once the
/// outcome is known the rest of the body is thrown away.
class upload final : public body_sink, public std::enable_shared_from_this<upload> {
public:
  upload(std::shared_ptr<const services> with, std::string id, std::string session,
         std::string path, std::uint64_t limit)
      : with_(std::move(with))
      , id_(std::move(id))
      , session_(std::move(session))
      , path_(std::move(path))
      , limit_(limit) {}

  void begin(strand_handle strand, std::function<void()> resume, request_context of) override {
    resume_ = std::move(resume);
    writer_ = std::make_shared<file_writer>(
      std::move(strand), resume_, [this](const file_writer::outcome& how) {
        settle(how.why ? error_response(step_of(how.at, step::write_file), *how.why)
                       : response{200, json::write_ok()});
      });
    writer_->open([&](file_writer::opened opened, file_writer::not_opened failed) {
      ask_sandbox<write_file_request, file_channel>(
        *with_, {with_->directory, id_, write_file_request{path_, session_, std::move(of)},
                 std::move(opened), std::move(failed)});
    });
  }

  verdict write(std::string_view bytes) override {
    total_ += bytes.size();
    if (total_ > limit_) {
      settle(too_large(total_, limit_));
      // The client learns the whole size, unless there is no end to it.
      return total_ > 2 * limit_ ? verdict::refuse : verdict::more;
    }
    if (outcome_)
      return verdict::more;
    const bool more = writer_->write(bytes);
    return more || outcome_ ? verdict::more : verdict::wait;
  }

  response refusal() override { return too_large(total_, limit_); }
  const std::optional<response>& settled() const override { return outcome_; }

  void end(reply to) override {
    to_ = std::move(to);
    if (total_ > limit_)
      outcome_ = too_large(total_, limit_);
    if (outcome_)
      return to_->respond(*outcome_);
    self_ = shared_from_this();
    writer_->finish();
  }

private:
  /// The first outcome counts.
  void settle(response outcome) {
    if (outcome_)
      return;
    outcome_ = std::move(outcome);
    writer_.reset(); // The file stays as it was, if it is not done.
    resume_();
    if (to_)
      to_->respond(*outcome_);
    self_.reset(); // Perhaps the last reference: nothing may follow.
  }

  const std::shared_ptr<const services> with_;
  const std::string id_;
  const std::string session_;
  const std::string path_;
  const std::uint64_t limit_;
  std::function<void()> resume_;
  std::shared_ptr<file_writer> writer_; ///< Until the outcome is known.
  std::uint64_t total_ = 0;
  std::optional<response> outcome_;
  reply to_; ///< Set once the body is complete.
  std::shared_ptr<upload>
    self_; ///< Keeps it while it waits for the outcome with the body complete.
};

} // namespace

std::shared_ptr<body_sink> make_upload(std::shared_ptr<const services> with, std::string id,
                                       std::string session, std::string path, std::uint64_t limit) {
  return std::make_shared<upload>(std::move(with), std::move(id), std::move(session),
                                  std::move(path), limit);
}

} // namespace insula::http::bridge
