#include "http/opensandbox/execd.hpp"

#include "base/hex.hpp"
#include "base/id.hpp"
#include "base/limits.hpp"
#include "http/api/route_table.hpp"
#include "http/opensandbox/access.hpp"
#include "http/opensandbox/api.hpp"
#include "http/opensandbox/commands.hpp"
#include "http/opensandbox/execd_json.hpp"
#include "http/opensandbox/execd_route.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/text/percent.hpp"
#include "http/transport/web_socket.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <stdexcept>
#include <sys/random.h>

namespace insula::http::opensandbox {

namespace {

/// What is told of a command's text afterwards: a record is written at its start and at its end.
constexpr std::size_t longest_remembered = 4096;
constexpr std::chrono::seconds ping_patience{10};

response too_large(std::uint64_t, std::uint64_t limit) {
  return execd_failure(413, "INVALID_REQUEST_BODY",
                       "the body exceeds " + std::to_string(limit) + " bytes");
}

void run(const execd_target& at, const execd_call& what, const std::string& body, const reply& to) {
  auto wanted = read_command_body(body);
  if (!wanted)
    return to->respond(execd_failure(wanted.reason()));
  start_command(make_job(at, what, std::move(*wanted), to));
}

command_question question_of(const execd_target& at, const request_path& what, std::string id,
                             const reply& to) {
  return {at.with, at.id(what), std::move(id), to};
}

/// None: it is no whole number, which is as if it were not there.
std::optional<std::int64_t> read_cursor(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = !text.empty() && why == std::errc{} && end == text.data() + text.size();
  return whole ? std::optional{value} : std::nullopt;
}

using known_rows = std::shared_ptr<const route_table>;

/// What there is, without what it does.
known_rows rows_of(const std::vector<route>& table) {
  std::vector<route> rows;
  for (const auto& each : table)
    rows.push_back({each.method, each.pattern, each.who, each.body, each.body_limit, nullptr, {}});
  return std::make_shared<const route_table>(std::move(rows));
}

/// A path that is known without the slash at its end is that one; any other is none.
response elsewhere(const known_rows& rows, verb method, std::string path,
                   const request_path& what) {
  if (const auto at = path.find(":id"); at != std::string::npos)
    path.replace(at, 3, what.id());
  path += "/" + what.tail;
  path.pop_back();
  if (!what.tail.ends_with('/') || !rows->has(method, path))
    return no_route();
  if (!what.query.empty())
    path += "?" + what.query;
  return {method == verb::get ? 301 : 307, {}, {}, {{"Location", std::move(path)}}};
}

response not_there(const request_path& what) {
  return unknown_sandbox(what.id());
}

/// What every one of execd's refuses: it is for no sandbox.
std::optional<response> no_sandbox(const execd_target& target, const request_path& what) {
  if (sandbox_id::parse(target.id(what)))
    return std::nullopt;
  return not_there(what);
}

/// Its sandbox is that of the path, and has to be there; or is one that is made.
route of_sandbox(route row, const execd_target& target) {
  if (target.makes_sandbox())
    row.about = [id = target.fixed_id](const matched_request&) { return id; };
  else
    row.unknown = &not_there;
  return row;
}

/// Clients ask this to learn whether there is a sandbox at all.
void ping(const execd_target& target, const request_path& what, const std::string&,
          const reply& to) {
  if (target.makes_sandbox())
    return to->respond({200, {}, {}});
  question{*target.with, what.id(), redefine_sandbox{}, to}
    .within(ping_patience,
            execd_failure(504, "RUNTIME_ERROR", "the sandbox did not answer in time"))
    .starts(false)
    .or_else(execd_failure)
    .then<sandbox_description>([to, what](const sandbox_description& is) {
      to->respond(is.exists ? response{200, {}, {}} : not_there(what));
    });
}

} // namespace

execd_call::execd_call(const matched_request& what)
    : request_path(what)
    , user_agent(what.field("User-Agent"))
    , range(what.head().head_only ? std::string{} : what.field("Range"))
    , if_range(what.head().head_only ? std::string{} : what.field("If-Range"))
    , offer(read_offer(what.head())) {}

std::string new_command_id() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("getrandom() gave no bytes");
  return to_hex(bytes);
}

execd_job make_job(const execd_target& at, const execd_call& what, command_body wanted,
                   const reply& to) {
  execd_job job;
  job.with = at.with;
  job.sandbox = at.id(what);
  job.makes_sandbox = at.makes_sandbox();
  job.background = wanted.background;
  job.told.cwd_named = !wanted.cwd.empty();
  // Their own clients compare lines without their ends, and could not tell a part of a line from
  // one. In a browser they cannot say their name.
  job.told.keeps_ends = !what.user_agent.starts_with("OpenSandbox-");
  job.told.tells_rest = job.told.keeps_ends && !what.user_agent.starts_with("Mozilla/");
  job.to = to;
  auto& command = job.command;
  // In the background both kinds of output are one, in their order.
  command.command_line = (wanted.background ? "exec 2>&1; " : "") + wanted.command;
  command.cwd = std::move(wanted.cwd);
  command.expands_cwd = true;
  command.env = std::move(wanted.envs);
  if (wanted.timeout_ms > 0)
    command.timeout_ms = wanted.timeout_ms;
  if (wanted.uid)
    command.user = command_user{*wanted.uid, wanted.gid.value_or(*wanted.uid)};
  command.rules = {true, true};
  if (wanted.command.size() > longest_remembered)
    wanted.command.resize(longest_remembered);
  command.remembered = remembered_command{wanted.background, std::move(wanted.command)};
  command.idempotency = {new_command_id(), {}};
  command.only_if_there = !at.makes_sandbox();
  command.context = to->context();
  job.told.id = command.idempotency.key;
  return job;
}

