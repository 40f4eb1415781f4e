#include "runtime/broker/http1_reader.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace insula::runtime::broker {

namespace {

constexpr std::string_view line_end = "\r\n";
constexpr std::size_t max_chunk_line = 256, max_method_bytes = 32;
constexpr std::size_t max_length_digits = 18;

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back()))
    text.remove_suffix(1);
  return text;
}

/// Calls it with each word of a list between commas, in lower case.
template <class Take>
void each_word(std::string_view list, Take take) {
  while (!list.empty()) {
    const auto end = list.find(',');
    const auto word = trimmed(list.substr(0, end));
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
    if (!word.empty())
      take(lower_case(word));
  }
}

bool has_word(const fields& in, std::string_view name, std::string_view wanted) {
  bool found = false;
  for (const auto& each : in)
    if (each.name == name)
      each_word(each.value, [&](const std::string& word) { found |= word == wanted; });
  return found;
}

template <class Number>
std::optional<Number> number(std::string_view digits, int base = 10) {
  Number value{};
  const auto [end, why] =
    std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (digits.empty() || why != std::errc{} || end != digits.data() + digits.size())
    return std::nullopt;
  return value;
}

bool is_host_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

/// Host and port of an authority. The host is empty if it is none.
std::pair<std::string, std::optional<std::string_view>> split(std::string_view authority) {
  std::optional<std::string_view> port;
  std::string_view host = authority;
  if (authority.starts_with('[')) {
    const auto end = authority.find(']');
    if (end == std::string_view::npos)
      return {};
    host = authority.substr(1, end - 1);
    const auto rest = authority.substr(end + 1);
    if (!rest.empty() && rest.front() != ':')
      return {};
    if (!rest.empty())
      port = rest.substr(1);
    const bool good = std::all_of(host.begin(), host.end(), [](char c) {
      return c == ':' || c == '.' ||
             std::string_view{"0123456789abcdefABCDEF"}.find(c) != std::string_view::npos;
    });
    return good ? std::pair{lower_case(host), port}
                : std::pair<std::string, std::optional<std::string_view>>{};
  }
  if (const auto colon = authority.find(':'); colon != std::string_view::npos) {
    host = authority.substr(0, colon);
    port = authority.substr(colon + 1);
  }
  auto name = lower_case(host);
  if (name.ends_with('.'))
    name.pop_back();
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_host_char))
    return {};
  return {name, port};
}

void add_fields(std::string& to, const fields& all) {
  for (const auto& [name, value] : all)
    ((((to += name) += ": ") += value) += line_end);
}

} // namespace

std::string host_of(std::string_view authority) {
  auto [host, port] = split(authority);
  return host.empty() || (port && !number<std::uint16_t>(*port)) ? std::string{} : std::move(host);
}

std::optional<std::uint16_t> port_of(std::string_view authority, std::uint16_t usual) {
  const auto [host, port] = split(authority);
  if (host.empty())
    return std::nullopt;
  return port ? number<std::uint16_t>(*port) : std::optional{usual};
}

void drop_hop_by_hop(fields& in) {
  std::vector<std::string> named;
  for (const auto& each : in)
    if (each.name == "connection")
      each_word(each.value, [&](std::string word) { named.push_back(std::move(word)); });
  constexpr std::array own{
    std::string_view{"connection"},        std::string_view{"keep-alive"},
    std::string_view{"proxy-connection"},  std::string_view{"te"},
    std::string_view{"transfer-encoding"}, std::string_view{"upgrade"},
    std::string_view{"content-length"},    std::string_view{"http2-settings"}};
  std::erase_if(in, [&](const auto& each) {
    return std::find(own.begin(), own.end(), each.name) != own.end() ||
           std::find(named.begin(), named.end(), each.name) != named.end();
  });
}

void drop_from_trailers(fields& in) {
  drop_hop_by_hop(in);
  constexpr std::array heads_own{std::string_view{"authorization"},
                                 std::string_view{"cache-control"},
                                 std::string_view{"content-encoding"},
                                 std::string_view{"content-range"},
                                 std::string_view{"content-type"},
                                 std::string_view{"cookie"},
                                 std::string_view{"expect"},
                                 std::string_view{"forwarded"},
                                 std::string_view{"host"},
                                 std::string_view{"location"},
                                 std::string_view{"max-forwards"},
                                 std::string_view{"proxy-authenticate"},
                                 std::string_view{"range"},
                                 std::string_view{"proxy-authorization"},
                                 std::string_view{"set-cookie"},
                                 std::string_view{"trailer"},
                                 std::string_view{"www-authenticate"}};
  std::erase_if(in, [&](const auto& each) {
    return each.name.starts_with(':') || each.name.starts_with("if-") ||
           std::find(heads_own.begin(), heads_own.end(), each.name) != heads_own.end();
  });
}

