#pragma once

#include <string_view>

/// Header fields that nodes say to each other, and believe from nobody else.
namespace insula::http::node_fields {

inline constexpr std::string_view client_field = "Insula-Node-Client"; ///< Its address.
inline constexpr std::string_view scheme_field = "Insula-Node-Scheme"; ///< That it speaks.
inline constexpr std::string_view door_field = "Insula-Node-Door";     ///< That it has come by.
inline constexpr std::string_view execd_door = "execd";
/// The name of the named key that the client has shown. None: the main key, or none.
inline constexpr std::string_view key_field = "Insula-Node-Key";

/// Of an answer with status 421: who has the sandbox, as far as the node knows that has not.
inline constexpr std::string_view owner_field = "Insula-Node-Owner";

} // namespace insula::http::node_fields
