#include "base/clock.hpp"
#include "http/sandboxes/ask_directory.hpp"
#include "http/sandboxes/node_images.hpp"
#include "http/sandboxes/short_command.hpp"
#include "http/text/percent.hpp"
#include "http/vercel/access.hpp"
#include "http/vercel/creations.hpp"
#include "http/vercel/listing.hpp"
#include "http/vercel/operations.hpp"
#include "http/vercel/session_call.hpp"
#include "http/vercel/set_up.hpp"
#include "http/vercel/snapshots.hpp"
#include "http/vercel/views.hpp"

#include <caf/event_based_actor.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace insula::http::vercel {

namespace {

using namespace std::chrono_literals;

/// Clients repeat a request that has had no header for 300 s.
constexpr auto create_patience = 280s;
constexpr auto delete_patience = std::chrono::milliseconds{limits::destroy_patience} + 10s;

response unknown_sandbox(const std::string& name) {
  return failure(
    refusal{404, "not_found", "Named sandbox '" + name + "' not found for this project."});
}

response taken_name(const std::string& name) {
  return failure(refusal{
    400, "bad_request", "A sandbox with the name '" + name + "' already exists for this project."});
}

// ---- One sandbox, by its name

/// A request about one.
struct named_call {
  shared_services with;
  std::string project, name;
  std::string host; ///< What the client calls this node.
  bool resumes = false;
  bool deletes_snapshots = false;

  std::string id() const { return id_of_name(with->secret, project, name); }
  /// Another API has made it.
  bool is_other() const { return !other_sandbox_of(name).empty(); }
  std::optional<sandbox_view> view(const sandbox_description& is) const {
    return is_other() ? view_of_other(id(), project, is) : view_of(id(), is);
  }
};

response failed(const error& why) {
  return failure(why);
}

response sandbox_answer(const named_call& call, const sandbox_view& view, bool resumed = false) {
  json::ascii_writer out;
  out.begin_object().key("sandbox");
  write_sandbox(out, view);
  out.key("session");
  write_session(out, view);
  out.key("routes");
  write_routes(out, routes_of(*call.with, view, call.host));
  if (resumed)
    out.member("resumed", true);
  out.end_object();
  return {200, out.str()};
}

using found_function = std::function<void(const sandbox_view&, const sandbox_description&)>;

/// `found` is called for a sandbox of this project with that name. `absent`: there is none;
/// without, that is answered.
void find_any(const named_call& call, const reply& to, found_function found,
              std::function<void()> absent = nullptr) {
  to->answer_within(look_patience, late_answer());
  const auto none = [=] { absent ? absent() : to->respond(unknown_sandbox(call.name)); };
  find_runs look;
  look.context = to->context();
  sandbox_question<find_runs, run_list> asked{call.with->directory, call.id(), std::move(look),
                                              [=](const run_list& all) {
                                                const auto view = call.view(all.sandbox);
                                                view ? found(*view, all.sandbox) : none();
                                              },
                                              [=](question_stage, const error& why) {
                                                why.code == errc::not_found
                                                  ? none()
                                                  : to->respond(failure(why));
                                              }};
  asked.starts_it = false;
  ask_sandbox(*call.with, std::move(asked));
}

/// One that is being made, or was left in the middle of that, is none yet.
void find(const named_call& call, const reply& to, found_function found) {
  find_any(call, to, [=](const sandbox_view& view, const sandbox_description& is) {
    view.is.unfinished ? to->respond(unknown_sandbox(call.name)) : found(view, is);
  });
}

/// One of this API's.
void find_own(const named_call& call, const reply& to, found_function found) {
  find(call, to, [=](const sandbox_view& view, const sandbox_description& is) {
    view.is_other() ? to->respond(needs_own_sandbox()) : found(view, is);
  });
}

// ---- Making one

/// A sandbox that is being made. What fails is undone before it is answered, since a client that
/// asks again must not find half of it. What a server leaves that ends meanwhile is unfinished in
/// its record, and made anew by the next request.
class making : public std::enable_shared_from_this<making> {
public:
  making(named_call call, std::shared_ptr<creations> under_way, create_request wanted, reply to)
      : call_(std::move(call))
      , id_(call_.id())
      , under_way_(std::move(under_way))
      , wanted_(std::move(wanted))
      , to_(std::move(to))
      , until_(std::chrono::steady_clock::now() + create_patience) {}
  ~making() { leave(); }
  making(const making&) = delete;
  making& operator=(const making&) = delete;

