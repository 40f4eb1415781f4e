#include "http/vercel/drives.hpp"

#include "actors/protocol/errors.hpp"
#include "base/clock.hpp"
#include "base/limits.hpp"
#include "http/json/writer.hpp"
#include "http/sandboxes/ask_directory.hpp"
#include "http/sandboxes/fork.hpp"
#include "http/text/percent.hpp"
#include "http/vercel/access.hpp"
#include "http/vercel/api.hpp"
#include "http/vercel/ids.hpp"
#include "http/vercel/listing.hpp"
#include "http/vercel/members.hpp"
#include "http/vercel/objects_json.hpp"
#include "http/vercel/operations.hpp"
#include "http/vercel/session_call.hpp"
#include "http/vercel/settings.hpp"

#include <caf/event_based_actor.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace insula::http::vercel {

namespace {

using namespace std::chrono_literals;

constexpr std::int64_t least_drive_bytes = 1LL << 20;
/// The group of its drives has two bytes before it.
constexpr std::string_view group_prefix{"\0d", 2};
constexpr std::size_t longest_project = 126;
/// Nothing runs in it but what makes snapshots of it.
constexpr std::uint64_t own_memory_bytes = 128ull << 20;
/// Clients repeat a request that has had no header for 300 s.
constexpr auto fork_patience = 280s;

response unknown_drive(const std::string& name) {
  return failure(
    refusal{404, "not_found", "Drive '" + name.substr(0, 64) + "' not found for this project."});
}

/// That a drive does not run is nothing to its client: its server has ended, and the next one has
/// the drive.
response drive_failure(const std::string& name, const error& why) {
  if (is_being_deleted(why) || why.code == errc::not_found)
    return unknown_drive(name);
  switch (why.code) {
    case errc::sandbox_not_running:
    case errc::session_ended:
    case errc::snapshot_gone:
      return failure(
        refusal{503, "internal_server_error", "The drive is not ready now; ask again."});
    default: return failure(why);
  }
}

void write_drive(json::ascii_writer& out, const std::string& id, const drive_settings& is,
                 const sandbox_description& of) {
  out.begin_object();
  out.member("id", id_of_drive(id)).member("name", is.name).member("projectId", is.project);
  out.member("region", is.region).member("maxSizeBytes", is.max_bytes);
  if (!is.parent.empty())
    out.member("parentDriveId", is.parent).member("rootDriveId", is.root);
  if (const auto& by = of.drive_user) {
    if (by->run != 0)
      out.member("currentSessionId", session_id{by->sandbox, by->run}.text());
    if (!by->name.empty())
      out.member("currentSandboxName", by->name);
  }
  out.member("createdAt", of.created_ms)
    .member("updatedAt", std::max(is.updated_ms, of.created_ms));
  out.end_object();
}

response drive_answer(const std::string& id, const drive_settings& is,
                      const sandbox_description& of, int status = 200) {
  json::ascii_writer out;
  out.begin_object().key("drive");
  write_drive(out, id, is, of);
  out.end_object();
  return {status, out.str()};
}

// ---- One, by its name

/// A request about one.
struct drive_call {
  shared_services with;
  access::reach reach;
  std::string project, name; ///< Of a POST the body has the project.
  bool may_be_id = false;    ///< In place of the name.

