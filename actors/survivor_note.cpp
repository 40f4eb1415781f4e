#include "actors/survivor_note.hpp"

#include <array>
#include <charconv>

namespace insula::actors {

namespace {

using std::chrono::steady_clock;

constexpr char version[] = "2";
constexpr std::size_t fields = 7; ///< The version, and one for each member.

bool read_number(std::string_view text, std::optional<std::int64_t>& into) {
  if (text.empty())
    return true;
  std::int64_t value = 0;
  const auto end = text.data() + text.size();
  const auto [at, failed] = std::from_chars(text.data(), end, value);
  into = value;
  return failed == std::errc{} && at == end;
}

} // namespace

/// One field per line; none of them has a line's end in it.
std::string survivor_note::label() const {
  std::string text = version;
  text += '\n' + session + '\n' + (first ? '1' : '0') + '\n';
  if (timeout_ms)
    text += std::to_string(*timeout_ms);
  text += '\n';
  if (deadline)
    text += std::to_string(deadline->time_since_epoch() / std::chrono::milliseconds{1});
  text += '\n' + key + '\n' + (timed_out ? '1' : '0');
  if (rules.with_its_shell)
    text += 's';
  if (rules.killed_at_timeout)
    text += 'k';
  return text;
}

survivor_note note_of(std::string session, std::optional<std::int64_t> timeout_ms) {
  survivor_note note;
  note.session = std::move(session);
  note.timeout_ms = timeout_ms;
  if (timeout_ms)
    note.deadline = steady_clock::now() + std::chrono::milliseconds{*timeout_ms};
  return note;
}

std::optional<survivor_note> survivor_note::read(std::string_view label) {
  std::array<std::string_view, fields> lines;
  for (std::size_t i = 0; i < fields; ++i) {
    const auto end = label.find('\n');
    if ((end == std::string_view::npos) != (i + 1 == fields))
      return std::nullopt;
    lines[i] = label.substr(0, end);
    label.remove_prefix(i + 1 == fields ? label.size() : end + 1);
  }
  survivor_note note;
  std::optional<std::int64_t> deadline_ms;
  if (lines[0] != version || !read_number(lines[3], note.timeout_ms) ||
      !read_number(lines[4], deadline_ms))
    return std::nullopt;
  note.session = lines[1];
  note.first = lines[2] == "1";
  note.key = lines[5];
  note.timed_out = lines[6].starts_with('1');
  note.rules.with_its_shell = lines[6].find('s') != std::string_view::npos;
  note.rules.killed_at_timeout = lines[6].find('k') != std::string_view::npos;
  if (deadline_ms)
    note.deadline = steady_clock::time_point{std::chrono::milliseconds{*deadline_ms}};
  return note;
}

} // namespace insula::actors
