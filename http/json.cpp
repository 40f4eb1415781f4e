#include "http/json.hpp"

#include "base/limits.hpp"
#include "http/utf8.hpp"

#include <rapidjson/document.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <array>
#include <charconv>
#include <cmath>

namespace insula::http::json {

namespace {

/// Stands between the reader and the document, and stops the reader when it gets too deep.
class depth_ceiling {
public:
  explicit depth_ceiling(rapidjson::Document& to)
      : to_(to) {}

  bool Null() { return to_.Null(); }
  bool Bool(bool b) { return to_.Bool(b); }
  bool Int(int i) { return to_.Int(i); }
  bool Uint(unsigned i) { return to_.Uint(i); }
  bool Int64(std::int64_t i) { return to_.Int64(i); }
  bool Uint64(std::uint64_t i) { return to_.Uint64(i); }
  bool Double(double d) { return to_.Double(d); }
  bool RawNumber(const char* s, rapidjson::SizeType n, bool copy) {
    return to_.RawNumber(s, n, copy);
  }
  bool String(const char* s, rapidjson::SizeType n, bool copy) { return to_.String(s, n, copy); }
  bool Key(const char* s, rapidjson::SizeType n, bool copy) { return to_.Key(s, n, copy); }
  bool StartObject() { return enter() && to_.StartObject(); }
  bool StartArray() { return enter() && to_.StartArray(); }
  bool EndObject(rapidjson::SizeType n) {
    --depth_;
    return to_.EndObject(n);
  }
  bool EndArray(rapidjson::SizeType n) {
    --depth_;
    return to_.EndArray(n);
  }

private:
  bool enter() { return ++depth_ <= limits::json_depth; }

  rapidjson::Document& to_;
  std::size_t depth_ = 0;
};

/// False: not JSON, or too deep.
bool parse(std::string_view text, rapidjson::Document& into) {
  constexpr std::string_view byte_order_mark = "\xef\xbb\xbf";
  if (text.substr(0, byte_order_mark.size()) == byte_order_mark)
    text.remove_prefix(byte_order_mark.size());
  // The reader takes a NUL for the end of the text, whatever comes after it.
  if (text.find('\0') != std::string_view::npos)
    return false;
  bool parsed = false;
  auto generate = [&](rapidjson::Document& document) {
    rapidjson::MemoryStream stream{text.data(), text.size()};
    rapidjson::Reader reader;
    depth_ceiling handler{document};
    constexpr unsigned flags =
      rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag;
    parsed = !reader.Parse<flags>(stream, handler).IsError();
    return parsed;
  };
  into.Populate(generate);
  return parsed;
}

std::string text_of(const rapidjson::Value& value) {
  return {value.GetString(), value.GetStringLength()};
}

/// The member of that name; the last, when there are several. Null if there is none.
const rapidjson::Value* find(const rapidjson::Value& object, std::string_view name) {
  const rapidjson::Value* found = nullptr;
  for (const auto& member : object.GetObject())
    if (std::string_view{member.name.GetString(), member.name.GetStringLength()} == name)
      found = &member.value;
  return found;
}

class writer {
public:
  writer& begin_object() { return out_.StartObject(), *this; }
  writer& end_object() { return out_.EndObject(), *this; }
  writer& begin_array() { return out_.StartArray(), *this; }
  writer& end_array() { return out_.EndArray(), *this; }
  writer& key(std::string_view name) {
    return out_.Key(name.data(), static_cast<rapidjson::SizeType>(name.size())), *this;
  }
  writer& text(std::string_view bytes) {
    const auto valid = to_utf8(bytes);
    return out_.String(valid.data(), static_cast<rapidjson::SizeType>(valid.size())), *this;
  }
  writer& boolean(bool value) { return out_.Bool(value), *this; }
  writer& integer(int value) { return out_.Int(value), *this; }
  std::string str() const { return {buffer_.GetString(), buffer_.GetSize()}; }

private:
  rapidjson::StringBuffer buffer_;
  rapidjson::Writer<rapidjson::StringBuffer> out_{buffer_};
};

} // namespace

std::string number_text(double value) {
  std::array<char, 32> text{};
  // Fixed notation of a number below 1e21 has at most 21 digits before the point.
  const bool plain = value == 0 || (std::abs(value) < 1e21 && std::abs(value) >= 1e-6);
  const auto end = plain ? std::to_chars(text.data(), text.data() + text.size(),
                                         value == 0 ? 0.0 : value, std::chars_format::fixed)
                         : std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

result<exec_body> read_exec_body(std::string_view text) {
  rapidjson::Document document;
  if (!parse(text, document))
    return error{errc::invalid_request, "Invalid JSON body"};
  const auto* argv = document.IsObject() ? find(document, "argv") : nullptr;
  if (argv == nullptr || !argv->IsArray() || argv->Empty())
    return error{errc::invalid_request, "argv must be a non-empty array"};
  exec_body body;
  body.argv.reserve(argv->Size());
  for (const auto& element : argv->GetArray()) {
    if (element.IsString())
      body.argv.push_back(text_of(element));
    else if (element.IsNumber())
      body.argv.push_back(number_text(element.GetDouble()));
    else
      return error{errc::invalid_request, "argv must contain only strings"};
  }
  if (const auto* timeout = find(document, "timeout_ms"); timeout != nullptr && timeout->IsNumber())
    body.timeout_ms = timeout->GetDouble();
  if (const auto* cwd = find(document, "cwd"); cwd != nullptr && cwd->IsString())
    body.cwd = text_of(*cwd);
  return body;
}

std::string write_error(std::string_view message, std::string_view code) {
  return writer{}
    .begin_object()
    .key("error")
    .text(message)
    .key("code")
    .text(code)
    .end_object()
    .str();
}

std::string write_id(std::string_view id) {
  return writer{}.begin_object().key("id").text(id).end_object().str();
}

std::string write_running(bool running) {
  return writer{}.begin_object().key("running").boolean(running).end_object().str();
}

std::string write_ok() {
  return R"({"ok":true})";
}

std::string write_missing_parts(const std::vector<std::string>& errors) {
  writer out;
  out.begin_object().key("ok").boolean(false).key("errors").begin_array();
  for (const auto& what : errors)
    out.text(what);
  return out.end_array().end_object().str();
}

std::string write_exit_code(int exit_code) {
  return writer{}.begin_object().key("exit_code").integer(exit_code).end_object().str();
}

} // namespace insula::http::json
