#include "base/id.hpp"
#include "base/limits.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/opensandbox/execd_json.hpp"
#include "http/opensandbox/lifecycle.hpp"
#include "http/sandboxes/ask_directory.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/text/header_text.hpp"
#include "http/text/iso_time.hpp"
#include "http/text/percent.hpp"
#include "http/transport/retry_after.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

namespace insula::http::opensandbox {

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds list_patience = 30s;
constexpr auto take_patience = sandbox_patience + std::chrono::minutes{2};

std::string_view state_of(const snapshot_description& of) {
  return of.state == snapshot_state::created ? "Ready" : "Failed";
}

void append(json::writer& out, const snapshot_description& is) {
  const bool is_ready = is.state == snapshot_state::created;
  out.begin_object().member("id", is.id).member("sandboxId", is.origin);
  if (!is.name.empty())
    out.member("name", is.name);
  out.key("status").begin_object().member("state", state_of(is));
  out.member("reason", is_ready ? "snapshot_ready" : "snapshot_lost");
  out.member("message", is_ready ? "The snapshot can be used." : "Its bytes are lost.");
  out.member("lastTransitionAt", iso_time(is.created_ms)).end_object();
  out.member("createdAt", iso_time(is.created_ms)).end_object();
}

std::string write(const snapshot_description& is) {
  json::writer out;
  append(out, is);
  return out.str();
}

response no_snapshot(const std::string& id) {
  return refused({404, "SNAPSHOT::NOT_FOUND", "Snapshot " + id + " not found."});
}

/// What went wrong with the snapshot of that id.
response failed_snapshot(const std::string& id, const error& why) {
  const bool is_none = why.code == errc::not_found || why.code == errc::forbidden;
  return is_none ? no_snapshot(id) : failed(id, why);
}

// ---- Taking one

response not_taken(const std::string& id, const error& why) {
  switch (why.code) {
    case errc::forbidden: return refused({501, "SNAPSHOT::NOT_IMPLEMENTED", why.message});
    case errc::run_over:
    case errc::run_stopping:
    case errc::run_snapshotting:
    case errc::snapshot_gone:
    case errc::sandbox_not_running:
      return refused({409, "SNAPSHOT::INVALID_SOURCE_STATE", why.message});
    case errc::limit_reached:
      return with_retry_after(refused({429, "SNAPSHOT::INVALID_STATE", why.message}), why);
    default: return failed(id, why);
  }
}

void take(const shared_services& with, const lifecycle_call& what, const std::string& body,
          const reply& to) {
  take_snapshot wanted;
  json::document document;
  if (!body.empty() && (!json::parse(body, document) || !document.IsObject()))
    return to->respond(
      refused({422, "GENERAL::INVALID_REQUEST", "the body must be a JSON object"}));
  if (!body.empty()) {
    const json::member_rule rule{.null_is_absent = true};
    if (const auto* name = json::find(document, "name", rule)) {
      if (!name->IsString())
        return to->respond(refused({422, "GENERAL::INVALID_REQUEST", "name must be a string"}));
      wanted.name = json::string_of(*name);
    }
    // What a snapshot has here is all that a root file system has.
    if (const auto* mode = json::find(document, "mode", rule);
        mode != nullptr && !(mode->IsString() && json::text_of(*mode) == "rootfsOnly"))
      return to->respond(
        refused({400, "SANDBOX::INVALID_PARAMETER", "mode must be \"rootfsOnly\""}));
  }
  question{*with, what.id(), std::move(wanted), to}
    .within(take_patience,
            refused({504, "GENERAL::UNKNOWN_ERROR", "the snapshot was not taken in time"}))
    .starts(false)
    .or_else([id = what.id()](question_stage, const error& why) { return not_taken(id, why); })
    .then<snapshot_description>([to](const snapshot_description& is) {
      response answer{202, write(is), json_type};
      answer.fields.push_back({"Location", "/v1/snapshots/" + is.id});
      to->respond(std::move(answer));
    });
}

// ---- Looking at them

/// A walk through a list, to its end: the answer says how many there are.
struct snapshot_walk {
  page_wanted page;
  std::string origin, name;
  std::vector<std::string> states; ///< Empty: any.
  std::chrono::steady_clock::time_point until;
  std::uint64_t met = 0;
  std::vector<snapshot_description> items = {};

