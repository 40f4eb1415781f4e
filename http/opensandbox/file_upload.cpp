#include "http/opensandbox/file_upload.hpp"

#include "http/opensandbox/commands.hpp"
#include "http/opensandbox/files_json.hpp"
#include "http/opensandbox/multipart.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/file_writer.hpp"

#include <deque>
#include <optional>
#include <utility>

namespace insula::http::opensandbox {

namespace {

using event = multipart_reader::event;

constexpr std::size_t longest_metadata = 64 * 1024;
constexpr std::size_t most_waiting = 256; // Metadata whose files have not come.

/// At most one read's worth of body waits, and then the client's socket is not read. After the
/// first failure the rest of the body is thrown away.
class upload final : public body_sink, public std::enable_shared_from_this<upload> {
public:
  upload(const execd_target& target, const matched_request& what)
      : target_(target)
      , id_(target.id(what)) {
    if (auto boundary = boundary_of(what.field("Content-Type")))
      parts_.emplace(*boundary);
    else
      outcome_ = execd_failure(400, "INVALID_FILE", "the body must be multipart/form-data");
  }

  void begin(strand_handle strand, std::function<void()> resume, request_context of) override {
    strand_ = std::move(strand);
    resume_ = std::move(resume);
    context_ = std::move(of);
  }

  verdict write(std::string_view bytes) override {
    if (outcome_)
      return verdict::more;
    parts_->feed(bytes);
    go_on();
    return busy_ && !outcome_ ? verdict::wait : verdict::more;
  }

  response refusal() override { return execd_failure(413, "INVALID_FILE", "too much is uploaded"); }
  const std::optional<response>& settled() const override { return outcome_; }

  void end(reply to) override {
    to_ = std::move(to);
    ended_ = true;
    self_ = shared_from_this();
    if (outcome_)
      return answer();
    go_on();
  }

private:
  /// Takes what has come apart, until the file that is being written needs time.
  void go_on() {
    const auto keep = shared_from_this(); // The answer may be given here.
    while (!busy_ && !outcome_) {
      switch (parts_->next()) {
        case event::nothing:
          if (ended_)
            settle(execd_failure(400, "INVALID_FILE", "the body ends before its last part"));
          return;
        case event::part: begin_part(); break;
        case event::content: take_content(); break;
        case event::part_end: end_part(); break;
        case event::wrong:
          return settle(execd_failure(400, "INVALID_FILE", "the body is no multipart/form-data"));
        case event::end:
          if (ended_)
            settle(sum());
          return;
      }
    }
  }

  void begin_part() {
    now_ = part::other;
    if (parts_->name() == "metadata") {
      if (!parts_->is_file())
        return settle(metadata_failure("metadata must be sent as a file"));
      now_ = part::metadata;
      metadata_.clear();
    } else if (parts_->name() == "file") {
      if (!parts_->is_file())
        return settle(execd_failure(400, "INVALID_FILE_CONTENT", "file must be sent as a file"));
      if (waiting_.empty())
        return settle(any_metadata_ ? execd_failure(400, "INVALID_FILE", "a file has no metadata")
                                    : metadata_failure("the metadata of a file comes before it"));
      now_ = part::file;
      open_file();
    }
  }

  void take_content() {
    if (now_ == part::metadata) {
      metadata_ += parts_->content();
      if (metadata_.size() > longest_metadata)
        settle(metadata_failure("the metadata is too long"));
    } else if (now_ == part::file) {
      busy_ = !writer_->write(parts_->content());
    }
  }

  void end_part() {
    if (now_ == part::metadata) {
      auto words = read_upload(metadata_);
      if (!words)
        return settle(metadata_failure(words.reason().message));
      if (waiting_.size() == most_waiting)
        return settle(metadata_failure("there is more metadata than files"));
      waiting_.push_back(std::move(*words));
      any_metadata_ = true;
    } else if (now_ == part::file) {
      busy_ = finishing_ = true;
      writer_->finish();
    }
  }

  void open_file() {
    any_file_ = busy_ = true;
    file_task_request wanted;
    wanted.what = file_task::put;
    wanted.words = std::move(waiting_.front());
    waiting_.pop_front();
    wanted.only_if_there = !target_.makes_sandbox();
    wanted.context = context_;
    path_ = wanted.words.front();
    // Both come while this is there: it has the writer, and is kept from its body's end on.
    writer_ = std::make_shared<file_writer>(
      strand_,
      [this] {
        if (!finishing_)
          take_more();
      },
      [this](const file_writer::outcome& how) { written(how); });
    writer_->open([&](file_writer::opened opened, file_writer::not_opened failed) {
      sandbox_question<file_task_request, file_channel> asked{
        target_.with->directory, id_, std::move(wanted), std::move(opened), std::move(failed)};
      asked.starts_it = target_.makes_sandbox();
      ask_sandbox(*target_.with, std::move(asked));
    });
  }

  void take_more() {
    const auto keep = shared_from_this();
    busy_ = false;
    go_on();
    if (!busy_ && !outcome_)
      resume_();
  }

  void written(const file_writer::outcome& how) {
    writer_.reset();
    finishing_ = false;
    if (!how.why)
      return take_more();
    if (how.head.error != 0)
      return settle(execd_failure(500, "RUNTIME_ERROR", path_ + ": " + how.why->message));
    settle(execd_failure(*how.why));
  }

  response sum() const {
    if (!any_metadata_)
      return metadata_failure("there is no metadata");
    if (!any_file_)
      return execd_failure(400, "INVALID_FILE_CONTENT", "there is no file");
    if (!waiting_.empty())
      return execd_failure(400, "INVALID_FILE", "there is more metadata than files");
    return {200, {}, {}};
  }

  static response metadata_failure(std::string_view why) {
    return execd_failure(400, "INVALID_FILE_METADATA", why);
  }

  /// The first outcome counts.
  void settle(response outcome) {
    outcome_ = std::move(outcome);
    writer_.reset();
    resume_(); // What was read last may have been too much.
    if (ended_)
      answer();
  }

  void answer() {
    to_->respond(*outcome_);
    self_.reset(); // Perhaps the last reference: nothing may follow.
  }

  enum class part : std::uint8_t { other, metadata, file };

  const execd_target target_;
  const std::string id_;
  std::optional<multipart_reader> parts_;
  strand_handle strand_;
  std::function<void()> resume_;
  request_context context_;
  part now_ = part::other;
  std::string metadata_;
  std::deque<std::vector<std::string>> waiting_; ///< Words of what is said of files to come.
  std::shared_ptr<file_writer> writer_;          ///< Of the file that is coming.
  std::string path_;                             ///< Its.
  bool any_metadata_ = false, any_file_ = false;
  bool busy_ = false;      ///< The file takes nothing now.
  bool finishing_ = false; ///< It has come, and is not in place yet.
  bool ended_ = false;     ///< The whole body has come.
  std::optional<response> outcome_;
  reply to_;
  std::shared_ptr<upload> self_; ///< Keeps it from its body's end to the answer.
};

} // namespace

std::shared_ptr<body_sink> make_file_upload(const execd_target& target,
                                            const matched_request& what) {
  return std::make_shared<upload>(target, what);
}

} // namespace insula::http::opensandbox
