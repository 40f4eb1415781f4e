#include "http/json/json.hpp"

#include "http/json/writer.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace insula::http::json {

std::string number_text(double value) {
  std::array<char, 32> text{};
  // Fixed notation of a number below 1e21 has at most 21 digits before the point.
  const bool plain = value == 0 || (std::abs(value) < 1e21 && std::abs(value) >= 1e-6);
  const auto end = plain ? std::to_chars(text.data(), text.data() + text.size(),
                                         value == 0 ? 0.0 : value, std::chars_format::fixed)
                         : std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end.ptr};
}

std::string write_error(std::string_view message, std::string_view code, std::string_view reason) {
  writer out;
  out.begin_object().member("error", message).member("code", code);
  if (!reason.empty())
    out.member("reason", reason);
  return out.end_object().str();
}

std::string write_ok() {
  return R"({"ok":true})";
}

} // namespace insula::http::json
