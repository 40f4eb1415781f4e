#pragma once

#include "http/json/document.hpp"
#include "http/vercel/failures.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Reading the objects of clients. A member that is null counts as not there, and what is not there
/// leaves things as they are. The refusals name the member.
namespace insula::http::vercel {

/// As many as one program can be started with: words, and variables.
inline constexpr std::size_t most_words = 3'500, most_variables = 1000;

std::optional<refusal> read_object(std::string_view body, json::document& into);

/// Null: it is not there.
const json::value* given(const json::value& in, std::string_view name);

/// Also a number with nothing behind its point.
std::optional<std::int64_t> whole_number(const json::value& value);

/// Without NUL.
std::optional<refusal> read_text(const json::value& in, const char* name, std::string& into);
std::optional<refusal> read_list(const json::value& in, const char* name,
                                 std::vector<std::string>& into);
std::optional<refusal> read_flag(const json::value& in, const char* name, bool& into);
/// In place of what was there.
std::optional<refusal> read_texts(const json::value& in, const char* name,
                                  std::map<std::string, std::string>& into);
/// The member `env`, which an environment can have.
std::optional<refusal> read_environment(const json::value& in,
                                        std::map<std::string, std::string>& into);

} // namespace insula::http::vercel
