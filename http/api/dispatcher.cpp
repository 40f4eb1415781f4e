#include "http/api/dispatcher.hpp"

#include "base/id.hpp"
#include "http/json/json.hpp"
#include "http/text/percent.hpp"
#include "http/transport/connection.hpp"
#include "http/transport/node_fields.hpp"
#include "http/transport/request_semantics.hpp"

#include <algorithm>
#include <utility>

namespace insula::http {

namespace {

constexpr std::string_view persistent_field = "Insula-Persistent";
constexpr std::string_view privileges_field = "Insula-Privileges";
constexpr std::string_view image_field = "Insula-Image";
constexpr std::string_view snapshot_field = "Insula-Snapshot";
constexpr std::size_t longest_image = 512;
constexpr std::string_view not_for_key = "The API key does not open this.";

std::vector<route> rows_of(const std::vector<std::shared_ptr<const public_api>>& apis) {
  std::vector<route> all;
  for (const auto& api : apis)
    for (auto& row : api->routes()) {
      row.api = api->name();
      all.push_back(std::move(row));
    }
  return all;
}

/// None: any node can serve it.
std::optional<concern> concern_of(const route& row, const matched_request& what) {
  concern about;
  if (row.at_node)
    about.node = what["node"];
  else if (row.about)
    about.id = row.about(what);
  else if (sandbox_id::parse(what.id()))
    about.id = what.id();
  else
    return std::nullopt;
  about.image.text = what.head().field(image_field);
  about.image.snapshot = what.head().field(snapshot_field);
  if (row.in_body)
    about.in_body = [say = row.in_body, path = request_path{what}](std::string_view body) {
      return say(body, path);
    };
  about.id_in_body = row.id_in_body;
  about.no_length = row.no_length;
  if (row.unknown)
    about.unknown = [say = row.unknown, path = request_path{what}] { return say(path); };
  return about;
}

} // namespace

response no_route(const std::string& methods) {
  const auto more = methods.empty() ? std::string{} : ": this path takes " + methods;
  return {404, json::write_error("404 Not Found" + more, "not_found")};
}

response too_large(std::uint64_t bytes, std::uint64_t limit) {
  return {413, json::write_error("payload too large: " + std::to_string(bytes) +
                                   " bytes exceeds the " + std::to_string(limit) + "-byte limit",
                                 "payload_too_large")};
}

dispatcher::dispatcher(options is)
    : is_(std::move(is))
    , behind_node_(is_.others && is_.others->is_behind_node())
    , table_(rows_of(is_.apis)) {
  for (const auto& row : table_.rows())
    rows_.push_back(&is_.counts->of(row.method, row.pattern, row.api));
  if (is_.claims)
    for (const auto& pattern : is_.claims->patterns())
      claimed_.push_back(&is_.counts->of(verb::other, pattern, "preview"));
}

/// None: the node answers in its own words.
const public_api* dispatcher::api_of(std::string_view path) const {
  for (const auto& api : is_.apis)
    if (api->claims(path))
      return api.get();
  return nullptr;
}

/// What is checked whether or not there is such a route.
std::optional<response> dispatcher::refusal(const request_head& head, const route* row) const {
  const auto* api = api_of(head.path);
  const auto rule = api == nullptr ? page_rule::guarded : api->rule(head.path);
  if (is_.known.key().open() && !behind_node_ && rule != page_rule::open) {
    // Links may lead to the pages themselves: they do nothing by being shown.
    const auto site = rule == page_rule::shown ? std::string_view{} : head.field("Sec-Fetch-Site");
    if (const auto why = is_.pages.objection(head.field("Host"), head.field("Origin"), site))
      return response{403, json::write_error(*why, "invalid_request")};
  }
  if (api == nullptr)
    return std::nullopt;
  if (auto no = api->objection(head, row))
    return no;
  if (const auto* gate = api->gate(head.path);
      gate && !gate->allows(head, {}, is_.known) && !gate->named_key_in(head, is_.known))
    return row == nullptr ? gate->unauthorized(head) : refused_without_key(head, *row->who);
  return std::nullopt;
}

/// A browser gets a page on which the key can be typed, and which comes back here then.
response dispatcher::refused_without_key(const request_head& head, const access_scheme& by) const {
  if (!by.offers_sign_in() || !is_.sign_in_page || !wants_page(head))
    return by.unauthorized(head);
  auto page = is_.sign_in_page(accepts_gzip(head.field("Accept-Encoding")));
  page.status = 401;
  return page;
}

/// None: it is let in. `key`: the named key with which; null: it needs none.
std::optional<response> dispatcher::refusal_of_client(const request_head& head,
                                                      const access_scheme& by,
                                                      const std::string& sandbox,
                                                      shared_named_key& key) const {
  if (behind_node_) {
    const auto name = head.field(node_fields::key_field);
    key = name.empty() ? nullptr : is_.keys.by_name(name);
    if (!name.empty() && !key)
      return by.forbidden("The node that has the sandbox does not know the API key.");
  }
  if (by.allows(head, sandbox, is_.known))
    return std::nullopt;
  key = by.named_key_in(head, is_.known);
  return key ? std::nullopt : std::optional{refused_without_key(head, by)};
}

response dispatcher::no_route_for(const request_head& head) const {
  const auto methods = table_.methods_of(head.path);
  const auto* api = api_of(head.path);
  auto answer = api == nullptr ? no_route(methods) : api->no_route(methods);
  if (!methods.empty())
    answer.fields.push_back({"Allow", methods});
  return answer;
}

/// The header, or the word of a query, in which a request shows a key; empty: in none.
std::string_view dispatcher::place_of_key(const request_head& head) const {
  for (const auto& api : is_.apis)
    for (const auto name : api->key_fields())
      if (!head.field(name).empty())
        return name;
  const auto* api = api_of(head.path);
  const auto* gate = api == nullptr ? nullptr : api->gate(head.path);
  const auto word = gate == nullptr ? std::string_view{} : gate->query_parameter();
  return !word.empty() && !form_value(head.query, word).empty() ? word : std::string_view{};
}

void dispatcher::note_wrong_key(const request_head& head, const admission& plan,
                                const route_figures& row) const {
  if (!plan.refusal || plan.refusal->status != 401)
    return;
  if (const auto by = place_of_key(head); !by.empty())
    is_.wrong_keys->note(head.client == nullptr ? "unknown" : network_of(head.client->peer()), by,
                         std::string{row.method} + " " + row.route);
}

/// A client must not believe that the files of its sandbox are kept when they are not, nor that it
/// has the privileges of which it has misspelt the name.
std::optional<response> dispatcher::objection_to_wishes(const request_head& head) const {
  if (const auto gains = head.field(privileges_field); !gains.empty() && !privileges_of(gains))
    return response{
      400, json::write_error("Insula-Privileges: expected none or sudo", "invalid_request")};
  if (head.field(image_field).size() > longest_image)
    return response{
      400, json::write_error("Insula-Image: expected at most 512 bytes", "invalid_request")};
  const auto wanted = head.field(persistent_field);
  if (wanted.empty() || wanted == "false" || (wanted == "true" && is_.keeps_snapshots))
    return std::nullopt;
  return response{
    400, json::write_error(wanted == "true"
                             ? "Insula-Persistent: this node keeps no snapshots of files; its "
                               "configuration says nothing of any"
                             : "Insula-Persistent: expected true or false",
                           "invalid_request")};
}

request_track dispatcher::track_of(const request_head& head, route_figures& row,
                                   std::optional<request_track> decided) const {
  if (decided)
    return std::move(*decided);
  const auto sent = head.field("X-Request-Id"); // It is told to servers in sandboxes, and logged.
  request_context context{request_id(is_.known.key().is_in(sent) ? std::string_view{} : sent)};
  if (head.field("X-Server-Timing") == "1")
    context.times = std::make_shared<request_times>(request_times::clock::now());
  context.gains = privileges_of(head.field(privileges_field));
  context.image = head.field(image_field);
  if (is_.keeps_snapshots) {
    context.recovered = std::make_shared<recovery_place>();
    context.persistent = head.field(persistent_field) == "true";
  }
  return {is_.counts, row, std::move(context)};
}

admission dispatcher::admit(const request_head& head) const {
  std::optional<request_track> decided; // It has been found out that it is to be served here.
  if (is_.others && head.client != nullptr)
    decided = std::exchange(head.client->decided, std::nullopt);
  const auto* others = decided ? nullptr : is_.others.get();
  if (is_.claims)
    if (const auto to = is_.claims->find(head))
      return admit_claimed(head, *to, others,
                           track_of(head, *claimed_[to->pattern], std::move(decided)));
  auto found = table_.find(head);
  auto& row = found ? *rows_[found->row] : is_.counts->unmatched(head.method);
  auto track = track_of(head, row, std::move(decided));
  auto plan = decide(head, std::move(found), others, track.context());
  note_wrong_key(head, plan, row);
  if (plan.from == caller::visitor)
    track.forget_wishes();
  track.set_key(plan.key);
  plan.track = std::move(track);
  return plan;
}

admission dispatcher::admit_claimed(const request_head& head, const claimed_request& to,
                                    const other_nodes* others, request_track track) const {
  shared_named_key key;
  auto not_shown = refusal_of_client(head, *to.scheme, to.sandbox, key);
  const bool may = !key || std::any_of(to.apis.begin(), to.apis.end(),
                                       [&](auto api) { return key->may_use(api); });
  const bool knows_key = !not_shown && may;
  // The other node has let the request in by a key for which this node would not.
  const bool was_let_in = behind_node_ && !head.field(node_fields::key_field).empty();
  admission plan;
  if (was_let_in && !knows_key)
    plan = refused(not_shown ? std::move(*not_shown) : to.scheme->forbidden(not_for_key));
  else if (to.needs_scheme && !knows_key)
    plan = refused(to.scheme->unauthorized(head));
  else
    plan = to.admit(knows_key, track.context().id);
  if (!may && plan.refusal && plan.refusal->status == 401)
    plan = refused(to.scheme->forbidden(not_for_key));
  note_wrong_key(head, plan, *claimed_[to.pattern]);
  const bool let_in = !plan.refusal;
  const auto name = key && knows_key ? key->name : std::string{};
  if (others != nullptr && let_in) {
    concern about{to.sandbox, to.unknown};
    about.key = name;
    if (auto away = others->admit(head, std::move(about), track.context().id, &is_.known.key()))
      plan = std::move(*away);
  }
  if (knows_key)
    plan.from = key ? caller::holder : to.scheme->caller_of(head, is_.known);
  else if (let_in)
    plan.from = caller::visitor;
  if (!knows_key)
    track.forget_wishes();
  track.set_key(name);
  plan.track = std::move(track);
  return plan;
}

admission dispatcher::decide(const request_head& head, std::optional<route_table::found> found,
                             const other_nodes* others, const request_context& context) const {
  const auto* row = found ? &table_.rows()[found->row] : nullptr;
  if (auto no = refusal(head, row))
    return refused(std::move(*no));
  if (row == nullptr)
    return refused(no_route_for(head));
  shared_named_key key;
  if (auto no = refusal_of_client(head, *row->who, found->path.id(), key))
    return refused(std::move(*no));
  if (key && (row->main_key_alone || !key->may_use(row->api)))
    return refused(row->who->forbidden(not_for_key));
  const matched_request what{std::move(found->path), head, key};
  auto plan = plan_of(*row, what, others, context);
  plan.from = key ? caller::holder : row->who->caller_of(head, is_.known);
  if (row->objection && !plan.refusal && plan.from == caller::stranger)
    plan.from = caller::visitor; // What it has shown was checked.
  if (key)
    plan.key = key->name;
  return plan;
}

/// Of a request that may be made.
admission dispatcher::plan_of(const route& row, const matched_request& what,
                              const other_nodes* others, const request_context& context) const {
  const auto& head = what.head();
  if (auto no = objection_to_wishes(head))
    return refused(std::move(*no));
  if (row.objection)
    if (auto no = row.objection(what))
      return refused(std::move(*no));
  if (others != nullptr)
    if (auto about = concern_of(row, what)) {
      about->key = what.key() ? what.key()->name : std::string{};
      if (auto away = others->admit(head, std::move(*about), context.id))
        return std::move(*away);
    }
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

} // namespace insula::http
