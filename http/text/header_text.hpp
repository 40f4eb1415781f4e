#pragma once

#include <string>
#include <string_view>

/// Small words about the text of header fields.
namespace insula::http {

/// The same but for the case of ASCII letters.
bool same_letters(std::string_view a, std::string_view b);

/// With its ASCII letters in lower case.
std::string lower_case(std::string_view text);

/// Without blanks and tabs around it.
std::string_view trimmed(std::string_view text);

/// Takes what stands before `mark` off `list`, and the mark. Answers it trimmed.
std::string_view take_until(std::string_view& list, char mark);

/// Is `word` one of a list with commas, in any letter case?
bool names(std::string_view list, std::string_view word);

/// A field that concerns one connection only and stays on it (RFC 9110, 7.6.1), or that says where
/// a body ends, which is said anew on the next.
bool is_of_one_connection(std::string_view name);

/// A field that nodes say to each other; from anybody else it says nothing.
bool is_of_nodes(std::string_view name);

} // namespace insula::http
