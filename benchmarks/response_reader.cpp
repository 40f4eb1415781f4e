#include "benchmarks/response_reader.hpp"

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <strings.h>

namespace insula::bench {

namespace {

std::uint64_t number(std::string_view text, int base) {
  std::uint64_t value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (wrong != std::errc{} || end == text.data())
    throw std::runtime_error("not a number in a response: " + std::string{text});
  return value;
}

bool same_word(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ')
    text.remove_prefix(1);
  return text;
}

} // namespace

void response_reader::start(body_fn on_body) {
  state_ = part::head;
  on_body_ = std::move(on_body);
  head_.clear();
  left_ = 0;
  status_ = 0;
  keeps_alive_ = true;
}

void response_reader::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    switch (state_) {
      case part::head: {
        const auto before = head_.size();
        head_.append(bytes);
        const auto end = head_.find("\r\n\r\n", before < 3 ? 0 : before - 3);
        if (end == std::string::npos)
          return;
        bytes.remove_prefix(end + 4 - before);
        head_.resize(end + 2);
        read_head();
        break;
      }
      case part::body:
      case part::chunk_data: {
        const auto piece = bytes.substr(0, std::min<std::uint64_t>(bytes.size(), left_));
        bytes.remove_prefix(piece.size());
        left_ -= piece.size();
        pass_on(piece);
        if (left_ == 0)
          state_ = state_ == part::body ? part::done : part::chunk_end;
        break;
      }
      case part::chunk_size:
      case part::chunk_end:
      case part::trailer: {
        const auto end = bytes.find('\n');
        head_.append(bytes.substr(0, end == std::string_view::npos ? end : end + 1));
        if (end == std::string_view::npos)
          return;
        bytes.remove_prefix(end + 1);
        if (state_ == part::chunk_size)
          read_chunk_size();
        else if (state_ == part::chunk_end)
          state_ = part::chunk_size;
        else if (head_ == "\r\n")
          state_ = part::done;
        head_.clear();
        break;
      }
      case part::done: throw std::runtime_error("more bytes than the response has");
    }
  }
}

void response_reader::read_head() {
  std::string_view rest = head_;
  if (rest.size() < 12 || rest.substr(0, 7) != "HTTP/1.")
    throw std::runtime_error("not an HTTP response: " + head_.substr(0, 40));
  status_ = static_cast<int>(number(rest.substr(9, 3), 10));
  bool chunked = false;
  while (!rest.empty()) {
    const auto end = rest.find("\r\n");
    const auto line = rest.substr(0, end);
    rest.remove_prefix(end + 2);
    const auto colon = line.find(':');
    if (colon == std::string_view::npos)
      continue;
    const auto name = line.substr(0, colon);
    const auto value = trimmed(line.substr(colon + 1));
    if (same_word(name, "content-length"))
      left_ = number(value, 10);
    else if (same_word(name, "transfer-encoding"))
      chunked = same_word(value, "chunked");
    else if (same_word(name, "connection"))
      keeps_alive_ = !same_word(value, "close");
  }
  if (status_ == 100)
    state_ = part::head;
  else if (chunked)
    state_ = part::chunk_size;
  else
    state_ = left_ == 0 ? part::done : part::body;
  head_.clear();
}

void response_reader::read_chunk_size() {
  left_ = number(head_, 16);
  state_ = left_ == 0 ? part::trailer : part::chunk_data;
}

void response_reader::pass_on(std::string_view piece) {
  if (on_body_)
    on_body_(piece);
}

} // namespace insula::bench
