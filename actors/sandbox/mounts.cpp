#include "actors/sandbox/mounts.hpp"

#include "actors/sandbox/persistence.hpp"
#include "actors/sandbox/profile.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "runtime/bucket_mounter.hpp"

#include <cctype>

namespace insula::actors::inside_sandbox {

namespace {

constexpr std::string_view mount_keys = "mount="; ///< And the path.

std::string mount_key(const std::string& path) {
  return std::string{mount_keys} + path;
}

bool is_inside(const std::string& path, const std::string& other) {
  return path.starts_with(other + "/");
}

bool is_inside_any(const std::string& path, const std::vector<std::string>& others) {
  return std::any_of(others.begin(), others.end(),
                     [&](const auto& other) { return is_inside(path, other); });
}

error no_mount(const std::string& path) {
  return {errc::not_found, "No active mount found at path: " + path};
}

const error too_many_mounts{errc::limit_reached, "too many mounts wait in this sandbox"};

} // namespace

/// Those that another version has written are left alone.
std::vector<bucket_mount> mounts::recorded() const {
  std::vector<bucket_mount> all;
  const auto& entries = record().entries();
  for (auto at = entries.lower_bound(mount_keys);
       at != entries.end() && at->first.starts_with(mount_keys); ++at)
    if (auto mount = bucket_mount::read(at->first.substr(mount_keys.size()), at->second))
      all.push_back(std::move(*mount));
  return all;
}

/// Has the engine do it; `told` is called in the sandbox's mailbox.
void mounts::mount_now(const bucket_mount& wanted, const on_outcome& told) {
  const auto& node = options().buckets;
  const auto source = source_of(wanted, node);
  if (!source)
    return told(source.reason());
  const auto driver = runtime::find_bucket_mounter(node.driver);
  if (!driver)
    return told(error{errc::io_failed, "this node has no driver \"" + node.driver + "\""});
  auto plan =
    driver->plan(*source, {wanted.path, user_of(core_), node.cache_bytes, node.allowed_private});
  if (!plan)
    return told(error{errc::io_failed, plan.reason().message});
  // Directories that every command needs; any other goes with its mount if it is empty.
  for (const auto& each : {core_.profile().cwd, home_of(core_), std::string{"/tmp"}})
    plan->keeps_directory |= each == wanted.path;
  std::string title{driver->name()};
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  engine_sandbox()->mount(
    std::move(*plan), [=, post = core_.post(), path = wanted.path, id = core_.id(),
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
        said = error{errc::io_failed,
                     title + " mount failed: " +
                       (late ? "FUSE filesystem never appeared at " + path + ". " : "") +
                       std::string{why}};
      } else if (code == errc::io_failed) {
        said = error{code, title + " mount failed: " + outcome.reason().message};
      }
      post([told, said] { told(said); });
    });
}

/// The next of those that wait, when the one before it is over.
void mounts::next() {
  if (changing_ || waiting_.empty())
    return;
  changing_ = true;
  const auto go = std::move(waiting_.front());
  waiting_.pop_front();
  go([this] {
    changing_ = false;
    next();
  });
}

/// No client has asked for it, so the sandbox can be idle all the same. False: too many wait.
bool mounts::in_turn_unasked(turn go) {
  if (waiting_.size() >= limits::waiting_per_sandbox)
    return false;
  waiting_.push_back(std::move(go));
  next();
  return true;
}

/// The same, and the sandbox is in use meanwhile.
bool mounts::in_turn(turn go) {
  return in_turn_unasked([this, go = std::move(go)](const then_function& over) {
    go([over, use = core_.keep_awake()] { over(); });
  });
}

/// None: nothing is mounted below the path. To unmount it would take that away, and to mount there
/// would hide it.
std::optional<error> mounts::something_inside(const std::string& path) const {
  for (const auto& each : recorded())
    if (is_inside(each.path, path))
      return error{errc::already_exists, "Mount path \"" + path +
                                           "\" has another mount in it, at \"" + each.path +
                                           "\". Unmount that one first."};
  return std::nullopt;
}

/// Errors: in words.
std::optional<error> mounts::in_the_way(const bucket_mount& wanted) const {
  const auto all = recorded();
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
  return something_inside(wanted.path);
}

