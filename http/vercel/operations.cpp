#include "http/vercel/operations.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace insula::http::vercel {

namespace {

constexpr std::string_view json_type = "application/json", error_schema = "VercelError";

const parameter segments[] = {
  {"name", "path", "The sandbox's name, of this project.", true},
  {"session", "path", "The id of one of its sessions.", true},
  {"cmd", "path", "The id of one of the session's commands.", true},
  {"snapshot", "path", "The id of a snapshot.", true},
  {"drive", "path", "The drive's name, of this project.", true},
  {"team", "path", "The team.", true},
  {"project", "path", "The project.", true},
};

} // namespace

const parameter project_parameter{"projectId", "query", "The project of the sandbox.", true};

operation listed(std::string_view id, std::string_view summary, std::string_view answer_schema,
                 std::string_view body_schema, std::vector<parameter> parameters) {
  operation made{.id = id, .summary = summary, .parameters = std::move(parameters)};
  if (!body_schema.empty())
    made.body_type = json_type;
  made.body_schema = body_schema;
  made.answers = {
    {"200", "As it is now.", json_type, answer_schema},
    {"400", "A member, a field or the query is wrong.", json_type, error_schema},
    {"404", "There is no such thing in this project.", json_type, error_schema},
    {"429", "A limit of the server's or the sandbox's is reached.", json_type, error_schema},
    {"503", "The sandbox did not answer in time.", json_type, error_schema}};
  made.tag = "Vercel Sandbox";
  made.needs_disk = false;
  return made;
}

operation listed_of_run(std::string_view id, std::string_view summary,
                        std::string_view answer_schema, std::string_view body_schema,
                        std::vector<parameter> parameters) {
  auto made = listed(id, summary, answer_schema, body_schema, std::move(parameters));
  made.answers.push_back({"410", "The session is over.", json_type, error_schema});
  return made;
}

operation of_own_sandbox(operation made) {
  made.answers.push_back({"409",
                          "Another API has made the sandbox, and has its settings; or another "
                          "request has changed it just now.",
                          json_type, error_schema});
  return made;
}

const parameter* path_parameter(std::string_view name) {
  const auto at = std::find_if(std::begin(segments), std::end(segments),
                               [&](const auto& each) { return each.name == name; });
  return at == std::end(segments) ? nullptr : at;
}

} // namespace insula::http::vercel
