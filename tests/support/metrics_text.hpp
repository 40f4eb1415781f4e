#pragma once

#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace insula::test {

using metric_labels = std::map<std::string, std::string>;

/// A text of metrics, read strictly: every sample belongs to the family that was begun last, and
/// comes once. Throws std::runtime_error otherwise.
class metrics_page {
public:
  explicit metrics_page(std::string_view text) {
    while (!text.empty()) {
      const auto end = text.find('\n');
      if (end == std::string_view::npos)
        throw std::runtime_error{"the last line has no end"};
      read(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
  }

  bool has(const std::string& name, const metric_labels& with = {}) const {
    return samples_.contains({name, with});
  }
  /// 0 where there is none: that is what a counter says that has never been moved.
  double value(const std::string& name, const metric_labels& with = {}) const {
    const auto at = samples_.find({name, with});
    return at == samples_.end() ? 0 : at->second;
  }
  std::string type(const std::string& family) const {
    const auto at = types_.find(family);
    return at == types_.end() ? std::string{} : at->second;
  }
  std::string help(const std::string& family) const { return helps_.at(family); }
  const std::map<std::pair<std::string, metric_labels>, double>& samples() const {
    return samples_;
  }

private:
  static std::string_view take(std::string_view& line, char mark) {
    const auto end = line.find(mark);
    if (end == std::string_view::npos)
      throw std::runtime_error{"there is no " + std::string{mark} + " in: " + std::string{line}};
    const auto word = line.substr(0, end);
    line.remove_prefix(end + 1);
    return word;
  }

  /// Up to the closing quote.
  static std::string take_value(std::string_view& line) {
    std::string value;
    for (;;) {
      if (line.empty())
        throw std::runtime_error{"a label's value has no end"};
      const char c = line.front();
      line.remove_prefix(1);
      if (c == '"')
        return value;
      if (c != '\\') {
        value += c;
        continue;
      }
      const char escaped = line.empty() ? ' ' : line.front();
      if (escaped != 'n' && escaped != '\\' && escaped != '"')
        throw std::runtime_error{"an unknown escape"};
      value += escaped == 'n' ? '\n' : escaped;
      line.remove_prefix(1);
    }
  }

  void read(std::string_view line) {
    if (line.starts_with("# HELP ")) {
      line.remove_prefix(7);
      const std::string name{take(line, ' ')};
      if (!helps_.emplace(name, line).second)
        throw std::runtime_error{"a family comes twice: " + name};
      family_ = name;
    } else if (line.starts_with("# TYPE ")) {
      line.remove_prefix(7);
      if (take(line, ' ') != family_)
        throw std::runtime_error{"a type without its help"};
      types_[family_] = line;
    } else {
      read_sample(line);
    }
  }

  void read_sample(std::string_view line) {
    const auto name_end = line.find_first_of("{ ");
    if (name_end == std::string_view::npos)
      throw std::runtime_error{"no sample: " + std::string{line}};
    const std::string name{line.substr(0, name_end)};
    const bool labelled = line[name_end] == '{';
    line.remove_prefix(name_end + 1);
    metric_labels with;
    while (labelled) {
      const std::string label{take(line, '=')};
      if (!take(line, '"').empty())
        throw std::runtime_error{"a value without quotes"};
      if (!with.emplace(label, take_value(line)).second)
        throw std::runtime_error{"a label comes twice"};
      const char next = line.empty() ? ' ' : line.front();
      line.remove_prefix(1);
      if (next == ',')
        continue;
      if (next != '}' || take(line, ' ') != "")
        throw std::runtime_error{"the labels have no end"};
      break;
    }
    const auto rest = name.substr(0, family_.size()) == family_ ? name.substr(family_.size()) : "?";
    const bool histogram = types_[family_] == "histogram";
    if (histogram ? rest != "_bucket" && rest != "_sum" && rest != "_count" : !rest.empty())
      throw std::runtime_error{name + " stands below " + family_};
    const std::string digits{line};
    char* end = nullptr;
    const double value = std::strtod(digits.c_str(), &end);
    if (digits.empty() || *end != '\0')
      throw std::runtime_error{"no number: " + digits};
    if (!samples_.emplace(std::pair{name, with}, value).second)
      throw std::runtime_error{"a sample comes twice: " + name};
  }

  std::string family_;
  std::map<std::string, std::string> types_, helps_;
  std::map<std::pair<std::string, metric_labels>, double> samples_;
};

} // namespace insula::test
