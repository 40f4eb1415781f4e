#include "http/api/dispatcher.hpp"

#include "base/id.hpp"
#include "http/bridge/error_response.hpp"
#include "http/cluster/gateway.hpp"
#include "http/console/page.hpp"
#include "http/json/json.hpp"
#include "http/opensandbox/api.hpp"
#include "http/opensandbox/execd.hpp"
#include "http/preview/door.hpp"
#include "http/preview/session.hpp"
#include "http/text/percent.hpp"
#include "http/transport/connection.hpp"

#include <algorithm>
#include <iterator>

namespace insula::http::bridge {

namespace {

constexpr std::string_view sandboxes = "/v1/sandbox";
constexpr std::string_view pool = "/v1/pool/";
constexpr std::string_view documents = "/v1/openapi";
constexpr std::string_view shown_pages[] = {"/", "/v1/openapi", "/v1/openapi.html"};
constexpr std::string_view health = "/health";
constexpr std::string_view persistent_field = "Insula-Persistent";
constexpr std::string_view open_sandbox_field = "OPEN-SANDBOX-API-KEY";
constexpr std::string_view execd_token_field = "X-EXECD-ACCESS-TOKEN";

bool begins_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

admission refused(response answer) {
  admission plan;
  plan.refusal = std::move(answer);
  return plan;
}

response unauthorized(access needed = access::key, bool tried = false) {
  switch (needed) {
    case access::open_sandbox_key: return {401, "Unauthorized", "text/plain"};
    case access::execd:
      return {401, R"({"error":"Unauthorized: invalid or missing header X-EXECD-ACCESS-TOKEN"})",
              "application/json; charset=utf-8"};
    case access::lifecycle:
      return {401,
              tried ? R"({"code":"INVALID_API_KEY","message":"The API key is not the server's."})"
                    : R"({"code":"MISSING_API_KEY","message":"OPEN-SANDBOX-API-KEY is missing."})"};
    default: return error_response(step::request, {errc::unauthorized, "Unauthorized"});
  }
}

/// The header, or the word of a query, in which a request shows a key; empty: in none.
std::string_view place_of_key(const request_head& head) {
  for (const std::string_view name :
       {std::string_view{"Authorization"}, open_sandbox_field, execd_token_field})
    if (!head.field(name).empty())
      return name;
  return begins_with(head.path, documents) && !form_value(head.query, "token").empty()
           ? std::string_view{"token"}
           : std::string_view{};
}

/// For clients of OpenSandbox, which look for other members in an answer.
bool is_open_sandbox_path(std::string_view path) {
  if (begins_with(path, "/v1/"))
    path.remove_prefix(3);
  for (const std::string_view root : {"/sandboxes", "/snapshots"})
    if (begins_with(path, root) && (path.size() == root.size() || path[root.size()] == '/'))
      return true;
  return false;
}

/// The contract has words for this. What it does not know says more.
response no_id(const route* row) {
  std::string why = "Invalid sandbox ID format";
  if (row != nullptr && row->document.own)
    why += ": an id is 1 to 128 characters of a-z and 2-7";
  return error_response(step::request, {errc::invalid_request, why});
}

/// None: any node can serve it.
std::optional<cluster::concern> concern_of(const route& row, const call& what) {
  cluster::concern about;
  if (row.at_node)
    about.node = what.node;
  else if (row.about)
    about.id = row.about(what);
  else if (sandbox_id::parse(what.id))
    about.id = what.id;
  else
    return std::nullopt;
  if (row.unknown)
    about.unknown = [say = row.unknown, what] { return say(what); };
  return about;
}

} // namespace

bool is_session_id(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), allowed) &&
         text.find("..") == std::string_view::npos;
}

response too_large(std::uint64_t bytes, std::uint64_t limit) {
  return error_response(step::request,
                        {errc::payload_too_large, "payload too large: " + std::to_string(bytes) +
                                                    " bytes exceeds the " + std::to_string(limit) +
                                                    "-byte limit"});
}

