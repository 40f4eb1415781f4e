#include "base/id.hpp"
#include "http/opensandbox/fork_table.hpp"
#include "http/opensandbox/lifecycle.hpp"
#include "http/sandboxes/ask_directory.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/sandboxes/fork.hpp"
#include "http/sandboxes/keyed_id.hpp"
#include "http/text/percent.hpp"
#include "http/transport/retry_after.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <utility>

/// Forks: one sandbox each, that begins with the disk of another one. A fork is asked for, and is
/// then told of as an operation, by the id of the sandbox that it makes: the record of that sandbox
/// is all that is kept of it (docs/decisions/0060).
namespace insula::http::opensandbox {

namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds look_patience = 30s;
/// What takes longer goes on behind its answer. Their clients give up after 30 s.
constexpr std::chrono::milliseconds answer_patience = 25s;
constexpr std::size_t longest_key = 256;
/// How often the same key may meet a snapshot that was deleted since.
constexpr unsigned most_snapshots = 32;
constexpr const char* fork_label = "opensandbox.fork";
constexpr const char* request_label = "opensandbox.request";

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

response accepted(const fork_operation& is) {
  response answer{202, write_fork(is), json_type};
  answer.fields.push_back({"Location", "/v1/forks/" + is.id});
  return answer;
}

response conflict() {
  return refused(
    {409, "FORK::IDEMPOTENCY_CONFLICT", "the Idempotency-Key has been used for another request"});
}

constexpr std::string_view no_snapshot = "FORK::SNAPSHOT_FAILED";
constexpr std::string_view no_sibling = "FORK::PROVISIONING_FAILED";

response not_yet(std::string_view reason, const char* why) {
  response later = refused({503, reason, why});
  later.fields.push_back({"Retry-After", "1"});
  return later;
}

/// What is said of a fork of `source` that has failed for that reason.
response not_forked(const std::string& source, const error& why, std::string_view reason) {
  if (reason == no_sibling && is_being_deleted(why))
    return not_yet(reason, "the sandbox of this fork is being deleted");
  switch (why.code) {
    case errc::forbidden:
      return reason == no_snapshot ? refused({501, "FORK::UNSUPPORTED_RUNTIME", why.message})
                                   : failed(source, why);
    case errc::invalid_request: return refused({400, "FORK::INVALID_REQUEST", why.message});
    case errc::run_over:
    case errc::run_stopping:
    case errc::run_snapshotting:
    case errc::drive_in_use:
    case errc::drive_gone:
    case errc::snapshot_gone: return refused({409, "FORK::INVALID_SOURCE_STATE", why.message});
    case errc::not_found: // The source, or the snapshot, is gone by now.
      return refused({409, reason, why.message});
    case errc::limit_reached: return with_retry_after(refused({429, reason, why.message}), why);
    case errc::launch_failed:
    case errc::io_failed: return refused({500, reason, why.message});
    default: return failed(source, why);
  }
}

/// None: it can be one.
std::optional<response> check_key(const std::optional<std::string>& key) {
  if (!key || (key->size() <= longest_key && key->find_first_not_of(" \t") != key->npos))
    return std::nullopt;
  return refused({400, "FORK::INVALID_REQUEST", "an Idempotency-Key has 1 to 256 characters"});
}

/// Of a fork that has failed. What it took goes; if that fails, a question about it tries again.
void delete_left(const shared_services& with, const std::shared_ptr<fork_table>& forks,
                 const fork_operation& is, const request_context& context,
                 const std::function<void()>& then) {
  const auto gone = [forks, id = is.id, then](const snapshot_description&) {
    forks->clean(id);
    then();
  };
  const auto failed = [forks, id = is.id, then](const error& why) {
    if (why.code == errc::not_found)
      forks->clean(id);
    then();
  };
  ask_directory<snapshot_description>(*with, delete_snapshot{is.snapshot, context}, gone, failed);
}

// ---- Making one

/// From the request to its answer, and beyond that if it takes long. One step follows the other, on
/// CAF workers.
class fork_making : public std::enable_shared_from_this<fork_making> {
public:
  fork_making(shared_services with, std::shared_ptr<fork_table> forks, fork_body wanted,
              fork_operation is, bool has_key, reply to)
      : with_(std::move(with))
      , forks_(std::move(forks))
      , wanted_(std::move(wanted))
      , is_(std::move(is))
      , has_key_(has_key)
      , to_(std::move(to))
      , until_(std::chrono::steady_clock::now() + answer_patience) {}

