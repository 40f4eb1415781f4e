#include "http/json/js_number.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace insula::http {

namespace {

/// What JavaScript takes for blanks, in UTF-8.
constexpr std::string_view blanks[] = {
  " ",      "\t",     "\n",     "\v",     "\f",     "\r",     "\u00a0", "\u1680", "\u2000",
  "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009",
  "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\ufeff"};

std::string_view trimmed(std::string_view text) {
  for (bool more = true; more;) {
    more = false;
    for (const auto blank : blanks) {
      if (text.starts_with(blank)) {
        text.remove_prefix(blank.size());
        more = true;
      }
      if (text.ends_with(blank)) {
        text.remove_suffix(blank.size());
        more = true;
      }
    }
  }
  return text;
}

/// After 0x, 0o or 0b. A number too large for a double's digits is near enough.
std::optional<double> with_base(std::string_view digits, int base) {
  if (digits.empty())
    return std::nullopt;
  double value = 0;
  for (const char digit : digits) {
    unsigned one = 0;
    if (std::from_chars(&digit, &digit + 1, one, base).ec != std::errc{})
      return std::nullopt;
    value = value * base + one;
  }
  return value;
}

std::optional<double> decimal(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+'))
    text.remove_prefix(1);
  const double sign = negative ? -1.0 : 1.0;
  if (text == "Infinity")
    return sign * std::numeric_limits<double>::infinity();
  // Else from_chars would take `inf` and `nan`.
  const auto first = text.find_first_not_of('.');
  if (first == std::string_view::npos || text[first] < '0' || text[first] > '9')
    return std::nullopt;
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size())
    return std::nullopt;
  if (problem == std::errc::result_out_of_range) // It has overflowed, or is next to nothing.
    value = text.find("e-") == std::string_view::npos && text.find("E-") == std::string_view::npos
              ? std::numeric_limits<double>::infinity()
              : 0;
  return sign * value;
}

} // namespace

std::optional<double> js_number(std::string_view text) {
  text = trimmed(text);
  if (text.empty())
    return 0;
  if (text.size() > 1 && text[0] == '0') {
    const auto digits = text.substr(2);
    switch (text[1] | 0x20) {
      case 'x': return with_base(digits, 16);
      case 'o': return with_base(digits, 8);
      case 'b': return with_base(digits, 2);
      default: break;
    }
  }
  return decimal(text);
}

} // namespace insula::http
