#pragma once

#include "http/text/utf8.hpp"

#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <cstdint>
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
    return out_.Key(name.data(), static_cast<rapidjson::SizeType>(name.size())), *this;
  }
  writer& text(std::string_view bytes) {
    const auto valid = to_utf8(bytes);
    return out_.String(valid.data(), static_cast<rapidjson::SizeType>(valid.size())), *this;
  }
  writer& boolean(bool value) { return out_.Bool(value), *this; }
  writer& integer(std::int64_t value) { return out_.Int64(value), *this; }
  std::string str() const { return {buffer_.GetString(), buffer_.GetSize()}; }

private:
  rapidjson::StringBuffer buffer_;
  rapidjson::Writer<rapidjson::StringBuffer> out_{buffer_};
};

} // namespace insula::http::json
