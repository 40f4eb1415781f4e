#pragma once

#include <string_view>

namespace insula::http::opensandbox {

/// What OpenSandbox's clients send and get, for the OpenAPI document: a JSON object that has each
/// schema under its name. Names are public; generated clients make types of them.
std::string_view schemas();

} // namespace insula::http::opensandbox
