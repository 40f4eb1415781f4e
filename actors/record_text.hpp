#pragma once

#include "actors/record_keys.hpp"

#include <string>
#include <string_view>

namespace insula::actors {

/// Entries of a record as one text, for a line of a list: "<key> <bytes of the value>\n<value>\n"
/// for each. Keys have no blank.
std::string to_text(const record_entries& told);

/// The value of a key. Empty: there is none.
std::string text_in(const record_entries& record, std::string_view key);

/// As far as the text makes sense.
record_entries from_text(std::string_view text);

} // namespace insula::actors
