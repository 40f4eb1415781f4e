#pragma once

#include "base/tree_frames.hpp"

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// The target of an entry of kind `attributes`, as base/tree_frames.hpp has it: written and read.
namespace insula {

/// Threads: one at a time. Errors: none; the reader of the tree counts the bytes.
class attributes_text {
public:
  explicit attributes_text(const attributes_head& owners) { append(&owners, sizeof owners); }

  void add(std::string_view name, std::string_view value) {
    const attribute_head each{static_cast<std::uint32_t>(name.size()),
                              static_cast<std::uint32_t>(value.size())};
    append(&each, sizeof each);
    text_ += name;
    text_ += value;
  }
  /// It is no longer than an entry's may be.
  bool fits() const { return text_.size() <= max_attributes_bytes; }
  const std::string& str() const { return text_; }

private:
  void append(const void* bytes, std::size_t count) {
    text_.append(static_cast<const char*>(bytes), count);
  }

  std::string text_;
};

struct tree_attributes {
  attributes_head owners{};
  std::vector<std::pair<std::string, std::string>> extended; ///< Names are neither empty nor cut.

  /// False: the text makes no sense. What is here is of no use then.
  bool read(std::string_view text) {
    const auto take = [&text](void* into, std::size_t count) {
      if (text.size() < count)
        return false;
      std::memcpy(into, text.data(), count);
      text.remove_prefix(count);
      return true;
    };
    *this = {};
    if (!take(&owners, sizeof owners))
      return false;
    for (attribute_head each{}; !text.empty();) {
      if (!take(&each, sizeof each) || text.size() < each.name_bytes ||
          text.size() - each.name_bytes < each.value_bytes)
        return false;
      const auto name = text.substr(0, each.name_bytes);
      if (name.empty() || name.find('\0') != name.npos)
        return false;
      extended.emplace_back(name, text.substr(each.name_bytes, each.value_bytes));
      text.remove_prefix(each.name_bytes + each.value_bytes);
    }
    return true;
  }
};

} // namespace insula