bool is_target(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) > 0x20 && c != 0x7f;
  });
}

const char* why_no_method(std::string_view method) {
  const auto name = upper_case(method);
  if (name == "CONNECT")
    return "there is no CONNECT here";
  // A server that answers it says the headers that a rule has set.
  return name == "TRACE" ? "there is no TRACE here" : nullptr;
}

// ---- Reading

bool http1_reader::no(unsigned status, std::string why) {
  refusal_status_ = status;
  refusal_ = std::move(why);
  state_ = state::refused;
  return false;
}

http1_reader::step http1_reader::refuse(unsigned status, std::string why) {
  no(status, std::move(why));
  return {event::refused};
}

http1_reader::step http1_reader::read(std::string_view input) {
  switch (state_) {
    case state::start: return read_head(input);
    case state::counted: return read_counted(input, state::over);
    case state::until_end:
      return input.empty() ? step{event::none} : step{event::body, input.size(), input};
    case state::chunk_size: return read_chunk_size(input);
    case state::chunk_data: return read_counted(input, state::chunk_end);
    case state::chunk_end:
      if (input.size() < line_end.size() && line_end.starts_with(input))
        return {event::none};
      if (!input.starts_with(line_end))
        return refuse(400, "a chunk is longer than it says");
      state_ = state::chunk_size;
      {
        auto next = read_chunk_size(input.substr(line_end.size()));
        next.used += line_end.size();
        return next;
      }
    case state::trailers: return read_trailers(input);
    case state::over: return end(0);
    case state::refused: return {event::refused};
  }
  return {event::refused};
}

/// What is left of a body or of a chunk. `behind`: the state after it.
http1_reader::step http1_reader::read_counted(std::string_view input, state behind) {
  const auto some =
    input.substr(0, static_cast<std::size_t>(std::min<std::uint64_t>(left_, input.size())));
  if (some.empty())
    return {event::none};
  left_ -= some.size();
  if (left_ == 0)
    state_ = behind;
  return {event::body, some.size(), some};
}

http1_reader::step http1_reader::end(std::size_t used) {
  state_ = state::start;
  looked_ = 0;
  return {event::end, used};
}

bool http1_reader::ended() {
  if (state_ != state::until_end)
    return state_ == state::start;
  state_ = state::over;
  return true;
}

http1_reader::step http1_reader::read_head(std::string_view input) {
  constexpr std::string_view head_end = "\r\n\r\n";
  std::size_t skipped = 0;
  if (side_ == side::requests && input.starts_with(line_end)) // As after a body by an old client.
    skipped = line_end.size();
  const auto text = input.substr(skipped);
  const auto from = looked_ > skipped + head_end.size() ? looked_ - skipped - head_end.size() : 0;
  const auto at = text.find(head_end, from);
  if (at == std::string_view::npos) {
    looked_ = input.size();
    if (input.size() > max_head_bytes)
      return refuse(431, "the head has more than " + std::to_string(max_head_bytes) + " bytes");
    return {event::none};
  }
  if (at > max_head_bytes)
    return refuse(431, "the head has more than " + std::to_string(max_head_bytes) + " bytes");
  looked_ = 0;
  const auto head = text.substr(0, at + line_end.size());
  const auto line = head.substr(0, head.find(line_end));
  request_ = {};
  response_ = {};
  trailers_ = {};
  is_chunked_ = closes_ = false;
  const bool is_request = side_ == side::requests;
  if (!(is_request ? read_request_line(line) : read_status_line(line)))
    return {event::refused};
  auto& rest = is_request ? request_.rest : response_.rest;
  if (!read_fields(head.substr(line.size() + line_end.size()), rest) || !take_framing(rest))
    return {event::refused};
  if (is_request && !take_request_words(rest))
    return {event::refused};
  drop_hop_by_hop(rest);
  return {event::head, skipped + at + head_end.size()};
}

bool http1_reader::read_fields(std::string_view text, fields& into) {
  while (!text.empty()) {
    const auto end = text.find(line_end);
    const auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + line_end.size());
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon)))
      return no(400, "a header has no name, or is folded");
    const auto value = trimmed(line.substr(colon + 1));
    if (!is_header_value(value))
      return no(400, "a header has a control character");
    if (into.size() == max_fields)
      return no(431, "there are more than " + std::to_string(max_fields) + " headers");
    into.push_back({lower_case(line.substr(0, colon)), std::string{value}});
  }
  return true;
}

