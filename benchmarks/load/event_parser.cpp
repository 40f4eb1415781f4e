#include "benchmarks/load/event_parser.hpp"

namespace insula::load {

namespace {

constexpr std::size_t longest_event = 16u << 20;

std::string_view value_of(std::string_view line, std::string_view field) {
  line.remove_prefix(field.size());
  if (line.starts_with(' '))
    line.remove_prefix(1);
  return line;
}

} // namespace

void event_parser::take(std::string_view line) {
  if (line.ends_with('\r'))
    line.remove_suffix(1);
  if (line.empty()) {
    if (!name_.empty() || has_data_)
      on_event_(name_, data_);
    name_.clear();
    data_.clear();
    has_data_ = false;
  } else if (line.starts_with("event:")) {
    name_ = value_of(line, "event:");
  } else if (line.starts_with("data:")) {
    if (has_data_)
      data_ += '\n';
    data_ += value_of(line, "data:");
    has_data_ = true;
  }
}

bool event_parser::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    if (line_.size() + data_.size() + std::min(end, bytes.size()) > longest_event)
      return false;
    if (end == std::string_view::npos) {
      line_ += bytes;
      return true;
    }
    if (line_.empty()) {
      take(bytes.substr(0, end));
    } else {
      line_ += bytes.substr(0, end);
      take(line_);
      line_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
  return true;
}

} // namespace insula::load
