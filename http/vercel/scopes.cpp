#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/text/percent.hpp"
#include "http/vercel/access.hpp"
#include "http/vercel/api.hpp"
#include "http/vercel/failures.hpp"
#include "http/vercel/members.hpp"
#include "http/vercel/operations.hpp"
#include "http/vercel/settings.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// What the command line asks for without a team and a project. A team is any word
/// that the client may name, and so is a project: both are their own ids, and nothing is kept of
/// them.
namespace insula::http::vercel {

namespace {

constexpr std::uint64_t project_body_bytes = 64u << 10;
constexpr std::size_t teams_on_page = 20, most_teams_on_page = 100;
constexpr std::string_view usual_user = "insula";

/// As `teamId`, or as `slug`.
std::string team_in(std::string_view query) {
  auto team = form_value(query, "teamId");
  return team.empty() ? form_value(query, "slug") : team;
}

access::reach reach_of(const services& with, const matched_request& what) {
  return {with, what, team_in(what.head().query)};
}

std::vector<std::string> teams_of(const access::reach& reach) {
  auto all = reach.teams();
  std::erase_if(all, [&](const auto& each) { return !reach.may_name_team(each); });
  if (all.empty() && reach.may_name_team(usual_team))
    all.emplace_back(usual_team);
  return all;
}

response told(const json::ascii_writer& what) {
  return {200, what.str()};
}

// ---- The user

response user(const access::reach& reach, const shared_named_key& key) {
  const auto name = key ? key->name : std::string{usual_user};
  const auto teams = teams_of(reach);
  json::ascii_writer out;
  out.begin_object().key("user").begin_object();
  out.member("id", "user_" + name).member("username", name).key("defaultTeamId");
  teams.empty() ? out.null() : out.text(teams.front());
  out.end_object().end_object();
  return told(out);
}

// ---- Teams

/// Clients look for one that is their user's own, in a plan that has sandboxes.
void write_team(json::ascii_writer& out, const std::string& team) {
  out.begin_object();
  out.member("id", team).member("slug", team).member("name", team);
  out.key("membership").begin_object().member("role", "OWNER").end_object();
  out.key("billing").begin_object().member("plan", "hobby").end_object();
  out.end_object();
}

response team(const access::reach& reach, const std::string& wanted) {
  if (!reach.may_name_team(wanted))
    return failure(refusal{404, "not_found", "The team was not found."});
  json::ascii_writer out;
  write_team(out, wanted);
  return told(out);
}

/// `usual` if the query does not have it. None: it is no number from `least` to `most`.
std::optional<std::size_t> number_in(std::string_view query, std::string_view name,
                                     std::size_t least, std::size_t usual, std::size_t most) {
  const auto text = form_value(query, name);
  if (text.empty())
    return usual;
  std::size_t number = 0;
  const auto end = text.data() + text.size();
  const auto [stop, why] = std::from_chars(text.data(), end, number);
  return why == std::errc{} && stop == end && number >= least && number <= most
           ? std::optional{number}
           : std::nullopt;
}

response list_teams(const access::reach& reach, std::string_view query) {
  const auto all = teams_of(reach);
  const auto limit = number_in(query, "limit", 1, teams_on_page, most_teams_on_page);
  const auto first = number_in(query, "until", 0, 0, all.size());
  if (!limit)
    return failure(bad_request("limit must be from 1 to " + std::to_string(most_teams_on_page)));
  if (!first)
    return failure(bad_request("until is not the `next` of a page"));
  const auto last = std::min(all.size(), *first + *limit);
  json::ascii_writer out;
  out.begin_object().key("teams").begin_array();
  for (auto at = *first; at < last; ++at)
    write_team(out, all[at]);
  out.end_array().key("pagination").begin_object().member("count", last - *first).key("next");
  last < all.size() ? out.integer(last) : out.null();
  out.end_object().end_object();
  return told(out);
}

// ---- Projects

/// A client that may reach one project only is told which, in the words of the command line, which
/// asks for a name of its own if it has none.
response unknown_project(const access::reach& reach, const std::string& wanted) {
  auto text = "The project '" + wanted.substr(0, 64) + "' was not found.";
  const auto teams = teams_of(reach), projects = reach.projects();
  if (!teams.empty() && !projects.empty())
    text += " One that there is: --scope " + teams.front() + " --project " + projects.front();
  return failure(refusal{404, "not_found", std::move(text)});
}

/// A project exists once a request names it.
response project(const access::reach& reach, const std::string& team, const std::string& wanted) {
  if (reach.objection(wanted))
    return unknown_project(reach, wanted);
  const auto teams = teams_of(reach);
  json::ascii_writer out;
  out.begin_object().member("id", wanted).member("name", wanted);
  out.member("accountId", !team.empty() || teams.empty() ? team : teams.front());
  out.end_object();
  return told(out);
}

response add_project(const access::reach& reach, const std::string& team, const std::string& body) {
  json::document document;
  std::string name;
  if (const auto wrong = read_object(body, document))
    return failure(*wrong);
  if (const auto wrong = read_text(document, "name", name))
    return failure(*wrong);
  return name.empty() ? failure(bad_request("name is required")) : project(reach, team, name);
}

/// A GET that is answered at once.
template <class Answer>
route got(const std::string& path, const shared_services& with, Answer answer, operation document) {
  return {verb::get,
          path,
          access::bearer,
          body_use::ignored,
          0,
          [with, answer](const matched_request& what) {
            return answered_by([is = answer(reach_of(*with, what), what)](
                                 const std::string&, const reply& to) { to->respond(is); });
          },
          std::move(document)};
}

const std::vector<parameter>& team_parameters() {
  static const std::vector<parameter> all{{"teamId", "query", "The team."},
                                          {"slug", "query", "The same."}};
  return all;
}

} // namespace

void add_scope_routes(std::vector<route>& table, const shared_services& with,
                      const std::string& prefix) {
  table.push_back(got(
    prefix + "/v2/user", with,
    [](const access::reach& reach, const matched_request& what) { return user(reach, what.key()); },
    listed("getVercelUser", "The token's user, and the team to begin with.", "VercelUser")));
  table.push_back(got(
    prefix + "/v2/teams", with,
    [](const access::reach& reach, const matched_request& what) {
      return list_teams(reach, what.head().query);
    },
    listed("listVercelTeams", "The teams that the token or its key names; else the usual one.",
           "VercelTeamPage", {},
           {{"limit", "query", "1 to 100; else 20."},
            {"until", "query", "The `next` of the page before."}})));
  table.push_back(got(
    prefix + "/v2/teams/:team", with,
    [](const access::reach& reach, const matched_request& what) {
      return team(reach, percent_decode(what["team"]));
    },
    listed("getVercelTeam", "A team. Where no key names teams, there is any.", "VercelTeam")));
  table.push_back(got(
    prefix + "/v2/projects/:project", with,
    [](const access::reach& reach, const matched_request& what) {
      return project(reach, team_in(what.head().query), percent_decode(what["project"]));
    },
    listed("getVercelProject", "A project. Where none are listed, there is each that is named.",
           "VercelProject", {}, team_parameters())));
  route add{verb::post,
            prefix + "/v11/projects",
            access::bearer,
            body_use::buffered,
            project_body_bytes,
            [with](const matched_request& what) {
              return answered_by([reach = reach_of(*with, what), team = team_in(what.head().query)](
                                   const std::string& body, const reply& to) {
                to->respond(add_project(reach, team, body));
              });
            },
            listed("addVercelProject",
                   "A project, as GET has it: there is nothing to make. 404 if the token does not "
                   "reach it.",
                   "VercelProject", "VercelProjectRequest", team_parameters())};
  add.too_large = &too_large;
  table.push_back(std::move(add));
}

} // namespace insula::http::vercel
