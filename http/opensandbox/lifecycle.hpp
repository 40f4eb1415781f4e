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
  std::optional<std::string> idempotency_key;
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

using lifecycle_handler = std::function<void(const shared_services&, const lifecycle_call&,
                                             const std::string& body, const reply&)>;
using add_lifecycle_route =
  std::function<void(verb, std::string_view path, body_use, lifecycle_handler, operation)>;

response no_fork(const std::string& id);
void add_snapshot_routes(const add_lifecycle_route& add);
void add_fork_routes(const add_lifecycle_route& add, const std::shared_ptr<fork_table>& forks);

/// What the client has it run, unless that does nothing. It is none of the maker's business how it
/// ends; its end can be asked for by no id. `once`: nothing is run if
/// the entrypoint of this sandbox was started so before.
void run_entrypoint(const shared_services& with, const std::string& id,
                    const std::vector<std::string>& words, const request_context& context,
                    bool once = false);

} // namespace insula::http::opensandbox
