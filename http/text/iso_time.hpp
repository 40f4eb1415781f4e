#pragma once

#include <cstdint>
#include <string>

namespace insula::http {

/// 2026-01-31T12:00:00.000Z
std::string iso_time(std::int64_t unix_ms);

} // namespace insula::http
