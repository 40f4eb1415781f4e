#include "http/vercel/snapshots.hpp"

#include "http/sandboxes/ask_directory.hpp"
#include "http/text/percent.hpp"
#include "http/vercel/access.hpp"
#include "http/vercel/api.hpp"
#include "http/vercel/ids.hpp"
#include "http/vercel/listing.hpp"
#include "http/vercel/objects_json.hpp"
#include "http/vercel/operations.hpp"
#include "http/vercel/session_call.hpp"
#include "http/vercel/settings.hpp"
#include "http/vercel/views.hpp"

#include <caf/event_based_actor.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

namespace insula::http::vercel {

namespace {

using namespace std::chrono_literals;

constexpr auto snapshot_patience = 280s;
constexpr std::size_t longest_branch = 10; ///< Of a page of a tree.
constexpr std::size_t most_siblings = 9;

response unknown_snapshot() {
  return failure(refusal{404, "not_found", "Snapshot not found."});
}

response failed(const error& why) {
  return why.code == errc::not_found ? unknown_snapshot() : failure(why);
}

// ---- One, by its id

/// A request about one.
struct snapshot_call {
  shared_services with;
  std::string id; ///< As the node knows it.
  access::reach reach;
};

using found_function = std::function<void(const snapshot_description&)>;

/// `found` is called for one within reach.
void find(const snapshot_call& call, const reply& to, found_function found) {
  to->answer_within(look_patience, late_answer());
  ask_directory<snapshot_description>(
    *call.with, find_snapshot{call.id, to->context()},
    [=](const snapshot_description& is) {
      if (is.group.empty() || call.reach.objection(is.group))
        return to->respond(unknown_snapshot());
      found(is);
    },
    [to](const error& why) { to->respond(failed(why)); });
}

void respond_with(const snapshot_description& is, const reply& to) {
  json::ascii_writer out;
  out.begin_object().key("snapshot");
  write_snapshot(out, is);
  out.end_object();
  to->respond({200, out.str()});
}

void get(const snapshot_call& call, const reply& to) {
  find(call, to, [to](const snapshot_description& is) { respond_with(is, to); });
}

/// One that was deleted is answered as it is: its client may not have had the first answer.
void remove(const snapshot_call& call, const reply& to) {
  find(call, to, [=](const snapshot_description& is) {
    if (is.state == snapshot_state::deleted)
      return respond_with(is, to);
    ask_directory<snapshot_description>(
      *call.with, delete_snapshot{call.id, to->context()},
      [to](const snapshot_description& now) { respond_with(now, to); },
      [=](const error& why) {
        if (why.code != errc::not_found)
          return to->respond(failed(why));
        auto gone = is; // By another request, just now.
        gone.state = snapshot_state::deleted;
        respond_with(gone, to);
      });
  });
}

using snapshot_handler = void (*)(const snapshot_call&, const reply&);

route snapshot_route(const shared_services& with, const std::string& prefix, verb method,
                     snapshot_handler handle, operation document) {
  route made{method,
             prefix + "/v2/sandboxes/snapshots/:snapshot",
             access::bearer,
             body_use::ignored,
             0,
             [with, handle](const matched_request& what) -> admission {
               auto id = snapshot_of(what["snapshot"]);
               if (id.empty())
                 return refused(unknown_snapshot());
               return answered_by(
                 [handle, call = snapshot_call{with, std::move(id), {*with, what}}](
                   const std::string&, const reply& to) { handle(call, to); });
             },
             std::move(document)};
  made.unknown = [](const request_path&) { return unknown_snapshot(); };
  return made;
}

// ---- Lists

void list(const shared_services& with, list_snapshots wanted, const std::string& project,
          const reply& to) {
  to->answer_within(look_patience, late_answer());
  ask_directory<snapshot_page>(
    *with, std::move(wanted),
    [to, project](const snapshot_page& page) {
      json::ascii_writer out;
      out.begin_object().key("snapshots").begin_array();
      std::size_t count = 0;
      for (const auto& each : page.snapshots)
        if (each.group == project) { // Else it was taken before the sandbox was in one.
          write_snapshot(out, each);
          ++count;
        }
      out.end_array().key("pagination");
      write_pagination(out, count,
                       page.next.empty() ? std::nullopt : std::optional{cursor_text(page.next)});
      out.end_object();
      to->respond({200, out.str()});
    },
    [to](const error& why) { to->respond(failed(why)); });
}

admission admit_list(const shared_services& with, const matched_request& what) {
  const auto& query = what.head().query;
  const auto project = form_value(query, "project"), name = form_value(query, "name");
  if (project.empty())
    return refused(failure(bad_request("project is required")));
  if (auto no = access::reach{*with, what}.objection(project))
    return refused(std::move(*no));
  page_words page;
  if (const auto wrong = read_page(query, page))
    return refused(failure(*wrong));
  list_snapshots wanted;
  wanted.limit = page.limit;
  wanted.turned = page.ascends;
  wanted.after = page.after;
  if (name.empty())
    wanted.group = project;
  else
    wanted.origin = sandbox_of(with->secret, project, name);
  return answered_by([=](const std::string&, const reply& to) { list(with, wanted, project, to); });
}

// ---- The tree

/// A page of one line of a tree, which is followed step by step: from child to parent, or from
/// parent to newest child.
class branch : public std::enable_shared_from_this<branch> {
public:
  branch(snapshot_call call, bool descends, std::size_t limit, reply to)
      : call_(std::move(call))
      , descends_(descends)
      , limit_(limit)
      , to_(std::move(to)) {}