namespace {

struct route_group {
  std::string_view tag;
  void (*add)(std::vector<route>&, std::shared_ptr<const services>);
  bool own = false; ///< As of operation.
};

constexpr route_group groups[] = {{"Sandboxes", add_sandbox_routes},
                                  {"Commands", add_exec_routes},
                                  {"Files", add_file_routes},
                                  {"Archives", add_archive_routes},
                                  {"Sessions", add_session_routes},
                                  {"Terminals", add_terminal_routes},
                                  {"Buckets", add_mount_routes},
                                  {"Network", add_network_routes, true},
                                  {"Previews", add_preview_routes, true},
                                  {"Pool", add_pool_routes},
                                  {"Cluster", add_cluster_routes, true},
                                  {"Node", add_service_routes}};

} // namespace

std::vector<route> routes(std::shared_ptr<const services> with) {
  std::vector<route> table;
  for (const auto& group : groups) {
    const auto first = table.size();
    group.add(table, with);
    for (auto row = first; row < table.size(); ++row) {
      table[row].document.tag = group.tag;
      table[row].document.own = table[row].document.own || group.own;
    }
  }
  return table;
}

api::api(key_check key, page_guard pages, std::vector<route> table, std::shared_ptr<figures> counts,
         std::shared_ptr<const sign_ins> browsers, std::shared_ptr<const preview::door> previews,
         std::shared_ptr<const cluster::gateway> others, bool keeps_snapshots,
         std::shared_ptr<wrong_key_log> wrong_keys)
    : key_(std::move(key))
    , pages_(std::move(pages))
    , table_(std::move(table))
    , counts_(std::move(counts))
    , browsers_(std::move(browsers))
    , previews_(std::move(previews))
    , others_(std::move(others))
    , behind_node_(others_ && others_->is_behind_node())
    , keeps_snapshots_(keeps_snapshots)
    , wrong_keys_(std::move(wrong_keys)) {
  for (const auto& row : table_)
    rows_.push_back(&counts_->of(row.method, row.pattern));
  if (previews_) {
    previews_by_name_ = &counts_->of(verb::other, ":port-:id.*");
    previews_by_path_ = &counts_->of(verb::other, "/v1/sandbox/:id/port/:port/*");
  }
}

bool api::shows_key(const request_head& head, bool any_case) const {
  return key_.allows_header(head.field("Authorization"), any_case) ||
         (browsers_ && browsers_->vouch_for(head, sign_ins::clock::now()));
}

/// What is checked whether or not there is such a route.
std::optional<response> api::refusal(const request_head& head, const route* row) const {
  const auto path = head.path;
  if (key_.open() && !behind_node_ && path != health) {
    // Links may lead to the pages themselves: they do nothing by being shown.
    const bool is_page =
      std::find(std::begin(shown_pages), std::end(shown_pages), path) != std::end(shown_pages);
    const auto site = is_page ? std::string_view{} : head.field("Sec-Fetch-Site");
    if (const auto why = pages_.objection(head.field("Host"), head.field("Origin"), site))
      return response{403, json::write_error(*why, "invalid_request")};
  }
  const auto below = path.substr(0, sandboxes.size() + 1);
  if (path == sandboxes || below == "/v1/sandbox/") {
    const auto rest = path.substr(std::min(path.size(), sandboxes.size() + 1));
    if (!rest.empty() && !sandbox_id::parse(rest.substr(0, rest.find('/'))))
      return no_id(row);
    if (!shows_key(head, true))
      return unauthorized();
  }
  if (begins_with(path, pool) && !shows_key(head, false))
    return unauthorized();
  if (begins_with(path, documents) && !shows_key(head, false) && !key_.allows_query(head.query))
    return refused_without_key(head, row);
  return std::nullopt;
}

/// A browser gets a page on which the key can be typed, and which comes back here then.
response api::refused_without_key(const request_head& head, const route* row) const {
  if (row == nullptr)
    return unauthorized();
  if (row->who != access::key_or_token || !browsers_ || !preview::wants_page(head))
    return unauthorized(row->who, !head.field(open_sandbox_field).empty());
  auto page = page_response(console::shared_page(), accepts_gzip(head.field("Accept-Encoding")));
  page.status = 401;
  return page;
}

