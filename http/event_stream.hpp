#pragma once

#include <string>
#include <string_view>

/// The text of server-sent events (text/event-stream), as the bridge's clients read it.
namespace insula::http::sse {

/// A comment: what every client skips.
inline constexpr std::string_view heartbeat = ":\n\n";

/// One event with `data` as it stands: one line.
void append_event(std::string& to, std::string_view name, std::string_view data);

/// One event whose data is `bytes` in base64 (RFC 4648, padded, no line breaks).
void append_base64_event(std::string& to, std::string_view name, std::string_view bytes);

} // namespace insula::http::sse
