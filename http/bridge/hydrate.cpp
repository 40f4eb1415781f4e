#include "http/bridge/archives.hpp"

#include "base/limits.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/idempotency.hpp"
#include "http/bridge/workspace_path.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/tar_decoder.hpp"
#include "http/transport/watchdog.hpp"

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

namespace insula::http::bridge {

namespace {

namespace asio = boost::asio;
using error_code = boost::system::error_code;

constexpr unpack_ceilings ceilings{limits::unpacked_bytes, limits::unpacked_entries};
constexpr std::string_view last_line = "tar: Exiting with failure status due to previous errors";

/// It will pass.
response busy(const char* why) {
  return {503, json::write_error(std::string{"hydrate failed: "} + why, "capacity_exceeded")};
}

/// Returns errno.
int append_to(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return n == 0 ? EIO : errno;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

/// First the body goes to a nameless file, so that an archive that is too large, cut short or never
/// ends has done nothing. Then it is decoded step by step, each step waiting until the sandbox has
/// taken the last one. Files and decoders are touched on the workers' threads only, one job at a
/// time; everything else is the strand's.
class hydrate final : public body_sink, public std::enable_shared_from_this<hydrate> {
public:
  hydrate(std::shared_ptr<const services> with, std::string id, idempotency_header header)
      : with_(std::move(with))
      , id_(std::move(id))
      , header_(std::move(header))
      , once_(header_.key.has_value())
      , share_(with_->spooled)
      , decompressor_(with_->decompressors) {}

  void begin(strand_handle strand, std::function<void()> resume, request_context of) override {
    strand_ = strand;
    resume_ = std::move(resume);
    context_ = std::move(of);
    patience_ = std::make_unique<watchdog>(strand.executor(), [this] {
      fail(found_ ? step::write_tree : step::find_sandbox, errc::deadline_exceeded,
           "the sandbox did not answer in time");
    });
  }

  verdict write(std::string_view bytes) override {
    total_ += bytes.size();
    if (total_ > limits::archive_body_bytes) {
      settle(archive_too_large(total_, limits::archive_body_bytes));
      // The client learns the whole size, unless there is no end to it.
      return total_ > 2 * limits::archive_body_bytes ? verdict::refuse : verdict::more;
    }
    if (outcome_)
      return verdict::more;
    if (!share_.take(bytes.size())) {
      settle(busy("too many archives arrive at once"));
      return verdict::more;
    }
    if (once_)
      digest_.add(bytes);
    unwritten_ += bytes;
    spool();
    return unwritten_.size() >= limits::spool_ahead_bytes ? verdict::wait : verdict::more;
  }

  response refusal() override { return archive_too_large(total_, limits::archive_body_bytes); }
  const std::optional<response>& settled() const override { return outcome_; }

  void end(reply to) override {
    to_ = std::move(to);
    if (total_ > limits::archive_body_bytes)
      outcome_ = archive_too_large(total_, limits::archive_body_bytes);
    else if (total_ == 0)
      outcome_ = error_response(step::request, {errc::invalid_request, "Empty tar payload"});
    if (outcome_)
      return to_->respond(*outcome_);
    self_ = shared_from_this();
    ended_ = true;
    spool();
  }

private:
  /// `job` on a worker, then `then` with what it returned on the strand.
  template <class Job, class Then>
  void work(Job job, Then then) {
    with_->workers->post([self = shared_from_this(), job = std::move(job),
                          then = std::move(then)]() mutable {
      auto outcome = job(*self);
      const auto executor = self->strand_.executor();
      asio::post(executor, [self = std::move(self), then, outcome = std::move(outcome)]() mutable {
        then(*self, std::move(outcome));
      });
    });
  }

  // ---- The body, until there is no more of it

  void spool() {
    if (spooling_ || outcome_)
      return;
    if (unwritten_.empty()) {
      if (ended_ && once_)
        ask_whether_done();
      else if (ended_)
        find_sandbox();
      return;
    }
    spooling_ = true;
    work(
      [bytes = std::exchange(unwritten_, {})](hydrate& self) {
        if (!self.file_)
          self.file_.reset(
            ::open(self.with_->spool_directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
        return self.file_ ? append_to(self.file_.get(), bytes) : errno;
      },
      [](hydrate& self, int failed) {
        self.spooling_ = false;
        if (failed != 0)
          return self.fail(step::write_tree, errc::io_failed,
                           std::generic_category().message(failed));
        self.resume_();
        self.spool();
      });
  }

  // ---- The sandbox

  template <class Then>
  void ask_once(Then then) {
    patience_->expires_after(sandbox_patience);
    const auto here = [self = shared_from_this()](auto what) {
      asio::post(self->strand_.executor(), [self, what = std::move(what)] { what(*self); });
    };
    ask_sandbox<write_once_request, write_once_answer>(
      *with_, {with_->directory, id_, write_once_request{request_, start_, context_},
               [here, then](const write_once_answer& answer) {
                 here([then, answer](hydrate& self) { then(self, answer); });
               },
               [here](question_stage at, const error& why) {
                 here([at, why](hydrate& self) {
                   self.settle(error_response(step_of(at, step::write_tree), why));
                 });
               }});
  }

  void ask_whether_done() {
    request_ = idempotency_key_with_digest(header_, digest_.hexadecimal());
    ask_once([](hydrate& self, const write_once_answer& answer) {
      if (self.outcome_)
        return;
      self.start_ = answer.start;
      answer.written ? self.settle({200, json::write_ok()}) : self.find_sandbox();
    });
  }

  /// What the client is told has to be true of the next time, too.
  void remember() {
    ask_once([](hydrate& self, const write_once_answer&) { self.settle({200, json::write_ok()}); });
  }

  void find_sandbox() {
    patience_->expires_after(sandbox_patience);
    const auto here = [self = shared_from_this()](auto then) {
      asio::post(self->strand_.executor(), [self, then = std::move(then)] { then(*self); });
    };
    ask_sandbox<write_tree_request, file_channel>(
      *with_, {with_->directory, id_, write_tree_request{std::string{workspace}, context_},
               [here](const file_channel& channel) {
                 here([channel](hydrate& self) { self.open(channel); });
               },
               [here](question_stage at, const error& why) {
                 here([at, why](hydrate& self) {
                   self.settle(error_response(step_of(at, step::write_tree), why));
                 });
               }});
  }

  void open(const file_channel& channel) {
    if (outcome_)
      return;
    found_ = true;
    use_ = channel.use;
    channel_.emplace(strand_.executor(), asio::local::stream_protocol{}, channel.socket->release());
    // It may end at once, so the result is listened for from the beginning.
    listen(asio::buffer(&result_, sizeof result_), [](hydrate& self) {
      if (!self.sent_ || self.result_.text_bytes > max_tree_text)
        return self.fail(step::write_tree, errc::io_failed, "the sandbox ended the transfer");
      self.text_.resize(self.result_.text_bytes);
      self.listen(asio::buffer(self.text_), [](hydrate& heard) { heard.judge(); });
    });
    decode();
  }

  template <class Then>
  void listen(asio::mutable_buffer into, Then then) {
    asio::async_read(
      *channel_, into, [self = shared_from_this(), then](const error_code& ec, std::size_t) {
        if (self->outcome_)
          return;
        if (ec)
          self->fail(step::write_tree, errc::io_failed, "the sandbox ended the transfer");
        else
          then(*self);
      });
  }

  void decode() {
    patience_->disarm(); // Whatever this takes is not the sandbox's fault.
    work(
      [](hydrate& self) {
        if (!self.decoder_) {
          ::lseek(self.file_.get(), 0, SEEK_SET);
          self.decoder_.emplace(self.file_.get(), ceilings);
          if (self.decoder_->compressed() && !self.decompressor_.take(1))
            return std::optional<std::string>{};
        }
        return std::optional{self.decoder_->next()};
      },
      [](hydrate& self, std::optional<std::string> batch) { // At rest again.
        if (batch)
          self.send(std::move(*batch));
        else
          self.settle(busy("too many compressed archives are being unpacked"));
      });
  }

  void send(std::string batch) {
    if (outcome_)
      return;
    sent_ = decoder_->ended();
    // After the last entry come the times of every directory.
    if (sent_)
      patience_->expires_after(limits::tree_check_patience);
    else
      patience_->expires_after(limits::reader_patience);
    batch_ = std::move(batch);
    asio::async_write(*channel_, asio::buffer(batch_),
                      [self = shared_from_this()](const error_code& ec, std::size_t) {
                        // Of an early end, what is listened for tells.
                        if (!ec && !self->outcome_ && !self->sent_)
                          self->decode();
                      });
  }

  // ---- The outcome

  void judge() {
    const auto& refused = decoder_->failure();
    if (result_.exit_code == 0 && refused.empty())
      return once_ ? remember() : settle({200, json::write_ok()});
    auto text = refused + text_;
    if (text_.empty())
      text += last_line;
    settle(tar_failure(step::write_tree, result_.exit_code != 0 ? result_.exit_code : 2, text));
  }

  void fail(step at, errc code, std::string message) {
    settle(error_response(at, {code, std::move(message)}));
  }

  /// The first outcome counts.
  void settle(response outcome) {
    if (outcome_)
      return;
    outcome_ = std::move(outcome);
    patience_->disarm();
    if (channel_) {
      error_code ignored;
      channel_->close(ignored);
    }
    unwritten_.clear();
    resume_();
    if (to_)
      to_->respond(*outcome_);
    self_.reset(); // Perhaps the last reference: nothing may follow.
  }

  const std::shared_ptr<const services> with_;
  const std::string id_;
  const idempotency_header header_;
  const bool once_; ///< It has its effect once.
  digest digest_;   ///< Then, of the body.
  idempotency_key request_;
  std::string start_;       ///< Of the sandbox, in which the tree had not been written.
  byte_share share_;        ///< Of the disk that bodies may fill.
  byte_share decompressor_; ///< Taken by a worker.
  strand_handle strand_;
  request_context context_;
  std::function<void()> resume_;
  std::unique_ptr<watchdog> patience_; ///< With the sandbox, not with the client.
  std::shared_ptr<void> use_;          ///< Keeps the sandbox awake.
  std::optional<asio::local::stream_protocol::socket> channel_;
  unique_fd file_;
  std::optional<tar_decoder> decoder_;
  std::string unwritten_; ///< Of the body, while the last job writes.
  std::string batch_;     ///< On its way to the sandbox.
  tree_result result_{};
  std::string text_;
  std::uint64_t total_ = 0;
  bool spooling_ = false;
  bool ended_ = false; ///< The whole body has come.
  bool found_ = false;
  bool sent_ = false; ///< The rest of the tree is on its way to the sandbox.
  std::optional<response> outcome_;
  reply to_; ///< Set once the body is complete.
  std::shared_ptr<hydrate>
    self_; ///< Keeps it while it waits for the outcome with the body complete.
};

} // namespace

std::shared_ptr<body_sink> make_hydrate(std::shared_ptr<const services> with, std::string id,
                                        idempotency_header header) {
  return std::make_shared<hydrate>(std::move(with), std::move(id), std::move(header));
}

} // namespace insula::http::bridge
