#include "base/id.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/bridge/error_response.hpp"
#include "http/bridge/idempotency.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/keyed_id.hpp"

namespace insula::http::bridge {

namespace {

constexpr parameter key_parameter{
  idempotency_parameter.name, idempotency_parameter.in,
  "1 to 255 visible ASCII characters. The same key always gives the same id, whatever else the "
  "request says, also when that sandbox has been deleted."};

using shared = std::shared_ptr<const services>;

void look_or_define(const shared& with, const std::string& id, const std::string& snapshot,
                    unsigned looks, const reply& to);

/// `looks`: so often it is looked for the sandbox that the same request has made meanwhile.
void define_from(const shared& with, const std::string& id, const std::string& snapshot,
                 unsigned looks, const reply& to) {
  define_sandbox wanted;
  wanted.snapshot = snapshot;
  wanted.context = to->context();
  sandbox_question<define_sandbox, sandbox_description> asked{
    with->directory, id, std::move(wanted),
    [to, id](const sandbox_description&) {
      to->respond({200, write_id(id)});
    },
    [=](question_stage at, const error& why) {
      if (looks > 0 && why.code == errc::already_exists)
        look_or_define(with, id, snapshot, looks - 1, to);
      else
        to->respond(failing(step::snapshot)(at, why));
    }};
  asked.starts_it = false;
  ask_sandbox(*with, std::move(asked));
}

/// A second request with the same key meets the sandbox that the first one has made.
void look_or_define(const shared& with, const std::string& id, const std::string& snapshot,
                    unsigned looks, const reply& to) {
  question{*with, id, redefine_sandbox{}, to}
    .starts(false)
    .or_else(failing(step::find_sandbox))
    .then<sandbox_description>([=](const sandbox_description& is) {
      if (!is.exists)
        define_from(with, id, snapshot, looks, to);
      else if (!is.snapshot.empty()) // It may have been rolled back since.
        to->respond({200, write_id(id)});
      else
        to->respond(error_response(
          step::find_sandbox,
          {errc::sandbox_mismatch, "the key's sandbox is there, and began with no snapshot"}));
    });
}

void create_from(const shared& with, const std::string& id, const std::string& snapshot, bool keyed,
                 const reply& to) {
  if (!sandbox_id::parse(snapshot))
    return to->respond(error_response(
      step::snapshot, {errc::invalid_request, "Insula-Snapshot: expected the id of a snapshot"}));
  to->answer_within(sandbox_patience,
                    overdue(step::find_sandbox, "the sandbox was not made in time"));
  constexpr unsigned looks = 3;
  keyed ? look_or_define(with, id, snapshot, looks, to) : define_from(with, id, snapshot, 0, to);
}

/// Clients send options here; nothing is started, so there is nothing to apply them to, but for
/// what is remembered of an id.
void create(const services& with, const std::string& id, const reply& to) {
  const auto made = [to, id](caf::ok_atom) { to->respond({200, write_id(id)}); };
  const auto ask = [&](auto message) {
    question asked{with, id, std::move(message), to};
    asked.within(sandbox_patience, overdue(step::find_sandbox, "the sandbox was not made in time"))
      .starts(false)
      .or_else(failing(step::find_sandbox));
    return asked;
  };
  redefine_sandbox wishes;
  wishes.keeps_wishes = true;
  if (to->context().gains || !to->context().image.empty())
    return ask(wishes).template then<sandbox_description>([made](const auto&) { made({}); });
  if (to->context().persistent)
    return ask(mark_persistent{}).template then<caf::ok_atom>(made);
  made({});
}

response no_such_sandbox(const std::string& id) {
  return {404, json::write_error(id.empty() ? "404 Not Found" : "Sandbox " + id + " not found.",
                                 "not_found")};
}

/// What it is, and what it may use.
void describe(const services& with, const std::string& id, const reply& to) {
  question{with, id, redefine_sandbox{}, to}
    .within(sandbox_patience, overdue(step::find_sandbox, "the sandbox did not answer in time"))
    .starts(false)
    .or_else(failing(step::find_sandbox))
    .then<sandbox_description>([to, id](const sandbox_description& is) {
      to->respond(is.exists ? response{200, write_description(id, is)} : no_such_sandbox(id));
    });
}

/// With a key, the id comes from that, and from what nobody else knows: it is the same for good,
/// and nobody can guess it.
admission admit_create(const std::shared_ptr<const services>& with, const matched_request& what) {
  const auto header = idempotency_header_of(what);
  const auto keyed = has_idempotency_key(header);
  if (!keyed)
    return refused(error_response(step::request, keyed.reason()));
  return answered_by(
    [with, id = *keyed ? keyed_id(with->secret, *header.key) : sandbox_id::generate().str(),
     snapshot = what.field("Insula-Snapshot"),
     keyed = *keyed](const std::string&, const reply& to) {
      if (snapshot.empty())
        create(*with, id, to);
      else
        create_from(with, id, snapshot, keyed, to);
    });
}

void remove(const services& with, const std::string& id, const reply& to) {
  const auto patience =
    std::chrono::milliseconds{limits::destroy_patience} + std::chrono::seconds{10};
  to->answer_within(patience, overdue(step::find_sandbox, "the sandbox did not end in time"));
  const auto ask = [id, to, context = to->context()](caf::event_based_actor* self,
                                                     const directory_actor& directory) {
    const auto failed = [to](const caf::error& failure) {
      const auto why = from_caf(failure);
      if (why.code == errc::sandbox_not_running)
        to->respond({204, {}}); // It ended meanwhile, which is what was wanted.
      else
        to->respond(error_response(step::find_sandbox, why));
    };
    self->request(directory, caf::infinite, delete_atom::value, id, context)
      .then(
        [to](caf::ok_atom) {
          to->respond({204, {}});
        },
        failed);
  };
  with.system->spawn(ask, with.directory);
}

void running(const services& with, const std::string& id, const reply& to) {
  const auto until = std::chrono::steady_clock::now() + with.probe_patience;
  question{with, id, probe_request{}, to}
    .within(with.probe_patience, overdue(step::find_sandbox, not_ready))
    .when_found([to, until] {
      const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      to->answer_within(left, {200, write_running(false)});
    })
    .or_else([](question_stage at, const error& why) {
      const bool is_over = is_run_end(why.code); // And no request of this API begins one.
      return at == question_stage::find && !is_over ? error_response(step::find_sandbox, why)
                                                    : response{200, write_running(false)};
    })
    .then<bool>([to](bool is_running) {
      to->respond({200, write_running(is_running)});
    });
}

} // namespace

void add_sandbox_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back({verb::post,
                   "/v1/sandbox",
                   access::key,
                   body_use::ignored,
                   0,
                   [with](const matched_request& what) { return admit_create(with, what); },
                   {.id = "createSandbox",
                    .summary = "Issue the id of a new sandbox. It starts with its first use.",
                    .parameters = {key_parameter,
                                   {"Insula-Snapshot", "header",
                                    "The id of a snapshot: the sandbox's disk begins with it."}},
                    .answers = {{"200", "The id.", "application/json", "CreateSandboxResponse"},
                                {"400", "", "", "InvalidRequest"},
                                {"403", "The node does not allow what a header asks for.",
                                 "application/json", "ErrorResponse"},
                                {"409", "The key's sandbox is there, and was made otherwise.",
                                 "application/json", "ErrorResponse"},
                                {"502", "What a header asks for could not be remembered.",
                                 "application/json", "ErrorResponse"}}}});
  table.back().about = [with](const matched_request& what) {
    const auto header = idempotency_header_of(what);
    const auto keyed = has_idempotency_key(header);
    return keyed && *keyed ? keyed_id(with->secret, *header.key) : std::string{};
  };
  table.push_back(
    {verb::del,
     "/v1/sandbox/:id",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       return answered_by(
         [with, id = what.id()](const std::string&, const reply& to) { remove(*with, id, to); });
     },
     {.id = "deleteSandbox",
      .summary = "End everything in a sandbox and remove its files.",
      .answers = {{"204", "Gone, or never there."},
                  {"400", "", "", "InvalidRequest"},
                  {"502", "It could not be ended.", "application/json", "ErrorResponse"}}}});
  table.back().unknown = [](const request_path&) { return response{204, {}}; };
  table.push_back(
    {verb::get,
     "/v1/sandbox/:id",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       if (what.id().empty())
         return refused(no_such_sandbox({}));
       return answered_by(
         [with, id = what.id()](const std::string&, const reply& to) { describe(*with, id, to); });
     },
     {.id = "describeSandbox",
      .summary = "What a sandbox is made from, what it may use and gain. Starts nothing.",
      .answers = {{"200", "The sandbox.", "application/json", "SandboxDescription"},
                  {"400", "", "", "InvalidRequest"},
                  {"404", "It has never run, or was deleted.", "application/json", "ErrorResponse"},
                  {"502", "It cannot be asked.", "application/json", "ErrorResponse"}}}});
  table.back().unknown = [](const request_path& path) { return no_such_sandbox(path.id()); };
  table.push_back(
    {verb::get,
     "/v1/sandbox/:id/running",
     access::key,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       return answered_by(
         [with, id = what.id()](const std::string&, const reply& to) { running(*with, id, to); });
     },
     {.id = "isSandboxRunning",
      .summary = "Whether the sandbox can run programs. Starts it if need be.",
      .answers = {{"200", "Whether it can.", "application/json", "RunningResponse"},
                  {"400", "", "", "InvalidRequest"},
                  {"502", "It could not be started.", "application/json", "ErrorResponse"},
                  {"503", "No room for another sandbox.", "application/json", "ErrorResponse"}}}});
}

} // namespace insula::http::bridge
