#include "http/sandboxes/fork.hpp"

#include "actors/protocol/errors.hpp"
#include "base/limits.hpp"

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

namespace insula::http {

namespace {

/// One request, in an actor that ends with its answer.
class fork_job : public std::enable_shared_from_this<fork_job> {
public:
  fork_job(caf::event_based_actor* self, directory_actor directory, fork_request wanted,
           std::function<void(result<void>)> done)
      : self_(self)
      , directory_(std::move(directory))
      , wanted_(std::move(wanted))
      , done_(std::move(done)) {}

  void begin() { wanted_.repeats ? look_whether_done() : reach_source(); }

private:
  auto failed() {
    return [me = shared_from_this()](const caf::error& why) { me->undo(from_caf(why)); };
  }

  // ---- A request that came before

  void look_whether_done() {
    left_ = wanted_.ids.size();
    for (const auto& id : wanted_.ids)
      with_sandbox(id, reach_atom::value, [this](const sandbox_actor& box) {
        redefine_sandbox nothing;
        nothing.context = wanted_.context;
        self_->request(box, caf::infinite, std::move(nothing))
          .then(
            [me = shared_from_this()](const sandbox_description& is) { me->on_looked(is.exists); },
            failed());
      });
  }
  void on_looked(bool is_there) {
    lacking_ |= !is_there;
    if (--left_ > 0 || over_)
      return;
    if (lacking_)
      return reach_source();
    left_ = wanted_.ids.size();
    for (const auto& id : wanted_.ids) // The first request may not have come so far.
      start(id);
  }

  // ---- The source

  template <class Then, class Atom>
  void with_sandbox(const std::string& id, Atom how, Then then) {
    self_->request(directory_, caf::infinite, how, id, wanted_.context)
      .then(
        [me = shared_from_this(), then](const sandbox_actor& box) {
          if (!me->over_)
            then(box);
        },
        failed());
  }

  void reach_source() {
    with_sandbox(wanted_.source, reach_atom::value, [this](const sandbox_actor& source) {
      if (!wanted_.snapshot.empty())
        return copy_definition_of(source);
      take_snapshot hidden;
      hidden.hidden = true;
      hidden.keep_ms = limits::fork_snapshot_kept.count();
      hidden.context = wanted_.context;
      self_->request(source, caf::infinite, std::move(hidden))
        .then(
          [me = shared_from_this(), source](const snapshot_description& taken) {
            me->snapshot_ = taken.id;
            me->copy_definition_of(source);
          },
          failed());
    });
  }

  void copy_definition_of(const sandbox_actor& source) {
    self_->request(source, caf::infinite, copy_definition{wanted_.copies_env, wanted_.context})
      .then([me = shared_from_this()](const define_sandbox& is) { me->make_all(is); }, failed());
  }

  // ---- The siblings

  void make_all(define_sandbox is) {
    auto& with = wanted_.with;
    for (auto& [name, value] : with.env)
      is.env[name] = value;
    is.metadata = with.metadata;
    is.expires_ms = with.expires_ms;
    if (with.network) {
      is.network = with.network;
      is.requests = with.requests;
    }
    if (with.memory_bytes > 0 || wanted_.own_limits)
      is.memory_bytes = with.memory_bytes;
    if (with.disk_bytes > 0 || wanted_.own_limits)
      is.disk_bytes = with.disk_bytes;
    if (with.cpu_percent > 0 || wanted_.own_limits)
      is.cpu_percent = with.cpu_percent;
    if (with.profile)
      is.profile = with.profile;
    is.snapshot = wanted_.snapshot.empty() ? snapshot_ : wanted_.snapshot;
    is.prompt = true; // Nobody hears of it before it runs.
    is.context = wanted_.context;
    is.context.image.clear();
    left_ = wanted_.ids.size();
    for (const auto& id : wanted_.ids)
      with_sandbox(id, reach_atom::value, [this, id, is](const sandbox_actor& box) {
        self_->request(box, caf::infinite, is)
          .then(
            [me = shared_from_this(), id](const sandbox_description&) {
              me->made_.push_back(id);
              me->start(id);
            },
            [me = shared_from_this(), id](const caf::error& failure) {
              const auto why = from_caf(failure);
              if (why.code == errc::already_exists && me->wanted_.repeats)
                me->start(id);
              else
                me->undo(why.code == errc::already_exists
                           ? error{errc::already_exists, "there is a sandbox " + id + " already"}
                           : why);
            });
      });
  }

  void start(const std::string& id) {
    if (over_) // Another one has failed meanwhile.
      return remove(id);
    with_sandbox(id, find_atom::value, [this](const sandbox_actor&) {
      if (--left_ > 0)
        return;
      const bool late = std::chrono::steady_clock::now() > wanted_.until;
      late && !wanted_.repeats ? undo({errc::deadline_exceeded, "the siblings did not run in time"})
                               : end({});
    });
  }

  // ---- The end

  void remove(const std::string& id) {
    caf::anon_send(directory_, delete_atom::value, id, wanted_.context);
  }
  void undo(const error& why) {
    if (over_)
      return;
    for (const auto& id : std::exchange(made_, {}))
      remove(id);
    end(why);
  }
  void end(result<void> outcome) {
    if (std::exchange(over_, true))
      return;
    if (!snapshot_.empty()) // It stays for as long as a sibling stands on it.
      caf::anon_send(directory_, delete_snapshot{snapshot_, wanted_.context});
    done_(std::move(outcome));
  }

  caf::event_based_actor* const self_;
  const directory_actor directory_;
  fork_request wanted_;
  const std::function<void(result<void>)> done_;
  std::string snapshot_; ///< The hidden one.
  std::vector<std::string> made_;
  std::size_t left_ = 0;
  bool lacking_ = false, over_ = false;
};

} // namespace

void fork_sandbox(const services& with, fork_request wanted,
                  std::function<void(result<void>)> done) {
  with.system->spawn(
    [](caf::event_based_actor* self, const directory_actor& directory,
       const std::shared_ptr<fork_request>& what, const std::function<void(result<void>)>& tell) {
      std::make_shared<fork_job>(self, directory, std::move(*what), tell)->begin();
    },
    with.directory, std::make_shared<fork_request>(std::move(wanted)), std::move(done));
}

} // namespace insula::http
