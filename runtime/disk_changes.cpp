#include "runtime/disk_changes.hpp"

#include <charconv>
#include <optional>
#include <utility>

namespace insula::runtime {

namespace {

std::optional<change_kind> kind_of(char letter) {
  switch (letter) {
    case 'A': return change_kind::added;
    case 'M': return change_kind::changed;
    case 'D': return change_kind::deleted;
    default: return std::nullopt;
  }
}

changed_file type_of(char letter) {
  switch (letter) {
    case '-': return changed_file::file;
    case 'd': return changed_file::directory;
    case 'l': return changed_file::symlink;
    default: return changed_file::other;
  }
}

std::optional<disk_change> read_change(std::string_view record) {
  constexpr std::size_t letters = 2;
  if (record.size() < letters)
    return std::nullopt;
  const auto kind = kind_of(record[0]);
  disk_change is;
  const auto* const end = record.data() + record.size();
  const auto [at, why] = std::from_chars(record.data() + letters, end, is.bytes);
  if (!kind || why != std::errc{} || end - at < 2 || *at != ' ')
    return std::nullopt;
  is.what = *kind;
  is.type = type_of(record[1]);
  is.path.assign(1, '/').append(at + 1, end);
  return is;
}

} // namespace

result<disk_changes> read_disk_changes(std::string_view text) {
  const error cut{errc::io_failed, "the comparison of the disks was cut"};
  disk_changes all;
  for (;;) {
    const auto end = text.find('\0');
    if (end == std::string_view::npos || end == 0)
      return cut;
    const auto record = text.substr(0, end);
    text.remove_prefix(end + 1);
    const bool is_last = record == "." || record == "+";
    if (is_last && !text.empty())
      return cut;
    if (is_last) {
      all.more = record == "+";
      return all;
    }
    if (record.front() == '!')
      return error{errc::io_failed,
                   "the disks cannot be compared: " + std::string{record.substr(1, 200)}};
    auto change = all.changes.size() < max_changes_at_once ? read_change(record) : std::nullopt;
    if (!change)
      return cut;
    all.changes.push_back(std::move(*change));
  }
}

} // namespace insula::runtime
