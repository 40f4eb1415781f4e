#include "runtime/output_log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace insula::runtime {

namespace {

constexpr std::uint64_t max_marks = 256;

std::array<char, 4> encode_head(stream_id stream, std::size_t bytes) {
  return {static_cast<char>(stream), static_cast<char>(bytes >> 16), static_cast<char>(bytes >> 8),
          static_cast<char>(bytes)};
}

std::size_t length_in(const char* head) {
  const auto at = [head](int i) { return std::size_t{static_cast<unsigned char>(head[i])}; };
  return at(1) << 16 | at(2) << 8 | at(3);
}

} // namespace

output_log::output_log(std::string directory, std::uint64_t ceiling)
    : directory_(std::move(directory))
    , ceiling_(std::max(ceiling, min_ceiling)) {}

bool output_log::open_file() {
  if (!file_)
    file_.reset(::open(directory_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  return static_cast<bool>(file_);
}

bool output_log::write_at(std::uint64_t offset, const char* bytes, std::size_t count) {
  while (count > 0) {
    const auto position = offset % ceiling_;
    const auto part = std::min<std::uint64_t>(count, ceiling_ - position);
    const ssize_t n = ::pwrite(file_.get(), bytes, part, static_cast<off_t>(position));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    offset += static_cast<std::uint64_t>(n);
    bytes += n;
    count -= static_cast<std::size_t>(n);
  }
  return true;
}

std::size_t output_log::read_at(std::uint64_t offset, char* bytes, std::size_t count) const {
  std::size_t got = 0;
  while (got < count) {
    const auto position = (offset + got) % ceiling_;
    const auto part = std::min<std::uint64_t>(count - got, ceiling_ - position);
    const ssize_t n = ::pread(file_.get(), bytes + got, part, static_cast<off_t>(position));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      break;
    got += static_cast<std::size_t>(n);
  }
  return got;
}

std::uint64_t output_log::begin_with_room(std::uint64_t bytes) const {
  if (end_ + bytes - begin_ <= ceiling_)
    return begin_;
  const auto mark = std::lower_bound(marks_.begin(), marks_.end(), end_ + bytes - ceiling_);
  return mark == marks_.end() ? end_ : *mark;
}

void output_log::make_room(std::uint64_t bytes) {
  begin_ = begin_with_room(bytes);
  while (!marks_.empty() && marks_.front() <= begin_)
    marks_.pop_front();
}

ssize_t output_log::append_from(int pipe, stream_id stream, std::size_t wanted) {
  if (!open_file())
    return -1;
  const auto start = end_ + head_bytes;
  // splice() takes one run of the file, so a frame that would cross the file's end is cut there.
  const auto position = start % ceiling_;
  const auto most = std::min<std::uint64_t>(std::min(wanted, max_frame_bytes), ceiling_ - position);
  make_room(head_bytes + most);
  auto at = static_cast<off64_t>(position);
  ssize_t moved = -1;
  do
    moved = ::splice(pipe, nullptr, file_.get(), &at, most, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
  while (moved < 0 && errno == EINTR);
  if (moved <= 0)
    return moved;
  const auto head = encode_head(stream, static_cast<std::size_t>(moved));
  if (!write_at(end_, head.data(), head.size()))
    return -1;
  if (marks_.empty() || end_ - marks_.back() >= ceiling_ / max_marks)
    marks_.push_back(end_);
  end_ = start + static_cast<std::uint64_t>(moved);
  return moved;
}

output_log::piece output_log::read(std::uint64_t offset, std::size_t max_bytes) const {
  piece answer;
  offset = std::min(offset, end_);
  if (offset < begin_) {
    answer.lost_bytes = begin_ - offset;
    offset = begin_;
  }
  const auto wanted =
    std::min<std::uint64_t>(end_ - offset, std::max(max_bytes, head_bytes + max_frame_bytes));
  std::string raw(wanted, '\0');
  raw.resize(read_at(offset, raw.data(), raw.size()));
  std::size_t at = 0;
  while (raw.size() - at >= head_bytes) {
    const auto bytes = length_in(raw.data() + at);
    if (raw.size() - at < head_bytes + bytes)
      break;
    const auto stream = static_cast<stream_id>(raw[at]);
    if (answer.frames.empty() || answer.frames.back().stream != stream)
      answer.frames.push_back({stream, {}});
    answer.frames.back().bytes.append(raw, at + head_bytes, bytes);
    at += head_bytes + bytes;
  }
  answer.next_offset = offset + at;
  return answer;
}

} // namespace insula::runtime
