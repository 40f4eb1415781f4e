#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/idempotency.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// POST .../persist and .../hydrate: the workspace as a tar archive, of which it is the root.
namespace insula::http::bridge {

/// The patterns that a query's `excludes` asks for. Errors: invalid_request.
result<std::vector<std::string>> read_excludes(std::string_view query);

/// What a client wants of an archive beside its files.
enum class archive_wish : std::uint8_t {
  nothing,
  warning,  ///< To be told in a header if hydrate would refuse it.
  hydrating ///< A compact one, or a refusal if hydrate would refuse it.
};

/// Answers with the tree that comes through `channel`, as an archive.
void start_persist(file_channel channel, archive_wish wish, reply to);

/// Takes an archive, and puts it into the workspace once all of it is here.
/// `once`: it has its effect once, by the key that it brings.
std::shared_ptr<body_sink> make_hydrate(std::shared_ptr<const services> with, std::string id,
                                        idempotency_header header);

/// 400, by the contract.
response archive_too_large(std::uint64_t bytes, std::uint64_t limit);

} // namespace insula::http::bridge