route execd_route(verb method, std::string pattern, const execd_target& target, body_use body,
                  execd_answer answer, operation document, std::uint64_t body_limit) {
  const auto admit = [target, answer = std::move(answer)](const matched_request& what) {
    admission plan;
    plan.refusal = no_sandbox(target, what);
    plan.answer = [target, answer, call = execd_call{what}](
                    const std::string& text, const reply& to) { answer(target, call, text, to); };
    return plan;
  };
  return of_sandbox({method, std::move(pattern), access::execd, body,
                     body == body_use::ignored ? 0 : body_limit, admit, std::move(document),
                     &too_large},
                    target);
}

route execd_sink_route(
  verb method, std::string pattern, const execd_target& target, std::uint64_t body_limit,
  std::function<std::shared_ptr<body_sink>(const execd_target&, const matched_request&)> make,
  operation document) {
  const auto admit = [target, make = std::move(make)](const matched_request& what) {
    admission plan;
    plan.refusal = no_sandbox(target, what);
    if (!plan.refusal)
      plan.sink = make(target, what);
    return plan;
  };
  return of_sandbox({method, std::move(pattern), access::execd, body_use::streamed, body_limit,
                     admit, std::move(document), &too_large},
                    target);
}

std::vector<route> execd_routes(shared_services with, const execd_place& where) {
  const execd_target target{std::move(with), where.id};
  const auto ignored = body_use::ignored;
  std::vector<route> table;
  const auto add = [&](verb method, std::string_view path, body_use body, execd_answer answer,
                       operation document = {}) {
    document.tag = "OpenSandbox: commands";
    table.push_back(execd_route(method, where.prefix + std::string{path}, target, body,
                                std::move(answer), std::move(document)));
  };
  const parameter command_id{"sid", "path", "The command's id, from its init event.", true};
  add(verb::get, "/ping", ignored, ping,
      {.id = "execdPing",
       .summary = "Whether the sandbox is there.",
       .answers = {{"200", "It is; the body is empty."}}});
  add(verb::post, "/command", body_use::buffered, run,
      {.id = "runExecdCommand",
       .summary =
         "Run a shell's command line, and stream its output. In the background, the answer "
         "ends at once, and the command goes on.",
       .body_type = "application/json",
       .body_schema = "ExecdCommandRequest",
       .answers = {events_answer, bad_answer}});
  add(verb::get, "/command/status/:sid", ignored,
      [](const execd_target& from, const request_path& what, const auto&, const reply& to) {
        tell_status(question_of(from, what, percent_decode(what["sid"]), to));
      },
      {.id = "getExecdCommandStatus",
       .summary = "What has become of a command. It is known for a day after its end.",
       .parameters = {command_id},
       .answers = {{"200", "How it is.", "application/json", "ExecdCommandStatus"}}});
  add(verb::get, "/command/:sid/logs", ignored,
      [](const execd_target& from, const request_path& what, const auto&, const reply& to) {
        tell_logs(question_of(from, what, percent_decode(what["sid"]), to),
                  read_cursor(form_value(what.query, "cursor")));
      },
      {.id = "getExecdCommandLogs",
       .summary = "What a command in the background has printed so far, by whole lines.",
       .parameters = {command_id,
                      {"cursor",
                       "query",
                       "Only what is behind this line, as the header EXECD-COMMANDS-TAIL-CURSOR of "
                       "the last answer has it.",
                       false,
                       {},
                       R"({"type":"integer"})"}},
       .answers = {{"200", "The lines.", "text/plain"}, bad_answer}});
  for (const auto& [path, name] :
       {std::pair{"/command", "interruptExecdCommand"}, std::pair{"/code", "interruptExecdCode"}})
    add(verb::del, path, ignored,
        [](const execd_target& from, const request_path& what, const auto&, const reply& to) {
          auto id = form_value(what.query, "id");
          if (id.empty())
            return to->respond(execd_failure(400, "MISSING_QUERY", "missing query parameter 'id'"));
          interrupt(question_of(from, what, std::move(id), to));
        },
        {.id = name,
         .summary =
           "End a command, or what a session runs: by SIGTERM, and by SIGKILL if that does "
           "not do in three seconds.",
         .parameters = {{"id", "query", "Of the command, or of the session.", true}},
         .answers = {{"200", "It has ended.", "application/json", ""}, bad_answer}});
  add_session_routes(table, target, where.prefix);
  add_file_routes(table, target, where.prefix);
  add_metrics_routes(table, target, where.prefix);
  add_pty_routes(table, target, where.prefix);
  add_code_routes(table, target, where.prefix);
  add_isolated_routes(table, target, where.prefix);
  // What names a port goes on to it before there are routes.
  for (const auto method : all_verbs)
    for (const auto* path : {"/proxy", "/proxy/*"})
      add(method, path, ignored,
          [](const execd_target&, const request_path&, const auto&, const reply& to) {
            to->respond({400, "the path must name a port: /proxy/{port}/", "text/plain"});
          });
  const auto known = rows_of(table);
  for (const auto method : all_verbs)
    add(method, "/*", ignored,
        [known, method, prefix = where.prefix](const execd_target&, const request_path& what,
                                               const auto&, const reply& to) {
          to->respond(elsewhere(known, method, prefix, what));
        });
  return table;
}

} // namespace insula::http::opensandbox