/// "GET, HEAD, PUT"; empty: there is no such path.
std::string api::methods_of(std::string_view path) const {
  constexpr std::string_view names[] = {"GET, HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"};
  std::string all;
  for (const auto method : all_verbs)
    if (std::any_of(table_.begin(), table_.end(), [&](const route& row) {
          return row.method == method && fits(row.pattern, path);
        }))
      (all += all.empty() ? "" : ", ") += names[static_cast<std::size_t>(method)];
  return all;
}

response api::no_route(const request_head& head) const {
  const auto methods = methods_of(head.path);
  auto answer = is_open_sandbox_path(head.path) ? opensandbox::no_route(methods) : [&] {
    const auto more = methods.empty() ? std::string{} : ": this path takes " + methods;
    return response{404, json::write_error("404 Not Found" + more, "not_found")};
  }();
  if (!methods.empty())
    answer.fields.push_back({"Allow", methods});
  return answer;
}

void api::note_wrong_key(const request_head& head, const admission& plan,
                         const route_figures& row) const {
  if (!plan.refusal || plan.refusal->status != 401)
    return;
  const auto by = place_of_key(head);
  if (by.empty())
    return;
  const auto* client = connection::current();
  wrong_keys_->note(client == nullptr ? "unknown" : network_of(client->peer()), by,
                    std::string{row.method} + " " + row.route);
}

/// Nobody is to believe that his files are kept when they are not.
std::optional<response> api::objection_to_persistence(const request_head& head) const {
  const auto wanted = head.field(persistent_field);
  if (wanted.empty() || wanted == "false" || (wanted == "true" && keeps_snapshots_))
    return std::nullopt;
  return error_response(
    step::request,
    {errc::invalid_request, wanted == "true" ? "Insula-Persistent: this node keeps no snapshots of "
                                               "files; its configuration says nothing of any"
                                             : "Insula-Persistent: expected true or false"});
}

bool api::shows_open_sandbox_key(const request_head& head) const {
  return key_.open() || key_.is_key(head.field(open_sandbox_field)) || shows_key(head, true);
}

bool api::shows_execd_key(const request_head& head) const {
  return shows_open_sandbox_key(head) || key_.is_key(head.field(execd_token_field));
}

/// Of a client that may use what needs this. A token is no key: it is for one port of one sandbox,
/// and is given away, as a link is.
caller api::caller_of(access needed, const request_head& head) const {
  switch (needed) {
    case access::everybody:
    case access::own_page: return caller::stranger;
    case access::execd: return shows_execd_key(head) ? caller::holder : caller::visitor;
    case access::key:
    case access::open_sandbox_key:
    case access::lifecycle:
    case access::key_or_token: return caller::holder;
  }
  return caller::stranger;
}

/// What the route itself wants, wherever its path lies.
bool api::may_use(access needed, const request_head& head, const call& what) const {
  switch (needed) {
    case access::everybody:
    case access::own_page: return true;
    case access::key: return shows_key(head, true);
    case access::open_sandbox_key:
    case access::lifecycle: return shows_open_sandbox_key(head);
    case access::execd: {
      return shows_execd_key(head) ||
             (previews_ &&
              previews_->holds(head.field(execd_token_field), what.id, opensandbox::execd_port));
    }
    case access::key_or_token: return shows_key(head, false) || key_.allows_query(head.query);
  }
  return false;
}

request_track api::track_of(const request_head& head, route_figures& row,
                            std::optional<request_track> decided) const {
  if (decided)
    return std::move(*decided);
  const auto sent = head.field("X-Request-Id"); // It is told to servers in sandboxes, and logged.
  request_context context{request_id(key_.is_in(sent) ? std::string_view{} : sent)};
  if (head.field("X-Server-Timing") == "1")
    context.times = std::make_shared<request_times>(request_times::clock::now());
  if (keeps_snapshots_) {
    context.recovered = std::make_shared<recovery_place>();
    context.persistent = head.field(persistent_field) == "true";
  }
  return {counts_, row, std::move(context)};
}

