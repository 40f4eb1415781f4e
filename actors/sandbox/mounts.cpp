#include "actors/bucket_mount.hpp"
#include "actors/sandbox/sandbox_state.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"
#include "runtime/bucket_mounter.hpp"

#include <cctype>

/// Buckets as directories of the sandbox. What is mounted stands in its record, and is put back
/// whenever it starts. One of these is done at a time: mounts depend on those before them.
namespace insula::actors::inside_sandbox {

namespace {

constexpr std::string_view mount_keys = "mount="; ///< And the path.

std::string key_of(const std::string& path) {
  return std::string{mount_keys} + path;
}

/// Of one whose record is loaded; those that another version has written are left alone.
std::vector<bucket_mount> recorded_mounts(const sandbox_state& st) {
  std::vector<bucket_mount> all;
  const auto& entries = st.record->entries();
  for (auto at = entries.lower_bound(mount_keys);
       at != entries.end() && at->first.starts_with(mount_keys); ++at)
    if (auto mount = bucket_mount::read(at->first.substr(mount_keys.size()), at->second))
      all.push_back(std::move(*mount));
  return all;
}

bool is_inside(const std::string& path, const std::string& other) {
  return path.starts_with(other + "/");
}

bool is_inside_any(const std::string& path, const std::vector<std::string>& others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const auto& other) { return is_inside(path, other); });
}

std::string home_of(const sandbox_state& st) {
  for (const auto* env : {&st.image->env, &st.options->env})
    if (const auto at = env->find("HOME"); at != env->end())
      return at->second;
  return {};
}

void on_actor(const caf::actor_addr& sandbox, std::function<void()> go) {
  tell(sandbox, engine_answered{std::move(go)});
}

using on_outcome = std::function<void(const result<void>&)>;

/// Has the engine do it; `told` is called on the actor.
void mount_now(sandbox_pointer self, const bucket_mount& wanted, const on_outcome& told) {
  auto& st = self->state;
  const auto& node = st.options->buckets;
  const auto source = source_of(wanted, node);
  if (!source)
    return told(source.reason());
  const auto driver = runtime::find_bucket_mounter(node.driver);
  if (!driver)
    return told(error{errc::io_failed, "this node has no driver \"" + node.driver + "\""});
  auto plan =
    driver->plan(*source, {wanted.path, st.options->user, node.cache_bytes, node.allowed_private});
  if (!plan)
    return told(error{errc::io_failed, plan.reason().message});
  // Directories that every command needs; any other goes with its mount if it is empty.
  for (const auto& each : {st.options->working_directory, home_of(st), std::string{"/tmp"}})
    plan->keeps_directory |= each == wanted.path;
  std::string title{driver->name()};
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  st.place->mount(std::move(*plan), [=, me = self->address(), path = wanted.path, id = st.id->str(),
                                     secret = source->credentials](const result<void>& outcome) {
    result<void> said = outcome;
    const auto code = outcome ? errc::not_found : outcome.reason().code;
    if (code == errc::launch_failed || code == errc::deadline_exceeded) {
      const auto words = without_secrets(outcome.reason().message, secret);
      log::warning("mount.program_said", {{"id", id}, {"path", path}, {"said", words}});
      const bool late = code == errc::deadline_exceeded;
      const auto why = mount_trouble(words).value_or(
        late ? "The endpoint has not answered in time."
             : "The program that serves the bucket has ended. The node's log has what it said.");
      said =
        error{errc::io_failed, title + " mount failed: " +
                                 (late ? "FUSE filesystem never appeared at " + path + ". " : "") +
                                 std::string{why}};
    } else if (code == errc::io_failed) {
      said = error{code, title + " mount failed: " + outcome.reason().message};
    }
    on_actor(me, [told, said] { told(said); });
  });
}