  bool wants(const snapshot_description& is) const {
    const auto fits = [&](const auto& each) { return same_letters(each, state_of(is)); };
    return (name.empty() || is.name == name) &&
           (states.empty() || std::any_of(states.begin(), states.end(), fits));
  }
  void take(const snapshot_page& some) {
    const auto first = (page.page - 1) * page.page_size;
    for (const auto& each : some.snapshots) {
      if (!wants(each))
        continue;
      if (met >= first && items.size() < page.page_size)
        items.push_back(each);
      ++met;
    }
  }
  std::string listed() const {
    json::writer out;
    out.begin_object().key("items").begin_array();
    for (const auto& each : items)
      append(out, each);
    out.end_array();
    append_pagination(out, page.page, page.page_size, met);
    return out.end_object().str();
  }
};

void walk(const shared_services& with, const std::shared_ptr<snapshot_walk>& state,
          std::string after, const reply& to) {
  insula::list_snapshots step{.origin = state->origin, .after = std::move(after)};
  step.limit = limits::list_page_sandboxes;
  ask_directory<snapshot_page>(
    *with, std::move(step),
    [=](const snapshot_page& some) {
      state->take(some);
      if (some.next.empty())
        to->respond({200, state->listed(), json_type});
      else if (std::chrono::steady_clock::now() < state->until) // Else it has its answer.
        walk(with, state, some.next, to);
    },
    [to](const error& why) { to->respond(failed({}, why)); });
}

void list(const shared_services& with, const lifecycle_call& what, const std::string&,
          const reply& to) {
  const auto state = std::make_shared<snapshot_walk>();
  if (const auto wrong = read_page(what.query, state->page))
    return to->respond(refused(*wrong));
  state->origin = form_value(what.query, "sandboxId");
  state->name = form_value(what.query, "name");
  state->states = form_values(what.query, "state");
  state->until = std::chrono::steady_clock::now() + list_patience;
  to->answer_within(list_patience,
                    refused({504, "GENERAL::UNKNOWN_ERROR", "the store did not answer in time"}));
  if (!state->origin.empty() && !sandbox_id::parse(state->origin)) // No sandbox has that id.
    return to->respond({200, state->listed(), json_type});
  walk(with, state, {}, to);
}

template <class Message>
void ask(const shared_services& with, const lifecycle_call& what, const reply& to,
         std::function<void(const snapshot_description&)> answered) {
  const auto id = percent_decode(what["sid"]);
  if (!sandbox_id::parse(id))
    return to->respond(no_snapshot(id));
  to->answer_within(
    list_patience, refused({504, "GENERAL::UNKNOWN_ERROR", "the snapshot did not answer in time"}));
  ask_directory<snapshot_description>(
    *with, Message{id, to->context()}, std::move(answered),
    [to, id](const error& why) { to->respond(failed_snapshot(id, why)); });
}

void get(const shared_services& with, const lifecycle_call& what, const std::string&,
         const reply& to) {
  ask<find_snapshot>(with, what, to, [to](const snapshot_description& is) {
    if (is.state == snapshot_state::deleted)
      to->respond(no_snapshot(is.id));
    else
      to->respond({200, write(is), json_type});
  });
}

void remove(const shared_services& with, const lifecycle_call& what, const std::string&,
            const reply& to) {
  ask<delete_snapshot>(with, what, to, [to](const snapshot_description&) {
    to->respond({204, {}});
  });
}

} // namespace

void add_snapshot_routes(const add_lifecycle_route& add) {
  constexpr std::string_view failure = "OpenSandboxError";
  const auto none = body_use::ignored;
  const documented_answer malformed{"422", "The body or the query is not as it must be.", json_type,
                                    failure};
  const documented_answer one{"200", "The snapshot.", json_type, "OpenSandboxSnapshot"};
  const documented_answer no_such{"404", "There is none.", json_type, failure};
  add(
    verb::post, "/sandboxes/:id/snapshots", body_use::buffered, take,
    {.id = "createOpenSandboxSnapshot",
     .summary = "Keep the whole disk of a sandbox as it is now, without stopping what runs in it.",
     .body_type = json_type,
     .body_schema = "OpenSandboxSnapshotRequest",
     .answers = {{"202", "It is durable.", json_type, "OpenSandboxSnapshot"},
                 {"409", "The sandbox does not run.", json_type, failure},
                 malformed,
                 {"501", "This node keeps no snapshots.", json_type, failure}}});
  add(
    verb::get, "/snapshots", none, list,
    {.id = "listOpenSandboxSnapshots",
     .summary = "The snapshots, the newest first.",
     .parameters =
       {{"sandboxId", "query", "Only those of that sandbox."},
        {"name", "query", "Only those of that name."},
        {"state", "query", "Only those in one of these states.", false, R"(["Ready"])",
         R"({"type":"array","items":{"type":"string","enum":["Ready","Failed"]}})"},
        {"page", "query", "From 1 on.", false, {}, R"({"type":"integer","minimum":1,"default":1})"},
        {"pageSize",
         "query",
         "How many there are on a page.",
         false,
         {},
         R"({"type":"integer","minimum":1,"maximum":200,"default":20})"}},
     .answers = {{"200", "A page of them.", json_type, "OpenSandboxSnapshotList"}, malformed}});
  const parameter snapshot{"sid", "path", "The snapshot's id.", true};
  add(verb::get, "/snapshots/:sid", none, get,
      {.id = "getOpenSandboxSnapshot",
       .summary = "What a snapshot is of, and whether it can be used.",
       .parameters = {snapshot},
       .answers = {one, no_such}});
  add(verb::del, "/snapshots/:sid", none, remove,
      {.id = "deleteOpenSandboxSnapshot",
       .summary = "Delete a snapshot. Sandboxes that began with it go on.",
       .parameters = {snapshot},
       .answers = {{"204", "Gone."}, no_such}});
}

} // namespace insula::http::opensandbox