  /// What is made instead if there is no such snapshot any more. Without: that is refused.
  void falls_back_on(create_request other) { fallback_ = std::move(other); }

  void begin() {
    has_entered_ = under_way_->enter(id_);
    if (!has_entered_) // Of two that make it at the same time, one does.
      return to_->respond(taken_name(call_.name));
    to_->answer_within(create_patience, failure(refusal{503, "internal_server_error",
                                                        "The sandbox was not ready in time."}));
    wanted_.snapshot.empty() ? define() : look_at_snapshot();
  }

private:
  template <class Answer, class Message>
  void ask(Message message, void (making::*then)(const Answer&),
           void (making::*otherwise)(const error&) = &making::undo) {
    message.context = to_->context();
    message.context.image.clear(); // The body says it.
    message.context.gains.reset();
    sandbox_question<Message, Answer> asked{
      call_.with->directory, id_, std::move(message),
      [self = shared_from_this(), then](const Answer& answer) { (*self.*then)(answer); },
      [self = shared_from_this(), otherwise](question_stage, const error& why) {
        (*self.*otherwise)(why);
      }};
    asked.starts_it = false;
    ask_sandbox(*call_.with, std::move(asked));
  }

  /// Before the answer: its client may ask for the same name at once.
  void tell(response what) {
    leave();
    to_->respond(std::move(what));
  }
  void leave() {
    if (std::exchange(has_entered_, false))
      under_way_->leave(id_);
  }

  /// It is to be one of this project's.
  void look_at_snapshot() {
    ask_directory<snapshot_description>(
      *call_.with, find_snapshot{wanted_.snapshot, to_->context()},
      [self = shared_from_this()](const snapshot_description& is) {
        is.group == self->call_.project ? self->define() : self->has_no_snapshot();
      },
      [self = shared_from_this()](const error& why) {
        why.code == errc::not_found ? self->has_no_snapshot() : self->refuse(why);
      });
  }
  void has_no_snapshot() {
    if (!fallback_)
      return tell(failure(gone_snapshot(id_of_snapshot(wanted_.snapshot))));
    wanted_ = *std::exchange(fallback_, std::nullopt);
    define();
  }

  void define() {
    auto message = definition_of(wanted_, call_.with->secret);
    wanted_.wanted.updated_ms = system_clock{}.unix_ms();
    wanted_.wanted.unfinished = true;
    message.metadata[metadata_api] = text_of(wanted_.wanted);
    message.prompt = true; // What is told to the client is what the run's start makes durable.
    ask<sandbox_description>(std::move(message), &making::defined, &making::not_defined);
  }
  void defined(const sandbox_description&) {
    begin_run message{wanted_.wanted.timeout_ms};
    if (!has_source(wanted_)) // With that, all of it is done.
      message.with = completion();
    ask<run_report>(std::move(message), &making::started, &making::not_started);
  }
  /// The sandbox is not there: the store has refused it after the first answer.
  void not_started(const error& why) {
    undo(why.code == errc::not_found ? error{errc::store_failed, "the sandbox was not kept"} : why);
  }

  /// It is there: or an earlier attempt was cut off in its middle, and nobody goes on with it.
  void not_defined(const error& why) {
    if (why.code == errc::not_found && !wanted_.snapshot.empty())
      return has_no_snapshot();
    if (why.code != errc::already_exists)
      return refuse(why);
    ask<run_list>(find_runs{}, &making::looked_at, &making::refuse);
  }
  void looked_at(const run_list& all) {
    const auto is = settings_of(all.sandbox);
    if (!is || !is->unfinished || std::exchange(has_removed_, true))
      return tell(taken_name(call_.name));
    remove([self = shared_from_this()](const std::optional<error>& why) {
      why ? self->refuse(*why) : self->define();
    });
  }