  void begin() {
    if (const auto before = forks_->begin(is_)) {
      if (before->from.request != is_.from.request)
        return to_->respond(conflict());
      return to_->respond(before->state == fork_state::failed
                            ? not_yet(before->reason, "what this fork has left is being removed")
                            : accepted(*before));
    }
    note(fork_state::pending);
    has_key_ ? look_whether_made() : look_at_source();
  }

private:
  /// It has come so far.
  void note(fork_state now) {
    is_.state = now;
    is_.updated_ms = now_ms();
    forks_->put(is_);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      until_ - std::chrono::steady_clock::now());
    if (left > 0ms)
      to_->answer_within(left, accepted(is_));
  }

  /// A question to a sandbox, which need not run.
  using failed_function = std::function<void(fork_making&, const error&)>;
  template <class Answer, class Message>
  void ask(const std::string& id, Message message, void (fork_making::*answered)(const Answer&),
           std::string_view reason, failed_function failed = nullptr) {
    message.context = to_->context();
    sandbox_question<Message, Answer> asked{
      with_->directory, id, std::move(message),
      [me = shared_from_this(), answered](const Answer& told) { (*me.*answered)(told); },
      [me = shared_from_this(), reason, failed = std::move(failed)](
        question_stage, const error& why) { failed ? failed(*me, why) : me->fail(why, reason); }};
    asked.starts_it = false;
    ask_sandbox(*with_, std::move(asked));
  }

  // ---- A request that came before

  void look_whether_made() {
    ask(is_.id, redefine_sandbox{}, &fork_making::on_sibling, no_sibling,
        [](fork_making& me, const error& why) {
          me.refuse(not_forked(me.is_.from.source, why, no_sibling));
        });
  }
  void on_sibling(const sandbox_description& there) {
    if (!there.exists)
      return look_at_source();
    const auto made = fork_of(is_.id, there);
    if (!made || made->from.request != is_.from.request)
      return refuse(conflict());
    is_ = *made;
    was_made_ = true;
    forks_->end(is_.id);
    // Then it did once; and what it was to run is known to have begun for that long.
    const bool is_old = now_ms() - there.created_ms > limits::results_kept.count() / 2;
    if (state_of(there) != "Running" || is_old)
      return to_->respond(accepted(*made));
    metadata_ = read_notes(text_of_notes(there)).metadata;
    make(); // It may have been made, and not come to run.
  }

  // ---- The source

  void look_at_source() {
    ask(is_.from.source, redefine_sandbox{}, &fork_making::on_source, "FORK::INTERNAL_ERROR");
  }
  void on_source(const sandbox_description& source) {
    if (!source.exists)
      return refuse(not_found(is_.from.source));
    if (state_of(source) != "Running")
      return refuse(refused({409, "FORK::INVALID_SOURCE_STATE",
                             "the sandbox does not run: it is " + std::string{state_of(source)}}));
    metadata_ = wanted_.with.metadata_given ? wanted_.with.notes.metadata
                                            : read_notes(text_of_notes(source)).metadata;
    note(fork_state::snapshotting);
    take();
  }

  /// With an id that another attempt at the same fork has as well: a server that ended in between
  /// leaves a snapshot with which this one goes on.
  void take() {
    take_snapshot wanted;
    wanted.id = keyed_id(with_->secret, "opensandbox fork's snapshot\n" + is_.id + '\n' +
                                          std::to_string(snapshots_++));
    wanted.labels = labels();
    ask(is_.from.source, std::move(wanted), &fork_making::on_snapshot, no_snapshot);
  }
  void on_snapshot(const snapshot_description& taken) {
    if (taken.origin != is_.from.source || taken.labels != labels())
      return refuse(conflict());
    if (taken.state != snapshot_state::created && snapshots_ < most_snapshots)
      return take(); // That of an attempt that has failed.
    is_.snapshot = taken.id;
    note(fork_state::provisioning);
    make();
  }
  std::map<std::string, std::string> labels() const {
    return {{fork_label, is_.id}, {request_label, is_.from.request}};
  }

