#pragma once

#include "http/api/route.hpp"
#include "http/opensandbox/api.hpp"
#include "http/opensandbox/lifecycle_json.hpp"
#include "http/transport/exchange.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

/// What the files of the lifecycle routes share.
namespace insula::http::opensandbox {

inline constexpr std::string_view json_type = "application/json";

struct lifecycle_call : request_path {
  std::string host; ///< What the client calls this node.
};

response refused(const refusal& why);
/// There is no such sandbox.
response not_found(const std::string& id);
/// The answer to a question to a sandbox that failed.
response failed(const std::string& id, const error& why);

/// A page of a list.
struct page_wanted {
  std::uint64_t page = 1;
  std::uint64_t page_size = 20;
};
/// None: the query says which one.
std::optional<refusal> read_page(std::string_view query, page_wanted& into);

using lifecycle_handler = void (*)(const shared_services&, const lifecycle_call&,
                                   const std::string& body, const reply&);
using add_lifecycle_route =
  std::function<void(verb, std::string_view path, body_use, lifecycle_handler, operation)>;

void add_snapshot_routes(const add_lifecycle_route& add);

} // namespace insula::http::opensandbox