/// The next of those that wait, when the one before it is over.
void next_mount(sandbox_pointer self) {
  auto& st = self->state;
  if (st.mounting || st.mounts_waiting.empty())
    return;
  st.mounting = true;
  auto go = std::move(st.mounts_waiting.front());
  st.mounts_waiting.pop_front();
  go([self] {
    self->state.mounting = false;
    next_mount(self);
  });
}

using turn = std::function<void(std::function<void()>)>;

/// Nobody has asked for it, so the sandbox can be idle all the same. False: too many wait.
bool in_turn_unasked(sandbox_pointer self, turn go) {
  auto& waiting = self->state.mounts_waiting;
  if (waiting.size() >= limits::waiting_per_sandbox)
    return false;
  waiting.push_back(std::move(go));
  next_mount(self);
  return true;
}

/// The same, and the sandbox is in use meanwhile.
bool in_turn(sandbox_pointer self, turn go) {
  return in_turn_unasked(self, [self, go = std::move(go)](const std::function<void()>& over) {
    go([over, use = new_use(self)] { over(); });
  });
}

/// None: nothing is mounted below the path. Who takes that away takes this with it, and who mounts
/// there hides it.
std::optional<error> something_inside(const sandbox_state& st, const std::string& path) {
  for (const auto& each : recorded_mounts(st))
    if (is_inside(each.path, path))
      return error{errc::already_exists, "Mount path \"" + path +
                                           "\" has another mount in it, at \"" + each.path +
                                           "\". Unmount that one first."};
  return std::nullopt;
}

/// Errors: in words.
std::optional<error> in_the_way(const sandbox_state& st, const bucket_mount& wanted) {
  const auto all = recorded_mounts(st);
  for (const auto& each : all) {
    if (each.path == wanted.path) {
      const auto& name = each.binding.empty() ? each.bucket : each.binding;
      return error{errc::already_exists,
                   "Mount path \"" + each.path + "\" is already in use by bucket \"" + name +
                     (each.prefix.empty() ? "" : ":" + each.prefix) +
                     "\". Unmount the existing bucket first or use a different mount path."};
    }
    if (!wanted.binding.empty() && each.binding == wanted.binding &&
        (each.prefix != wanted.prefix || each.read_only != wanted.read_only))
      return error{errc::already_exists, "R2 binding \"" + wanted.binding +
                                           "\" is already mounted at \"" + each.path +
                                           "\" with another prefix or readOnly. Unmount it first."};
  }
  if (all.size() >= limits::mounts_per_sandbox)
    return error{errc::limit_reached, "A sandbox has at most " +
                                        std::to_string(limits::mounts_per_sandbox) + " mounts."};
  return something_inside(st, wanted.path);
}

void mount_in_turn(sandbox_pointer self, const bucket_mount& wanted, const request_context& context,
                   reply_to<caf::ok_atom> reply, const std::function<void()>& over) {
  auto& st = self->state;
  const auto fail = [=](const error& why) {
    auto to = reply;
    log::warning("mount.failed", {{"id", self->state.id->str()},
                                  {"path", wanted.path},
                                  {"reason", why.message},
                                  {"request", context.id}});
    to.deliver(to_caf(why));
    over();
  };
  if (!is_alive(st.now) || !st.place)
    return fail({errc::sandbox_not_running, "the sandbox has ended"});
  if (const auto why = in_the_way(st, wanted))
    return fail(*why);
  if (is_persistent(st) && wanted.path.starts_with("/workspace/") &&
      std::find(wanted.options.begin(), wanted.options.end(), "nonempty") != wanted.options.end())
    return fail({errc::invalid_request,
                 "The option \"nonempty\" cannot be used below /workspace in a persistent sandbox: "
                 "what the mount hides would be in no snapshot."});
  const auto began = steady_clock::now();
  mount_now(self, wanted, [=, start = st.start](const result<void>& outcome) {
    auto& now = self->state;
    if (!outcome)
      return fail(outcome.reason());
    if (start != now.start || !is_alive(now.now) || !now.place) // Asleep it has no lease.
      return fail({errc::sandbox_not_running, "the sandbox has ended"});
    now.record->write({{key_of(wanted.path), wanted.text()}}, {}, context);
    now.record->when_durable(
      [=] {
        const std::chrono::duration<double, std::milli> took = steady_clock::now() - began;
        log::info("mount.ready",
                  {{"id", self->state.id->str()},
                   {"path", wanted.path},
                   {"bucket", wanted.binding.empty() ? wanted.bucket : wanted.binding},
                   {"ms", took.count()},
                   {"request", context.id}});
        auto to = reply;
        to.deliver(caf::ok_atom::value);
        over();
      },
      [=](const error& why) {
        if (start == self->state.start && self->state.place)
          self->state.place->unmount(wanted.path, [](const result<void>&) {});
        fail(why);
      });
  });
}