  void started(const run_report& report) {
    report_ = report;
    has_source(wanted_) ? run_steps(steps_of(wanted_)) : finished(report.sandbox);
  }

  /// One after the other; the first that fails ends it.
  void run_steps(std::vector<set_up_step> steps) {
    if (steps.empty())
      return prepared();
    auto next = std::move(steps.front());
    steps.erase(steps.begin());
    next.command.context = to_->context();
    next.command.context.run = report_.run.number;
    run_short_command(
      *call_.with, id_, std::move(next.command),
      [self = shared_from_this(), steps = std::move(steps),
       fails = next.failure](const result<short_outcome>& outcome) mutable {
        if (!outcome)
          return self->undo(outcome.reason());
        if (outcome->end.exit_code != 0)
          return self->undo({errc::invalid_request, fails + last_line(outcome->err)});
        self->run_steps(std::move(steps));
      });
  }

  void prepared() {
    if (wanted_.wanted.network.mode == network_wish::kind::allow_all)
      return finish();
    // Sources were fetched before the policy binds.
    set_network_request wanted{policy_of(wanted_.wanted.network)};
    wanted.requests = wanted_.wanted.network.sealed;
    ask<network_state>(std::move(wanted), &making::network_is_set);
  }
  void network_is_set(const network_state&) { finish(); }

  /// Nobody has changed it while it was made.
  metadata_change completion() {
    const auto before = text_of(wanted_.wanted);
    wanted_.wanted.unfinished = false;
    return {metadata_api, text_of(wanted_.wanted), before};
  }
  void finish() {
    redefine_sandbox message;
    message.metadata = completion();
    ask<sandbox_description>(std::move(message), &making::finished);
  }
  void finished(const sandbox_description& is) {
    const auto view = view_of(id_, is, report_.run);
    if (!view || view->is.unfinished)
      return undo({errc::internal, "the sandbox has been changed while it was made"});
    if (std::chrono::steady_clock::now() >= until_)
      return undo({errc::deadline_exceeded, "too late"});
    tell(sandbox_answer(call_, *view));
  }

  void refuse(const error& why) { tell(failure(why)); }

  void undo(const error& why) {
    remove([self = shared_from_this(), why](const std::optional<error>&) { self->refuse(why); });
  }

  /// With what was made of it.
  void remove(std::function<void(const std::optional<error>&)> then) {
    call_.with->system->spawn(
      [](caf::event_based_actor* self, const std::shared_ptr<making>& it,
         const std::function<void(const std::optional<error>&)>& next) {
        self
          ->request(it->call_.with->directory, caf::infinite, delete_atom::value, it->id_,
                    it->to_->context())
          .then([next](caf::ok_atom) { next(std::nullopt); },
                [next](const caf::error& failed) { next(from_caf(failed)); });
      },
      shared_from_this(), std::move(then));
  }

