#include "tests/support/http_client.hpp"

#include "tests/support/catch.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace insula::test {

namespace {

[[noreturn]] void fail(const std::string& what) {
  throw std::runtime_error("HTTP client: " + what);
}

std::uint64_t number(std::string_view text, int base) {
  std::uint64_t n = 0;
  const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), n, base);
  if (bad != std::errc{} || end == text.data())
    fail("no number: " + std::string{text});
  return n;
}

} // namespace

http_connection::http_connection(std::uint16_t port, std::chrono::milliseconds patience)
    : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))
    , patience_(patience) {
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  timeval limit{};
  limit.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(patience).count();
  ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0) {
    const int why = errno;
    close();
    fail(std::string{"connecting: "} + std::strerror(why));
  }
}

void http_connection::close() {
  if (fd_ >= 0)
    ::close(std::exchange(fd_, -1));
}

void http_connection::abandon() {
  const linger at_once{1, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close();
}

void http_connection::finish_sending() {
  ::shutdown(fd_, SHUT_WR);
}

bool http_connection::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0)
      return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool http_connection::fill() {
  pollfd ready{fd_, POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(patience_.count())) <= 0)
    fail("nothing came in time");
  std::array<char, 64 * 1024> bytes;
  const auto n = ::recv(fd_, bytes.data(), bytes.size(), 0);
  if (n <= 0)
    return false;
  buffer_.erase(0, std::exchange(at_, 0));
  buffer_.append(bytes.data(), static_cast<std::size_t>(n));
  return true;
}

std::string http_connection::take(std::size_t count) {
  auto got = buffer_.substr(at_, count);
  at_ += got.size();
  return got;
}

/// Without its end; what there is, when the other side has closed.
std::string http_connection::line() {
  std::size_t end;
  while ((end = buffer_.find("\r\n", at_)) == std::string::npos)
    if (!fill())
      return take(std::string::npos);
  auto text = take(end - at_);
  at_ += 2;
  return text;
}

http_answer http_connection::receive_head() {
  http_answer got;
  whole_ = false;
  framing_ = framing::none;
  const auto first = line();
  if (first.empty())
    return got;
  if (first.size() < 12 || !first.starts_with("HTTP/1."))
    fail("no status line: " + first);
  got.status = static_cast<int>(number(std::string_view{first}.substr(9, 3), 10));
  for (auto field = line(); !field.empty(); field = line()) {
    const auto colon = field.find(':');
    if (colon == std::string::npos)
      fail("no field: " + field);
    auto name = field.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    got.fields[name] =
      field.substr(std::min(field.find_first_not_of(' ', colon + 1), field.size()));
  }
  if (got.status == 204 || got.status < 200) {
    whole_ = true;
  } else if (got.fields.contains("transfer-encoding")) {
    framing_ = framing::chunks;
  } else if (got.fields.contains("content-length")) {
    framing_ = framing::length;
    left_ = number(got.fields["content-length"], 10);
  } else {
    framing_ = framing::until_close;
  }
  return got;
}

std::optional<std::string> http_connection::more() {
  switch (framing_) {
    case framing::none: return std::nullopt;
    case framing::chunks: {
      const auto size_line = line();
      framing_ = size_line.empty() ? framing::none : framing_;
      if (size_line.empty())
        return std::nullopt;
      const auto size = number(size_line, 16);
      while (buffer_.size() - at_ < size + 2 && fill()) {
      }
      auto bytes = take(size);
      const bool cut = bytes.size() != size || take(2) != "\r\n";
      if (!cut && size > 0)
        return bytes;
      whole_ = !cut;
      framing_ = framing::none;
      return bytes.empty() ? std::nullopt : std::optional{std::move(bytes)};
    }
    case framing::length:
    case framing::until_close: {
      const bool known = framing_ == framing::length;
      if (known && left_ == 0) {
        whole_ = true;
        framing_ = framing::none;
        return std::nullopt;
      }
      if (at_ == buffer_.size() && !fill()) {
        whole_ = !known;
        framing_ = framing::none;
        return std::nullopt;
      }
      auto bytes =
        take(known ? std::min<std::uint64_t>(left_, std::string::npos) : std::string::npos);
      left_ -= bytes.size();
      return bytes;
    }
  }
  return std::nullopt;
}

http_answer http_connection::receive(bool bodiless) {
  auto got = receive_head();
  if (bodiless && got.status != 0) {
    framing_ = framing::none;
    whole_ = true;
  }
  while (auto bytes = more())
    got.body += *bytes;
  got.complete = whole_;
  return got;
}

bool http_connection::at_end() {
  return at_ == buffer_.size() && !fill();
}

std::string http_request(std::string_view method, std::string_view target, std::string_view body,
                         std::string_view fields) {
  std::string text{method};
  text.append(" ").append(target).append(" HTTP/1.1\r\nHost: localhost\r\n").append(fields);
  if (!body.empty() || method == "POST" || method == "PUT")
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  return text.append("\r\n").append(body);
}