  std::string id() const {
    const auto given = may_be_id ? drive_of_id(name) : std::string{};
    return given.empty() ? drive_of(with->secret, project, name) : given;
  }
};

using found_function = std::function<void(const drive_settings& is, const sandbox_description& of)>;

/// `found` is called for one of that name. Starts nothing.
void find(const drive_call& call, const reply& to, found_function found) {
  to->answer_within(look_patience, late_answer());
  redefine_sandbox look; // Which changes nothing.
  look.context = to->context();
  sandbox_question<redefine_sandbox, sandbox_description> asked{
    call.with->directory, call.id(), std::move(look),
    [=](const sandbox_description& of) {
      const auto is = drive_settings_of(of.metadata);
      // An id may be that of another project's.
      const bool is_there = of.exists && is && is->project == call.project;
      is_there ? found(*is, of) : to->respond(unknown_drive(call.name));
    },
    [=](question_stage, const error& why) { to->respond(drive_failure(call.name, why)); }};
  asked.starts_it = false;
  ask_sandbox(*call.with, std::move(asked));
}

void get(const drive_call& call, const std::string&, const reply& to) {
  find(call, to, [=](const drive_settings& is, const sandbox_description& of) {
    to->respond(drive_answer(call.id(), is, of));
  });
}

/// One that is there is answered as it is, whatever size is asked for.
void get_or_make(drive_call call, const std::string& body, const reply& to) {
  drive_settings wanted;
  if (const auto wrong = read_drive_request(body, wanted, call.with->drive_bytes))
    return to->respond(failure(*wrong));
  if (const auto no = call.reach.objection(wanted.project))
    return to->respond(*no);
  call.project = wanted.project;
  wanted.name = call.name;
  wanted.updated_ms = system_clock{}.unix_ms();
  auto message = definition_of(wanted);
  message.context = to->context();
  message.context.image.clear();
  message.context.gains.reset();
  message.context.persistent = true;
  to->answer_within(look_patience, late_answer());
  sandbox_question<define_sandbox, sandbox_description> asked{
    call.with->directory, call.id(), std::move(message),
    [=](const sandbox_description& of) { to->respond(drive_answer(call.id(), wanted, of, 201)); },
    [=](question_stage, const error& why) {
      why.code == errc::already_exists ? get(call, {}, to)
                                       : to->respond(drive_failure(call.name, why));
    }};
  asked.starts_it = false;
  ask_sandbox(*call.with, std::move(asked));
}

void remove(const drive_call& call, const std::string&, const reply& to) {
  find(call, to, [=](const drive_settings& is, const sandbox_description& of) {
    if (const auto& by = of.drive_user)
      return to->respond(failure(refusal{409, "conflict",
                                         "Drive '" + call.name + "' is attached to the sandbox '" +
                                           (by->name.empty() ? by->sandbox : by->name) + "'."}));
    to->answer_within(std::chrono::milliseconds{limits::destroy_patience} + 10s, late_answer());
    const auto told = drive_answer(call.id(), is, of);
    call.with->system->spawn(
      [call, to, told](caf::event_based_actor* self, const directory_actor& directory) {
        self->request(directory, caf::infinite, delete_atom::value, call.id(), to->context())
          .then([=](caf::ok_atom) { to->respond(response{told}); },
                [=](const caf::error& why_not) {
                  const auto why = from_caf(why_not);
                  to->respond(is_being_deleted(why) ? response{told}
                                                    : drive_failure(call.name, why));
                });
      },
      call.with->directory);
  });
}

/// The new one begins with what is on the source at that moment.
void fork(const drive_call& call, const std::string& body, const reply& to) {
  std::string name;
  if (const auto wrong = read_drive_fork(body, name))
    return to->respond(failure(*wrong));
  find(call, to, [=](const drive_settings& source, const sandbox_description& of) {
    if (!of.has_kept_disk)
      return to->respond(
        failure(refusal{409, "drive_not_initialized",
                        "Drive '" + call.name +
                          "' has no data yet: mount it read-write and stop that session first."}));
    auto made = call;
    made.name = name;
    auto wanted = source;
    wanted.name = name;
    wanted.updated_ms = system_clock{}.unix_ms();
    wanted.parent = id_of_drive(call.id());
    if (wanted.root.empty())
      wanted.root = wanted.parent;
    fork_request asked;
    asked.source = call.id();
    asked.ids = {made.id()};
    asked.with.metadata[drive_metadata_api] = text_of(wanted);
    asked.context = to->context();
    asked.context.image.clear();
    asked.context.gains.reset();
    asked.context.persistent = true;
    asked.until = std::chrono::steady_clock::now() + fork_patience;
    to->answer_within(fork_patience, late_answer());
    fork_sandbox(*call.with, std::move(asked), [=](const result<void>& outcome) {
      if (!outcome && outcome.reason().code == errc::already_exists)
        return to->respond(failure(refusal{
          409, "conflict", "A drive with the name '" + name + "' exists in this project."}));
      outcome ? find(made, to,
                     [=](const drive_settings& is, const sandbox_description& now) {
                       to->respond(drive_answer(made.id(), is, now, 201));
                     })
              : to->respond(drive_failure(call.name, outcome.reason()));
    });
  });
}

using drive_handler = void (*)(const drive_call&, const std::string& body, const reply&);

/// `rest` of the path, "" for the drive itself.
route drive_route(const shared_services& with, const std::string& prefix, verb method,
                  const std::string& rest, drive_handler handle, operation document) {
  const bool has_body = method == verb::post;
  const bool makes = has_body && rest.empty();
  const bool may_be_id = method == verb::get;
  const auto drive_in = [with, may_be_id](const matched_request& what) {
    return drive_call{with,
                      {*with, what},
                      form_value(what.head().query, "projectId"),
                      percent_decode(what["drive"]),
                      may_be_id};
  };
  route made{
    method,
    prefix + "/v2/sandboxes/drives/:drive" + rest,
    access::bearer,
    has_body ? body_use::buffered : body_use::ignored,
    has_body ? limits::routed_body_bytes : 0,
    [drive_in, handle, makes](const matched_request& what) -> admission {
      auto call = drive_in(what);
      if (makes && !drive_of_id(call.name).empty())
        return refused(failure(bad_request("the name has the form of a drive's id")));
      if (!is_drive_name(call.name))
        return makes ? refused(failure(bad_request(
                         "the name must have 1 to 64 characters of a-z, A-Z, 0-9, _ and -")))
                     : refused(unknown_drive(call.name));
      if (!makes && call.project.empty())
        return refused(failure(bad_request("projectId is required")));
      if (!makes)
        if (auto no = call.reach.objection(call.project))
          return refused(std::move(*no));
      return answered_by([call = std::move(call), handle](
                           const std::string& body, const reply& to) { handle(call, body, to); });
    },
    std::move(document)};
  made.about = [drive_in, makes](const matched_request& what) {
    return makes ? std::string{} : drive_in(what).id();
  };
  if (makes) {
    made.in_body = [with](std::string_view body, const request_path& path) {
      drive_settings wanted;
      return read_drive_request(body, wanted, with->drive_bytes)
               ? told_by_body{}
               : told_by_body{drive_of(with->secret, wanted.project, percent_decode(path["drive"])),
                              {}};
    };
    made.id_in_body = true;
  }
  if (has_body)
    made.no_length = &no_length;
  if (!makes)
    made.unknown = [](const request_path& path) {
      return unknown_drive(percent_decode(path["drive"]));
    };
  made.too_large = &too_large;
  return made;
}

// ---- The list

admission admit_list(const shared_services& with, const matched_request& what) {
  const auto& query = what.head().query;
  list_group wanted;
  const auto project = form_value(query, "projectId");
  if (project.empty())
    return refused(failure(bad_request("projectId is required")));
  if (auto no = access::reach{*with, what}.objection(project))
    return refused(std::move(*no));
  page_words page;
  if (const auto wrong = read_page(query, page))
    return refused(failure(*wrong));
  wanted.group = group_of_drives(project);
  wanted.limit = page.limit;
  wanted.descends = !page.ascends;
  wanted.after = page.after;
  const auto by = form_value(query, "sortBy");
  if (by == "name")
    wanted.by = list_order::name;
  else if (!by.empty() && by != "createdAt")
    return refused(failure(bad_request("sortBy must be createdAt or name")));
  wanted.name_prefix = form_value(query, "namePrefix");
  if (!wanted.name_prefix.empty() && wanted.by != list_order::name)
    return refused(failure(bad_request("namePrefix needs sortBy=name")));
  return answered_by([=](const std::string&, const reply& to) {
    to->answer_within(look_patience, late_answer());
    ask_directory<group_page>(
      *with, wanted,
      [to](const group_page& found) {
        json::ascii_writer out;
        std::size_t count = 0;
        out.begin_object().key("drives").begin_array();
        for (const auto& each : found.sandboxes)
          if (const auto is = drive_settings_of(each.is.metadata)) {
            write_drive(out, each.id, *is, each.is);
            ++count;
          }
        out.end_array().key("pagination");
        write_pagination(
          out, count, found.next.empty() ? std::nullopt : std::optional{cursor_text(found.next)});
        out.end_object();
        to->respond({200, out.str()});
      },
      [to](const error& why) { to->respond(failure(why)); });
  });
}

} // namespace

