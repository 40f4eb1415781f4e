#include "runtime/output_log.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::runtime {

namespace {

constexpr std::uint64_t max_marks = 256;
constexpr std::uint64_t page_bytes = 4096;

std::array<char, 4> encode_head(output_stream stream, std::size_t bytes) {
  return {static_cast<char>(stream), static_cast<char>(bytes >> 16), static_cast<char>(bytes >> 8),
          static_cast<char>(bytes)};
}

/// Where an offset is in the file.
off_t position(std::uint64_t offset) {
  return static_cast<off_t>(page_bytes + offset);
}

std::size_t length_in(const char* head) {
  const auto at = [head](int i) { return std::size_t{static_cast<unsigned char>(head[i])}; };
  return at(1) << 16 | at(2) << 8 | at(3);
}

} // namespace

output_log::output_log(std::string directory, std::uint64_t ceiling,
                       std::shared_ptr<log_account> account)
    : directory_(std::move(directory))
    , ceiling_(std::max(ceiling, min_ceiling))
    , room_(ceiling_)
    , charge_(std::move(account)) {}

output_log::output_log(unique_fd file, std::uint64_t ceiling, std::shared_ptr<log_account> account)
    : ceiling_(std::max(ceiling, min_ceiling))
    , room_(ceiling_)
    , charge_(std::move(account))
    , file_(std::move(file)) {}

/// Behind each frame, and not before one: has_room_before() and the frame that it lets in go by the
/// same ceiling.
void output_log::settle() {
  const auto held = end_ - begin_;
  charge_.set(held > 0 ? held + page_bytes : 0);
  if (!charge_.full())
    room_ = ceiling_;
  else if (room_ == ceiling_)
    room_ = std::clamp(held, ceiling_when_full, ceiling_);
}

bool output_log::open_file() {
  if (!file_)
    file_.reset(::open(directory_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  return static_cast<bool>(file_);
}

bool output_log::write_at(std::uint64_t offset, const char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t n = ::pwrite(file_.get(), bytes, count, position(offset));
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
    const ssize_t n = ::pread(file_.get(), bytes + got, count - got, position(offset + got));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      break;
    got += static_cast<std::size_t>(n);
  }
  return got;
}

std::uint64_t output_log::begin_with_room(std::uint64_t bytes) const {
  if (end_ + bytes - begin_ <= room_)
    return begin_;
  const auto mark = std::lower_bound(marks_.begin(), marks_.end(), end_ + bytes - room_);
  return mark == marks_.end() ? end_ : *mark;
}

/// False with errno: the disk does not give back what it has. What is given up is said first, so
/// that nobody ever looks for a frame in a hole.
bool output_log::make_room(std::uint64_t bytes) {
  const auto begin = begin_with_room(bytes);
  if (begin == begin_)
    return true;
  const auto hole = static_cast<off_t>(begin / page_bytes * page_bytes);
  if (::pwrite(file_.get(), &begin, sizeof begin, 0) != sizeof begin ||
      (hole > 0 &&
       ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, page_bytes, hole) != 0))
    return false;
  begin_ = begin;
  while (!marks_.empty() && marks_.front() <= begin_)
    marks_.pop_front();
  return true;
}

/// Before its bytes come, the file says whose they will be; afterwards, how many there were. If the
/// writer dies in between, its length says that.
bool output_log::announce(output_stream stream) {
  if (announced_ == stream)
    return true;
  const auto head = encode_head(stream, 0);
  if (!write_at(end_, head.data(), head.size()))
    return false;
  announced_ = stream;
  return true;
}

void output_log::mark(std::uint64_t frame) {
  if (marks_.empty() || frame - marks_.back() >= room_ / max_marks)
    marks_.push_back(frame);
}