  const named_call call_;
  const std::string id_;
  const std::shared_ptr<creations> under_way_;
  create_request wanted_;
  std::optional<create_request> fallback_;
  const reply to_;
  const std::chrono::steady_clock::time_point until_;
  run_report report_;
  bool has_entered_ = false; ///< Among those under way.
  bool has_removed_ = false; ///< What an earlier attempt has left.
};

/// None: the node can make what is asked for.
std::optional<refusal> objection(const services& with, const settings& wanted) {
  if (wanted.runtime.empty() || with.images == nullptr)
    return std::nullopt;
  const auto known = with.images->runtimes();
  if (std::any_of(known.begin(), known.end(),
                  [&](const auto& each) { return each.name == wanted.runtime; }))
    return std::nullopt;
  return refusal{400, "bad_request", "runtime: this server has no " + wanted.runtime};
}

void create(const shared_services& with, const std::shared_ptr<creations>& under_way,
            const access::reach& reach, const std::string& host, const std::string& body,
            const reply& to) {
  create_request wanted;
  if (const auto wrong = read_create(body, wanted))
    return to->respond(failure(*wrong));
  if (const auto no = reach.objection(wanted.wanted.project))
    return to->respond(*no);
  if (const auto wrong = objection(*with, wanted.wanted))
    return to->respond(failure(*wrong));
  wanted.wanted.team = reach.team();
  const named_call call{with, wanted.wanted.project, wanted.wanted.name, host};
  when_sealed(*with, wanted.wanted.network, to, [=](const network_wish& sealed) {
    auto is = wanted;
    is.wanted.network = sealed;
    std::make_shared<making>(call, under_way, std::move(is), to)->begin();
  });
}

// ---- What is asked of one

void get(const named_call& call, const std::string&, const reply& to) {
  find(call, to, [=](const sandbox_view& view, const sandbox_description&) {
    // One of another API's begins no session here.
    if (!call.resumes || view.run.state == run_state::running || view.is_other())
      return to->respond(sandbox_answer(call, view));
    // A run that begins or ends is waited for.
    begin_run message{view.is.timeout_ms};
    message.resumes = true;
    question{*call.with, call.id(), std::move(message), to}
      .within(create_patience, late_answer())
      .starts(false)
      .or_else([](question_stage, const error& why) {
        // 404 would say that there is no such sandbox.
        return why.code == errc::drive_gone ? failure(refusal{409, "conflict", why.message})
                                            : failure(why);
      })
      .then<run_report>([=](const run_report& report) {
        const auto now = view_of(call.id(), report.sandbox, report.run);
        to->respond(now ? sandbox_answer(call, *now, report.begun) : unknown_sandbox(call.name));
      });
  });
}

void fork(const named_call& call, const std::shared_ptr<creations>& under_way,
          const std::string& body, const reply& to) {
  find_own(call, to, [=](const sandbox_view& view, const sandbox_description&) {
    copy_definition look;
    look.with_env = true;
    question{*call.with, call.id(), look, to}
      .within(look_patience, late_answer())
      .starts(false)
      .or_else(failed)
      .then<define_sandbox>([=](const define_sandbox& source) {
        create_request wanted;
        wanted.wanted = view.is;
        wanted.env = source.env;
        bool other_image = false;
        if (const auto wrong = read_fork(body, wanted, other_image))
          return to->respond(failure(*wrong));
        if (const auto wrong = objection(*call.with, wanted.wanted))
          return to->respond(failure(*wrong));
        when_sealed(*call.with, wanted.wanted.network, to, [=](const network_wish& sealed) {
          auto made = call;
          made.name = wanted.wanted.name;
          auto is = wanted;
          is.wanted.network = sealed;
          const auto fresh = is;
          if (!other_image)
            is.snapshot = view.snapshot;
          const auto it = std::make_shared<making>(std::move(made), under_way, std::move(is), to);
          it->falls_back_on(fresh);
          it->begin();
        });
      });
  });
}

/// `message` has all but the texts, which are those of `changed`.
void redefine(const named_call& call, settings changed, redefine_sandbox message,
              const std::string& before, const reply& to) {
  changed.updated_ms = system_clock{}.unix_ms();
  message.drives = drives_of(changed, call.with->secret);
  message.metadata = metadata_change{metadata_api, text_of(changed), before};
  const auto aim = message.snapshot;
  question{*call.with, call.id(), std::move(message), to}
    .within(look_patience, late_answer())
    .starts(false)
    .or_else([aim](question_stage, const error& why) {
      return why.code == errc::snapshot_gone ? failure(gone_snapshot(id_of_snapshot(aim)))
                                             : failure(why);
    })
    .then<sandbox_description>([=](const sandbox_description& now) {
      const auto told = view_of(call.id(), now);
      if (!told || text_of(told->is) != text_of(changed))
        return to->respond(
          failure(refusal{409, "conflict", "The sandbox has been changed just now; ask again."}));
      json::ascii_writer out;
      out.begin_object().key("sandbox");
      write_sandbox(out, *told);
      out.key("routes");
      write_routes(out, routes_of(*call.with, *told, call.host));
      out.end_object();
      to->respond({200, out.str()});
    });
}

void patch(const named_call& call, const std::string& body, const reply& to) {
  find_own(call, to, [=](const sandbox_view& view, const sandbox_description& is) {
    auto changed = view.is;
    redefine_sandbox message;
    if (const auto wrong = apply_patch(body, changed, message.snapshot))
      return to->respond(failure(*wrong));
    when_sealed(*call.with, changed.network, to,
                [=, before = is.metadata.at(metadata_api)](const network_wish& sealed) {
                  auto now = changed;
                  now.network = sealed;
                  redefine(call, std::move(now), message, before, to);
                });
  });
}

/// The last thing that a deletion does.
void remove_snapshots(const named_call& call, const reply& to, const response& then) {
  if (!call.deletes_snapshots)
    return to->respond(response{then});
  delete_snapshots_of(call.with, call.id(), to->context(), [to, then](const result<void>& done) {
    to->respond(done ? response{then} : failure(done.reason()));
  });
}

void remove(const named_call& call, const std::string&, const reply& to) {
  const auto go_on = [=](sandbox_view view, const sandbox_description&) {
    to->answer_within(delete_patience, late_answer());
    // What is told is how it stands when nothing of it runs.
    if (is_alive(view.run.state)) {
      view.run.state = run_state::stopped;
      view.expires_ms.reset();
      view.run.ended_ms = std::max(system_clock{}.unix_ms(), begin_of(view.run));
    }
    json::ascii_writer out;
    out.begin_object().key("sandbox");
    write_sandbox(out, view);
    out.end_object();
    call.with->system->spawn(
      [call](caf::event_based_actor* self, const directory_actor& directory, const reply& told,
             const std::string& text) {
        self->request(directory, caf::infinite, delete_atom::value, call.id(), told->context())
          .then(
            [=](caf::ok_atom) {
              remove_snapshots(call, told, {200, text});
            },
            [=](const caf::error& why_not) {
              const auto why = from_caf(why_not);
              if (is_being_deleted(why))
                return remove_snapshots(call, told, {200, text});
              // The next server has it.
              told->respond(
                why.code == errc::sandbox_not_running
                  ? failure(refusal{503, "internal_server_error", "The server ends; ask again."})
                  : failure(why));
            });
      },
      call.with->directory, to, out.str());
  };
  // A request that is sent again has the snapshots of what the first one has deleted.
  find_any(call, to, go_on, [=] { remove_snapshots(call, to, unknown_sandbox(call.name)); });
}

using named_handler = std::function<void(const named_call&, const std::string& body, const reply&)>;

/// One row below `/v2/sandboxes/:name`.
route named_route(const shared_services& with, const std::string& prefix, verb method,
                  const std::string& rest, named_handler handle, operation document) {
  const bool has_body = method == verb::patch || method == verb::post;
  route made{method,
             prefix + "/v2/sandboxes/:name" + rest,
             access::bearer,
             has_body ? body_use::buffered : body_use::ignored,
             has_body ? small_body_bytes : 0,
             [with, handle](const matched_request& what) -> admission {
               const auto& query = what.head().query;
               named_call call{with,
                               form_value(query, "projectId"),
                               percent_decode(what["name"]),
                               what.field("Host"),
                               form_value(query, "resume") == "true",
                               form_value(query, "deleteOrphanSnapshots") == "true"};
               if (call.is_other()) // Snapshots of other APIs are nothing that this one shows.
                 call.deletes_snapshots = false;
               // Words of other routes, of this server's or of the service's, come without it.
               if (!is_sandbox_name(call.name))
                 return refused(unknown_sandbox(call.name));
               if (call.project.empty())
                 return refused(failure(refusal{400, "bad_request", "projectId is required"}));
               const access::reach reach{*with, what};
               if (auto no = reach.objection(call.project))
                 return refused(std::move(*no));
               if (call.is_other() && !reach.has_other_apis())
                 return refused(unknown_sandbox(call.name));
               return answered_by(
                 [call = std::move(call), handle](const std::string& body, const reply& to) {
                   handle(call, body, to);
                 });
             },
             std::move(document)};
  made.about = [with](const matched_request& what) {
    return id_of_name(with->secret, form_value(what.head().query, "projectId"),
                      percent_decode(what["name"]));
  };
  made.unknown = [](const request_path& path) {
    return unknown_sandbox(percent_decode(path["name"]));
  };
  made.too_large = &too_large;
  return made;
}

operation create_document(std::string_view version) {
  auto made = listed(version == "/v3" ? "createVercelSandbox" : "createVercelSandboxOfOlderClients",
                     "Makes a sandbox and starts its first session.", "VercelSandboxAnswer",
                     "VercelCreateRequest");
  for (const auto& [status, why] :
       {std::pair{"409", "It was changed by another request while it was made."},
        std::pair{"410", "It was stopped or deleted by another request while it was made."},
        std::pair{"411", "In a cluster the body says which node it goes to, and needs a length."},
        std::pair{"413", "The body has more than 64 KiB."}})
    made.answers.push_back({status, why, "application/json", "VercelError"});
  return made;
}

} // namespace

