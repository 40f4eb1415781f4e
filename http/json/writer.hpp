#pragma once

#include "http/text/utf8.hpp"

#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace insula::http::json {

using raw_writer = rapidjson::Writer<rapidjson::StringBuffer>;

/// A member with a text. Bytes that are no UTF-8 are replaced.
inline void text_member(raw_writer& out, std::string_view name, std::string_view given) {
  out.Key(name.data(), static_cast<rapidjson::SizeType>(name.size()));
  const auto clean = to_utf8(given);
  out.String(clean.data(), static_cast<rapidjson::SizeType>(clean.size()));
}

/// Writes one JSON text. Bytes that are no UTF-8 are replaced.
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
  writer& boolean(bool given) { return out_.Bool(given), *this; }
  writer& integer(std::int64_t given) { return out_.Int64(given), *this; }
  std::string str() const { return {buffer_.GetString(), buffer_.GetSize()}; }

private:
  rapidjson::StringBuffer buffer_;
  raw_writer out_{buffer_};
};

} // namespace insula::http::json
