#include "http/opensandbox/lifecycle.hpp"

#include "base/id.hpp"
#include "base/limits.hpp"
#include "http/opensandbox/access.hpp"
#include "http/opensandbox/commands.hpp"
#include "http/opensandbox/execd.hpp"
#include "http/opensandbox/execd_json.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/command_line.hpp"
#include "http/text/header_text.hpp"
#include "http/text/percent.hpp"
#include "http/transport/retry_after.hpp"

#include <caf/send.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <set>
#include <tuple>
#include <utility>

namespace insula::http::opensandbox {

namespace {

using namespace std::chrono_literals;

constexpr auto patience = 30s;
/// Their clients give up after 30 s.
constexpr std::chrono::milliseconds create_patience = 25s;
constexpr std::int64_t longest_life_ms = 365ll * 24 * 3600 * 1000;
/// Of metadata, with what else is remembered.
constexpr std::size_t longest_notes = 64 * 1024;
constexpr unsigned most_tries = 5;
/// Clients keep an endpoint for minutes, and a sandbox may live for a year.
constexpr std::chrono::hours endpoint_lasts{24 * 366};

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

/// None: it is no whole number of this range.
std::optional<std::uint64_t> number_from(std::string_view text, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good =
    why == std::errc{} && end == text.data() + text.size() && value >= 1 && value <= most;
  return good ? std::optional{value} : std::nullopt;
}

} // namespace

response refused(const refusal& why) {
  return {why.status, write_failure(why.code, why.why), json_type};
}

response not_found(const std::string& id) {
  return refused({404, "DOCKER::SANDBOX_NOT_FOUND", "Sandbox " + id + " not found."});
}

response failed(const std::string& id, const error& why) {
  switch (why.code) {
    case errc::not_found: return not_found(id);
    case errc::invalid_request: return refused({400, "SANDBOX::INVALID_PARAMETER", why.message});
    case errc::forbidden: return refused({403, "SANDBOX::INVALID_PARAMETER", why.message});
    case errc::sandbox_mismatch:
    case errc::run_over:
    case errc::run_stopping:
    case errc::run_snapshotting:
    case errc::drive_in_use:
    case errc::drive_gone:
    case errc::snapshot_gone: return refused({409, "SANDBOX::INVALID_PARAMETER", why.message});
    case errc::capacity_exceeded:
    case errc::machine_full:
    case errc::store_failed:
    case errc::stale_epoch:
    case errc::node_unreachable:
    case errc::image_pending:
      return with_retry_after(refused({503, "GENERAL::UNKNOWN_ERROR", why.message}), why.code);
    case errc::key_ceiling:
      return with_retry_after(refused({429, "SANDBOX::QUOTA_EXCEEDED", why.message}), why);
    case errc::image_refused:
      return refused({500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", why.message});
    case errc::disk_full:
      return refused({507, "GENERAL::UNKNOWN_ERROR", "the node's disk is full"});
    case errc::sandbox_not_running:
      return is_being_deleted(why) ? not_found(id)
                                   : refused({503, "GENERAL::UNKNOWN_ERROR", why.message});
    default:
      return refused({500, "GENERAL::UNKNOWN_ERROR",
                      why.code == errc::internal ? "internal error" : why.message});
  }
}

void run_entrypoint(const shared_services& with, const std::string& id,
                    const std::vector<std::string>& words, const request_context& context,
                    bool once) {
  static const std::vector<std::string> idle{"tail", "-f", "/dev/null"};
  if (words == idle || std::any_of(words.begin(), words.end(), [](const auto& each) {
        return each.find('\0') != std::string::npos;
      }))
    return;
  exec_request command;
  command.command_line = command_line(words);
  command.posix_line = posix_command_line(words);
  command.only_if_there = true;
  command.rules = {true, true};
  command.context = context;
  if (once)
    command.idempotency = {"entrypoint", "entrypoint"};
  ask_sandbox<exec_request, process_actor>(
    *with, {with->directory, id, std::move(command), [](const process_actor&) {},
            [id](question_stage, const error& why) {
              log::warning("opensandbox.no_entrypoint", {{"id", id}, {"why", why.message}});
            }});
}

std::optional<refusal> read_page(std::string_view query, page_wanted& into) {
  for (const auto& [name, number, most] :
       {std::tuple{"page", &into.page, std::uint64_t{1'000'000'000}},
        std::tuple{"pageSize", &into.page_size, std::uint64_t{200}}}) {
    const auto text = form_value(query, name);
    const auto value = text.empty() ? std::optional{*number} : number_from(text, most);
    if (!value)
      return refusal{422, "GENERAL::INVALID_REQUEST",
                     std::string{name} + " must be a number from 1 to " + std::to_string(most)};
    *number = *value;
  }
  return std::nullopt;
}

namespace {

/// Asks without starting it. `answered` comes on a CAF worker, for one that is there; `refuse` has
/// the words for why there is no answer.
template <class Message>
void ask(const shared_services& with, const std::string& id, Message wanted, const reply& to,
         std::function<void(const sandbox_description&)> answered,
         response (*refuse)(const std::string&, const error&) = failed) {
  question{*with, id, std::move(wanted), to}
    .within(patience,
            refused({504, "GENERAL::UNKNOWN_ERROR", "the sandbox did not answer in time"}))
    .starts(false)
    .or_else([id, refuse](question_stage, const error& why) { return refuse(id, why); })
    .template then<sandbox_description>(
      [to, id, answered = std::move(answered)](const sandbox_description& is) {
        is.exists ? answered(is) : to->respond(not_found(id));
      });
}

void look(const shared_services& with, const std::string& id, const reply& to,
          std::function<void(const sandbox_description&)> answered) {
  ask(with, id, redefine_sandbox{}, to, std::move(answered));
}

// ---- Making one

/// The names of this node's images that are what a client means by `uri`: its last part, with the
/// tag behind a hyphen. No tag is the tag `latest`, and needs none. A digest has no name.
std::vector<std::string> names_of_image(const std::string& uri) {
  if (uri.find('@') != std::string::npos)
    return {};
  const auto last = uri.substr(uri.rfind('/') + 1); // All of it, if there is none.
  const auto colon = last.find(':');
  const auto name = last.substr(0, colon);
  const auto tag = colon == std::string::npos ? "latest" : last.substr(colon + 1);
  if (name.empty())
    return {};
  std::vector<std::string> names;
  if (tag == "latest")
    names.push_back(name);
  names.push_back(name + '-' + tag);
  return names;
}

told_by_body start_in_body(std::string_view body, const request_path&) {
  auto told = start_of_create_body(body);
  auto names = names_of_image(told.image);
  return {{}, {std::move(told.image), std::move(names), std::move(told.snapshot)}};
}

response no_such_image(const std::string& uri, const error& refusal) {
  auto why = refusal.message;
  const auto names = names_of_image(uri);
  const auto may_be_name = [](const std::string& name) {
    return name.size() < 64 && std::all_of(name.begin(), name.end(), [](char c) {
             return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
                    c == '-';
           });
  };
  if (!names.empty() && may_be_name(names.front()))
    why += "; it would be imported as " + names.front() + " (insula image import --name " +
           names.front() + ")";
  return refused({500, "DOCKER::SANDBOX_IMAGE_PULL_FAILED", why});
}

void forget(const shared_services& with, const std::string& id, const request_context& context) {
  with->system->spawn(
    [](caf::event_based_actor* self, const directory_actor& directory, const std::string& which,
       const request_context& of) {
      self->request(directory, caf::infinite, delete_atom::value, which, of)
        .then([](caf::ok_atom) {}, [](const caf::error&) {});
    },
    with->directory, id, context);
}

using time_point = std::chrono::steady_clock::time_point;

/// It is there before its client is told; what comes too late for that is not left behind.
void start_made(const shared_services& with, const std::string& id, const create_body& wanted,
                const sandbox_description& made, time_point until, const reply& to) {
  const auto started = [=](bool) {
    if (std::chrono::steady_clock::now() >= until)
      return forget(with, id, to->context());
    run_entrypoint(with, id, wanted.notes.entrypoint, to->context());
    to->respond({202, write_sandbox(id, made, true), json_type});
  };
  const auto not_started = [=](question_stage, const error& why) {
    to->respond(failed(id, why));
    forget(with, id, to->context());
  };
  ask_sandbox<probe_request, bool>(
    *with, {with->directory, id, probe_request{to->context()}, started, not_started});
}

/// `image`: what it starts from, and empty the node's own, whatever the client has named.
void define(const shared_services& with, const std::string& id, const create_body& wanted,
            const std::string& image, time_point until, const reply& to) {
  define_sandbox message;
  message.metadata[metadata_api] = write_notes(wanted.notes);
  message.env = wanted.env;
  message.image = image;
  message.image_names = names_of_image(image);
  message.snapshot = wanted.notes.snapshot;
  message.network = wanted.network;
  message.gains = wanted.gains;
  message.memory_bytes = wanted.memory_bytes;
  message.cpu_percent = wanted.cpu_percent;
  message.context = to->context();
  message.context.image.clear(); // The body says it.
  if (wanted.timeout_s)
    message.expires_ms = now_ms() + *wanted.timeout_s * 1000;
  sandbox_question<define_sandbox, sandbox_description> asked{
    with->directory, id, std::move(message),
    [=](const sandbox_description& made) { start_made(with, id, wanted, made, until, to); },
    [=](question_stage, const error& why) {
      const bool is_no_image = why.code == errc::image_refused || why.code == errc::forbidden;
      if (is_no_image && with->any_image && !image.empty())
        return define(with, id, wanted, {}, until, to);
      if (why.code == errc::image_refused)
        return to->respond(no_such_image(image, why));
      if (why.code == errc::not_found && !wanted.notes.snapshot.empty())
        return to->respond(refused({404, "SNAPSHOT::NOT_FOUND", why.message}));
      if (why.code == errc::already_exists) // Its id is new: this was asked twice.
        return look(with, id, to, [=](const sandbox_description& made) {
          start_made(with, id, wanted, made, until, to);
        });
      to->respond(failed(id, why));
    }};
  asked.starts_it = false;
  ask_sandbox(*with, std::move(asked));
}

void create(const shared_services& with, const lifecycle_call&, const std::string& body,
            const reply& to) {
  create_body wanted;
  if (const auto wrong = read_create_body(body, wanted))
    return to->respond(refused(*wrong));
  to->answer_within(create_patience,
                    refused({504, "GENERAL::UNKNOWN_ERROR", "the sandbox was not ready in time"}));
  define(with, sandbox_id::generate().str(), wanted, wanted.notes.image,
         std::chrono::steady_clock::now() + create_patience, to);
}

// ---- Looking at all

struct list_wanted : page_wanted {
  std::set<std::string_view> states{lifecycle_states.begin(), lifecycle_states.end()};
  std::map<std::string, std::string> metadata;
};

std::optional<refusal> read_list(std::string_view query, list_wanted& into) {
  bool any_state = false;
  for (auto left = query; !left.empty();) {
    const auto pair = left.substr(0, left.find('&'));
    left.remove_prefix(std::min(left.size(), pair.size() + 1));
    if (!pair.starts_with("state="))
      continue;
    if (!std::exchange(any_state, true))
      into.states.clear();
    for (const auto each : lifecycle_states)
      if (same_letters(pair.substr(6), each))
        into.states.insert(each);
  }
  if (auto wrong = read_page(query, into))
    return wrong;
  const auto wanted = form_value(query, "metadata");
  for (std::string_view left = wanted; !left.empty();) {
    const auto pair = left.substr(0, left.find('&'));
    left.remove_prefix(std::min(left.size(), pair.size() + 1));
    const auto equals = pair.find('=');
    if (equals == std::string_view::npos || equals == 0)
      return refusal{400, "SANDBOX::INVALID_METADATA_FORMAT",
                     "metadata must be key=value pairs with & between them"};
    into.metadata[std::string{pair.substr(0, equals)}] = pair.substr(equals + 1);
  }
  return std::nullopt;
}

bool has_all(const sandbox_description& is, const std::map<std::string, std::string>& wanted) {
  if (wanted.empty())
    return true;
  const auto metadata = read_notes(text_of_notes(is)).metadata;
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& each) {
    const auto at = metadata.find(each.first);
    return at != metadata.end() && at->second == each.second;
  });
}

/// A walk through the list, from its first sandbox to the end of the page that is wanted; with a
/// filter to the end of the list, since the answer says how many there are. It reads some sandboxes
/// at a time, so that it holds nobody up, and ends once its answer is late. A client that has gone
/// does not end it: an exchange does not tell of that before it is answered.
struct list_walk {
  list_wanted wanted;
  std::chrono::steady_clock::time_point until;
  std::uint64_t met = 0; ///< So many so far are what is wanted.
  std::uint64_t total = 0;
  std::vector<described_sandbox> items = {};

  bool filters() const {
    return wanted.states.size() < lifecycle_states.size() || !wanted.metadata.empty();
  }
  std::uint64_t first() const { return (wanted.page - 1) * wanted.page_size; }
  std::uint64_t end() const { return first() + wanted.page_size; }

  bool is_wanted(const sandbox_description& is) const {
    return wanted.states.contains(state_of(is)) && has_all(is, wanted.metadata);
  }

  list_sandboxes next_step(std::string after) const {
    constexpr std::uint64_t most = limits::list_page_sandboxes;
    const auto left = filters() ? most : std::min(end() - met, most);
    return {std::move(after), static_cast<std::uint32_t>(left), !filters() && met == 0};
  }

  /// Is there nothing more to read?
  bool take(const sandbox_page& page) {
    if (met == 0 && !filters())
      total = page.total;
    for (const auto& each : page.sandboxes) {
      if (!is_wanted(each.is))
        continue;
      if (met >= first() && met < end())
        items.push_back(each);
      ++met;
    }
    if (filters())
      total = met;
    return page.next.empty() || (!filters() && (met >= end() || first() >= total));
  }

  response listed() const {
    return {200, write_list(items, wanted.page, wanted.page_size, total), json_type};
  }
};

void walk(caf::event_based_actor* self, const directory_actor& directory,
          const std::shared_ptr<list_walk>& state, std::string after, const reply& to) {
  self->request(directory, caf::infinite, state->next_step(std::move(after)))
    .then(
      [=](const sandbox_page& page) {
        if (state->take(page))
          to->respond(state->listed());
        else if (std::chrono::steady_clock::now() < state->until) // Else it has its answer.
          walk(self, directory, state, page.next, to);
      },
      [to](const caf::error& why) { to->respond(failed({}, from_caf(why))); });
}

void list(const shared_services& with, const lifecycle_call& what, const std::string&,
          const reply& to) {
  list_wanted wanted;
  if (const auto wrong = read_list(what.query, wanted))
    return to->respond(refused(*wrong));
  to->answer_within(patience,
                    refused({504, "GENERAL::UNKNOWN_ERROR", "the store did not answer in time"}));
  if (wanted.states.empty()) // No sandbox is ever in another state.
    return to->respond(list_walk{std::move(wanted), {}}.listed());
  const auto state = std::make_shared<list_walk>(
    list_walk{std::move(wanted), std::chrono::steady_clock::now() + patience});
  with->system->spawn(
    [state, to](caf::event_based_actor* self, const directory_actor& directory) {
      walk(self, directory, state, {}, to);
    },
    with->directory);
}

// ---- Looking at one, and changing it

void get(const shared_services& with, const lifecycle_call& what, const std::string&,
         const reply& to) {
  look(with, what.id(), to, [to, id = what.id()](const sandbox_description& is) {
    to->respond({200, write_sandbox(id, is, false), json_type});
  });
}

void remove(const shared_services& with, const lifecycle_call& what, const std::string&,
            const reply& to) {
  look(with, what.id(), to, [=, id = what.id()](const sandbox_description&) {
    with->system->spawn(
      [to, id](caf::event_based_actor* self, const directory_actor& directory) {
        self->request(directory, caf::infinite, delete_atom::value, id, to->context())
          .then(
            [to](caf::ok_atom) {
              to->respond({204, {}});
            },
            [to, id](const caf::error& why) { to->respond(failed(id, from_caf(why))); });
      },
      with->directory);
  });
}

void renew(const shared_services& with, const lifecycle_call& what, const std::string& body,
           const reply& to) {
  const auto when = read_expiration(body);
  if (!when)
    return to->respond(refused({422, "GENERAL::INVALID_REQUEST", when.reason().message}));
  if (*when <= now_ms())
    return to->respond(
      refused({400, "DOCKER::INVALID_EXPIRATION", "expiresAt must be in the future"}));
  if (*when > now_ms() + longest_life_ms)
    return to->respond(
      refused({400, "DOCKER::INVALID_EXPIRATION", "expiresAt is at most a year ahead"}));
  look(with, what.id(), to, [=, id = what.id()](const sandbox_description& is) {
    if (!is.expires_ms)
      return to->respond(
        refused({409, "DOCKER::INVALID_EXPIRATION", "the sandbox has no expiration"}));
    redefine_sandbox change;
    change.expires_ms = *when;
    ask(with, id, std::move(change), to, [to](const sandbox_description& now) {
      to->respond({200, write_expiration(now.expires_ms.value_or(0)), json_type});
    });
  });
}

/// Of two who change it at once, the second begins anew.
void try_patch(const shared_services& with, const std::string& id, const std::string& body,
               unsigned tries, const reply& to) {
  look(with, id, to, [=](const sandbox_description& is) {
    const auto before = text_of_notes(is);
    auto notes = read_notes(before);
    if (const auto wrong = patch_metadata(body, notes.metadata))
      return to->respond(refused(*wrong));
    redefine_sandbox change;
    const auto wanted = write_notes(notes);
    change.metadata = {metadata_api, wanted, before};
    if (wanted.size() > longest_notes)
      return to->respond(
        refused({400, "SANDBOX::INVALID_METADATA_LABEL", "there is too much metadata"}));
    ask(with, id, std::move(change), to, [=](const sandbox_description& now) {
      if (text_of_notes(now) == wanted)
        to->respond({200, write_sandbox(id, now, false), json_type});
      else if (tries > 1)
        try_patch(with, id, body, tries - 1, to);
      else
        to->respond(refused({409, "GENERAL::UNKNOWN_ERROR", "the metadata is changed by others"}));
    });
  });
}

void patch(const shared_services& with, const lifecycle_call& what, const std::string& body,
           const reply& to) {
  try_patch(with, what.id(), body, most_tries, to);
}

response not_paused(const std::string& id, const error& why) {
  switch (why.code) {
    case errc::invalid_request:
    case errc::sandbox_not_running:
      return is_being_deleted(why) ? not_found(id)
                                   : refused({409, "DOCKER::SANDBOX_NOT_RUNNING", why.message});
    case errc::io_failed: return refused({500, "DOCKER::SANDBOX_PAUSE_FAILED", why.message});
    default: return failed(id, why);
  }
}

response not_resumed(const std::string& id, const error& why) {
  switch (why.code) {
    case errc::invalid_request: return refused({409, "DOCKER::SANDBOX_NOT_PAUSED", why.message});
    case errc::io_failed: return refused({500, "DOCKER::SANDBOX_RESUME_FAILED", why.message});
    default: return failed(id, why);
  }
}

template <bool paused>
void set_paused(const shared_services& with, const lifecycle_call& what, const std::string&,
                const reply& to) {
  ask(
    with, what.id(), pause_sandbox{paused}, to,
    [to](const sandbox_description&) {
      to->respond({202, {}});
    },
    paused ? not_paused : not_resumed);
}

void endpoint(const shared_services& with, const lifecycle_call& what, const std::string&,
              const reply& to) {
  std::uint32_t port = 0;
  const auto end = what["port"].data() + what["port"].size();
  const auto [at, why] = std::from_chars(what["port"].data(), end, port);
  if (why != std::errc{} || at != end)
    return to->respond(refused({422, "GENERAL::INVALID_REQUEST", "the port must be a number"}));
  if (port < 1 || port > 65'535)
    return to->respond(refused({400, "DOCKER::INVALID_PORT", "the port must be from 1 to 65535"}));
  if (!form_value(what.query, "expires").empty())
    return to->respond(
      refused({400, "SANDBOX::API_NOT_SUPPORTED", "signed routes are not supported"}));
  look(with, what.id(), to, [=, id = what.id(), host = what.host](const sandbox_description&) {
    std::map<std::string, std::string> headers;
    if (auto token = with->links->token(id, static_cast<std::uint16_t>(port), endpoint_lasts))
      headers[port == execd_port ? "X-EXECD-ACCESS-TOKEN" : "X-Insula-Preview-Token"] =
        std::move(*token);
    to->respond(
      {200, write_endpoint(host + "/sandboxes/" + id + "/proxy/" + std::to_string(port), headers),
       json_type});
  });
}

response too_large(std::uint64_t, std::uint64_t limit) {
  return refused(
    {413, "GENERAL::INVALID_REQUEST", "the body exceeds " + std::to_string(limit) + " bytes"});
}

} // namespace

std::vector<route> lifecycle_routes(const shared_services& with,
                                    const std::shared_ptr<fork_table>& forks,
                                    const std::string& prefix) {
  std::vector<route> table;
  const auto add = [&](verb method, std::string_view path, body_use body, lifecycle_handler what,
                       operation document) {
    document.tag = "OpenSandbox: lifecycle";
    table.push_back({method, prefix + std::string{path}, opensandbox::access::lifecycle, body,
                     body == body_use::ignored ? 0 : limits::network_body_bytes,
                     [with, what](const matched_request& asked) {
                       admission plan;
                       if (!asked.id().empty() && !sandbox_id::parse(asked.id()))
                         plan.refusal = not_found(asked.id());
                       else
                         plan.answer = [with, what,
                                        asked =
                                          lifecycle_call{asked, asked.field("Host"),
                                                         asked.field_if_any("Idempotency-Key")}](
                                         const std::string& body_text, const reply& to) {
                           what(with, asked, body_text, to);
                         };
                       return plan;
                     },
                     std::move(document), &too_large});
    table.back().unknown = [](const request_path& asked) { return not_found(asked.id()); };
  };
  const auto none = body_use::ignored, some = body_use::buffered;
  constexpr std::string_view failure = "OpenSandboxError";
  const documented_answer bad{"400", "It is wrong; the message says what.", json_type, failure};
  const documented_answer malformed{"422", "The body or the query is not as it must be.", json_type,
                                    failure};
  const documented_answer one{"200", "The sandbox.", json_type, "OpenSandbox"};
  const parameter pages[] = {
    {"page", "query", "From 1 on.", false, {}, R"({"type":"integer","minimum":1,"default":1})"},
    {"pageSize",
     "query",
     "How many there are on a page.",
     false,
     {},
     R"({"type":"integer","minimum":1,"maximum":200,"default":20})"}};
  add(verb::post, "/sandboxes", some, create,
      {.id = "createOpenSandbox",
       .summary = "Make a sandbox from an image of this node's, and start it.",
       .body_type = json_type,
       .body_schema = "OpenSandboxCreateRequest",
       .answers = {{"202", "It runs.", json_type, "OpenSandbox"},
                   bad,
                   malformed,
                   {"500", "It could not be started; there is no such image.", json_type, failure},
                   {"504", "It was not ready in time.", json_type, failure}}});
  table.back().about = [](const matched_request&) { return std::string{}; };
  table.back().in_body = &start_in_body;
  add(
    verb::get, "/sandboxes", none, list,
    {.id = "listOpenSandboxes",
     .summary = "The sandboxes that are there, the newest first.",
     .parameters =
       {{"state", "query", "Only those in one of these states.", false, R"(["Running"])",
         R"({"type":"array","items":{"type":"string","enum":["Running","Paused","Terminated"]}})"},
        {"metadata", "query", "Only those with all of these: key=value&key=value.", false},
        pages[0],
        pages[1]},
     .answers = {{"200", "A page of them.", json_type, "OpenSandboxList"}, bad, malformed}});
  add(verb::get, "/sandboxes/:id", none, get,
      {.id = "getOpenSandbox",
       .summary = "What is known of a sandbox. Starts nothing.",
       .answers = {one}});
  add(verb::del, "/sandboxes/:id", none, remove,
      {.id = "deleteOpenSandbox",
       .summary = "End everything in a sandbox and remove its files.",
       .answers = {{"204", "Gone."}}});
  add(verb::post, "/sandboxes/:id/renew-expiration", some, renew,
      {.id = "renewOpenSandbox",
       .summary = "Say until when the sandbox is to be there: at most a year ahead.",
       .body_type = json_type,
       .body_schema = "OpenSandboxExpiration",
       .answers = {{"200", "Until then.", json_type, "OpenSandboxExpiration"},
                   bad,
                   {"409", "It has no end.", json_type, failure},
                   malformed}});
  add(verb::patch, "/sandboxes/:id/metadata", some, patch,
      {.id = "patchOpenSandboxMetadata",
       .summary = "Change what is said of a sandbox: a key with null goes.",
       .body_type = json_type,
       .body_schema = "OpenSandboxMetadataPatch",
       .answers = {one, bad, {"409", "Others change it all the time.", json_type, failure}}});
  add(verb::post, "/sandboxes/:id/pause", none, set_paused<true>,
      {.id = "pauseOpenSandbox",
       .summary = "Have everything in a sandbox stand still.",
       .answers = {{"202", "It does."}, {"409", "It does not run.", json_type, failure}}});
  add(verb::post, "/sandboxes/:id/resume", none, set_paused<false>,
      {.id = "resumeOpenSandbox",
       .summary = "Have everything in a paused sandbox go on.",
       .answers = {{"202", "It does."}, {"409", "It is not paused.", json_type, failure}}});
  add(verb::get, "/sandboxes/:id/endpoints/:port", none, endpoint,
      {.id = "getOpenSandboxEndpoint",
       .summary = "Where a port of the sandbox can be reached, without a scheme, and which headers "
                  "to send there. Whether something listens is not looked at.",
       .parameters = {{"use_server_proxy", "query", "Taken, and the answer is the same."}},
       .answers = {{"200", "The address.", json_type, "OpenSandboxEndpoint"}, bad, malformed}});
  add_snapshot_routes(add);
  add_fork_routes(add, forks);
  // The last of them tells of a fork, which goes by the id of its sandbox.
  table.back().about = [](const matched_request& asked) { return asked["fid"]; };
  table.back().unknown = [](const request_path& asked) { return no_fork(asked["fid"]); };
  add(verb::post, "/metrics/events", none,
      [](const shared_services&, const lifecycle_call&, const std::string&, const reply& to) {
        to->respond({204, {}});
      },
      {.id = "noteOpenSandboxEvent",
       .summary = "What clients say of how long they have waited. Nothing is kept of it.",
       .answers = {{"204", "Taken."}}});
  return table;
}

} // namespace insula::http::opensandbox