error no_mount(const std::string& path) {
  return {errc::not_found, "No active mount found at path: " + path};
}

void unmount_in_turn(sandbox_pointer self, const std::string& path, const request_context& context,
                     reply_to<caf::ok_atom> reply, const std::function<void()>& over) {
  auto& st = self->state;
  const auto fail = [=](const error& why) {
    auto to = reply;
    to.deliver(to_caf(why));
    over();
  };
  if (st.record->find(key_of(path)) == nullptr)
    return fail(no_mount(path));
  if (const auto why = something_inside(st, path))
    return fail(*why);
  const auto erase = [=] {
    with_lease(
      self,
      [=] {
        self->state.record->write({{key_of(path), std::nullopt}}, {}, context);
        self->state.record->when_durable(
          [=] {
            log::info("mount.gone",
                      {{"id", self->state.id->str()}, {"path", path}, {"request", context.id}});
            auto to = reply;
            to.deliver(caf::ok_atom::value);
            over();
          },
          fail);
      },
      fail);
  };
  if (!is_alive(st.now) || !st.place)
    return erase();
  st.place->unmount(path, [=, me = self->address()](const result<void>& outcome) {
    // One that could not be put back is not there, nor is anything in a sandbox that has ended.
    const bool gone = outcome || outcome.reason().code == errc::not_found ||
                      outcome.reason().code == errc::sandbox_not_running;
    on_actor(me, [=] { gone ? erase() : fail(outcome.reason()); });
  });
}

/// What is not to be there, or is dead.
void take_away(sandbox_pointer self, const std::vector<std::string>& paths,
               const std::function<void()>& over) {
  auto& st = self->state;
  if (paths.empty() || !st.place)
    return over();
  const auto left = std::make_shared<std::size_t>(paths.size());
  for (const auto& path : paths)
    st.place->unmount(path, [=, me = self->address()](const result<void>&) {
      on_actor(me, [=] {
        if (--*left == 0)
          over();
      });
    });
}

void put_back_later(sandbox_pointer self, unsigned attempts);

/// Together, since each has a time limit of its own, but what lies in another one after that;
/// `over` when all of them are done. In the order of the record, so that a mount is before what
/// lies in it. `attempts`: those before this one.
void put_back(sandbox_pointer self, const std::vector<bucket_mount>& lost, unsigned attempts,
              const std::function<void()>& over) {
  if (lost.empty())
    return over();
  std::vector<bucket_mount> now, later;
  for (const auto& each : lost) {
    const bool inside = std::any_of(
      now.begin(), now.end(), [&](const auto& other) { return is_inside(each.path, other.path); });
    (inside ? later : now).push_back(each);
  }
  const auto left = std::make_shared<std::size_t>(now.size());
  const auto failed = std::make_shared<std::vector<std::string>>();
  for (const auto& each : now)
    mount_now(self, each, [=, path = each.path, start = self->state.start](const auto& outcome) {
      auto& st = self->state;
      if (outcome) {
        log::info("mount.back", {{"id", st.id->str()}, {"path", path}});
      } else {
        failed->push_back(path);
        log::error("mount.not_back", {{"id", st.id->str()},
                                      {"path", path},
                                      {"attempt", attempts + 1},
                                      {"reason", outcome.reason().message}});
      }
      if (--*left > 0)
        return;
      if (start != st.start || !st.place)
        return over();
      auto rest = later;
      std::erase_if(rest, [&](const auto& one) { return is_inside_any(one.path, *failed); });
      if (!failed->empty())
        put_back_later(self, attempts + 1);
      put_back(self, rest, attempts, over);
    });
}

