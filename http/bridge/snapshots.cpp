#include "base/id.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/idempotency.hpp"
#include "http/bridge/snapshot_json.hpp"
#include "http/sandboxes/ask_directory.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/fork.hpp"
#include "http/sandboxes/keyed_id.hpp"
#include "http/text/percent.hpp"

#include <chrono>
#include <optional>

/// Snapshots of whole disks: an API of the node's own.
namespace insula::http::bridge {

namespace {

using namespace std::chrono_literals;

/// What is dirty is written first, which takes as long as the disk does.
constexpr auto disk_patience = sandbox_patience + std::chrono::minutes{2};
constexpr auto record_patience = std::chrono::milliseconds{30s};

constexpr parameter key_parameter{
  idempotency_parameter.name, idempotency_parameter.in,
  "1 to 255 visible ASCII characters. The same key always means the same snapshot, or the same "
  "siblings, of this sandbox: what is there already is not made again."};
constexpr parameter limit_parameter{"limit", "query",
                                    "1 to 256 entries on a page; 100 if it is "
                                    "left out."};
constexpr parameter cursor_parameter{"cursor", "query", "That of the page before."};
const parameter snapshot_parameter{"sid", "path", "The snapshot's id.", true};

response no_such_snapshot(const std::string& id) {
  return error_response(step::snapshot, {errc::not_found, "Snapshot " + id + " not found."});
}

void answer_with(const reply& to, const error& why) {
  to->respond(error_response(step::snapshot, why));
}

/// For what is asked of the directory alone.
template <class Answer, class Message>
void ask_records(const services& with, Message question, const reply& to,
                 std::function<response(const Answer&)> written) {
  question.context = to->context();
  to->answer_within(record_patience,
                    overdue(step::snapshot, "the snapshot did not answer in time"));
  ask_directory<Answer>(
    with, std::move(question),
    [to, written = std::move(written)](const Answer& told) { to->respond(written(told)); },
    [to](const error& why) { answer_with(to, why); });
}

response written(const snapshot_description& is) {
  return {200, write_snapshot(is)};
}

// ---- Of a sandbox

/// Of a request with a key. Errors: invalid_request.
result<std::string> keyed(const services& with, const idempotency_header& header,
                          std::string_view what, const std::string& id) {
  const auto has = has_idempotency_key(header);
  if (!has)
    return has.reason();
  return *has ? keyed_id(with.secret, std::string{what} + '\n' + id + '\n' + *header.key)
              : std::string{};
}

void take(const services& with, const std::string& id, const idempotency_header& header,
          std::string_view body, const reply& to) {
  auto wanted = read_snapshot_body(body);
  if (!wanted)
    return answer_with(to, wanted.reason());
  auto as = keyed(with, header, "snapshot", id);
  if (!as)
    return answer_with(to, as.reason());
  wanted->id = std::move(*as);
  question{with, id, std::move(*wanted), to}
    .within(disk_patience, overdue(step::snapshot))
    .starts(false)
    .or_else(failing(step::snapshot))
    .then<snapshot_description>([to](const snapshot_description& is) { to->respond(written(is)); });
}

void roll_back_to(const services& with, const std::string& id, std::string_view body,
                  const reply& to) {
  auto snapshot = read_rollback_body(body);
  if (!snapshot)
    return answer_with(to, snapshot.reason());
  question{with, id, roll_back{*snapshot}, to}
    .within(disk_patience, overdue(step::snapshot))
    .starts(false)
    .or_else(failing(step::snapshot))
    .then<sandbox_description>([to, id](const sandbox_description& is) {
      to->respond({200, write_description(id, is)});
    });
}

void fork(const services& with, const std::string& id, const idempotency_header& header,
          std::string_view body, const reply& to) {
  auto wanted = read_fork_body(body);
  if (!wanted)
    return answer_with(to, wanted.reason());
  const auto key = keyed(with, header, "fork", id);
  if (!key)
    return answer_with(to, key.reason());
  if (!key->empty() && !wanted->ids.empty())
    return answer_with(to, {errc::invalid_request, "ids and an Idempotency-Key exclude each other: "
                                                   "the key says which ids the siblings have"});
  fork_request asked;
  asked.source = id;
  asked.ids = std::move(wanted->ids);
  asked.repeats = !key->empty();
  for (std::uint32_t number = 0; asked.ids.size() < wanted->count; ++number)
    asked.ids.push_back(key->empty() ? sandbox_id::generate().str()
                                     : keyed_id(with.secret, *key + '\n' + std::to_string(number)));
  asked.with.env = std::move(wanted->env);
  asked.copies_env = wanted->copy_env;
  asked.context = to->context();
  asked.until = std::chrono::steady_clock::now() + disk_patience;
  to->answer_within(disk_patience, overdue(step::snapshot, "the siblings did not run in time"));
  const auto ids = asked.ids;
  fork_sandbox(with, std::move(asked), [to, ids](const result<void>& outcome) {
    outcome ? to->respond({200, write_siblings(ids)}) : answer_with(to, outcome.reason());
  });
}

// ---- Of snapshots

/// Errors: invalid_request.
result<list_snapshots> read_page(const std::string& query) {
  list_snapshots wanted;
  wanted.after = form_value(query, "cursor");
  const auto limit = read_limit(query, 100, limits::list_page_sandboxes);
  if (!limit)
    return limit.reason();
  wanted.limit = *limit;
  return wanted;
}

void list(const services& with, list_snapshots wanted, const reply& to) {
  to->answer_within(record_patience, overdue(step::snapshot, "the list was not ready in time"));
  ask_directory<snapshot_page>(
    with, std::move(wanted),
    [to](const snapshot_page& page) {
      to->respond({200, write_snapshots(page)});
    },
    [to](const error& why) { answer_with(to, why); });
}

/// `fit` says which list the page is of.
admission::answer_fn list_of(const shared_services& with, const matched_request& what,
                             std::function<void(list_snapshots&)> fit) {
  return [with, query = what.query, fit = std::move(fit)](const std::string&, const reply& to) {
    auto wanted = read_page(query);
    if (!wanted)
      return answer_with(to, wanted.reason());
    fit(*wanted);
    list(*with, std::move(*wanted), to);
  };
}

/// All of its tree, from a snapshot of it.
void list_tree(const shared_services& with, const std::string& id, const std::string& query,
               const reply& to) {
  auto wanted = read_page(query);
  if (!wanted)
    return answer_with(to, wanted.reason());
  to->answer_within(record_patience, overdue(step::snapshot, "the tree was not ready in time"));
  find_snapshot question{id, to->context()};
  ask_directory<snapshot_description>(
    *with, std::move(question),
    [with, to, page = std::move(*wanted)](const snapshot_description& is) {
      auto tree = page;
      tree.root = is.root;
      list(*with, std::move(tree), to);
    },
    [to](const error& why) { answer_with(to, why); });
}

using by_snapshot = void (*)(const shared_services&, const std::string& id,
                             const std::string& query, const reply& to);

std::function<admission(const matched_request&)> of_snapshot(const shared_services& with,
                                                             by_snapshot answer) {
  return [with, answer](const matched_request& what) {
    const auto id = what["sid"];
    if (!sandbox_id::parse(id))
      return refused(no_such_snapshot(id));
    return answered_by([with, answer, id, query = what.query](const std::string&, const reply& to) {
      answer(with, id, query, to);
    });
  };
}

void add_routes_of_sandbox(std::vector<route>& table, const shared_services& with) {
  using taking = void (*)(const services&, const std::string&, const idempotency_header&,
                          std::string_view, const reply&);
  const auto making = [with](taking make) {
    return [with, make](const matched_request& what) {
      return answered_by(
        [with, make, id = what.id(), header = idempotency_header_of(what)](
          const std::string& body, const reply& to) { make(*with, id, header, body, to); });
    };
  };
  table.push_back(
    {verb::post,
     "/v1/sandbox/:id/snapshot",
     access::key,
     body_use::buffered,
     limits::snapshot_body_bytes,
     making(take),
     {.id = "takeSnapshot",
      .summary = "Keep the whole disk of a sandbox as it is now, without stopping what runs in it. "
                 "Starts it if need be.",
      .parameters = {key_parameter},
      .body_type = "application/json",
      .body_schema = "TakeSnapshotRequest",
      .answers = {{"200", "It is durable.", "application/json", "Snapshot"},
                  {"400", "", "", "InvalidRequest"},
                  {"403", "The node is in a cluster that has no place for snapshots.",
                   "application/json", "ErrorResponse"},
                  {"404", "There is no such sandbox.", "application/json", "ErrorResponse"},
                  {"409", "Its run is over.", "application/json", "ErrorResponse"},
                  {"413", "The body is too large.", "application/json", "ErrorResponse"},
                  {"429", "As many are taken of this sandbox as may be.", "application/json",
                   "ErrorResponse"},
                  {"503", "No room for another sandbox.", "application/json", "ErrorResponse"},
                  {"502", "It could not be taken.", "application/json", "ErrorResponse"},
                  {"507", "The disk is full.", "application/json", "ErrorResponse"}}}});
  table.push_back({verb::get,
                   "/v1/sandbox/:id/snapshots",
                   access::key,
                   body_use::ignored,
                   0,
                   [with](const matched_request& what) {
                     return answered_by(
                       list_of(with, what, [id = what.id()](auto& wanted) { wanted.origin = id; }));
                   },
                   {.id = "listSnapshotsOfSandbox",
                    .summary = "The snapshots of a sandbox, the newest first; also of one that was "
                               "deleted.",
                    .parameters = {limit_parameter, cursor_parameter},
                    .answers = {{"200", "A page of them.", "application/json", "SnapshotPage"},
                                {"400", "", "", "InvalidRequest"}}}});
  table.push_back(
    {verb::post,
     "/v1/sandbox/:id/fork",
     access::key,
     body_use::buffered,
     limits::snapshot_body_bytes,
     making(fork),
     {.id = "forkSandbox",
      .summary =
        "Make siblings of a sandbox while it runs: each begins with its disk as it is now. "
        "Processes are not copied.",
      .parameters = {key_parameter},
      .body_type = "application/json",
      .body_schema = "ForkRequest",
      .answers = {
        {"200", "All of them run.", "application/json", "Siblings"},
        {"400", "", "", "InvalidRequest"},
        {"404", "There is no such sandbox.", "application/json", "ErrorResponse"},
        {"409", "There is a sandbox with one of the ids.", "application/json", "ErrorResponse"},
        {"413", "The body is too large.", "application/json", "ErrorResponse"},
        {"502", "They could not be made; none is left.", "application/json", "ErrorResponse"},
        {"503", "No room for all of them; none is left.", "application/json", "ErrorResponse"}}}});
  table.push_back(
    {verb::post,
     "/v1/sandbox/:id/rollback",
     access::key,
     body_use::buffered,
     limits::snapshot_body_bytes,
     [with](const matched_request& what) {
       return answered_by([with, id = what.id()](const std::string& body, const reply& to) {
         roll_back_to(*with, id, body, to);
       });
     },
     {.id = "rollBackSandbox",
      .summary = "Give a sandbox the disk of one of its snapshots. What runs in it ends.",
      .body_type = "application/json",
      .body_schema = "RollbackRequest",
      .answers = {
        {"200", "It runs from there.", "application/json", "SandboxDescription"},
        {"400", "", "", "InvalidRequest"},
        {"404", "There is no such sandbox, or snapshot.", "application/json", "ErrorResponse"},
        {"413", "The body is too large.", "application/json", "ErrorResponse"},
        {"502", "It could not be done.", "application/json", "ErrorResponse"}}}});
}

} // namespace

void add_snapshot_routes(std::vector<route>& table, const shared_services& with) {
  add_routes_of_sandbox(table, with);
  table.push_back(
    {verb::get,
     "/v1/snapshot",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) { return answered_by(list_of(with, what, [](auto&) {})); },
     {.id = "listSnapshots",
      .summary = "All snapshots of the node, or of its cluster, the newest first.",
      .parameters = {limit_parameter, cursor_parameter},
      .answers = {{"200", "A page of them.", "application/json", "SnapshotPage"},
                  {"400", "", "", "InvalidRequest"}}}});
  table.back().main_key_alone = true;
  table.push_back(
    {verb::get,
     "/v1/snapshot/:sid",
     access::key,
     body_use::ignored,
     0,
     of_snapshot(
       with,
       [](const shared_services& by, const std::string& id, const std::string&, const reply& to) {
         ask_records<snapshot_description>(*by, find_snapshot{id}, to, written);
       }),
     {.id = "getSnapshot",
      .summary = "What a snapshot is of. One that was deleted is told of for 30 days.",
      .parameters = {snapshot_parameter},
      .answers = {{"200", "The snapshot.", "application/json", "Snapshot"},
                  {"404", "There is no such snapshot.", "application/json", "ErrorResponse"}}}});
  table.push_back(
    {verb::del,
     "/v1/snapshot/:sid",
     access::key,
     body_use::ignored,
     0,
     of_snapshot(
       with,
       [](const shared_services& by, const std::string& id, const std::string&, const reply& to) {
         ask_records<snapshot_description>(*by, delete_snapshot{id}, to,
                                           [](const snapshot_description&) {
                                             return response{204, {}};
                                           });
       }),
     {.id = "deleteSnapshot",
      .summary =
        "Delete a snapshot. Sandboxes that began with it go on; its bytes stay for as long "
        "as they do.",
      .parameters = {snapshot_parameter},
      .answers = {{"204", "Deleted."},
                  {"404", "There is no such snapshot.", "application/json", "ErrorResponse"}}}});
  table.push_back(
    {verb::get,
     "/v1/snapshot/:sid/tree",
     access::key,
     body_use::ignored,
     0,
     of_snapshot(with, list_tree),
     {.id = "listSnapshotTree",
      .summary = "All snapshots that come from the same first one, the oldest first, with those "
                 "that were deleted: each names its parent.",
      .parameters = {snapshot_parameter, limit_parameter, cursor_parameter},
      .answers = {{"200", "A page of them.", "application/json", "SnapshotPage"},
                  {"400", "", "", "InvalidRequest"},
                  {"404", "There is no such snapshot.", "application/json", "ErrorResponse"}}}});
}

} // namespace insula::http::bridge