  // ---- The sibling

  void make() {
    auto& with = wanted_.with;
    auto notes = with.notes;
    notes.metadata = metadata_;
    notes.snapshot = is_.snapshot;
    notes.fork = is_.from;
    fork_request asked;
    asked.source = is_.from.source;
    asked.ids = {is_.id};
    asked.snapshot = is_.snapshot;
    asked.repeats = has_key_;
    asked.until = std::chrono::steady_clock::time_point::max();
    asked.copies_env = !wanted_.env;
    asked.own_limits = wanted_.limits;
    asked.with.env = with.env;
    asked.with.metadata[metadata_api] = write_notes(notes);
    asked.with.expires_ms = now_ms() + with.timeout_s.value_or(0) * 1000;
    asked.with.network = with.network;
    asked.with.memory_bytes = with.memory_bytes;
    asked.with.cpu_percent = with.cpu_percent;
    asked.context = to_->context();
    fork_sandbox(*with_, std::move(asked), [me = shared_from_this()](const result<void>& outcome) {
      outcome ? me->look_at_sibling() : me->fail(outcome.reason(), no_sibling);
    });
  }
  /// It runs: what is asked from here on is no reason for it to have failed.
  void look_at_sibling() {
    ask(is_.id, redefine_sandbox{}, &fork_making::on_made, no_sibling,
        [](fork_making& me, const error&) {
          me.is_.state = fork_state::succeeded;
          me.is_.updated_ms = now_ms();
          me.forks_->end(me.is_.id);
          me.to_->respond(accepted(me.is_));
        });
  }
  void on_made(const sandbox_description& there) {
    const auto made = fork_of(is_.id, there);
    if (!made) // It is being deleted.
      return fail({errc::io_failed, "the sandbox was deleted"}, no_sibling);
    run_entrypoint(with_, is_.id, wanted_.with.notes.entrypoint, to_->context(), true);
    forks_->end(is_.id);
    to_->respond(accepted(*made));
  }

  // ---- The end

  /// Nothing was done.
  void refuse(response why) {
    forks_->end(is_.id);
    to_->respond(std::move(why));
  }
  void fail(const error& why, std::string_view reason) {
    const auto told = not_forked(is_.from.source, why, reason);
    if (was_made_)
      return to_->respond(told);
    log::warning("opensandbox.not_forked",
                 {{"id", is_.id}, {"source", is_.from.source}, {"why", why.message}});
    is_.state = fork_state::failed;
    is_.reason = reason;
    is_.message = why.code == errc::internal ? "internal error" : why.message;
    is_.updated_ms = now_ms();
    is_.cleanup_pending = !is_.snapshot.empty();
    forks_->put(is_);
    if (!is_.cleanup_pending)
      return to_->respond(told);
    // It is gone before the same request can come again.
    delete_left(with_, forks_, is_, to_->context(), [to = to_, told] { to->respond(told); });
  }

  const shared_services with_;
  const std::shared_ptr<fork_table> forks_;
  const fork_body wanted_;
  fork_operation is_;
  const bool has_key_;
  const reply to_;
  const std::chrono::steady_clock::time_point until_;
  std::map<std::string, std::string> metadata_; ///< Of the sibling.
  unsigned snapshots_ = 0;                      ///< So many ids have been asked for.
  bool was_made_ = false;                       ///< By a request that came before.
};

void fork(const shared_services& with, const std::shared_ptr<fork_table>& forks,
          const lifecycle_call& what, const std::string& body, const reply& to) {
  if (auto wrong = check_key(what.idempotency_key))
    return to->respond(std::move(*wrong));
  fork_body wanted;
  if (const auto wrong = read_fork_body(body, wanted))
    return to->respond(refused(*wrong));
  fork_operation is;
  const auto& key = what.idempotency_key;
  is.id = key ? keyed_id(with->secret, "opensandbox fork\n" + to->context().key + '\n' + *key)
              : sandbox_id::generate().str();
  is.from.source = what.id();
  is.from.request = keyed_id(with->secret, "opensandbox fork of\n" + what.id() + '\n' + body);
  is.from.began_ms = now_ms();
  std::make_shared<fork_making>(with, forks, std::move(wanted), std::move(is), key.has_value(), to)
    ->begin();
}

