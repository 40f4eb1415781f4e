#include "http/vercel/session_call.hpp"

#include "http/text/percent.hpp"
#include "http/transport/node_fields.hpp"
#include "http/vercel/access.hpp"
#include "http/vercel/objects_json.hpp"
#include "http/vercel/settings.hpp"
#include "http/vercel/views.hpp"

#include <limits>
#include <memory>
#include <utility>

namespace insula::http::vercel {

response unknown_session() {
  return failure(refusal{404, "not_found", "Sandbox session not found."});
}

response needs_own_sandbox() {
  return failure(refusal{409, "conflict",
                         "Another API has made the sandbox: it has one session that goes on until "
                         "it is deleted, and its settings are that API's."});
}

response late_answer() {
  return failure(refusal{503, "internal_server_error", "The sandbox did not answer in time."});
}

std::string origin_of(const services& with, const matched_request& what) {
  const auto front = what.field(node_fields::scheme_field); // Of the node that the client asked.
  const bool encrypted = (front.empty() ? with.encrypted : front == "https") ||
                         what.field("X-Forwarded-Proto") == "https";
  return (encrypted ? "https://" : "http://") + what.field("Host");
}

void when_sealed(const services& with, network_wish wish, const reply& to,
                 std::function<void(const network_wish&)> then) {
  if (wish.rules.empty() || !wish.sealed.empty())
    return then(wish);
  to->answer_within(look_patience, late_answer());
  with.workers->post(
    [box = with.secrets, wish = std::move(wish), to, then = std::move(then)]() mutable {
      if (const auto wrong = seal(wish, box.get()))
        return to->respond(failure(*wrong));
      then(wish);
    });
}

std::string resolved(const std::string& path, const std::string& cwd, std::string_view directory) {
  if (path.starts_with('/'))
    return path;
  if (!cwd.empty())
    return resolved(path.empty() ? cwd : cwd + (cwd.ends_with('/') ? "" : "/") + path, {},
                    directory);
  return std::string{directory} + (path.empty() ? "" : "/") + path;
}

find_runs newest_run() {
  find_runs look;
  look.limit = 1;
  return look;
}

namespace {

/// A path does not say its project.
std::optional<response> objection_to(const session_call& call, const run_list& found) {
  if (call.is_other())
    return is_of_another_api(found.sandbox) && call.reach.has_other_apis()
             ? std::nullopt
             : std::optional{unknown_session()};
  const auto is = settings_of(found.sandbox);
  return !is || call.reach.objection(is->project) ? std::optional{unknown_session()} : std::nullopt;
}

using shared_call = std::shared_ptr<const session_call>;

/// None: requests can be made of it.
std::optional<response> objection_to_use(const session_call& call, const run_list& found) {
  if (call.is_other())
    return objection_to(call, found);
  const auto& last = found.sandbox.run;
  if (found.runs.empty() && last && last->number > call.session.run) // It is too old to be known.
    return failure(error{errc::run_over, {}});
  if (found.runs.empty() || !settings_of(found.sandbox))
    return unknown_session();
  const auto now = found.runs.front().state;
  if (now == run_state::running || now == run_state::pending)
    return std::nullopt;
  return failure(error{now == run_state::stopping       ? errc::run_stopping
                       : now == run_state::snapshotting ? errc::run_snapshotting
                                                        : errc::run_over,
                       {}});
}

/// `plan`: what becomes of a call whose path is one of a run's.
route route_of(const shared_services& with, const std::string& prefix, verb method,
               const std::string& rest, std::function<admission(const shared_call&)> plan,
               operation document) {
  const bool has_body = method == verb::post;
  route made{method,
             prefix + "/v2/sandboxes/sessions/:session" + rest,
             access::bearer,
             has_body ? body_use::buffered : body_use::ignored,
             has_body ? small_body_bytes : 0,
             [with, plan = std::move(plan)](const matched_request& what) -> admission {
               auto call = session_call::of(with, what);
               return call ? plan(call) : refused(unknown_session());
             },
             std::move(document)};
  concern_session(made);
  made.too_large = &too_large;
  return made;
}

} // namespace

std::shared_ptr<const session_call> session_call::of(const shared_services& with,
                                                     const matched_request& what) {
  auto session = session_id::parse(what["session"]);
  if (!session)
    return nullptr;
  return std::make_shared<const session_call>(
    session_call{with,
                 std::move(*session),
                 what["cmd"],
                 what.field("x-cwd"),
                 what.field("Content-Type"),
                 what.field("Host"),
                 origin_of(*with, what).append(what.head().path),
                 form_value(what.head().query, "wait") == "true",
                 {*with, what}});
}

void concern_session(route& row) {
  row.about = [](const matched_request& what) {
    const auto session = session_id::parse(what["session"]);
    return session ? session->sandbox : std::string{};
  };
  row.unknown = [](const request_path&) { return unknown_session(); };
}

void ask_if_usable(const session_call& call, const reply& to,
                   std::function<void(const run_list&)> usable) {
  find_runs look;
  look.number = call.session.run;
  ask_session<run_list>(call, look, to, [=](const run_list& found) {
    if (auto no = objection_to_use(call, found))
      return to->respond(std::move(*no));
    usable(found);
  });
}

void ask_reach(const session_call& call, const request_context& context,
               std::function<void(std::optional<response>)> then) {
  if (call.needs_no_look())
    return then(std::nullopt);
  auto look = newest_run();
  look.context = context;
  sandbox_question<find_runs, run_list> asked{
    call.with->directory, call.sandbox(), std::move(look),
    [call, then](const run_list& all) { then(objection_to(call, all)); },
    [then](question_stage, const error&) { then(unknown_session()); }};
  asked.starts_it = false;
  ask_sandbox(*call.with, std::move(asked));
}

route session_route(const shared_services& with, const std::string& prefix, verb method,
                    const std::string& rest, session_handler handle, operation document) {
  return route_of(
    with, prefix, method, rest,
    [handle](const shared_call& call) {
      return answered_by([call, handle](const std::string& body, const reply& to) {
        if (call->needs_no_look())
          return handle(*call, body, to);
        to->answer_within(look_patience, late_answer());
        ask_reach(*call, to->context(), [=](std::optional<response> no) {
          no ? to->respond(std::move(*no)) : handle(*call, body, to);
        });
      });
    },
    std::move(document));
}

route session_sink_route(const shared_services& with, const std::string& prefix,
                         const std::string& rest, session_sink make, operation document) {
  auto made = route_of(
    with, prefix, verb::post, rest,
    [make](const shared_call& call) {
      admission plan;
      plan.sink = make(call);
      return plan;
    },
    std::move(document));
  made.body = body_use::streamed;
  made.body_limit = std::numeric_limits<std::uint64_t>::max();
  return made;
}

} // namespace insula::http::vercel
