#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"
#include "http/bridge/api.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// POST .../persist and .../hydrate: the workspace as a tar archive.
namespace insula::http::bridge {

/// What is archived and where archives go.
inline constexpr std::string_view workspace = "/workspace";

/// The patterns that a query's `excludes` asks for. Errors: invalid_request.
result<std::vector<std::string>> read_excludes(std::string_view query);

/// Answers with the tree that comes through `channel`, as an archive. `for_hydrate`: a compact one,
/// or a refusal if hydrate would refuse it.
void start_persist(file_channel channel, bool for_hydrate, reply to);

/// Takes an archive, and puts it into the workspace once all of it is here.
/// `once`: it has its effect once, by the key that it brings.
std::shared_ptr<body_sink> make_hydrate(std::shared_ptr<const services> with, const call& what,
                                        bool once);

/// 400, by the contract.
response archive_too_large(std::uint64_t bytes, std::uint64_t limit);

} // namespace insula::http::bridge
