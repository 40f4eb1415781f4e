#include "base/base64.hpp"
#include "base/id.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/snapshot_json.hpp"
#include "http/sandboxes/ask_directory.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/keyed_id.hpp"
#include "http/text/percent.hpp"

#include <chrono>
#include <optional>
#include <utility>

/// What differs between snapshots of whole disks: an API of the node's own.
namespace insula::http::bridge {

namespace {

constexpr auto disk_patience = sandbox_patience + std::chrono::minutes{2};
constexpr std::uint32_t usual_page = 1'000;

constexpr parameter from_parameter{"from", "query",
                                   "The id of an older snapshot over the same image. Left out: "
                                   "the parent, or the image where there is none."};
constexpr parameter limit_parameter{"limit", "query",
                                    "1 to 10000 changes on a page; 1000 if it is left out."};
constexpr parameter cursor_parameter{"cursor", "query", "That of the page before."};
const parameter snapshot_parameter{"sid", "path", "The snapshot's id.", true};

void answer_with(const reply& to, const error& why) {
  to->respond(error_response(step::snapshot, why));
}

/// Errors: invalid_request.
result<compare_snapshots> read_query(const std::string& query) {
  compare_snapshots wanted;
  wanted.older = form_value(query, "from");
  if (!wanted.older.empty() && !sandbox_id::parse(wanted.older))
    return error{errc::invalid_request, "from must be the id of a snapshot"};
  const auto limit = read_limit(query, usual_page, max_changes_at_once);
  if (!limit)
    return limit.reason();
  wanted.limit = *limit;
  return wanted;
}

const error not_ours{errc::invalid_request, "cursor must be that of the page before"};

/// Where the next page begins: WORDS, then the last path. None: it is none.
struct place {
  std::string words, path;
};
std::optional<place> place_in(const std::string& cursor) {
  const auto text = from_base64url(cursor);
  const auto slash = text ? text->find('/') : std::string::npos;
  if (slash == std::string::npos || text->find('\0') != std::string::npos)
    return std::nullopt;
  return place{text->substr(0, slash), text->substr(slash)};
}

void compare(const services& with, compare_snapshots wanted, const reply& to,
             std::function<void(const snapshot_changes&)> told) {
  wanted.context = to->context();
  ask_directory<snapshot_changes>(with, std::move(wanted), std::move(told),
                                  [to](const error& why) { answer_with(to, why); });
}

std::string cursor_of(const snapshot_changes& page, const std::string& words) {
  return page.found.more && !page.found.changes.empty()
           ? base64url(words + page.found.changes.back().path)
           : std::string{};
}

// ---- Of a snapshot

void answer_of_snapshot(const services& with, const std::string& id, const std::string& query,
                        const reply& to) {
  auto wanted = read_query(query);
  if (!wanted)
    return answer_with(to, wanted.reason());
  if (const auto cursor = form_value(query, "cursor"); !cursor.empty()) {
    const auto at = place_in(cursor);
    if (!at || !at->words.empty())
      return answer_with(to, not_ours);
    wanted->after = at->path;
  }
  wanted->id = id;
  to->answer_within(disk_patience, overdue(step::snapshot, "the disks were not compared in time"));
  compare(with, std::move(*wanted), to, [to](const snapshot_changes& page) {
    to->respond({200, write_changes(page, cursor_of(page, {}))});
  });
}

// ---- Of a disk in use: a snapshot that nobody sees stands still for it. It stays for as long as
// there are other pages, and expires.

/// The cursor of a page of such a snapshot proves that this server has made it, for that sandbox.
std::string proof_of(const services& with, const std::string& sandbox, const std::string& copy) {
  return keyed_id(with.secret, "diff\n" + sandbox + '\n' + copy);
}

/// Nobody waits for it.
void drop(const services& with, const std::string& id) {
  ask_directory<snapshot_description>(
    with, delete_snapshot{id}, [](const snapshot_description&) {}, [](const error&) {});
}

/// `is_first`: no cursor of the copy has been given out.
void compare_copy(const shared_services& with, const std::string& sandbox, compare_snapshots wanted,
                  bool is_first, const reply& to) {
  const auto copy = wanted.id;
  wanted.context = to->context();
  ask_directory<snapshot_changes>(
    *with, std::move(wanted),
    [=](const snapshot_changes& page) {
      const auto cursor = cursor_of(page, copy + '.' + proof_of(*with, sandbox, copy));
      if (cursor.empty())
        drop(*with, copy);
      to->respond({200, write_changes(page, cursor)});
    },
    [=](const error& why) {
      if (is_first)
        drop(*with, copy);
      answer_with(to, why);
    });
}

void answer_of_sandbox(const shared_services& with, const std::string& id, const std::string& query,
                       const reply& to) {
  auto wanted = read_query(query);
  if (!wanted)
    return answer_with(to, wanted.reason());
  if (const auto cursor = form_value(query, "cursor"); !cursor.empty()) {
    const auto at = place_in(cursor);
    const auto dot = at ? at->words.find('.') : std::string::npos;
    if (dot == std::string::npos)
      return answer_with(to, not_ours);
    wanted->id = at->words.substr(0, dot);
    wanted->after = at->path;
    if (at->words.substr(dot + 1) != proof_of(*with, id, wanted->id))
      return answer_with(to, not_ours);
    to->answer_within(disk_patience,
                      overdue(step::snapshot, "the disks were not compared in time"));
    return compare_copy(with, id, std::move(*wanted), false, to);
  }
  take_snapshot copy;
  copy.hidden = true;
  copy.keep_ms = limits::fork_snapshot_kept.count();
  question{*with, id, std::move(copy), to}
    .within(disk_patience, overdue(step::snapshot))
    .starts(false)
    .or_else(failing(step::snapshot))
    .then<snapshot_description>(
      [with, id, to, page = std::move(*wanted)](const snapshot_description& is) {
        auto next = page;
        next.id = is.id;
        compare_copy(with, id, std::move(next), true, to);
      });
}

std::vector<documented_answer> answers(const char* none) {
  return {{"200", "A page of them.", "application/json", "SnapshotChanges"},
          {"400", "", "", "InvalidRequest"},
          {"403", "The node is in a cluster.", "application/json", "ErrorResponse"},
          {"404", none, "application/json", "ErrorResponse"},
          {"409", "The sandbox's run is over.", "application/json", "ErrorResponse"},
          {"429", "As many disks are compared as may be.", "application/json", "ErrorResponse"},
          {"502", "They could not be compared.", "application/json", "ErrorResponse"},
          {"503", "No room for another sandbox.", "application/json", "ErrorResponse"},
          {"507", "The disk is full.", "application/json", "ErrorResponse"}};
}

} // namespace

void add_diff_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back(
    {verb::get,
     "/v1/snapshot/:sid/diff",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       const auto id = what["sid"];
       if (!sandbox_id::parse(id))
         return refused(
           error_response(step::snapshot, {errc::not_found, "Snapshot " + id + " not found."}));
       return answered_by([with, id, query = what.query](const std::string&, const reply& to) {
         answer_of_snapshot(*with, id, query, to);
       });
     },
     {.id = "compareSnapshot",
      .summary = "Which paths were added, changed or deleted since an older snapshot "
                 "of the same image, in their order.",
      .parameters = {snapshot_parameter, from_parameter, limit_parameter, cursor_parameter},
      .answers = answers("There is no such snapshot, or its bytes are gone.")}});
  table.push_back(
    {verb::get,
     "/v1/sandbox/:id/diff",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       return answered_by(
         [with, id = what.id(), query = what.query](const std::string&, const reply& to) {
           answer_of_sandbox(with, id, query, to);
         });
     },
     {.id = "compareSandbox",
      .summary = "The same for the disk of a sandbox as it is now, and the last of its snapshots. "
                 "Starts it if need be.",
      .parameters = {from_parameter, limit_parameter, cursor_parameter},
      .answers = answers("There is no such sandbox, or snapshot.")}});
}

} // namespace insula::http::bridge
