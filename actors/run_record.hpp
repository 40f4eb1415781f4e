#pragma once

#include "actors/protocol/messages.hpp"
#include "actors/record_keys.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// The runs of a sandbox in its record: a key for each, in the order of their numbers, and one for
/// the sums of all that are over.
namespace insula::actors {

inline constexpr std::string_view run_keys = "run/";
inline constexpr const char* run_totals_key = "run_totals";

std::string key_of_run(std::uint64_t number);
/// 0: it is the key of no run.
std::uint64_t run_of_key(std::string_view key);

/// A run in the record, and back. None: a later version has written it.
std::string text_of(const sandbox_run& run);
std::optional<sandbox_run> read_run(std::uint64_t number, std::string_view text);

/// 0 is the number of none.
std::optional<sandbox_run> find_run(const record_entries& record, std::uint64_t number);
/// The one that is alive, or was last. None: there was none.
std::optional<sandbox_run> last_run(const record_entries& record);

/// None: there is none with a lower number.
std::optional<sandbox_run> run_before(const record_entries& record, std::uint64_t number);

std::string text_of(const run_totals& all);
run_totals totals_of(const record_entries& record);

} // namespace insula::actors
