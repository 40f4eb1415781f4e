#include "actors/owned_object.hpp"

#include "base/id.hpp"
#include "storage/store.hpp"

#include <algorithm>

namespace insula {

namespace {

bool is_kind_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

bool is_id_letter(char c) {
  return is_kind_letter(c) || (c >= 'A' && c <= 'Z') || c == '_' || c == '.';
}

} // namespace

std::optional<object_name> object_name::parse(std::string_view owner) {
  const auto colon = owner.find(':');
  if (colon == owner.npos)
    return sandbox_id::parse(owner) ? std::optional{object_name{{}, std::string{owner}}}
                                    : std::nullopt;
  const auto kind = owner.substr(0, colon), id = owner.substr(colon + 1);
  if (kind.empty() || id.empty() || owner.size() > storage::store::max_owner_bytes ||
      !std::all_of(kind.begin(), kind.end(), is_kind_letter) ||
      !std::all_of(id.begin(), id.end(), is_id_letter))
    return std::nullopt;
  return object_name{std::string{kind}, std::string{id}};
}

} // namespace insula
