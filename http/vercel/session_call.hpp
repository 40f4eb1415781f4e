#pragma once

#include "http/api/route.hpp"
#include "http/json/document.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/vercel/access.hpp"
#include "http/vercel/api.hpp"
#include "http/vercel/failures.hpp"
#include "http/vercel/ids.hpp"
#include "http/vercel/objects_json.hpp"
#include "http/vercel/policy.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace insula::http::vercel {

/// A path that may be relative to one that may be relative to the directory of the session. Both
/// empty: that directory.
std::string resolved(const std::string& path, const std::string& cwd, std::string_view directory);

/// A request about one run.
struct session_call {
  shared_services with;
  session_id session;
  std::string command; ///< The segment of its path; empty: the path has none.
  std::string cwd;     ///< The field x-cwd.
  std::string type;    ///< Of its body.
  std::string host;    ///< What the client calls this node.
  std::string url;     ///< What it has asked for, whole, without a query.
  bool waits = false;  ///< wait=true
  access::reach reach; ///< Of its client.

  const std::string& sandbox() const { return session.sandbox; }
  /// The sandbox is another API's.
  bool is_other() const { return session.run == 0; }
  std::string_view directory() const { return is_other() ? other_directory : working_directory; }
  /// Its client may reach every sandbox that can have such a session.
  bool needs_no_look() const { return reach.is_whole() && !is_other(); }

  /// Null: the path names no session.
  static std::shared_ptr<const session_call> of(const shared_services& with,
                                                const matched_request& what);
};

constexpr std::uint64_t small_body_bytes = 1u << 20;
constexpr std::chrono::seconds look_patience{30};

response unknown_session();
/// To a request that a sandbox of another API cannot serve.
response needs_own_sandbox();
/// The one that is alive, or was last.
find_runs newest_run();
response late_answer();
/// How the client calls this node: http or https, and its Host, which may be missing. TLS may end
/// in front of the node, and in a cluster another node may have been asked.
std::string origin_of(const services& with, const matched_request& what);

/// `then` has what is kept of a network policy, its rules sealed: at once where there are none,
/// else on a worker, since their regular expressions take up to half a second. Otherwise `to` is
/// told what is wrong.
void when_sealed(const services& with, network_wish wish, const reply& to,
                 std::function<void(const network_wish&)> then);

/// Asks without starting anything; `answered` comes on a CAF worker.
template <class Answer, class Message>
void ask_session(
  const session_call& call, Message message, const reply& to,
  std::function<void(const Answer&)> answered,
  std::function<response(const error&)> refused = [](const error& why) { return failure(why); }) {
  question{*call.with, call.sandbox(), std::move(message), to}
    .within(look_patience, late_answer())
    .starts(false)
    .or_else([refused = std::move(refused)](question_stage, const error& why) {
      return why.code == errc::not_found ? unknown_session() : refused(why);
    })
    .template then<Answer>(std::move(answered));
}

using session_handler = void (*)(const session_call&, const std::string& body, const reply&);
/// `handle`, but sandboxes of other APIs are refused.
template <session_handler handle>
void only_own(const session_call& call, const std::string& body, const reply& to) {
  call.is_other() ? to->respond(needs_own_sandbox()) : handle(call, body, to);
}

/// One row, listed as `document` says, below `/v2/sandboxes/sessions/:session`.
route session_route(const shared_services& with, const std::string& prefix, verb method,
                    const std::string& rest, session_handler handle, operation document);

/// The same for a POST whose body is taken while it comes, however long it is. Whether the client
/// may reach the sandbox is the sink's to ask.
using session_sink = std::shared_ptr<body_sink> (*)(const std::shared_ptr<const session_call>&);
route session_sink_route(const shared_services& with, const std::string& prefix,
                         const std::string& rest, session_sink make, operation document);

/// Which sandbox the route's requests are about, by `:session` in its path.
void concern_session(route& row);

/// `usable` is called on a CAF worker if the session runs, or is about to. Else that is answered.
void ask_if_usable(const session_call& call, const reply& to,
                   std::function<void(const run_list&)> usable);

/// What is answered to a client that may not reach the sandbox; none: it may. `then` is called
/// once, maybe at once, else on a CAF worker.
void ask_reach(const session_call& call, const request_context& context,
               std::function<void(std::optional<response>)> then);

} // namespace insula::http::vercel
