#include "actors/run_record.hpp"

#include <array>
#include <cstdio>
#include <sstream>

namespace insula::actors {

namespace {

constexpr std::size_t digits_of_run = 16;

} // namespace

std::string key_of_run(std::uint64_t number) {
  std::array<char, digits_of_run + 1> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(number));
  return std::string{run_keys} + digits.data();
}

std::uint64_t run_of_key(std::string_view key) {
  if (!key.starts_with(run_keys) || key.size() != run_keys.size() + digits_of_run ||
      key.find_first_not_of("0123456789abcdef", run_keys.size()) != std::string_view::npos)
    return 0;
  std::uint64_t number = 0;
  for (const char each : key.substr(run_keys.size()))
    number = number * 16 + static_cast<std::uint64_t>(each <= '9' ? each - '0' : each - 'a' + 10);
  return number;
}

std::string text_of(const sandbox_run& run) {
  std::ostringstream words;
  words << static_cast<unsigned>(run.state) << ' ' << run.asked_ms << ' ' << run.started_ms << ' '
        << run.stop_asked_ms << ' ' << run.ended_ms << ' ' << run.timeout_ms << ' ' << run.cpu_ms
        << ' ' << run.bytes_in << ' ' << run.bytes_out;
  if (!run.began_with.empty() || !run.snapshot.empty())
    words << ' ' << (run.began_with.empty() ? "-" : run.began_with) << ' '
          << (run.snapshot.empty() ? "-" : run.snapshot) << ' '
          << run.snapshot_keep_ms.value_or(-1);
  return words.str();
}

std::optional<sandbox_run> read_run(std::uint64_t number, std::string_view text) {
  sandbox_run run;
  unsigned state = 0;
  std::istringstream words{std::string{text}};
  words >> state >> run.asked_ms >> run.started_ms >> run.stop_asked_ms >> run.ended_ms >>
    run.timeout_ms >> run.cpu_ms >> run.bytes_in >> run.bytes_out;
  if (words.fail() || state >= run_states)
    return std::nullopt;
  run.number = number;
  run.state = static_cast<run_state>(state);
  std::int64_t keep_ms = -1;
  if (words >> run.began_with >> run.snapshot >> keep_ms; words.fail()) // An earlier version's.
    run.began_with = run.snapshot = "-";
  for (auto* id : {&run.began_with, &run.snapshot})
    if (*id == "-")
      id->clear();
  if (keep_ms >= 0)
    run.snapshot_keep_ms = keep_ms;
  return run;
}

std::optional<sandbox_run> find_run(const record_entries& record, std::uint64_t number) {
  const auto at = number == 0 ? record.end() : record.find(key_of_run(number));
  return at == record.end() ? std::nullopt : read_run(number, at->second);
}

std::optional<sandbox_run> last_run(const record_entries& record) {
  for (auto at = record.lower_bound(std::string{run_keys} + '~');
       at != record.begin() && (--at)->first >= run_keys;)
    if (const auto number = run_of_key(at->first))
      return read_run(number, at->second);
  return std::nullopt;
}

std::optional<sandbox_run> run_before(const record_entries& record, std::uint64_t number) {
  std::optional<sandbox_run> before;
  for (auto at = record.lower_bound(run_keys);
       at != record.end() && at->first.starts_with(run_keys); ++at)
    if (const auto each = run_of_key(at->first); each != 0 && each < number)
      before = read_run(each, at->second);
  return before;
}

std::string text_of(const run_totals& all) {
  std::ostringstream words;
  words << all.runs << ' ' << all.duration_ms << ' ' << all.cpu_ms << ' ' << all.bytes_in << ' '
        << all.bytes_out;
  return words.str();
}

run_totals totals_of(const record_entries& record) {
  run_totals all;
  const auto at = record.find(run_totals_key);
  std::istringstream words{at == record.end() ? std::string{} : at->second};
  words >> all.runs >> all.duration_ms >> all.cpu_ms >> all.bytes_in >> all.bytes_out;
  return all;
}

} // namespace insula::actors
