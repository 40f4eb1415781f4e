#include "http/vercel/session_call.hpp"

#include "http/text/percent.hpp"
#include "http/vercel/access.hpp"
#include "http/vercel/objects_json.hpp"
#include "http/vercel/settings.hpp"

#include <memory>

namespace insula::http::vercel {

response unknown_session() {
  return failure(refusal{404, "not_found", "Sandbox session not found."});
}

response late_answer() {
  return failure(refusal{503, "internal_server_error", "The sandbox did not answer in time."});
}

std::string resolved(const std::string& path, const std::string& cwd) {
  if (path.starts_with('/'))
    return path;
  if (!cwd.empty())
    return resolved(path.empty() ? cwd : cwd + (cwd.ends_with('/') ? "" : "/") + path, {});
  return std::string{working_directory} + (path.empty() ? "" : "/") + path;
}

namespace {

/// Handles it if the sandbox belongs to what the client may reach: a path does not say its project.
void within_reach(const std::shared_ptr<const session_call>& call, const std::string& body,
                  const reply& to, session_handler handle) {
  if (call->reach.is_whole())
    return handle(*call, body, to);
  find_runs look;
  look.limit = 1;
  ask_session<run_list>(
    *call, look, to,
    [call, to, handle, kept = std::make_shared<const std::string>(body)](const run_list& all) {
      const auto is = settings_of(all.sandbox);
      if (!is || call->reach.objection(is->project))
        return to->respond(unknown_session());
      handle(*call, *kept, to);
    },
    [](const error&) { return unknown_session(); });
}

} // namespace

route session_route(const shared_services& with, const std::string& prefix, verb method,
                    const std::string& rest, session_handler handle, operation document) {
  const bool has_body = method == verb::post;
  route made{method,
             prefix + "/v2/sandboxes/sessions/:session" + rest,
             access::bearer,
             has_body ? body_use::buffered : body_use::ignored,
             has_body ? small_body_bytes : 0,
             [with, handle](const matched_request& what) -> admission {
               auto session = session_id::parse(what["session"]);
               if (!session)
                 return refused(unknown_session());
               const auto call = std::make_shared<const session_call>(
                 session_call{with,
                              std::move(*session),
                              what["cmd"],
                              what.field("x-cwd"),
                              what.field("Host"),
                              form_value(what.head().query, "wait") == "true",
                              {*with, what.head()}});
               return answered_by([call, handle](const std::string& body, const reply& to) {
                 within_reach(call, body, to, handle);
               });
             },
             std::move(document)};
  made.about = [](const matched_request& what) {
    const auto session = session_id::parse(what["session"]);
    return session ? session->sandbox : std::string{};
  };
  made.unknown = [](const request_path&) { return unknown_session(); };
  made.too_large = &too_large;
  return made;
}

} // namespace insula::http::vercel