  void begin() {
    find(call_, to_, [self = shared_from_this()](const snapshot_description& is) {
      self->project_ = is.group;
      self->add(is);
    });
  }

private:
  struct node {
    snapshot_description is;
    std::vector<snapshot_description> siblings = {}; ///< The newest first.
    std::string count = "1";
  };

  /// With the others that have its parent.
  void add(const snapshot_description& is) {
    nodes_.push_back({is});
    if (is.parent.empty())
      return go_on();
    list_snapshots wanted;
    wanted.parent = is.parent;
    wanted.limit = most_siblings + 2; // One more than is told of.
    ask<snapshot_page>(std::move(wanted), [this](const snapshot_page& family) {
      auto& last = nodes_.back();
      for (const auto& each : family.snapshots)
        if (each.id != last.is.id && each.group == project_ && last.siblings.size() < most_siblings)
          last.siblings.push_back(each);
      const auto size = family.snapshots.size();
      last.count =
        size > most_siblings + 1 ? "10+" : std::to_string(std::max<std::size_t>(size, 1));
      go_on();
    });
  }

  void go_on() {
    const auto& last = nodes_.back().is;
    if (!descends_ && last.parent.empty())
      return tell(false);
    if (!descends_)
      return ask<snapshot_description>(
        find_snapshot{last.parent}, [this](const snapshot_description& is) { add_or_end(is); },
        [this] { tell(false); });
    list_snapshots wanted;
    wanted.parent = last.id;
    ask<snapshot_page>(std::move(wanted), [this](const snapshot_page& children) {
      children.snapshots.empty() ? tell(false) : add_or_end(children.snapshots.front());
    });
  }

  /// There is another one: on this page, or on the next.
  void add_or_end(const snapshot_description& is) {
    if (is.group != project_) // It was made before it was in a project, by another API.
      return tell(false);
    nodes_.size() > limit_ ? tell(true) : add(is);
  }

  static void write(json::ascii_writer& out, const node& of) {
    out.begin_object().key("snapshot");
    write_snapshot(out, of.is);
    out.key("siblings").begin_array();
    for (const auto& each : of.siblings)
      write_snapshot(out, each);
    out.end_array().member("count", of.count).end_object();
  }

  void tell(bool more) {
    json::ascii_writer out;
    out.begin_object().key("snapshots").begin_array();
    for (std::size_t i = 1; i < nodes_.size(); ++i)
      write(out, nodes_[i]);
    out.end_array().key("anchor");
    write(out, nodes_.front());
    out.key("pagination");
    write_pagination(out, nodes_.size() - 1,
                     more ? std::optional{id_of_snapshot(nodes_.back().is.id)} : std::nullopt);
    out.end_object();
    to_->respond({200, out.str()});
  }

  /// `absent`: there is none. Null: that is a failure as any other.
  template <class Answer, class Message>
  void ask(Message message, std::function<void(const Answer&)> then,
           std::function<void()> absent = nullptr) {
    ask_directory<Answer>(
      *call_.with, std::move(message),
      [self = shared_from_this(), then](const Answer& told) { then(told); },
      [self = shared_from_this(), absent](const error& why) {
        why.code == errc::not_found&& absent ? absent() : self->to_->respond(failed(why));
      });
  }