bool http1_reader::read_request_line(std::string_view line) {
  const auto first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || last == first)
    return no(400, "the first line is no request");
  const auto method = line.substr(0, first), version = line.substr(last + 1);
  if (version != "HTTP/1.1" && version != "HTTP/1.0")
    return no(version.starts_with("HTTP/") ? 505 : 400, "the version is not HTTP/1.1");
  is_1_0_ = version == "HTTP/1.0";
  if (!is_token(method) || method.size() > max_method_bytes)
    return no(400, "the method is none");
  if (const char* why = why_no_method(method))
    return no(405, why);
  request_.method = method;
  return read_target(line.substr(first + 1, last - first - 1));
}

/// A path, "*" of OPTIONS, or a whole URL, whose authority counts.
bool http1_reader::read_target(std::string_view target) {
  if (!is_target(target))
    return no(400, "the target has a blank or a control character");
  if (target.find('#') != std::string_view::npos)
    return no(400, "the target has a fragment");
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (lower_case(target.substr(0, scheme.size())) != scheme)
      continue;
    const auto rest = target.substr(scheme.size());
    const auto end = rest.find_first_of("/?");
    request_.authority = rest.substr(0, end);
    request_.target = end == std::string_view::npos ? "/"
                      : rest[end] == '?'            ? "/" + std::string{rest.substr(end)}
                                                    : std::string{rest.substr(end)};
    return !host_of(request_.authority).empty() || no(400, "the target names no host");
  }
  if (target.front() != '/' && !(target == "*" && request_.method == "OPTIONS"))
    return no(400, "the target is no path");
  request_.target = target;
  return true;
}

bool http1_reader::read_status_line(std::string_view line) {
  const auto version = line.substr(0, 8);
  const auto status = number<unsigned>(line.substr(std::min<std::size_t>(9, line.size()), 3));
  if ((version != "HTTP/1.1" && version != "HTTP/1.0") || line.size() < 12 || line[8] != ' ' ||
      (line.size() > 12 && line[12] != ' ') || !status || *status < 100 || *status > 599 ||
      !is_header_value(line))
    return no(502, "the first line is no answer");
  is_1_0_ = version == "HTTP/1.0";
  response_.status = *status;
  return true;
}

/// How long the body is, and whether the connection goes on.
bool http1_reader::take_framing(fields& in) {
  const bool is_request = side_ == side::requests;
  const unsigned status = is_request ? 400 : 502;
  std::optional<std::uint64_t> length;
  for (const auto& [name, value] : in) {
    if (name == "transfer-encoding") {
      if (is_chunked_ || lower_case(value) != "chunked" || is_1_0_)
        return no(is_request && !is_1_0_ && !is_chunked_ ? 501 : status,
                  "the transfer coding is not chunked, or is there twice");
      is_chunked_ = true;
    } else if (name == "content-length") {
      if (length || value.size() > max_length_digits ||
          value.find_first_not_of("0123456789") != std::string::npos)
        return no(status, "the length is none, or is there twice");
      length = number<std::uint64_t>(value);
      if (!length)
        return no(status, "the length is none");
    }
  }
  if (is_chunked_ && length)
    return no(status, "there is a length and a transfer coding");
  const bool says_close = has_word(in, "connection", "close");
  const bool says_keep = has_word(in, "connection", "keep-alive");
  closes_ = says_close || (is_1_0_ && !says_keep);
  if (has_word(in, "connection", "upgrade"))
    if (const auto* to = find(in, "upgrade"); to != nullptr && lower_case(*to) == "websocket")
      (is_request ? request_.upgrade : response_.upgrade) = "websocket";
  auto& body = is_request ? request_.body_bytes : response_.body_bytes;
  const auto without_body = [&] {
    body = 0;
    state_ = state::over;
  };
  if (is_request) {
    if (!is_chunked_ && length.value_or(0) == 0)
      return without_body(), true;
  } else {
    const auto answer = response_.status;
    if (answer == 101) {
      if (response_.upgrade.empty())
        return no(502, "it switches to a protocol that nobody has asked for");
      return without_body(), true;
    }
    if (answer < 200 || answer == 204 || answer == 304 || method_ == "HEAD") {
      without_body();
      // What it would have been long is passed on.
      if (length && (method_ == "HEAD" || answer == 304))
        response_.body_bytes = length;
      return true;
    }
    if (!is_chunked_ && !length) {
      body = std::nullopt;
      closes_ = true;
      state_ = state::until_end;
      return true;
    }
    if (!is_chunked_ && *length == 0)
      return without_body(), true;
  }
  if (is_chunked_) {
    body = std::nullopt;
    state_ = state::chunk_size;
  } else {
    body = left_ = *length;
    state_ = state::counted;
  }
  return true;
}

