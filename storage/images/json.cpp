#include "storage/images/json.hpp"

#include "base/limits.hpp"

#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <system_error>

namespace insula::storage::images {

namespace {

using rapidjson::SizeType;

/// Hands everything on to the document until it is too deep: the reader calls itself for each
/// level.
class shallow {
public:
  explicit shallow(rapidjson::Document& to)
      : to_(to) {}

  bool Null() { return to_.Null(); }
  bool Bool(bool b) { return to_.Bool(b); }
  bool Int(int i) { return to_.Int(i); }
  bool Uint(unsigned i) { return to_.Uint(i); }
  bool Int64(std::int64_t i) { return to_.Int64(i); }
  bool Uint64(std::uint64_t i) { return to_.Uint64(i); }
  bool Double(double d) { return to_.Double(d); }
  /// As they stand in the text: RapidJSON's own way to a double is either not exact to the last
  /// digit or shifts by more than a number has.
  bool RawNumber(const char* s, SizeType n, bool) {
    const char* const end = s + n;
    const auto is = [&](auto& number) {
      const auto [stopped, failure] = std::from_chars(s, end, number);
      return failure == std::errc{} && stopped == end;
    };
    if (std::int64_t number = 0; is(number))
      return to_.Int64(number);
    if (std::uint64_t number = 0; is(number))
      return to_.Uint64(number);
    if (double number = 0; is(number))
      return to_.Double(number);
    // Too large, or so small that it is nothing.
    long double wide = 0;
    number_too_big_ = !is(wide) || std::abs(wide) > 1;
    return !number_too_big_ && to_.Double(0);
  }
  bool String(const char* s, SizeType n, bool copy) {
    return is_text(s, n) && to_.String(s, n, copy);
  }
  bool Key(const char* s, SizeType n, bool copy) { return is_text(s, n) && to_.Key(s, n, copy); }
  bool StartObject() { return ++depth_ <= limits::json_depth && to_.StartObject(); }
  bool StartArray() { return ++depth_ <= limits::json_depth && to_.StartArray(); }
  bool EndObject(SizeType n) { return --depth_, to_.EndObject(n); }
  bool EndArray(SizeType n) { return --depth_, to_.EndArray(n); }

  bool has_half_a_surrogate() const { return half_a_surrogate_; }
  bool has_too_big_a_number() const { return number_too_big_; }

private:
  /// Bytes are validated, escapes are not: "\uDC00" alone would be text that nobody can read again.
  bool is_text(const char* s, SizeType n) {
    for (SizeType i = 0; i + 1 < n; ++i)
      if (s[i] == '\xed' && static_cast<unsigned char>(s[i + 1]) >= 0xa0)
        half_a_surrogate_ = true;
    return !half_a_surrogate_;
  }

  rapidjson::Document& to_;
  std::size_t depth_ = 0;
  bool half_a_surrogate_ = false;
  bool number_too_big_ = false;
};

} // namespace

result<rapidjson::Document> parse_json(std::string_view text) {
  rapidjson::Document made;
  rapidjson::ParseResult outcome;
  bool half_a_surrogate = false, number_too_big = false;
  constexpr unsigned flags =
    rapidjson::kParseValidateEncodingFlag | rapidjson::kParseNumbersAsStringsFlag;
  const auto generate = [&](rapidjson::Document& to) {
    rapidjson::MemoryStream bytes{text.data(), text.size()};
    rapidjson::Reader reader;
    shallow handler{to};
    outcome = reader.Parse<flags>(bytes, handler);
    half_a_surrogate = handler.has_half_a_surrogate();
    number_too_big = handler.has_too_big_a_number();
    return !outcome.IsError();
  };
  made.Populate(generate);
  if (half_a_surrogate)
    return error{errc::invalid_request, "it has half a surrogate pair in a text"};
  if (number_too_big)
    return error{errc::invalid_request, "it has a number that is out of range"};
  if (outcome.Code() == rapidjson::kParseErrorTermination)
    return error{errc::invalid_request,
                 "it nests deeper than " + std::to_string(limits::json_depth) + " levels"};
  if (outcome.IsError())
    return error{errc::invalid_request,
                 "it is not JSON: " + std::string{rapidjson::GetParseError_En(outcome.Code())} +
                   " At byte " + std::to_string(outcome.Offset())};
  return made;
}

const rapidjson::Value* member(const rapidjson::Value& of, const char* name) {
  if (!of.IsObject())
    return nullptr;
  const auto at = of.FindMember(name);
  return at == of.MemberEnd() ? nullptr : &at->value;
}

std::string text_of(const rapidjson::Value& of, const char* name) {
  const auto* value = member(of, name);
  return value != nullptr && value->IsString()
           ? std::string{value->GetString(), value->GetStringLength()}
           : std::string{};
}

std::uint64_t number_of(const rapidjson::Value& of, const char* name) {
  const auto* value = member(of, name);
  return value != nullptr && value->IsUint64() ? value->GetUint64() : 0;
}

std::optional<std::vector<std::string>> texts_of(const rapidjson::Value& of, const char* name) {
  const auto* value = member(of, name);
  std::vector<std::string> all;
  if (value == nullptr || value->IsNull())
    return all;
  if (!value->IsArray())
    return std::nullopt;
  for (const auto& each : value->GetArray()) {
    if (!each.IsString())
      return std::nullopt;
    all.emplace_back(each.GetString(), each.GetStringLength());
  }
  return all;
}

} // namespace insula::storage::images