  const snapshot_call call_;
  const bool descends_;
  const std::size_t limit_;
  const reply to_;
  std::string project_;
  std::vector<node> nodes_; ///< The first one is the anchor.
};

admission admit_tree(const shared_services& with, const matched_request& what) {
  const auto bad = [](std::string why) { return refused(failure(bad_request(std::move(why)))); };
  const auto& query = what.head().query;
  const auto project = form_value(query, "project");
  const auto order = form_value(query, "sortOrder"), limit = form_value(query, "limit");
  const auto id = snapshot_of(form_value(query, "snapshotId"));
  if (!project.empty())
    if (auto no = access::reach{*with, what}.objection(project))
      return refused(std::move(*no));
  if (!order.empty() && order != "asc" && order != "desc")
    return bad("sortOrder must be asc or desc");
  std::size_t count = longest_branch;
  if (!limit.empty()) {
    if (limit.size() > 2 || limit.find_first_not_of("0123456789") != std::string::npos)
      return bad("limit must be from 1 to 10");
    count = std::stoul(limit);
  }
  if (count < 1 || count > longest_branch)
    return bad("limit must be from 1 to 10");
  if (id.empty())
    return refused(unknown_snapshot());
  return answered_by([call = snapshot_call{with, id, {*with, what}}, count,
                      descends = order == "asc"](const std::string&, const reply& to) {
    std::make_shared<branch>(call, descends, count, to)->begin();
  });
}

// ---- Of a session

/// 201: it can be used.
void answer_taken(const snapshot_description& is, const sandbox_view& session, const reply& to) {
  json::ascii_writer out;
  out.begin_object().key("snapshot");
  write_snapshot(out, is);
  out.key("session");
  write_session(out, session);
  out.end_object();
  to->respond({201, out.str()});
}

/// Without stopping it.
void take_live(const session_call& call, const snapshot_request& wanted, const reply& to) {
  find_runs look;
  look.number = call.session.run;
  ask_session<run_list>(call, look, to, [=](const run_list& all) {
    const auto session =
      all.runs.empty() ? std::nullopt : view_of(call.sandbox(), all.sandbox, all.runs.front());
    if (!session)
      return to->respond(unknown_session());
    take_snapshot message;
    message.becomes_base = true;
    message.keep_ms = wanted.keep_ms.value_or(retention_of(session->is).keep_ms);
    message.context = to->context();
    message.context.run = call.session.run;
    sandbox_question<take_snapshot, snapshot_description> asked{
      call.with->directory, call.sandbox(), std::move(message),
      [=](const snapshot_description& is) { answer_taken(is, *session, to); },
      [to](question_stage, const error& why) {
        to->respond(why.code == errc::not_found ? unknown_session() : failure(why));
      }};
    asked.starts_it = false;
    to->answer_within(snapshot_patience, late_answer());
    ask_sandbox(*call.with, std::move(asked));
  });
}

void take(const session_call& call, const std::string& body, const reply& to) {
  snapshot_request wanted;
  if (const auto wrong = read_snapshot_request(body, wanted))
    return to->respond(failure(*wrong));
  if (wanted.keeps_running)
    return take_live(call, wanted, to);
  stop_run message{call.session.run};
  message.snapshots = true;
  message.keep_ms = wanted.keep_ms;
  question{*call.with, call.sandbox(), std::move(message), to}
    .within(snapshot_patience, late_answer())
    .starts(false)
    .or_else([](question_stage, const error& why) {
      return why.code == errc::not_found ? unknown_session() : failure(why);
    })
    .then<run_report>([=](const run_report& report) {
      const auto session = view_of(call.sandbox(), report.sandbox, report.run);
      if (!session)
        return to->respond(unknown_session());
      if (report.run.snapshot.empty())
        return to->respond(failure(bad_request(
          "The snapshot could not be taken; the session has ended without one. The sandbox has the "
          "snapshot that it had before.")));
      ask_directory<snapshot_description>(
        *call.with, find_snapshot{report.run.snapshot, to->context()},
        [=](const snapshot_description& is) { answer_taken(is, *session, to); },
        [to](const error& why) { to->respond(failed(why)); });
    });
}

} // namespace

namespace {

/// All snapshots of a sandbox, a page at a time.
struct deletion {
  directory_actor directory;
  list_snapshots page;
  request_context context;
  std::function<void(const result<void>&)> then;
  std::size_t left = 0; ///< Of the page.
  std::optional<error> why = {};
};

void delete_page(caf::event_based_actor* self, const std::shared_ptr<deletion>& st);

void one_less(caf::event_based_actor* self, const std::shared_ptr<deletion>& st) {
  if (--st->left > 0)
    return;
  if (!st->why && !st->page.after.empty())
    return delete_page(self, st);
  st->then(st->why ? result<void>{*st->why} : result<void>{});
  self->quit();
}

void delete_page(caf::event_based_actor* self, const std::shared_ptr<deletion>& st) {
  self->request(st->directory, caf::infinite, st->page)
    .then(
      [=](const snapshot_page& page) {
        st->page.after = page.next;
        st->left = page.snapshots.size() + 1;
        for (const auto& each : page.snapshots)
          self->request(st->directory, caf::infinite, delete_snapshot{each.id, st->context, true})
            .then([=](const snapshot_description&) { one_less(self, st); },
                  [=](const caf::error& failed) {
                    const auto why = from_caf(failed);
                    // A sandbox stands on it, or it went meanwhile.
                    if (why.code != errc::limit_reached && why.code != errc::not_found)
                      st->why = why;
                    one_less(self, st);
                  });
        one_less(self, st);
      },
      [=](const caf::error& why) {
        st->then(from_caf(why));
        self->quit();
      });
}

} // namespace

void delete_snapshots_of(const shared_services& with, const std::string& sandbox,
                         const request_context& context,
                         std::function<void(const result<void>&)> then) {
  list_snapshots first;
  first.origin = sandbox;
  first.limit = limits::list_page_sandboxes;
  with->system->spawn([](caf::event_based_actor* self,
                         const std::shared_ptr<deletion>& st) { delete_page(self, st); },
                      std::make_shared<deletion>(
                        deletion{with->directory, std::move(first), context, std::move(then)}));
}

void add_snapshot_routes(std::vector<route>& table, const shared_services& with,
                         const std::string& prefix) {
  table.push_back(
    {verb::get, prefix + "/v2/sandboxes/snapshots", access::bearer, body_use::ignored, 0,
     [with](const matched_request& what) { return admit_list(with, what); },
     listed("listVercelSnapshots", "The snapshots of a project, or of one of its sandboxes.",
            "VercelSnapshotPage", {},
            {{"project", "query", "The project.", true},
             {"name", "query", "A sandbox's name; it may have been deleted. Without: all."},
             {"limit", "query", "1 to 50; else 20."},
             {"cursor", "query", "The `next` of the page before."},
             {"sortOrder", "query", "asc or desc, by the time of creation."}})});
  table.push_back(
    {verb::get, prefix + "/v2/sandboxes/snapshots/tree", access::bearer, body_use::ignored, 0,
     [with](const matched_request& what) { return admit_tree(with, what); },
     listed(
       "getVercelSnapshotTree",
       "The snapshots that one comes from, the nearest first, or those that come from it, along "
       "the newest.",
       "VercelSnapshotTree", {},
       {{"snapshotId", "query", "The snapshot.", true},
        {"project", "query", "The project."},
        {"sortOrder", "query", "desc: what it comes from; asc: what comes from it."},
        {"limit", "query", "1 to 10; else 10."}})});
  table.push_back(snapshot_route(with, prefix, verb::get, get,
                                 listed("getVercelSnapshot",
                                        "A snapshot. One that was deleted is told of for 30 days.",
                                        "VercelSnapshotAnswer")));
  table.push_back(snapshot_route(
    with, prefix, verb::del, remove,
    listed(
      "deleteVercelSnapshot",
      "Deletes it. Its room is free once no session needs it, and no session begins with it any "
      "more.",
      "VercelSnapshotAnswer")));
  auto taken =
    listed_of_run("takeVercelSnapshot",
                  "Keeps the files of the session, which is stopped for that, and with which the "
                  "sandbox's next session begins.",
                  "VercelSnapshotTaken", "VercelSnapshotRequest");
  taken.answers.front().status = "201";
  taken.answers.push_back({"422", "The session is stopping.", "application/json", "VercelError"});
  table.push_back(session_route(with, prefix, verb::post, "/snapshot", only_own<take>,
                                of_own_sandbox(std::move(taken))));
}

} // namespace insula::http::vercel
