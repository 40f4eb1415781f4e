#pragma once

#include "base/tree_frames.hpp"

#include <cstring>
#include <string>
#include <string_view>

namespace insula::runtime::agent {

/// What went wrong with single entries, in GNU tar's form. The rest goes on without them.
class tree_text {
public:
  void add(std::string_view name, std::string_view what, int error = 0) {
    failed_ = true;
    std::string line = "tar: " + std::string{name} + ": " + std::string{what};
    if (error != 0)
      line += std::string{": "} + std::strerror(error);
    if (text_.size() + line.size() + 1 <= max_tree_text - last_line.size())
      text_ += line + "\n";
  }

  tree_result result() {
    if (failed_)
      text_ += last_line;
    return {failed_ ? 2 : 0, static_cast<std::uint32_t>(text_.size())};
  }
  const std::string& text() const { return text_; } ///< After result().

private:
  static constexpr std::string_view last_line =
    "tar: Exiting with failure status due to previous errors";

  std::string text_;
  bool failed_ = false;
};

} // namespace insula::runtime::agent
