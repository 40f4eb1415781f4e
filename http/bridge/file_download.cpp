#include "http/bridge/file_download.hpp"

#include "http/bridge/error_response.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/channel_reader.hpp"
#include "http/sandboxes/told_entry.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace insula::http::bridge {

namespace {

/// What all of them have.
class download : public channel_listener {
public:
  download(std::string path, reply to)
      : path_(std::move(path))
      , to_(std::move(to)) {}

  /// Once something has been sent, dropping the stream cuts the connection.
  void cut(const error& why) override {
    if (to_)
      refuse(why);
  }

protected:
  bool refuse(const error& why) { return refuse(error_response(step::read_file, why)); }
  bool refuse(response why) {
    std::exchange(to_, {})->respond(std::move(why));
    return false;
  }
  /// `code` is of errno.
  bool refuse_file(int code, file_kind kind) {
    if (code == ENOENT || code == ENOTDIR || code == EISDIR || kind == file_kind::directory)
      return refuse({errc::not_found, "File not found: " + path_});
    return refuse(
      {errc::io_failed, code != 0 ? std::generic_category().message(code) : "not a regular file"});
  }

  /// The first bytes, and the head before them. A file whose length is told is sent up to there,
  /// also if it has grown meanwhile.
  void begin_answer(stream_head how) {
    left_ = how.length;
    stream_ = std::exchange(to_, {})->stream(std::move(how));
  }

  void send(std::string bytes, bool last, std::function<void()> next) {
    if (!stream_)
      return; // Only the head was asked for.
    if (left_) {
      *left_ -= std::min<std::uint64_t>(*left_, bytes.size());
      last = last || *left_ == 0;
    }
    if (last)
      return stream_->finish(std::move(bytes));
    stream_->write(std::move(bytes), [next = std::move(next)](bool taken) {
      if (taken)
        next();
    });
  }

  /// Somebody else answers.
  void leave() { to_ = {}; }

  bool has_begun() const { return to_ == nullptr; }

private:
  const std::string path_;
  reply to_; ///< Until the answer has begun.
  std::shared_ptr<answer_stream> stream_;
  std::optional<std::uint64_t> left_; ///< Of what was announced.
};

constexpr std::string_view bytes_type = "application/octet-stream";

class whole_download final : public download {
public:
  using download::download;

  bool begin(const file_head& head) override {
    size_ = head.size;
    return (head.error == 0 && head.kind == file_kind::regular) ||
           refuse_file(head.error, head.kind);
  }

  void take(std::string bytes, bool last, std::function<void()> next) override {
    if (!has_begun())
      begin_answer(head_with(bytes.size(), last));
    send(std::move(bytes), last, std::move(next));
  }

private:
  /// The kernel's own files say that they are empty, or of a page, and have as much as there is to
  /// say: the length of such a one is known when all of it is there, or not at all.
  stream_head head_with(std::uint64_t first_bytes, bool all) const {
    stream_head how{bytes_type};
    if (all)
      how.length = first_bytes;
    else if (size_ > first_bytes)
      how.length = size_;
    if (how.length)
      how.fields.push_back({"Accept-Ranges", "bytes"});
    return how;
  }

  std::uint64_t size_ = 0;
};

class part_download final : public download {
public:
  part_download(std::string path, wanted_part part, reply to)
      : download(std::move(path), std::move(to))
      , wanted_(std::move(part)) {}

  /// The sandbox breaks off where a file has less than it says, as such a page does.
  void cut(const error& why) override {
    if (!entry_seen_ || has_begun() || why.code != errc::io_failed)
      return download::cut(why);
    leave();
    wanted_.ask_whole();
  }

  bool begin(const file_head& head) override {
    from_ = head.size;
    if (head.error == ERANGE)
      return out_of_reach(head.size);
    const bool odd = head.error == EINVAL && head.step == static_cast<unsigned>(file_step::type);
    return head.error == 0 ||
           (odd ? refuse_file(0, file_kind::other) : refuse_file(head.error, file_kind::none));
  }

  /// What comes first is the file's entry.
  void take(std::string bytes, bool last, std::function<void()> next) override {
    if (has_begun())
      return send(std::move(bytes), last, std::move(next));
    if (!entry_seen_) {
      entry_seen_ = true;
      told_entry is;
      std::string_view left = bytes;
      if (!take_entry(left, is))
        return cut({errc::io_failed, "the sandbox makes no sense"});
      part_ = part_of(wanted_.range, from_, is.is.size);
      if (!part_)
        return static_cast<void>(out_of_reach(is.is.size));
      if (last) // Of a page that it says to have.
        return static_cast<void>(out_of_reach(from_ == 0 ? 0 : part_->size));
      return next(); // The head leaves with the first bytes.
    }
    // What is there of such a page is known when all of it is.
    if (last && bytes.size() < part_->to - part_->from)
      part_->to = part_->size = from_ + bytes.size();
    stream_head how{bytes_type, {{"Accept-Ranges", "bytes"}}};
    tell_part(how, *part_);
    begin_answer(std::move(how));
    send(std::move(bytes), last, std::move(next));
  }

private:
  bool out_of_reach(std::uint64_t size) {
    if (size == 0 || wanted_.range.first.empty()) {
      leave();
      wanted_.ask_whole();
      return false;
    }
    return refuse({416,
                   json::write_error("the file has no such bytes", "invalid_request"),
                   "application/json",
                   {no_part_of(size)}});
  }

  const wanted_part wanted_;
  std::uint64_t from_ = 0;
  bool entry_seen_ = false;
  std::optional<file_part> part_;
};

} // namespace

void start_download(file_channel channel, std::string path, std::optional<wanted_part> part,
                    reply to) {
  const auto strand = to->strand();
  std::shared_ptr<channel_listener> listener;
  if (part)
    listener = std::make_shared<part_download>(std::move(path), std::move(*part), std::move(to));
  else
    listener = std::make_shared<whole_download>(std::move(path), std::move(to));
  read_channel(std::move(channel), strand, std::move(listener));
}

} // namespace insula::http::bridge
