#pragma once

#include <string>
#include <string_view>

namespace insula::http::json {

/// Appends what stands between the quotes of a JSON string that says `bytes`, in ASCII alone: what
/// is not ASCII becomes \uXXXX, and each byte that is no UTF-8 becomes U+FFFD. The same as
/// ascii_writer::text() writes, for long texts: runs of plain bytes are copied as they are.
void append_ascii(std::string& to, std::string_view bytes);

} // namespace insula::http::json
