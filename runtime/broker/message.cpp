#include "runtime/broker/message.hpp"

#include <algorithm>

namespace insula::runtime::broker {

const std::string* find(const fields& in, std::string_view name) {
  const auto at =
    std::find_if(in.begin(), in.end(), [&](const auto& each) { return each.name == name; });
  return at == in.end() ? nullptr : &at->value;
}

void remove_field(fields& in, std::string_view name) {
  std::erase_if(in, [&](const auto& each) { return each.name == name; });
}

void set(fields& in, std::string_view name, std::string value) {
  remove_field(in, name);
  in.push_back({std::string{name}, std::move(value)});
}

std::string lower_case(std::string_view text) {
  std::string made{text};
  std::transform(made.begin(), made.end(), made.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return made;
}

std::string_view request_head::path() const {
  return std::string_view{target}.substr(0, target.find('?'));
}

std::string_view request_head::query() const {
  const auto at = target.find('?');
  return at == std::string::npos ? std::string_view{} : std::string_view{target}.substr(at + 1);
}

} // namespace insula::runtime::broker
