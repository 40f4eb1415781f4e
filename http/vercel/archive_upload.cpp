#include "http/vercel/archive_upload.hpp"

#include "base/limits.hpp"
#include "http/transport/watchdog.hpp"
#include "http/vercel/file_command.hpp"

#include <boost/asio/post.hpp>

#include <optional>
#include <string>
#include <utility>

namespace insula::http::vercel {

namespace {

/// A piece that is on its way to the sandbox; as much again waits here.
constexpr std::size_t piece_bytes = 256 * 1024;
/// What is still read of a body whose answer is clear, so that its client reads that answer.
constexpr std::uint64_t most_unwanted = limits::archive_body_bytes;
/// Of the program: a client that stops sending is ended long before.
constexpr std::chrono::hours longest_upload{1};

constexpr std::string_view gzip_magic = "\x1f\x8b";

/// On the connection's strand. Until the body is complete only the connection keeps it; then it
/// keeps itself, for the answer.
class archive_upload final : public body_sink, public std::enable_shared_from_this<archive_upload> {
  /// `what` on the strand, if this is still there.
  template <class Value, class What>
  auto here(What what) {
    return [weak = weak_from_this(), executor = strand_.executor(), what](Value value) {
      boost::asio::post(executor, [weak, what, value = std::move(value)]() mutable {
        if (const auto self = weak.lock())
          what(*self, value);
      });
    };
  }

public:
  explicit archive_upload(std::shared_ptr<const session_call> call)
      : call_(std::move(call)) {}

  ~archive_upload() override {
    if (feed_ && !closed_) // The program finds its archive cut off, and ends.
      feed_->write({}, true, [](bool) {});
  }

  void begin(strand_handle strand, std::function<void()> resume, request_context of) override {
    strand_ = strand;
    resume_ = std::move(resume);
    context_ = std::move(of);
    patience_ = std::make_unique<watchdog>(strand.executor(), [this] { settle(late_answer()); });
    if (auto wrong = objection())
      return settle(failure(*wrong));
    patience_->expires_after(file_patience);
    ask_reach(*call_, context_, here<std::optional<response>>([](auto& self, auto& no) {
      if (no)
        return self.settle(std::move(*no));
      self.allowed_ = true;
      self.advance();
    }));
  }

  verdict write(std::string_view bytes) override {
    if (outcome_ || deaf_) {
      unwanted_ += bytes.size();
      return outcome_ && unwanted_ > most_unwanted ? verdict::refuse : verdict::more;
    }
    pending_ += bytes;
    advance();
    return pending_.size() >= piece_bytes ? verdict::wait : verdict::more;
  }

  response refusal() override { return *outcome_; }
  const std::optional<response>& settled() const override { return outcome_; }

  void end(reply to) override {
    to_ = std::move(to);
    if (outcome_)
      return to_->respond(*outcome_);
    self_ = shared_from_this();
    ended_ = true;
    advance();
  }

private:
  std::string base() const { return call_->cwd.empty() ? "/" : call_->cwd; }

  std::optional<vercel::refusal> objection() const {
    if (call_->type.substr(0, call_->type.find(';')) != "application/gzip")
      return vercel::refusal{415, "invalid_content_type",
                             "The content-type must be application/gzip."};
    if (!base().starts_with('/') || base().find('\0') != std::string::npos)
      return bad_request("x-cwd must be an absolute path");
    return std::nullopt;
  }

  void advance() {
    if (outcome_ || !allowed_)
      return;
    if (!asked_)
      return start();
    if (!feed_ || feeding_ || deaf_)
      return;
    if (pending_.empty() && !ended_)
      return patience_->disarm(); // It is the client's turn.
    feeding_ = true;
    closed_ = ended_;
    patience_->expires_after(file_patience);
    feed_->write(std::exchange(pending_, {}), closed_, here<bool>([](auto& self, bool taken) {
                   self.feeding_ = false;
                   if (!taken)
                     return self.hear_no_more();
                   if (!self.closed_)
                     self.advance();
                 }));
    resume_();
  }

  /// The program has what it needs, or has given up: its end tells.
  void hear_no_more() {
    deaf_ = true;
    pending_.clear();
    resume_();
  }

  void start() {
    if (pending_.size() < gzip_magic.size() && !ended_)
      return patience_->disarm();
    if (!pending_.starts_with(gzip_magic))
      return settle(failure(bad_request("the body must be a gzip-compressed tar archive")));
    asked_ = true;
    patience_->expires_after(file_patience);
    auto command =
      file_command(*call_,
                   {"tar", "--extract", "--gzip", "--file=-", "--directory=" + base(),
                    "--no-same-owner", "--preserve-permissions", "--overwrite", "--touch"},
                   context_);
    command.timeout_ms = std::chrono::milliseconds{longest_upload}.count();
    run_fed_command(*call_->with, call_->sandbox(), std::move(command), begun(),
                    [call = call_, settled = here<response>([](auto& self, auto& answer) {
                                     self.settle(std::move(answer));
                                   })](const result<short_outcome>& how) {
                      answer_to_files(*call, how, settled);
                    });
  }

  /// A program that has begun for a client that has gone finds the end of its archive, too.
  std::function<void(command_feed)> begun() {
    return [weak = weak_from_this(), executor = strand_.executor()](const command_feed& feed) {
      boost::asio::post(executor, [weak, feed] {
        const auto self = weak.lock();
        if (!self || self->outcome_)
          return feed.write({}, true, [](bool) {});
        self->feed_ = feed;
        self->advance();
      });
    };
  }

  /// The first outcome counts.
  void settle(response outcome) {
    if (outcome_)
      return;
    outcome_ = std::move(outcome);
    patience_->disarm();
    pending_.clear();
    resume_();
    if (to_)
      to_->respond(*outcome_);
    self_.reset(); // Perhaps the last reference: nothing may follow.
  }

  const std::shared_ptr<const session_call> call_;
  strand_handle strand_;
  std::function<void()> resume_;
  request_context context_;
  std::unique_ptr<watchdog> patience_; ///< With the sandbox, not with the client.
  std::string pending_;                ///< Of the body, not yet on its way.
  std::optional<command_feed> feed_;   ///< Of the program, once that runs.
  std::uint64_t unwanted_ = 0;         ///< Of the body, since the answer is clear.
  bool allowed_ = false;
  bool asked_ = false;   ///< The sandbox, for the program.
  bool feeding_ = false; ///< A piece is on its way.
  bool closed_ = false;  ///< The last one, or it has come.
  bool deaf_ = false;    ///< The program reads no more.
  bool ended_ = false;   ///< The whole body has come.
  std::optional<response> outcome_;
  reply to_; ///< Set once the body is complete.
  std::shared_ptr<archive_upload> self_;
};

} // namespace

std::shared_ptr<body_sink> make_archive_upload(const std::shared_ptr<const session_call>& call) {
  return std::make_shared<archive_upload>(call);
}

} // namespace insula::http::vercel
