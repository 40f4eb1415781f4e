#pragma once

#include "base/error.hpp"

#include <cstdint>
#include <optional>
#include <rapidjson/document.h>
#include <string>
#include <string_view>
#include <vector>

/// Looking into JSON that others wrote: nothing here asserts, whatever is in it.
namespace insula::storage::images {

/// Errors: invalid_request when it is no JSON, or deeper than limits::json_depth.
result<rapidjson::Document> parse_json(std::string_view text);

/// The member, or none where there is none or `of` is no object.
const rapidjson::Value* member(const rapidjson::Value& of, const char* name);

/// Texts and numbers of members; what is missing or of another kind is empty and 0.
std::string text_of(const rapidjson::Value& of, const char* name);
std::uint64_t number_of(const rapidjson::Value& of, const char* name);

/// A list of texts. Missing or null: empty. None: it is something else.
std::optional<std::vector<std::string>> texts_of(const rapidjson::Value& of, const char* name);

} // namespace insula::storage::images
