#pragma once

#include "http/bridge/api.hpp"
#include "http/transport/exchange.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace insula::http::bridge {

/// A sink that writes a request's body to the file `path` of the sandbox `id`, as it comes. Nothing
/// is replaced unless the whole body, at most `limit` bytes, has come. `session`: of the request;
/// maybe none.
std::shared_ptr<body_sink> make_upload(std::shared_ptr<const services> with, std::string id,
                                       std::string session, std::string path, std::uint64_t limit);

} // namespace insula::http::bridge