std::optional<refusal> read_drive_request(std::string_view body, drive_settings& into,
                                          std::uint64_t most) {
  json::document document;
  if (auto wrong = read_object(body, document))
    return wrong;
  into.region = default_region;
  for (auto wrong :
       {read_text(document, "projectId", into.project), read_text(document, "region", into.region)})
    if (wrong)
      return wrong;
  if (into.project.empty())
    return bad_request("projectId is required");
  if (into.project.size() > longest_project)
    return bad_request("projectId has more than " + std::to_string(longest_project) +
                       " characters");
  if (into.region.empty() || into.region.size() > 64)
    return bad_request("region must have 1 to 64 characters");
  into.max_bytes = most;
  if (const auto* size = given(document, "maxSizeBytes")) {
    const auto bytes = whole_number(*size);
    if (!bytes || *bytes < least_drive_bytes || static_cast<std::uint64_t>(*bytes) > most)
      return bad_request("maxSizeBytes must be a number from " + std::to_string(least_drive_bytes) +
                         " to " + std::to_string(most) + ", which this server gives a drive");
    into.max_bytes = static_cast<std::uint64_t>(*bytes);
  }
  return std::nullopt;
}

std::optional<refusal> read_drive_fork(std::string_view body, std::string& name) {
  json::document document;
  if (auto wrong = read_object(body, document))
    return wrong;
  if (auto wrong = read_text(document, "name", name))
    return wrong;
  if (!is_drive_name(name) || !drive_of_id(name).empty())
    return bad_request("name must have 1 to 64 characters of a-z, A-Z, 0-9, _ and -, and not the "
                       "form of a drive's id");
  return std::nullopt;
}