void add_sandbox_routes(std::vector<route>& table, const shared_services& with,
                        const std::shared_ptr<creations>& under_way, const std::string& prefix) {
  for (const auto* version : {"/v2", "/v3"}) {
    table.push_back({verb::post, prefix + version + "/sandboxes", access::bearer,
                     body_use::buffered, limits::routed_body_bytes,
                     [with, under_way](const matched_request& what) {
                       return answered_by(
                         [with, under_way, reach = access::reach{*with, what},
                          host = what.field("Host")](const std::string& body, const reply& to) {
                           create(with, under_way, reach, host, body, to);
                         });
                     },
                     create_document(version)});
    table.back().about = [](const matched_request&) { return std::string{}; };
    table.back().in_body = [with](std::string_view body, const request_path&) {
      const auto is = settings_in(body);
      told_by_body told{
        is.name.empty() ? std::string{} : sandbox_of(with->secret, is.project, is.name), {}};
      told.image.beside = own_drive_of(is, with->secret);
      return told;
    };
    table.back().id_in_body = true;
    table.back().no_length = &no_length;
    table.back().too_large = &too_large;
  }
  add_list_route(table, with, prefix);
  auto got = listed("getVercelSandbox", "A sandbox, with the session that runs or ran last.",
                    "VercelSandboxAnswer", {},
                    {project_parameter,
                     {"resume", "query",
                      "true: if no session runs, one begins with the sandbox's current snapshot. A "
                      "session that begins or ends is waited for."}});
  got.answers.push_back({"410", "There is no snapshot that a session could begin with.",
                         "application/json", "VercelError"});
  table.push_back(named_route(with, prefix, verb::get, "", get, std::move(got)));
  auto patched = listed("updateVercelSandbox", "Changes what the body names.",
                        "VercelSandboxWithRoutes", "VercelUpdateRequest", {project_parameter});
  patched.answers.push_back(
    {"410", "There is no such snapshot.", "application/json", "VercelError"});
  table.push_back(
    named_route(with, prefix, verb::patch, "", patch, of_own_sandbox(std::move(patched))));
  table.push_back(named_route(
    with, prefix, verb::del, "", remove,
    listed("deleteVercelSandbox", "Deletes it. Its snapshots stay.", "VercelSandboxAlone", {},
           {project_parameter,
            {"deleteOrphanSnapshots", "query",
             "true: its snapshots go as well, but for those that another sandbox begins with."}})));
  table.push_back(named_route(
    with, prefix, verb::post, "/fork",
    [under_way](const named_call& call, const std::string& body, const reply& to) {
      fork(call, under_way, body, to);
    },
    of_own_sandbox(
      listed("forkVercelSandbox",
             "Makes a sandbox like this one, which begins with its current snapshot, or with its "
             "image if there is none. What the body names takes the place of what this one has.",
             "VercelSandboxAnswer", "VercelForkRequest", {project_parameter}))));
}

} // namespace insula::http::vercel
