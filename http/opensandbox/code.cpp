#include "http/opensandbox/execd_route.hpp"
#include "http/opensandbox/pty_json.hpp"
#include "http/text/percent.hpp"

/// What execd offers elsewhere and not here, said so that its clients understand it: code is
/// interpreted by nobody, and there is no sandbox within a sandbox.
namespace insula::http::opensandbox {

namespace {

constexpr std::string_view json_type = "application/json; charset=utf-8";
constexpr std::string_view tag = "OpenSandbox: code";

response no_interpreter() {
  return execd_failure(500, "RUNTIME_ERROR",
                       "no code interpreter is configured: only code without a language can be "
                       "run, as a shell command");
}

void make_context(const execd_target&, const execd_call&, const std::string& body,
                  const reply& to) {
  const auto checked = check_context_body(body);
  to->respond(checked ? no_interpreter() : execd_failure(checked.reason()));
}

void list_contexts(const execd_target&, const execd_call&, const std::string&, const reply& to) {
  to->respond({200, "[]", json_type});
}

void end_contexts(const execd_target&, const execd_call& what, const std::string&,
                  const reply& to) {
  if (form_value(what.query, "language").empty())
    return to->respond(execd_failure(400, "MISSING_QUERY", "missing query parameter 'language'"));
  to->respond({200, {}, {}});
}

void no_context(const execd_target&, const execd_call& what, const std::string&, const reply& to) {
  to->respond(execd_failure(404, "CONTEXT_NOT_FOUND", "there is no code context " + what["sid"]));
}

void run_code(const execd_target& target, const execd_call& what, const std::string& body,
              const reply& to) {
  auto wanted = read_code_body(body);
  if (!wanted)
    return to->respond(execd_failure(wanted.reason()));
  if (!wanted->language.empty() || !wanted->context_id.empty())
    return to->respond(no_interpreter());
  start_command(make_job(target, what, {std::move(wanted->code)}, to));
}

} // namespace

void add_code_routes(std::vector<route>& table, const execd_target& target,
                     const std::string& prefix) {
  const auto none = body_use::ignored;
  const auto add = [&](verb method, const std::string& path, body_use body, execd_answer answer,
                       operation document) {
    document.tag = tag;
    table.push_back(
      execd_route(method, prefix + path, target, body, std::move(answer), std::move(document)));
  };
  const documented_answer no_code{"500", "No interpreter is configured.", "application/json",
                                  "OpenSandboxError"};
  const documented_answer unknown{"404", "There are none.", "application/json", "OpenSandboxError"};
  const parameter context{"sid", "path", "The context's id.", true};
  add(verb::post, "/code/context", body_use::buffered, make_context,
      {.id = "createExecdCodeContext",
       .summary = "Refused: no language is interpreted here.",
       .body_type = "application/json",
       .body_schema = "ExecdCodeContext",
       .answers = {bad_answer, no_code}});
  add(verb::get, "/code/contexts", none, list_contexts,
      {.id = "listExecdCodeContexts",
       .summary = "The contexts for code. There are none.",
       .answers = {{"200", "An empty list.", "application/json", "ExecdCodeContexts"}}});
  add(verb::del, "/code/contexts", none, end_contexts,
      {.id = "deleteExecdCodeContexts",
       .summary = "End all contexts of a language. There are none.",
       .parameters = {{"language", "query", "Which one.", true}},
       .answers = {done_answer, bad_answer}});
  add(verb::get, "/code/contexts/:sid", none, no_context,
      {.id = "getExecdCodeContext",
       .summary = "One context for code. There are none.",
       .parameters = {context},
       .answers = {unknown}});
  add(verb::del, "/code/contexts/:sid", none, no_context,
      {.id = "deleteExecdCodeContext",
       .summary = "End one context for code. There are none.",
       .parameters = {context},
       .answers = {unknown}});
  add(verb::post, "/code", body_use::buffered, run_code,
      {.id = "runExecdCode",
       .summary = "Run code. Without a language it is a shell's command line; there are no others.",
       .body_type = "application/json",
       .body_schema = "ExecdCodeRequest",
       .answers = {events_answer, bad_answer, no_code}});
}

void add_isolated_routes(std::vector<route>& table, const execd_target& target,
                         const std::string& prefix) {
  const std::string below = prefix + "/v1/isolated/";
  const auto answer = [](response said) {
    return [said = std::move(said)](const execd_target&, const execd_call&, const std::string&,
                                    const reply& to) { to->respond(said); };
  };
  const std::string_view why = "isolated sessions are not supported: make a sandbox for each";
  const response capabilities{200,
                              R"({"available":false,"message":")" + std::string{why} +
                                R"(","commit_supported":false,"diff_supported":false})",
                              json_type};
  table.push_back(execd_route(
    verb::get, below + "capabilities", target, body_use::ignored, answer(capabilities),
    {.id = "getIsolatedCapabilities",
     .summary = "Whether there are isolated sessions. There are none, and all else below this path "
                "is 503.",
     .answers = {{"200", "That there are none.", "application/json", ""}},
     .tag = tag}));
  for (const auto method : all_verbs)
    table.push_back(execd_route(method, below + "*", target, body_use::ignored,
                                answer(execd_failure(503, "NOT_SUPPORTED", why)), {}));
}

} // namespace insula::http::opensandbox
