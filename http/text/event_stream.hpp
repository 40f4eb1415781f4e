#pragma once

#include <string>
#include <string_view>

/// The text of server-sent events (text/event-stream), as the bridge's clients read it.
namespace insula::http::sse {

/// A comment: what every client skips.
inline constexpr std::string_view heartbeat = ":\n\n";

/// One event with `data` as it stands: one line. `id`: empty for none; it is what a client says
/// that wants what follows.
void append_event(std::string& to, std::string_view name, std::string_view data,
                  std::string_view id = {});

/// One event whose data is `bytes` in base64 (RFC 4648, padded, no line breaks).
void append_base64_event(std::string& to, std::string_view name, std::string_view bytes,
                         std::string_view id = {});

} // namespace insula::http::sse