ssize_t output_log::append_from(int pipe, output_stream stream, std::size_t wanted) {
  if (!open_file())
    return -1;
  const auto most = std::min(wanted, max_frame_bytes);
  if (!make_room(head_bytes + most) || !announce(stream))
    return -1;
  const auto start = end_ + head_bytes;
  auto at = static_cast<off64_t>(position(start));
  ssize_t moved = -1;
  do
    moved = ::splice(pipe, nullptr, file_.get(), &at, most, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
  while (moved < 0 && errno == EINTR);
  if (moved <= 0)
    return moved;
  const auto head = encode_head(stream, static_cast<std::size_t>(moved));
  if (!write_at(end_, head.data(), head.size()))
    return -1;
  announced_.reset();
  mark(end_);
  end_ = start + static_cast<std::uint64_t>(moved);
  settle();
  return moved;
}

/// Goes from head to head. What cannot be one ends the log there: only its own writer's hand can
/// have been in it, so that is the last frame, or a disk that has lost something.
void output_log::recover() {
  struct stat info {};
  if (::fstat(file_.get(), &info) != 0 || info.st_size <= static_cast<off_t>(page_bytes))
    return;
  const auto length = static_cast<std::uint64_t>(info.st_size) - page_bytes;
  std::uint64_t begin = 0;
  if (::pread(file_.get(), &begin, sizeof begin, 0) != sizeof begin || begin > length)
    begin = length;
  begin_ = end_ = begin;
  std::string read(1 << 20, '\0');
  std::uint64_t from = 0;       ///< Where what has been read begins,
  std::size_t held = 0;         ///< and how much of it there is.
  std::uint64_t last_bytes = 0; ///< Of the frame before.
  constexpr std::uint64_t large = 16 * 1024;
  while (length - end_ > head_bytes) {
    if (end_ < from || end_ + head_bytes > from + held) {
      from = end_;
      // Between large frames the heads alone.
      held = read_at(from, read.data(), last_bytes < large ? read.size() : head_bytes);
      if (held < head_bytes)
        break;
    }
    const char* const head = read.data() + (end_ - from);
    auto bytes = std::uint64_t{length_in(head)};
    if (bytes == 0) {
      bytes = length - end_ - head_bytes;
      const auto whole = encode_head(static_cast<output_stream>(*head), bytes);
      if (bytes > max_frame_bytes || !write_at(end_, whole.data(), whole.size()))
        break;
    }
    if (bytes > max_frame_bytes ||
        (*head != char(output_stream::out) && *head != char(output_stream::err)) ||
        end_ + head_bytes + bytes > length)
      break;
    mark(end_);
    end_ += head_bytes + bytes;
    last_bytes = bytes;
  }
  // A head that announces what never came, and whatever else is no frame.
  [[maybe_unused]] const auto cut = ::ftruncate(file_.get(), position(end_));
  settle();
}

/// Goes from head to head, from the last mark on. Whoever reads on where it has stopped needs not
/// wait for that.
std::uint64_t output_log::frame_at(std::uint64_t offset) const {
  if (offset == told_ || offset == begin_ || offset == end_)
    return offset;
  const auto mark = std::upper_bound(marks_.begin(), marks_.end(), offset);
  std::uint64_t at = mark == marks_.begin() ? begin_ : std::max(begin_, *std::prev(mark));
  std::string read(256 * 1024, '\0');
  std::uint64_t from = 0;
  std::size_t held = 0;
  while (at < offset) {
    if (at < from || at + head_bytes > from + held) {
      from = at;
      held = read_at(from, read.data(), read.size());
      if (held < head_bytes)
        return end_;
    }
    const auto next = at + head_bytes + length_in(read.data() + (at - from));
    if (next > offset)
      return at;
    at = next;
  }
  return at;
}

output_log::piece output_log::read(std::uint64_t offset, std::size_t max_bytes) const {
  piece answer;
  offset = std::min(offset, end_);
  if (offset < begin_) {
    answer.lost_bytes = begin_ - offset;
    offset = begin_;
  }
  offset = frame_at(offset);
  const auto wanted =
    std::min<std::uint64_t>(end_ - offset, std::max(max_bytes, head_bytes + max_frame_bytes));
  std::string raw(wanted, '\0');
  raw.resize(read_at(offset, raw.data(), raw.size()));
  std::size_t at = 0;
  std::size_t first = 0; ///< What of `raw` is the first frame's by now: its heads go.
  while (raw.size() - at >= head_bytes) {
    const auto bytes = length_in(raw.data() + at);
    if (raw.size() - at < head_bytes + bytes)
      break;
    const auto stream = static_cast<output_stream>(raw[at]);
    if (answer.frames.empty() || answer.frames.back().stream != stream)
      answer.frames.push_back({stream, {}});
    if (answer.frames.size() == 1) {
      std::memmove(raw.data() + first, raw.data() + at + head_bytes, bytes);
      first += bytes;
    } else {
      answer.frames.back().bytes.append(raw, at + head_bytes, bytes);
    }
    at += head_bytes + bytes;
    answer.frames.back().end = offset + at;
  }
  if (!answer.frames.empty()) {
    raw.resize(first);
    answer.frames.front().bytes = std::move(raw);
  }
  answer.next_offset = told_ = offset + at;
  return answer;
}

} // namespace insula::runtime