void mounts::mount_in_turn(const bucket_mount& wanted, const request_context& context,
                           const reply<caf::ok_atom>& to) {
  if (!core_.runs())
    return to.fail(has_ended);
  if (const auto why = in_the_way(wanted))
    return to.fail(*why);
  const auto began = steady_clock::now();
  mount_now(wanted, [=, this, start = core_.start()](const result<void>& outcome) {
    if (!outcome)
      return to.fail(outcome.reason());
    if (start != core_.start() || !core_.runs()) // Asleep it has no lease.
      return to.fail(has_ended);
    record().write({{mount_key(wanted.path), wanted.text()}}, context);
    record().when_durable(
      [=, this] {
        const std::chrono::duration<double, std::milli> took = steady_clock::now() - began;
        log::info("mount.ready",
                  {{"id", core_.id()},
                   {"path", wanted.path},
                   {"bucket", wanted.binding.empty() ? wanted.bucket : wanted.binding},
                   {"ms", took.count()},
                   {"request", context.id}});
        to.deliver(caf::ok_atom::value);
      },
      [=, this](const error& why) {
        if (is_current(start))
          engine_sandbox()->unmount(wanted.path, [](const result<void>&) {});
        to.fail(why);
      });
  });
}

void mounts::unmount_in_turn(const std::string& path, const request_context& context,
                             const reply<caf::ok_atom>& to) {
  if (record().find(mount_key(path)) == nullptr)
    return to.fail(no_mount(path));
  if (const auto why = something_inside(path))
    return to.fail(*why);
  const auto erase = [=, this] {
    core_.with_lease(
      [=, this] {
        record().write({{mount_key(path), std::nullopt}}, context);
        record().when_durable(
          [=, this] {
            log::info("mount.gone", {{"id", core_.id()}, {"path", path}, {"request", context.id}});
            to.deliver(caf::ok_atom::value);
          },
          to.otherwise());
      },
      to.otherwise());
  };
  if (!core_.runs())
    return erase();
  engine_sandbox()->unmount(path, [=, post = core_.post()](const result<void>& outcome) {
    // One that could not be put back is not there, nor is anything in a sandbox that has ended.
    const bool gone = outcome || outcome.reason().code == errc::not_found ||
                      outcome.reason().code == errc::sandbox_not_running;
    post([=] { gone ? erase() : to.fail(outcome.reason()); });
  });
}

/// Unmounts those that are dead, or are not to be there.
void mounts::take_away(const std::vector<std::string>& paths, const then_function& over) {
  if (paths.empty() || !engine_sandbox())
    return over();
  const auto left = std::make_shared<std::size_t>(paths.size());
  for (const auto& path : paths)
    engine_sandbox()->unmount(path, [left, over, post = core_.post()](const result<void>&) {
      post([left, over] {
        if (--*left == 0)
          over();
      });
    });
}

/// Together, since each has a time limit of its own, but what lies in another one after that;
/// `over` when all of them are done. In the order of the record, so that a mount is before what
/// lies in it. `attempts`: those before this one.
void mounts::put_back(const std::vector<bucket_mount>& lost, unsigned attempts,
                      const then_function& over) {
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
    mount_now(each, [=, this, path = each.path, start = core_.start()](const auto& outcome) {
      if (outcome) {
        log::info("mount.back", {{"id", core_.id()}, {"path", path}});
      } else {
        failed->push_back(path);
        log::error("mount.not_back", {{"id", core_.id()},
                                      {"path", path},
                                      {"attempt", attempts + 1},
                                      {"reason", outcome.reason().message}});
      }
      if (--*left > 0)
        return;
      if (!is_current(start))
        return over();
      auto rest = later;
      std::erase_if(rest, [&](const auto& one) { return is_inside_any(one.path, *failed); });
      if (!failed->empty())
        put_back_later(attempts + 1);
      put_back(rest, attempts, over);
    });
}

/// The recorded mounts that are not there, for any reason.
std::vector<bucket_mount> mounts::missing() const {
  auto all = recorded();
  const auto live = engine_sandbox()->mounts();
  std::erase_if(all, [&](const auto& each) {
    return std::any_of(live.begin(), live.end(),
                       [&](const auto& other) { return other.path == each.path; });
  });
  return all;
}

/// In steps, as core::after() wants it.
void mounts::put_back_in(unsigned attempts, std::uint64_t start, std::chrono::seconds left) {
  constexpr std::chrono::seconds longest{20};
  const auto step = std::min(left, longest);
  core_.after(step, [=, this] {
    if (start != core_.start())
      return;
    if (left > step)
      return put_back_in(attempts, start, left - step);
    again_ = 0;
    const bool taken = in_turn_unasked([this, attempts, start](const then_function& over) {
      if (start == core_.start() && core_.runs())
        put_back(missing(), attempts, over);
      else
        over();
    });
    if (!taken)
      put_back_later(attempts + 1);
  });
}

/// It stays in the record, and a list says that it is not there.
void mounts::put_back_later(unsigned attempts) {
  if (attempts >= limits::mount_attempts || again_ == core_.start())
    return;
  again_ = core_.start();
  std::chrono::seconds wait = limits::mount_again;
  for (unsigned i = 1; i < attempts && wait < limits::mount_again_longest; ++i)
    wait *= 2;
  wait = std::min<std::chrono::seconds>(wait, limits::mount_again_longest);
  put_back_in(attempts, core_.start(), wait);
}

