#pragma once

#include <string>
#include <vector>

/// Markdown as GitHub reads it.
namespace insula::load {

/// The text as it is, in one line: nothing in it means anything.
std::string markdown_escaped(const std::string& text);

/// The first line are the headings. The first column stands to the left, the others to the right
/// unless `all_left`. Empty for no line.
std::string markdown_table(const std::vector<std::vector<std::string>>& lines,
                           bool all_left = false);

} // namespace insula::load
