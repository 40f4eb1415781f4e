#pragma once

#include "http/api/document.hpp"

#include <string_view>
#include <vector>

namespace insula::http::vercel {

/// A route as the OpenAPI document lists it: by its public name, with the schemas of its answer and
/// of its body. An empty body schema: it has none. Beside its answer come the failures that every
/// route of this API has.
operation listed(std::string_view id, std::string_view summary, std::string_view answer_schema,
                 std::string_view body_schema = {}, std::vector<parameter> parameters = {});

/// The same for one that is about a run, which may be over.
operation listed_of_run(std::string_view id, std::string_view summary,
                        std::string_view answer_schema, std::string_view body_schema = {},
                        std::vector<parameter> parameters = {});

/// With 409 for a sandbox of another API.
operation of_own_sandbox(operation made);

/// What the segments of the paths stand for; none: it is not one of this API's.
const parameter* path_parameter(std::string_view name);

/// The query's `projectId`.
extern const parameter project_parameter;

} // namespace insula::http::vercel
