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
class writer {
public:
  writer& begin_object() { return out_.StartObject(), *this; }
  writer& end_object() { return out_.EndObject(), *this; }
  writer& begin_array() { return out_.StartArray(), *this; }
  writer& end_array() { return out_.EndArray(), *this; }
  writer& key(std::string_view name) {
    const auto valid = to_utf8(name);
    return out_.Key(valid.data(), static_cast<rapidjson::SizeType>(valid.size())), *this;
  }
  writer& text(std::string_view bytes) {
    const auto valid = to_utf8(bytes);
    return out_.String(valid.data(), static_cast<rapidjson::SizeType>(valid.size())), *this;
  }
  writer& null() { return out_.Null(), *this; }
  writer& boolean(bool given) { return out_.Bool(given), *this; }
  writer& integer(std::signed_integral auto given) { return out_.Int64(given), *this; }
  writer& integer(std::unsigned_integral auto given) { return out_.Uint64(given), *this; }
  /// With `places` digits after the point at most; the rest is cut off.
  writer& decimal(double given, int places) {
    out_.SetMaxDecimalPlaces(places);
    return out_.Double(given), *this;
  }

  writer& member(std::string_view name, std::string_view given) { return key(name).text(given); }
  writer& member(std::string_view name, std::nullptr_t) { return key(name).null(); }
  template <std::integral T>
  writer& member(std::string_view name, T given) {
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
  rapidjson::Writer<rapidjson::StringBuffer> out_{buffer_};
};

} // namespace insula::http::json
