#pragma once

#include "http/text/utf8.hpp"

#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>

namespace insula::http::json {

/// Writes one JSON text. Bytes that are no UTF-8 are replaced.
template <class Encoding>
class basic_writer {
public:
  basic_writer& begin_object() { return out_.StartObject(), *this; }
  basic_writer& end_object() { return out_.EndObject(), *this; }
  basic_writer& begin_array() { return out_.StartArray(), *this; }
  basic_writer& end_array() { return out_.EndArray(), *this; }
  basic_writer& key(std::string_view name) {
    const auto valid = to_utf8(name);
    return out_.Key(valid.data(), static_cast<rapidjson::SizeType>(valid.size())), *this;
  }
  basic_writer& text(std::string_view bytes) {
    const auto valid = to_utf8(bytes);
    return out_.String(valid.data(), static_cast<rapidjson::SizeType>(valid.size())), *this;
  }
  basic_writer& null() { return out_.Null(), *this; }
  basic_writer& boolean(bool given) { return out_.Bool(given), *this; }
  basic_writer& integer(std::signed_integral auto given) { return out_.Int64(given), *this; }
  basic_writer& integer(std::unsigned_integral auto given) { return out_.Uint64(given), *this; }
  /// With `places` digits after the point at most; the rest is cut off.
  basic_writer& decimal(double given, int places) {
    out_.SetMaxDecimalPlaces(places);
    return out_.Double(given), *this;
  }

  basic_writer& member(std::string_view name, std::string_view given) {
    return key(name).text(given);
  }
  basic_writer& member(std::string_view name, std::nullptr_t) { return key(name).null(); }
  template <std::integral T>
  basic_writer& member(std::string_view name, T given) {
    if constexpr (std::same_as<T, bool>)
      return key(name).boolean(given);
    else
      return key(name).integer(given);
  }

  std::string str() const { return std::string{view()}; }
  /// Valid until something is written.
  std::string_view view() const { return {buffer_.GetString(), buffer_.GetSize()}; }

private:
  rapidjson::StringBuffer buffer_;
  rapidjson::Writer<rapidjson::StringBuffer, rapidjson::UTF8<>, Encoding> out_{buffer_};
};

using writer = basic_writer<rapidjson::UTF8<>>;
/// What is not ASCII is escaped, so that no reader of a part meets half a character.
using ascii_writer = basic_writer<rapidjson::ASCII<>>;

} // namespace insula::http::json
