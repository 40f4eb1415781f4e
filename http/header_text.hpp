#pragma once

#include <string_view>

/// Small words about the text of header fields.
namespace insula::http {

/// The same but for the case of ASCII letters.
bool same_letters(std::string_view a, std::string_view b);

/// Without blanks and tabs around it.
std::string_view trimmed(std::string_view text);

/// Takes what stands before `mark` off `list`, and the mark. Answers it trimmed.
std::string_view take_until(std::string_view& list, char mark);

/// Is `word` one of a list with commas, in any letter case?
bool names(std::string_view list, std::string_view word);

} // namespace insula::http