admission api::admit(const request_head& head) const {
  std::optional<request_track> decided; // It has been found out that it is to be served here.
  if (others_)
    if (auto* client = connection::current())
      decided = std::exchange(client->decided, std::nullopt);
  const auto* others = decided ? nullptr : others_.get();
  if (previews_)
    if (auto to = previews_->find(head)) {
      auto& row = to->prefix.empty() ? *previews_by_name_ : *previews_by_path_;
      return admit_preview(head, std::move(*to), others, track_of(head, row, std::move(decided)));
    }
  auto found = find_route(table_, head);
  if (found && found->row->who == access::own_page)
    if (const auto* client = connection::current())
      found->what.network = network_of(client->peer());
  auto& row = found ? *rows_[static_cast<std::size_t>(found->row - table_.data())]
                    : counts_->unmatched(head.method);
  auto track = track_of(head, row, std::move(decided));
  auto plan = decide(head, found, others, track.context());
  note_wrong_key(head, plan, row);
  plan.track = std::move(track);
  return plan;
}

admission api::admit_preview(const request_head& head, preview::address to,
                             const cluster::gateway* others, request_track track) const {
  const auto& row = to.prefix.empty() ? *previews_by_name_ : *previews_by_path_;
  call asked;
  asked.id = to.id;
  const bool to_execd = to.in_execd;
  const bool knows_key =
    to_execd ? may_use(access::execd, head, asked) : shows_open_sandbox_key(head);
  const auto port = to.port;
  auto plan = to_execd && !knows_key
                ? refused(unauthorized(access::execd))
                : previews_->admit(head, std::move(to), knows_key, track.context().id);
  note_wrong_key(head, plan, row);
  const bool let_in = !plan.refusal;
  if (others != nullptr && let_in) {
    const auto unknown = [port, as_page = preview::wants_page(head)] {
      return preview::not_running(port, as_page);
    };
    if (auto away = others->admit(head, {asked.id, unknown}, track.context().id, &key_))
      plan = std::move(*away);
  }
  if (knows_key)
    plan.from = to_execd ? caller_of(access::execd, head) : caller::holder;
  else if (let_in)
    plan.from = caller::visitor;
  plan.track = std::move(track);
  return plan;
}

admission api::decide(const request_head& head, const std::optional<matched_route>& found,
                      const cluster::gateway* others, const request_context& context) const {
  if (auto no = refusal(head, found ? found->row : nullptr))
    return refused(std::move(*no));
  if (!found)
    return refused(no_route(head));
  const auto& [row, what] = *found;
  if (row->who == access::own_page && !(browsers_ && browsers_->own_page(head)))
    return refused(
      {403, json::write_error("Only this node's own page may ask for this", "invalid_request")});
  if (!may_use(row->who, head, what))
    return refused(refused_without_key(head, row));
  auto plan = plan_of(head, *row, what, others, context);
  plan.from = caller_of(row->who, head);
  return plan;
}

/// Of a request that may be made.
admission api::plan_of(const request_head& head, const route& row, const call& what,
                       const cluster::gateway* others, const request_context& context) const {
  if (auto no = objection_to_persistence(head))
    return refused(std::move(*no));
  if (others != nullptr)
    if (auto about = concern_of(row, what))
      if (auto away = others->admit(head, std::move(*about), context.id))
        return std::move(*away);
  auto plan = row.admit(what);
  if (plan.refusal || row.body == body_use::ignored)
    return plan;
  const auto say_too_large = row.too_large != nullptr ? row.too_large : &too_large;
  if (head.content_length.value_or(0) > row.body_limit)
    return refused(say_too_large(*head.content_length, row.body_limit));
  plan.body_limit = row.body_limit;
  plan.too_large = say_too_large;
  return plan;
}

} // namespace insula::http::bridge