bool http1_reader::take_request_words(fields& in) {
  std::optional<std::string> host;
  for (const auto& [name, value] : in)
    if (name == "host") {
      if (host)
        return no(400, "there are two headers Host");
      host = value;
    }
  if (!host && !is_1_0_)
    return no(400, "there is no header Host");
  if (host && host_of(*host).empty())
    return no(400, "the header Host names no host");
  if (request_.authority.empty())
    request_.authority = host.value_or(std::string{});
  else if (host && lower_case(*host) != lower_case(request_.authority))
    return no(400, "the target and the header Host name two hosts");
  if (request_.authority.empty())
    return no(400, "it names no host");
  remove_field(in, "host");
  if (const auto* expected = find(in, "expect")) {
    if (lower_case(*expected) != "100-continue")
      return no(417, "only 100-continue can be expected");
    request_.expects_continue = state_ != state::over;
    remove_field(in, "expect");
  }
  request_.takes_trailers = has_word(in, "te", "trailers");
  if (!request_.upgrade.empty() && (state_ != state::over || request_.method != "GET" || is_1_0_))
    request_.upgrade.clear();
  return true;
}

http1_reader::step http1_reader::read_chunk_size(std::string_view input) {
  const auto end = input.find('\n');
  if (end == std::string_view::npos && input.size() <= max_chunk_line)
    return {event::none};
  if (end == std::string_view::npos || end == 0 || end > max_chunk_line || input[end - 1] != '\r')
    return refuse(400, "a chunk has no size");
  const auto line = input.substr(0, end - 1);
  const auto digits = line.substr(0, line.find_first_of("; \t"));
  const auto extension = trimmed(line.substr(digits.size()));
  const auto size = digits.size() > 15 ? std::nullopt : number<std::uint64_t>(digits, 16);
  if (!size || (!extension.empty() && extension.front() != ';') || !is_header_value(extension))
    return refuse(400, "a chunk has no size");
  if (*size == 0) {
    state_ = state::trailers;
    auto next = read_trailers(input.substr(end + 1));
    next.used += end + 1;
    return next;
  }
  left_ = *size;
  state_ = state::chunk_data;
  auto next = read_counted(input.substr(end + 1), state::chunk_end);
  next.used += end + 1;
  return next;
}

http1_reader::step http1_reader::read_trailers(std::string_view input) {
  if (input.starts_with(line_end))
    return end(line_end.size());
  const auto at = input.find("\r\n\r\n");
  if (at == std::string_view::npos)
    return input.size() > max_trailer_bytes
             ? refuse(431,
                      "the trailers have more than " + std::to_string(max_trailer_bytes) + " bytes")
             : step{event::none};
  if (at > max_trailer_bytes)
    return refuse(431, "the trailers are too long");
  if (!read_fields(input.substr(0, at + line_end.size()), trailers_))
    return {event::refused};
  drop_from_trailers(trailers_);
  return end(at + 2 * line_end.size());
}

// ---- Writing

std::string http1_text(const request_head& head) {
  std::string text =
    head.method + ' ' + head.target + " HTTP/1.1\r\nhost: " + head.authority + "\r\n";
  add_fields(text, head.rest);
  if (!head.body_bytes)
    text += "transfer-encoding: chunked\r\n";
  else if (*head.body_bytes > 0 || head.method == "POST" || head.method == "PUT" ||
           head.method == "PATCH")
    text += "content-length: " + std::to_string(*head.body_bytes) + "\r\n";
  if (head.expects_continue)
    text += "expect: 100-continue\r\n";
  if (!head.upgrade.empty())
    text += "connection: upgrade\r\nupgrade: " + head.upgrade + "\r\n";
  else if (head.takes_trailers)
    text += "te: trailers\r\nconnection: te\r\n";
  return text += line_end;
}

std::string http1_text(const response_head& head, bool closes, bool is_1_0) {
  std::string text = "HTTP/1.1 " + std::to_string(head.status) + " \r\n";
  add_fields(text, head.rest);
  const bool has_none = head.status < 200 || head.status == 204;
  if (!head.body_bytes && !is_1_0)
    text += "transfer-encoding: chunked\r\n";
  else if (head.body_bytes && !has_none && !(head.status == 304 && *head.body_bytes == 0))
    text += "content-length: " + std::to_string(*head.body_bytes) + "\r\n";
  if (!head.upgrade.empty())
    text += "connection: upgrade\r\nupgrade: " + head.upgrade + "\r\n";
  else if (closes && head.status >= 200)
    text += "connection: close\r\n";
  else if (is_1_0 && head.status >= 200)
    text += "connection: keep-alive\r\n";
  return text += line_end;
}

std::string http1_chunk_head(std::size_t bytes) {
  std::array<char, 20> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), bytes, 16).ptr;
  return std::string{digits.data(), end}.append(line_end);
}

std::string http1_last_chunk(const fields& trailers) {
  std::string text = "0\r\n";
  add_fields(text, trailers);
  return text += line_end;
}

} // namespace insula::runtime::broker