http_answer http_ask(std::uint16_t port, std::string_view method, std::string_view target,
                     std::string_view body, std::string_view fields) {
  http_connection one{port};
  one.send(
    http_request(method, target, body, fields)); // It may refuse before it has taken all of it.
  return one.receive(method == "HEAD");
}

// ---- Event streams
// --------------------------------------------------------------------------------------------------

exec_stream::exec_stream(std::uint16_t port, std::string_view id, std::string_view body,
                         std::string_view fields, std::chrono::milliseconds patience)
    : connection_(port, patience) {
  connection_.send(http_request("POST", "/v1/sandbox/" + std::string{id} + "/exec", body, fields));
  head_ = connection_.receive_head();
}

std::optional<exec_event> exec_stream::next() {
  for (;;) {
    std::size_t end;
    while ((end = text_.find("\n\n", at_)) == std::string::npos) {
      auto bytes = connection_.more();
      if (!bytes) {
        if (at_ != text_.size() && connection_.whole())
          fail("half an event at the end: " + text_.substr(at_));
        return std::nullopt;
      }
      text_.erase(0, std::exchange(at_, 0));
      text_ += *bytes;
    }
    auto block = text_.substr(at_, end - at_);
    at_ = end + 2;
    if (block.starts_with(':'))
      continue;
    std::string id;
    if (block.starts_with("id: ")) {
      const auto line = block.find('\n');
      id = block.substr(4, line - 4);
      block.erase(0, line == std::string::npos ? line : line + 1);
    }
    const auto break_at = block.find("\ndata: ");
    if (!block.starts_with("event: ") || break_at == std::string::npos ||
        block.find('\n', break_at + 1) != std::string::npos)
      fail("no event: " + block);
    exec_event got{block.substr(7, break_at - 7), block.substr(break_at + 7), std::move(id)};
    if (got.name == "stdout" || got.name == "stderr")
      got.data = decode_base64(got.data);
    return got;
  }
}

namespace {

/// Beside the next assertion, which cannot show an optional: how a command ended that did not end
/// well. Catch2 takes such words from the main thread only.
void say_how_it_ended(const exec_outcome& got) {
  if (got.exit_code == 0 || ::gettid() != ::getpid())
    return;
  UNSCOPED_INFO("exec: status " << got.status << ", exit code " << got.exit_code.value_or(-1)
                                << ", error " << got.error << got.refusal << ", complete "
                                << got.complete << ", stderr " << got.err.substr(0, 300));
}

} // namespace

exec_outcome exec_stream::rest() {
  exec_outcome all;
  all.status = head_.status;
  if (head_.fields["content-type"] != "text/event-stream") {
    while (auto bytes = connection_.more())
      all.refusal += *bytes;
  } else {
    while (auto event = next()) {
      if (all.exit_code || !all.error.empty())
        fail("an event after the last: " + event->name);
      if (event->name == "stdout")
        all.out += event->data;
      else if (event->name == "stderr")
        all.err += event->data;
      else if (event->name == "error")
        all.error = event->data;
      else if (event->name == "exit" && event->data.starts_with("{\"exit_code\":"))
        all.exit_code = std::stoi(event->data.substr(13));
      else
        fail("an unknown event: " + event->name + " " + event->data);
      all.events.push_back(std::move(*event));
    }
  }
  all.complete = connection_.whole();
  say_how_it_ended(all);
  return all;
}

std::string json_string(std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  std::string json = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      json.append("\\").push_back(c);
    else if (byte < 0x20)
      json.append("\\u00").append({digits[byte >> 4], digits[byte & 15]});
    else
      json += c;
  }
  return json + '"';
}

std::string exec_body(const std::vector<std::string>& argv, std::string_view more) {
  std::string json = "{\"argv\":[";
  for (const auto& each : argv)
    json.append(&each == argv.data() ? "" : ",").append(json_string(each));
  return json.append("]").append(more).append("}");
}

std::string decode_base64(std::string_view text) {
  static const auto values = [] {
    std::array<signed char, 256> all;
    all.fill(-1);
    constexpr std::string_view alphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (std::size_t i = 0; i < alphabet.size(); ++i)
      all[static_cast<unsigned char>(alphabet[i])] = static_cast<signed char>(i);
    return all;
  }();
  if (text.size() % 4 != 0)
    fail("base64 without its padding");
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const std::size_t pads = text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 4; ++k) {
      const auto value = k < 4 - pads ? values[static_cast<unsigned char>(text[i + k])] : 0;
      if (value < 0 || (pads > 0 && i + 4 != text.size()))
        fail("no base64: " + std::string{text.substr(i, 4)});
      group = group << 6 | static_cast<std::uint32_t>(value);
    }
    for (std::size_t k = 0; k < 3 - pads; ++k)
      bytes += static_cast<char>(group >> (16 - 8 * k) & 255);
  }
  return bytes;
}

} // namespace insula::test
