#include "storage/registry/allow.hpp"

#include <algorithm>

namespace insula::storage::registry {

namespace {

constexpr std::size_t longest = 512;

/// In the time of one step for each pair of characters, whatever both are.
bool matches(std::string_view pattern, std::string_view text) {
  // reached[i]: what has been read of the pattern can stand for the first i characters.
  std::vector<bool> reached(text.size() + 1);
  reached[0] = true;
  while (!pattern.empty()) {
    const bool any = pattern.starts_with("**");
    if (any || pattern.front() == '*') {
      for (std::size_t i = 0; i < text.size(); ++i)
        if (reached[i] && (any || text[i] != '/'))
          reached[i + 1] = true;
    } else {
      for (std::size_t i = text.size(); i > 0; --i)
        reached[i] = reached[i - 1] && text[i - 1] == pattern.front();
      reached[0] = false;
    }
    pattern.remove_prefix(any ? 2 : 1);
  }
  return reached[text.size()];
}

/// Does it end with a tag or a digest, or with something that stands for one?
bool says_which(std::string_view pattern) {
  const auto last = pattern.substr(pattern.rfind('/') + 1);
  return pattern.ends_with("**") || last.find_first_of(":@") != last.npos;
}

} // namespace

result<void> check_pattern(std::string_view pattern) {
  constexpr std::string_view others = "._-:@/[]*";
  const auto plain = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           others.find(c) != others.npos;
  };
  if (pattern.empty() || pattern.size() > longest ||
      !std::all_of(pattern.begin(), pattern.end(), plain))
    return {{errc::invalid_request, "a pattern of images has 1 to " + std::to_string(longest) +
                                      " of the characters that a reference has, and '*'"}};
  if (pattern.find('/') == pattern.npos && pattern.find("**") == pattern.npos)
    return {{errc::invalid_request,
             "the pattern \"" + std::string{pattern} +
               "\" fits no image: it has to say the registry too, as in docker.io/library/debian"}};
  return {};
}

bool allows(const std::vector<std::string>& patterns, const image_reference& image) {
  const auto whole = image.name() + (image.digest.empty() ? ":" + image.tag : "@" + image.digest);
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& each) {
    return check_pattern(each) && matches(each, says_which(each) ? whole : image.name());
  });
}

} // namespace insula::storage::registry