/// What is recorded and is not there, for whatever reason.
std::vector<bucket_mount> missing_mounts(const sandbox_state& st) {
  auto all = recorded_mounts(st);
  const auto live = st.place->mounts();
  std::erase_if(all, [&](const auto& each) {
    return std::any_of(live.begin(), live.end(),
                       [&](const auto& other) { return other.path == each.path; });
  });
  return all;
}

/// In steps: a delayed message keeps its actor until it comes, also one that has been deleted.
void put_back_in(sandbox_pointer self, unsigned attempts, std::uint64_t start,
                 std::chrono::seconds left) {
  constexpr std::chrono::seconds longest{20};
  const auto step = std::min(left, longest);
  const auto again = [=] {
    if (start != self->state.start)
      return;
    if (left > step)
      return put_back_in(self, attempts, start, left - step);
    self->state.mounts_again = 0;
    const bool taken =
      in_turn_unasked(self, [self, attempts, start](const std::function<void()>& over) {
        const auto& now = self->state;
        if (start == now.start && is_alive(now.now) && now.place)
          put_back(self, missing_mounts(now), attempts, over);
        else
          over();
      });
    if (!taken)
      put_back_later(self, attempts + 1);
  };
  self->delayed_send(self, step, engine_answered{again});
}

/// It stays in the record, and whoever asks is told that it is not there.
void put_back_later(sandbox_pointer self, unsigned attempts) {
  auto& st = self->state;
  if (attempts >= limits::mount_attempts || st.mounts_again == st.start)
    return;
  st.mounts_again = st.start;
  std::chrono::seconds wait = limits::mount_again;
  for (unsigned i = 1; i < attempts && wait < limits::mount_again_longest; ++i)
    wait *= 2;
  wait = std::min<std::chrono::seconds>(wait, limits::mount_again_longest);
  put_back_in(self, attempts, st.start, wait);
}

} // namespace

void mount_bucket(sandbox_pointer self, const mount_bucket_request& wanted,
                  reply_to<caf::ok_atom> reply) {
  auto mount = read_mount(wanted);
  if (!mount)
    return static_cast<void>(reply.deliver(to_caf(mount.reason())));
  when_running(self, reply, wanted.context, [=, mount = std::move(*mount)] {
    const bool taken = in_turn(self, [=](std::function<void()> over) {
      mount_in_turn(self, mount, wanted.context, reply, over);
    });
    auto to = reply;
    if (!taken)
      to.deliver(to_caf({errc::limit_reached, "too many mounts wait in this sandbox"}));
  });
}

void unmount_bucket(sandbox_pointer self, const unmount_bucket_request& wanted,
                    reply_to<caf::ok_atom> reply) {
  const auto path = normalised_path(wanted.path);
  with_record(self, reply, wanted.context, [=](errand asking) {
    const bool taken = in_turn(self, [=](std::function<void()> over) {
      unmount_in_turn(self, path, wanted.context, reply, [over, asking] {
        over();
        asking.over();
      });
    });
    auto to = reply;
    if (taken)
      return;
    to.deliver(to_caf({errc::limit_reached, "too many mounts wait in this sandbox"}));
    asking.over();
  });
}

