#include "http/bridge/file_download.hpp"

#include "http/bridge/channel_reader.hpp"
#include "http/bridge/error_response.hpp"

#include <cerrno>
#include <system_error>

namespace insula::http::bridge {

namespace {

class download final : public channel_listener {
public:
  download(std::string path, reply to)
      : path_(std::move(path))
      , to_(std::move(to)) {}

  bool begin(const file_head& head) override {
    const int code = head.error;
    if (code == ENOENT || code == ENOTDIR || code == EISDIR || head.kind == file_kind::directory)
      return refuse({errc::not_found, "File not found: " + path_});
    if (code != 0)
      return refuse({errc::io_failed, std::generic_category().message(code)});
    return head.kind == file_kind::regular || refuse({errc::io_failed, "not a regular file"});
  }

  void take(std::string bytes, bool last, std::function<void()> next) override {
    if (!stream_ && to_)
      stream_ = std::exchange(to_, {})->stream({"application/octet-stream"});
    if (!stream_)
      return; // Only the head was asked for.
    if (last)
      return stream_->finish(std::move(bytes));
    stream_->write(std::move(bytes), [next = std::move(next)](bool taken) {
      if (taken)
        next();
    });
  }

  /// Once something has been sent, dropping the stream cuts the connection.
  void cut(const error& why) override {
    if (to_)
      refuse(why);
  }

private:
  bool refuse(const error& why) {
    to_->respond(error_response(step::read_file, why));
    return false;
  }

  const std::string path_;
  reply to_; ///< Until the answer has begun.
  std::shared_ptr<answer_stream> stream_;
};

} // namespace

void start_download(file_channel channel, std::string path, reply to) {
  const auto strand = to->strand();
  read_channel(std::move(channel), strand,
               std::make_shared<download>(std::move(path), std::move(to)));
}

} // namespace insula::http::bridge