// ---- Looking at one

void get(const shared_services& with, const std::shared_ptr<fork_table>& forks,
         const lifecycle_call& what, const reply& to) {
  const auto id = percent_decode(what["fid"]);
  const auto under_way = forks->find(id);
  // One that has just been asked for may have been made by an earlier request.
  if (under_way && under_way->state != fork_state::pending) {
    const auto tell = [forks, to, before = *under_way] {
      to->respond({200, write_fork(forks->find(before.id).value_or(before)), json_type});
    };
    return under_way->cleanup_pending ? delete_left(with, forks, *under_way, to->context(), tell)
                                      : tell();
  }
  if (!sandbox_id::parse(id))
    return to->respond(no_fork(id));
  question{*with, id, redefine_sandbox{}, to}
    .within(look_patience,
            refused({504, "GENERAL::UNKNOWN_ERROR", "the sandbox did not answer in time"}))
    .starts(false)
    .or_else([id](question_stage, const error& why) {
      return why.code == errc::not_found || is_being_deleted(why) ? no_fork(id) : failed(id, why);
    })
    .then<sandbox_description>([to, id, under_way](const sandbox_description& there) {
      auto is = fork_of(id, there);
      if (!is)
        is = under_way;
      to->respond(is ? response{200, write_fork(*is), json_type} : no_fork(id));
    });
}

} // namespace

response no_fork(const std::string& id) {
  return refused({404, "FORK::NOT_FOUND", "Fork " + id + " not found."});
}

void add_fork_routes(const add_lifecycle_route& add, const std::shared_ptr<fork_table>& forks) {
  constexpr std::string_view failure = "OpenSandboxError";
  add(
    verb::post, "/sandboxes/:id/fork", body_use::buffered,
    [forks](const shared_services& with, const lifecycle_call& what, const std::string& body,
            const reply& to) { fork(with, forks, what, body, to); },
    {.id = "forkOpenSandbox",
     .summary = "Make a sandbox that begins with the disk of this one as it is now, and has its "
                "environment, limits, metadata and network policy where the body says nothing "
                "else. Processes are not copied.",
     .parameters = {{"Idempotency-Key", "header",
                     "1 to 256 characters. The same request with the same key is the same fork for "
                     "as long as its sandbox is there; another request with it is refused."}},
     .body_type = json_type,
     .body_schema = "OpenSandboxForkRequest",
     .answers = {
       {"202", "It runs; after 25 seconds without that, it is on its way.", json_type,
        "OpenSandboxFork"},
       {"400", "It is wrong; the message says what.", json_type, failure},
       {"409",
        "The sandbox does not run, the key is another request's, or something that is "
        "asked for is not supported.",
        json_type, failure},
       {"404", "There is no such sandbox.", json_type, failure},
       {"422", "The body is not as it must be.", json_type, failure},
       {"429", "As many snapshots are taken as may be.", json_type, failure},
       {"500", "It could not be made; nothing is left of it.", json_type, failure},
       {"503", "No room for it, or its last sandbox is being deleted.", json_type, failure},
       {"507", "The disk is full.", json_type, failure},
       {"501", "This node keeps no snapshots.", json_type, failure}}});
  add(verb::get, "/forks/:fid", body_use::ignored,
      [forks](const shared_services& with, const lifecycle_call& what, const std::string&,
              const reply& to) { get(with, forks, what, to); },
      {.id = "getOpenSandboxFork",
       .summary = "What has become of a fork.",
       .parameters = {{"fid", "path", "The fork's id, which is that of its sandbox.", true}},
       .answers = {{"200", "The fork.", json_type, "OpenSandboxFork"},
                   {"404", "There is none.", json_type, failure}}});
}

} // namespace insula::http::opensandbox