void mounts::mount(const mount_bucket_request& wanted, const reply<caf::ok_atom>& to) {
  auto mount = read_mount(wanted);
  if (!mount)
    return to.fail(mount.reason());
  core_.when_running(to, wanted.context, [=, this, mount = std::move(*mount)] {
    const bool taken = in_turn([=, this](const then_function& over) {
      mount_in_turn(mount, wanted.context,
                    reply<caf::ok_atom>::function{[=, this](const result<caf::ok_atom>& outcome) {
                      if (!outcome)
                        log::warning("mount.failed", {{"id", core_.id()},
                                                      {"path", mount.path},
                                                      {"reason", outcome.reason().message},
                                                      {"request", wanted.context.id}});
                      to.give(outcome);
                      over();
                    }});
    });
    if (!taken)
      to.fail(too_many_mounts);
  });
}

void mounts::unmount(const unmount_bucket_request& wanted, const reply<caf::ok_atom>& to) {
  core_.with_record(to, wanted.context, [this, wanted](const reply<caf::ok_atom>& mine) {
    const bool taken = in_turn([=, this](const then_function& over) {
      unmount_in_turn(normalised_path(wanted.path), wanted.context,
                      reply<caf::ok_atom>::function{[=](const result<caf::ok_atom>& outcome) {
                        mine.give(outcome);
                        over();
                      }});
    });
    if (!taken)
      mine.fail(too_many_mounts);
  });
}

void mounts::list(const list_mounts_request& wanted, const reply<std::vector<mounted_bucket>>& to) {
  core_.with_record(to, wanted.context, [this](const reply<std::vector<mounted_bucket>>& mine) {
    const auto live =
      core_.runs() ? engine_sandbox()->mounts() : std::vector<runtime::live_mount>{};
    std::vector<mounted_bucket> all;
    for (auto& each : recorded()) {
      const bool good = std::any_of(live.begin(), live.end(), [&](const auto& other) {
        return other.path == each.path && other.good;
      });
      if (const auto at = options().buckets.bindings.find(each.binding);
          at != options().buckets.bindings.end()) {
        each.bucket = at->second.bucket;
        each.read_only |= at->second.read_only;
      }
      all.push_back({std::move(each.path), std::move(each.binding), std::move(each.endpoint),
                     std::move(each.bucket), std::move(each.prefix), each.read_only, good});
    }
    mine.deliver(std::move(all));
  });
}

bool mounts::settle(const then_function& then, const otherwise_function&) {
  if (now_ != state::unknown)
    return now_ == state::settled;
  auto lost = recorded();
  const auto live = engine_sandbox()->mounts();
  std::vector<std::string> unwanted;
  for (const auto& each : live) {
    const bool known = std::any_of(lost.begin(), lost.end(),
                                   [&](const auto& other) { return other.path == each.path; });
    if (!known || !each.good) // No client was told of it; or it is to be replaced.
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
  now_ = state::settling;
  const bool needed = !lost.empty() || !unwanted.empty();
  const bool on_the_way =
    needed && in_turn([=, this, start = core_.start()](const then_function& over) {
      take_away(unwanted, [=, this] {
        const auto settled = [=, this] {
          over();
          if (start != core_.start())
            return;
          now_ = state::settled;
          then();
        };
        if (is_current(start))
          put_back(lost, 0, settled);
        else
          settled();
      });
    });
  if (!on_the_way)
    now_ = state::settled;
  return !on_the_way;
}

void mounts::stopped(const error&) {
  now_ = state::unknown;
  deaths_.clear();
}

void mounts::on_program_ended(std::uint64_t start, const std::string& path) {
  if (!is_current(start))
    return;
  const auto count = ++deaths_[path];
  log::error("mount.died", {{"id", core_.id()}, {"path", path}, {"times", count}});
  if (count > limits::mount_revivals)
    return;
  in_turn([=, this](const then_function& over) {
    if (start != core_.start() || !core_.runs() || record().find(mount_key(path)) == nullptr)
      return over();
    std::vector<std::string> dead{path}; // And what goes with it.
    for (const auto& each : engine_sandbox()->mounts())
      if (is_inside(each.path, path))
        dead.push_back(each.path);
    take_away(dead, [=, this] {
      if (!is_current(start))
        return over();
      auto lost = recorded();
      std::erase_if(
        lost, [&](const auto& each) { return each.path != path && !is_inside(each.path, path); });
      put_back(lost, 0, over);
    });
  });
}

} // namespace insula::actors::inside_sandbox
