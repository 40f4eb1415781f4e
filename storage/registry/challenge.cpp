#include "storage/registry/challenge.hpp"

#include <algorithm>
#include <optional>

namespace insula::storage::registry {

namespace {

constexpr std::size_t longest_field = 16 * 1024;
constexpr std::size_t most = 16; ///< Challenges, and parameters of each.

bool is_token_character(char c) {
  constexpr std::string_view others = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         others.find(c) != others.npos;
}

class field_reader {
public:
  explicit field_reader(std::string_view text)
      : left_(text) {}

  bool at_end() const { return left_.empty(); }

  void skip(std::string_view which) {
    left_.remove_prefix(std::min(left_.find_first_not_of(which), left_.size()));
  }

  bool take(char c) {
    if (!left_.starts_with(c))
      return false;
    left_.remove_prefix(1);
    return true;
  }

  /// In lower case. Empty: there is none.
  std::string token() {
    std::string made;
    while (!left_.empty() && is_token_character(left_.front())) {
      const char c = left_.front();
      made += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      left_.remove_prefix(1);
    }
    return made;
  }

  /// None: it is malformed.
  std::optional<std::string> value() {
    std::string made;
    if (!take('"')) {
      while (!left_.empty() && is_token_character(left_.front())) {
        made += left_.front();
        left_.remove_prefix(1);
      }
      return made.empty() ? std::nullopt : std::optional{made};
    }
    while (!take('"')) {
      take('\\');
      if (left_.empty() || static_cast<unsigned char>(left_.front()) < ' ')
        return std::nullopt;
      made += left_.front();
      left_.remove_prefix(1);
    }
    return made;
  }

private:
  std::string_view left_;
};

} // namespace

std::vector<challenge> read_challenges(std::string_view field) {
  std::vector<challenge> all;
  if (field.size() > longest_field)
    return all;
  field_reader from{field};
  while (all.size() < most) {
    from.skip(" \t,");
    auto word = from.token();
    if (word.empty())
      break;
    from.skip(" \t");
    if (!from.take('=')) { // A scheme: its parameters follow.
      all.push_back({std::move(word), {}});
      continue;
    }
    from.skip(" \t");
    auto value = from.value();
    if (!value || all.empty() || all.back().parameters.size() == most)
      break;
    // The first one counts, as nobody can tell which was meant.
    all.back().parameters.try_emplace(std::move(word), std::move(*value));
  }
  return all;
}

} // namespace insula::storage::registry
