#include "base/clock.hpp"
#include "http/sandboxes/ask_directory.hpp"
#include "http/text/percent.hpp"
#include "http/vercel/access.hpp"
#include "http/vercel/listing.hpp"
#include "http/vercel/members.hpp"
#include "http/vercel/operations.hpp"
#include "http/vercel/session_call.hpp"
#include "http/vercel/views.hpp"

#include <chrono>
#include <utility>
#include <vector>

namespace insula::http::vercel {

namespace {

using namespace std::chrono_literals;

/// What is dirty is written first, which takes as long as the disk does.
constexpr auto stop_patience = 280s;
constexpr std::int64_t least_extension_ms = 1000;

response session_answer(const sandbox_view& view) {
  json::ascii_writer out;
  out.begin_object().key("session");
  write_session(out, view);
  out.end_object();
  return {200, out.str()};
}

void get(const session_call& call, const std::string&, const reply& to) {
  find_runs question;
  question.number = call.session.run;
  ask_session<run_list>(call, question, to, [=](const run_list& all) {
    const auto view = call.is_other()    ? view_of_other(call.sandbox(), {}, all.sandbox)
                      : all.runs.empty() ? std::nullopt
                                         : view_of(call.sandbox(), all.sandbox, all.runs.front());
    if (!view)
      return to->respond(unknown_session());
    json::ascii_writer out;
    out.begin_object().key("session");
    write_session(out, *view);
    out.key("routes");
    write_routes(out, routes_of(*call.with, *view, call.host));
    out.end_object();
    to->respond({200, out.str()});
  });
}

/// With the snapshot that the session has left, if there is one.
void answer_stopped(const session_call& call, const run_report& report, const reply& to) {
  const auto session = view_of(call.sandbox(), report.sandbox, report.run);
  const auto sandbox = view_of(call.sandbox(), report.sandbox);
  if (!session || !sandbox)
    return to->respond(unknown_session());
  const auto answer = [=](const snapshot_description* left) {
    json::ascii_writer out;
    out.begin_object().key("session");
    write_session(out, *session);
    out.key("sandbox");
    write_sandbox(out, *sandbox);
    if (left != nullptr) {
      out.key("snapshot");
      write_snapshot(out, *left);
    }
    out.end_object();
    to->respond({200, out.str()});
  };
  if (report.run.snapshot.empty())
    return answer(nullptr);
  ask_directory<snapshot_description>(
    *call.with, find_snapshot{report.run.snapshot, to->context()},
    [answer](const snapshot_description& is) { answer(&is); },
    [answer](const error&) { answer(nullptr); });
}

void stop(const session_call& call, const std::string&, const reply& to) {
  question{*call.with, call.sandbox(), stop_run{call.session.run}, to}
    .within(stop_patience, late_answer())
    .starts(false)
    .or_else([](question_stage, const error& why) {
      return why.code == errc::not_found ? unknown_session() : failure(why);
    })
    .then<run_report>([=](const run_report& report) { answer_stopped(call, report, to); });
}

void extend(const session_call& call, const std::string& body, const reply& to) {
  json::document document;
  if (const auto wrong = read_object(body, document))
    return to->respond(failure(*wrong));
  const auto* duration = given(document, "duration");
  const auto by_ms = duration != nullptr ? whole_number(*duration).value_or(0) : 0;
  if (by_ms < least_extension_ms)
    return to->respond(failure(bad_request("duration must be at least 1000 milliseconds")));
  const extend_run wanted{call.session.run, by_ms, most_timeout_ms};
  ask_session<run_report>(
    call, wanted, to,
    [=](const run_report& report) {
      const auto view = view_of(call.sandbox(), report.sandbox, report.run);
      to->respond(view ? session_answer(*view) : unknown_session());
    },
    [](const error& why) {
      return why.code == errc::invalid_request
               ? failure(refusal{400, "sandbox_timeout_invalid", why.message})
               : failure(why);
    });
}

/// First it is durable as the sandbox's, then it holds.
void keep_network(const session_call& call, const network_wish& wish, const reply& to) {
  ask_if_usable(call, to, [=](const run_list& all) {
    auto changed = *settings_of(all.sandbox);
    changed.network = wish;
    changed.updated_ms = system_clock{}.unix_ms();
    redefine_sandbox message;
    message.metadata =
      metadata_change{metadata_api, text_of(changed), all.sandbox.metadata.at(metadata_api)};
    ask_session<sandbox_description>(
      call, std::move(message), to, [=](const sandbox_description& now) {
        set_network_request wanted{policy_of(wish)};
        wanted.requests = wish.sealed;
        ask_session<network_state>(call, std::move(wanted), to, [=](const network_state&) {
          const auto view = view_of(call.sandbox(), now);
          to->respond(view ? session_answer(*view) : unknown_session());
        });
      });
  });
}

void set_network(const session_call& call, const std::string& body, const reply& to) {
  json::document document;
  network_wish wish;
  if (const auto wrong = read_object(body, document))
    return to->respond(failure(*wrong));
  if (const auto wrong = read_policy(document, wish))
    return to->respond(failure(*wrong));
  when_sealed(*call.with, std::move(wish), to,
              [=](const network_wish& sealed) { keep_network(call, sealed, to); });
}

// ---- Lists

response unknown_name() {
  return failure(refusal{404, "not_found", "The sandbox was not found."});
}

struct session_list {
  std::string sandbox, project;
  bool other = false; ///< The sandbox is another API's.
  std::uint32_t limit = default_page;
  std::uint64_t before = 0; ///< A number of a session. 0: from the first one on.
  bool ascends = false;
};

/// In the order of the list.
std::vector<sandbox_view> sessions_of(const session_list& wanted, const run_list& all) {
  std::vector<sandbox_view> views;
  if (wanted.other) {
    if (auto view = view_of_other(wanted.sandbox, wanted.project, all.sandbox))
      views.push_back(std::move(*view));
    return views;
  }
  for (const auto& each : all.runs)
    if (auto view = view_of(wanted.sandbox, all.sandbox, each))
      views.push_back(std::move(*view));
  if (wanted.ascends)
    std::reverse(views.begin(), views.end());
  return views;
}

void list(const shared_services& with, const session_list& wanted, const reply& to) {
  find_runs look;
  look.limit = limits::kept_runs;
  question{*with, wanted.sandbox, look, to}
    .within(look_patience, late_answer())
    .starts(false)
    .or_else([](question_stage, const error& why) {
      return why.code == errc::not_found ? unknown_name() : failure(why);
    })
    .then<run_list>([=](const run_list& all) {
      auto views = sessions_of(wanted, all);
      if (wanted.other && views.empty())
        return to->respond(unknown_name());
      std::erase_if(views, [&](const sandbox_view& each) {
        const auto number = each.run.number;
        return wanted.before != 0 &&
               (wanted.ascends ? number <= wanted.before : number >= wanted.before);
      });
      const auto count = std::min<std::size_t>(wanted.limit, views.size());
      json::ascii_writer out;
      out.begin_object().key("sessions").begin_array();
      for (std::size_t i = 0; i < count; ++i)
        write_session(out, views[i]);
      out.end_array().key("pagination");
      write_pagination(out, count,
                       count < views.size()
                         ? std::optional{cursor_text(std::to_string(views[count - 1].run.number))}
                         : std::nullopt);
      out.end_object();
      to->respond({200, out.str()});
    });
}

admission admit_list(const shared_services& with, const matched_request& what) {
  const auto bad = [](std::string why) { return refused(failure(bad_request(std::move(why)))); };
  const auto& query = what.head().query;
  const auto project = form_value(query, "project"), name = form_value(query, "name");
  if (project.empty() || name.empty())
    return bad("project and name are required");
  const access::reach reach{*with, what};
  if (auto no = reach.objection(project))
    return refused(std::move(*no));
  page_words page;
  if (const auto wrong = read_page(query, page))
    return refused(failure(*wrong));
  if (page.after.size() > 19 || page.after.find_first_not_of("0123456789") != std::string::npos)
    return bad("the cursor is not valid");
  session_list wanted{id_of_name(with->secret, project, name),
                      project,
                      !other_sandbox_of(name).empty(),
                      page.limit,
                      0,
                      page.ascends};
  if (wanted.other && !reach.has_other_apis())
    return refused(unknown_name());
  if (!page.after.empty())
    wanted.before = std::stoull(page.after);
  return answered_by([=](const std::string&, const reply& to) { list(with, wanted, to); });
}

} // namespace

void add_session_routes(std::vector<route>& table, const shared_services& with,
                        const std::string& prefix) {
  table.push_back(
    {verb::get, prefix + "/v2/sandboxes/sessions", access::bearer, body_use::ignored, 0,
     [with](const matched_request& what) { return admit_list(with, what); },
     listed("listVercelSessions", "The sessions of a sandbox.", "VercelSessionPage", {},
            {{"project", "query", "The project of the sandbox.", true},
             {"name", "query", "The sandbox's name.", true},
             {"limit", "query", "1 to 50; else 20."},
             {"cursor", "query", "The `next` of the page before."},
             {"sortOrder", "query", "asc or desc, by the time of creation."}})});
  table.back().about = [with](const matched_request& what) {
    const auto& query = what.head().query;
    return id_of_name(with->secret, form_value(query, "project"), form_value(query, "name"));
  };
  table.back().unknown = [](const request_path&) { return unknown_name(); };
  table.push_back(
    session_route(with, prefix, verb::get, "", get,
                  listed("getVercelSession", "A session.", "VercelSessionWithRoutes")));
  table.push_back(session_route(
    with, prefix, verb::post, "/stop", only_own<stop>,
    of_own_sandbox(listed("stopVercelSession",
                          "Stops it, and waits until nothing of it runs. The files of a persistent "
                          "sandbox are kept in a snapshot, with which its next session begins.",
                          "VercelStopped", "VercelNothing"))));
  table.push_back(session_route(
    with, prefix, verb::post, "/extend-timeout", only_own<extend>,
    of_own_sandbox(listed_of_run("extendVercelSession", "Gives the session more time.",
                                 "VercelSessionAnswer", "VercelExtension"))));
  table.push_back(
    session_route(with, prefix, verb::post, "/network-policy", only_own<set_network>,
                  of_own_sandbox(listed_of_run("setVercelNetworkPolicy",
                                               "What the sandbox may reach from now on.",
                                               "VercelSessionAnswer", "VercelNetworkPolicy"))));
}

} // namespace insula::http::vercel
