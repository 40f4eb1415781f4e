#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace insula::actors::inside_sandbox {

/// Commands, by their keys.
inline constexpr std::string_view exec_records = "idempotency/exec/";

/// The answer to a key that has come with another request before.
inline const error key_conflict{errc::idempotency_conflict,
                                "this Idempotency-Key has been used for another request"};

/// A request that has its effect once, as it stands in a store.
struct idempotency_record {
  std::string digest;
  std::int64_t made_ms = 0;
  std::string which;       ///< What else has to be the same. One line.
  std::string status = {}; ///< Of a remembered command: as text_of() says it.

  std::string text() const;
  static idempotency_record read(std::string_view text);
  bool expired(std::int64_t now_ms) const;
};

/// The state of a remembered command, for its record: numbers in one line, and its text behind it.
std::string text_of(const command_state& known);
command_state command_state_of(const idempotency_record& record);

} // namespace insula::actors::inside_sandbox