std::string text_of(const drive_settings& of) {
  json::ascii_writer out;
  out.begin_object().member("project", of.project).member("name", of.name);
  out.member("region", of.region).member("maxSizeBytes", of.max_bytes);
  out.member("updated", of.updated_ms);
  if (!of.parent.empty())
    out.member("parent", of.parent).member("root", of.root);
  out.end_object();
  return out.str();
}

std::optional<drive_settings> drive_settings_of(const api_metadata& all) {
  const auto at = all.find(drive_metadata_api);
  json::document document;
  drive_settings is;
  if (at == all.end() || !json::parse(at->second, document) || !document.IsObject() ||
      read_text(document, "project", is.project) || read_text(document, "name", is.name) ||
      read_text(document, "region", is.region) || read_text(document, "parent", is.parent) ||
      read_text(document, "root", is.root))
    return std::nullopt;
  const auto number = [&](const char* name) {
    const auto* value = json::find(document, name);
    return value != nullptr ? whole_number(*value).value_or(0) : 0;
  };
  is.max_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(number("maxSizeBytes"), 0));
  is.updated_ms = number("updated");
  return is;
}

std::string group_of_drives(std::string_view project) {
  return std::string{group_prefix}.append(project);
}

std::optional<grouped_sandbox> drive_group_of(const api_metadata& all) {
  const auto is = drive_settings_of(all);
  if (!is)
    return std::nullopt;
  return grouped_sandbox{group_of_drives(is->project), is->name};
}

std::optional<sandbox_caption> drive_caption_of(const api_metadata& all) {
  const auto is = drive_settings_of(all);
  if (!is)
    return std::nullopt;
  return sandbox_caption{is->project, "drive " + is->name};
}

define_sandbox definition_of(const drive_settings& of) {
  define_sandbox message;
  message.metadata[drive_metadata_api] = text_of(of);
  message.network = egress_policy::deny_all();
  message.memory_bytes = own_memory_bytes;
  message.cpu_percent = 100;
  message.disk_bytes = of.max_bytes;
  sandbox_profile profile; // It makes the directory, which is its user's.
  profile.user = {1000, 1000};
  profile.login = "drive";
  profile.home = "/home/drive";
  profile.cwd = drive_directory;
  message.profile = std::move(profile);
  message.gains = privileges::none;
  return message;
}

void add_drive_routes(std::vector<route>& table, const shared_services& with,
                      const std::string& prefix) {
  table.push_back(
    {verb::get, prefix + "/v2/sandboxes/drives", access::bearer, body_use::ignored, 0,
     [with](const matched_request& what) { return admit_list(with, what); },
     listed("listVercelDrives", "The drives of a project.", "VercelDrivePage", {},
            {{"projectId", "query", "The project.", true},
             {"limit", "query", "1 to 50; else 20."},
             {"cursor", "query", "The `next` of the page before."},
             {"sortBy", "query", "createdAt or name."},
             {"sortOrder", "query", "asc or desc."},
             {"namePrefix", "query", "With sortBy=name: what the names begin with."}})});
  table.push_back(drive_route(with, prefix, verb::get, "", &get,
                              listed("getVercelDrive", "A drive, by its name or its id.",
                                     "VercelDriveAnswer", {}, {project_parameter})));
  const auto make = [](const drive_call& call, const std::string& body, const reply& to) {
    get_or_make(call, body, to);
  };
  auto got =
    listed("getOrCreateVercelDrive", "The drive of that name, which is made if there is none.",
           "VercelDriveAnswer", "VercelDriveRequest");
  got.answers.push_back({"201", "It was made.", "application/json", "VercelDriveAnswer"});
  table.push_back(drive_route(with, prefix, verb::post, "", make, std::move(got)));
  auto forked = listed("forkVercelDrive",
                       "A new drive of the project, which begins with what is on this one, and has "
                       "its region and its size.",
                       "VercelDriveAnswer", "VercelDriveForkRequest", {project_parameter});
  forked.answers.front().status = "201";
  forked.answers.push_back({"409", "There is a drive of that name, or this one has no data yet.",
                            "application/json", "VercelError"});
  table.push_back(drive_route(with, prefix, verb::post, "/fork", &fork, std::move(forked)));
  auto removed = listed("deleteVercelDrive", "Deletes it, with all that is on it.",
                        "VercelDriveAnswer", {}, {project_parameter});
  removed.answers.push_back(
    {"409", "A sandbox has it attached.", "application/json", "VercelError"});
  table.push_back(drive_route(with, prefix, verb::del, "", &remove, std::move(removed)));
}

} // namespace insula::http::vercel
