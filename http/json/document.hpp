#pragma once

#include "base/error.hpp"
#include "base/limits.hpp"

#include <rapidjson/document.h>

#include <string>
#include <string_view>

/// Reading JSON texts of clients. No reader recurses, however deep a text nests.
namespace insula::http::json {

using value = rapidjson::Value;
using document = rapidjson::Document;

/// How strictly a text is read.
struct strictness {
  bool byte_order_mark = false; ///< One may stand in front, as JavaScript's reader takes it.
  bool any_rest = false;        ///< What follows the value is not looked at.
  bool checks_utf8 = true;
};

/// False: the text is no JSON.
bool parse(std::string_view text, document& into, strictness how = {});

/// How a member is looked for.
struct member_rule {
  bool any_case = false;       ///< In any letter case.
  bool null_is_absent = false; ///< A member that is null counts as not there.
};

/// A member by its name in any letter case, as Go's reader finds it: null counts as not there.
inline constexpr member_rule as_go{true, true};

/// A member by its name, of several the last; null: there is none, or `in` is no object.
const value* find(const value& in, std::string_view name, member_rule rule = {});

std::string_view text_of(const value& from);
std::string string_of(const value& from);

/// As execd reads a text of its clients: what follows the first value is not looked at, and null is
/// an empty object. False: there is no object.
bool parse_lenient_object(std::string_view text, document& into);

/// invalid_request.
error wrong(std::string why);

} // namespace insula::http::json