void list_mounts(sandbox_pointer self, const list_mounts_request& wanted,
                 reply_to<std::vector<mounted_bucket>> reply) {
  with_record(self, reply, wanted.context, [=](errand asking) {
    const auto& st = self->state;
    const auto live =
      is_alive(st.now) && st.place ? st.place->mounts() : std::vector<runtime::live_mount>{};
    std::vector<mounted_bucket> all;
    for (auto& each : recorded_mounts(st)) {
      const bool good = std::any_of(live.begin(), live.end(), [&](const auto& other) {
        return other.path == each.path && other.good;
      });
      if (const auto at = st.options->buckets.bindings.find(each.binding);
          at != st.options->buckets.bindings.end()) {
        each.bucket = at->second.bucket;
        each.read_only |= at->second.read_only;
      }
      all.push_back({std::move(each.path), std::move(each.binding), std::move(each.endpoint),
                     std::move(each.bucket), std::move(each.prefix), each.read_only, good});
    }
    auto to = reply;
    to.deliver(std::move(all));
    asking.over();
  });
}

bool mounts_settled(sandbox_pointer self, std::function<void()> then) {
  auto& st = self->state;
  if (st.mounts == mounts_state::settled)
    return true;
  if (st.mounts == mounts_state::settling)
    return false;
  auto lost = recorded_mounts(st);
  const auto live = st.place->mounts();
  std::vector<std::string> unwanted;
  for (const auto& each : live) {
    const bool known = std::any_of(lost.begin(), lost.end(),
                                   [&](const auto& other) { return other.path == each.path; });
    if (!known || !each.good) // Nobody was told of it; or it is to be replaced.
      unwanted.push_back(each.path);
  }
  const auto is_unwanted = [&](const std::string& path) {
    return std::find(unwanted.begin(), unwanted.end(), path) != unwanted.end();
  };
  for (const auto& each : live)
    if (is_inside_any(each.path, unwanted) && !is_unwanted(each.path))
      unwanted.push_back(each.path); // It goes with that one.
  std::erase_if(lost, [&](const auto& each) {
    return !is_unwanted(each.path) && std::any_of(live.begin(), live.end(), [&](const auto& other) {
      return other.path == each.path;
    });
  });
  st.mounts = mounts_state::settling;
  const bool needed = !lost.empty() || !unwanted.empty();
  const bool on_the_way =
    needed && in_turn(self, [=, start = st.start](std::function<void()> over) {
      take_away(self, unwanted, [=] {
        const auto settled = [=] {
          over();
          if (start != self->state.start)
            return;
          self->state.mounts = mounts_state::settled;
          then();
        };
        if (start == self->state.start && self->state.place)
          put_back(self, lost, 0, settled);
        else
          settled();
      });
    });
  if (!on_the_way)
    st.mounts = mounts_state::settled;
  return !on_the_way;
}

void mount_died(sandbox_pointer self, std::uint64_t start, const std::string& path) {
  auto& st = self->state;
  if (start != st.start || !st.place)
    return;
  const auto count = ++st.mount_deaths[path];
  log::error("mount.died", {{"id", st.id->str()}, {"path", path}, {"times", count}});
  if (count > limits::mount_revivals)
    return;
  in_turn(self, [=](std::function<void()> over) {
    auto& now = self->state;
    if (start != now.start || !is_alive(now.now) || !now.place ||
        now.record->find(key_of(path)) == nullptr)
      return over();
    std::vector<std::string> dead{path}; // And what goes with it.
    for (const auto& each : now.place->mounts())
      if (is_inside(each.path, path))
        dead.push_back(each.path);
    take_away(self, dead, [=] {
      if (start != self->state.start || !self->state.place)
        return over();
      auto lost = recorded_mounts(self->state);
      std::erase_if(
        lost, [&](const auto& each) { return each.path != path && !is_inside(each.path, path); });
      put_back(self, lost, 0, over);
    });
  });
}

} // namespace insula::actors::inside_sandbox
