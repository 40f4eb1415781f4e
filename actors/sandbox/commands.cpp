#include "actors/sandbox/commands.hpp"

#include "actors/sandbox/description.hpp"
#include "actors/sandbox/profile.hpp"
#include "actors/sandbox/request_orders.hpp"
#include "actors/survivor_note.hpp"
#include "base/limits.hpp"

#include <algorithm>
#include <cctype>

namespace insula::actors::inside_sandbox {

std::vector<std::string> environment(const core& of,
                                     const std::map<std::string, std::string>& particular,
                                     const std::map<std::string, std::string>& wanted) {
  auto env = of.profile().env;
  const auto add = [&env](const std::map<std::string, std::string>& more) {
    for (const auto& [name, value] : more)
      env[name] = value;
  };
  add(of.image().env);
  if (!of.profile().home.empty())
    env["HOME"] = of.profile().home;
  if (is_authority_trusted(of))
    add(trust_environment());
  add(own_environment(of));
  add(particular);
  add(wanted);
  std::vector<std::string> lines;
  for (const auto& [name, value] : env)
    lines.push_back(name + "=" + value);
  return lines;
}

result<std::string> expanded(const core& of, const std::string& path) {
  if (path.find_first_of("~$") == std::string::npos)
    return path;
  std::map<std::string, std::string> known;
  for (const auto& each : environment(of))
    known[each.substr(0, each.find('='))] = each.substr(each.find('=') + 1);
  std::string whole;
  std::size_t at = 0;
  if (path == "~" || path.starts_with("~/")) {
    whole = known["HOME"];
    at = 1;
  }
  while (at < path.size()) {
    if (path[at] != '$') {
      whole += path[at++];
      continue;
    }
    const bool braced = at + 1 < path.size() && path[at + 1] == '{';
    const auto from = at + (braced ? 2 : 1);
    auto to = from;
    while (to < path.size() &&
           (std::isalnum(static_cast<unsigned char>(path[to])) != 0 || path[to] == '_'))
      ++to;
    const auto name = path.substr(from, to - from);
    const auto found = known.find(name);
    if (name.empty() || found == known.end() || (braced && (to >= path.size() || path[to] != '}')))
      return error{errc::invalid_request, "a variable is not set: " + path};
    whole += found->second;
    at = to + (braced ? 1 : 0);
  }
  return whole;
}

process_options make_options(core& of, std::optional<std::int64_t> timeout_ms,
                             const request_context& context) {
  note("sandbox.command", of, context);
  process_options options;
  options.place = of.engine_sandbox();
  options.timeout_ms = timeout_ms;
  options.memory_bytes = limits_of(of).memory_bytes;
  options.figures = of.options().figures;
  options.request = context.id;
  options.start_began = of.take_start_began();
  return options;
}

/// A shell takes a line as its argument up to a length; a longer one it reads from a descriptor
/// that the line itself then does not see. The lines are taken out of the request.
runtime::process_spec commands::make_spec(exec_request& request) const {
  const auto& shell = core_.image().shell;
  runtime::process_spec spec;
  spec.argv = {shell, "-c"};
  const bool bash = shell.ends_with("/bash");
  if (!bash && !request.posix_line.empty())
    request.command_line = std::move(request.posix_line);
  if (!request.argv.empty()) {
    spec.argv = std::move(request.argv);
    spec.script = std::move(request.command_line);
  } else if (request.command_line.size() <= limits::inline_command_bytes) {
    spec.argv.push_back(std::move(request.command_line));
  } else {
    spec.argv.emplace_back(bash ? "eval \"$(</proc/self/fd/9)\" 9<&-"
                                : "eval \"$(cat /proc/self/fd/9)\" 9<&-");
    spec.script = std::move(request.command_line);
  }
  spec.env = environment(core_, {}, request.env);
  spec.cwd = request.cwd.empty() ? core_.profile().cwd : request.cwd;
  spec.input = request.input;
  spec.awaits_reader = request.awaits_reader;
  spec.user =
    request.user ? runtime::sandbox_user{request.user->uid, request.user->gid} : user_of(core_);
  return spec;
}

std::shared_ptr<child_process> commands::add(process_options options) {
  const auto number = ++last_;
  options.on_over = [this, number, post = core_.post(), also = std::move(options.on_over)] {
    if (also)
      also();
    post([this, number] { over(number); });
  };
  return processes_.emplace(number, core_.start_process(std::move(options))).first->second;
}

void commands::over(std::uint64_t number) {
  processes_.erase(number);
  const auto rest =
    processes_.empty() ? when_over_.end() : when_over_.lower_bound(processes_.begin()->first);
  const decltype(when_over_) told{when_over_.begin(), rest};
  when_over_.erase(when_over_.begin(), rest);
  if (processes_.empty())
    core_.mark_used();
  for (const auto& [last, each] : told)
    if (const auto tell = std::exchange(*each, nullptr))
      tell();
}

void commands::when_over(const then_function& then) {
  if (processes_.empty())
    return then();
  const auto once = std::make_shared<then_function>(then);
  when_over_.emplace(processes_.rbegin()->first, once);
  core_.after(limits::kept_logs_patience, [once] {
    if (const auto tell = std::exchange(*once, nullptr))
      tell();
  });
}

std::shared_ptr<child_process> commands::start(runtime::process_spec spec,
                                               const exec_request& wanted, then_function on_over) {
  auto options = make_options(core_, wanted.timeout_ms, wanted.context);
  options.spec = std::move(spec);
  options.rules = wanted.rules;
  options.on_over = std::move(on_over);
  auto note = note_of({}, wanted.timeout_ms);
  note.key = wanted.idempotency.key;
  note.rules = wanted.rules;
  options.spec.label = note.label();
  if (!note.key.empty()) {
    options.spec.kept = true;
    options.note = std::move(note);
  }
  return add(std::move(options));
}

/// The kernel counts what commands start, but not the commands themselves: those are put into the
/// sandbox from outside.
bool commands::is_full() const {
  const std::size_t wanted = options().limits.processes;
  return processes_.size() >= (wanted > 0 ? std::min(wanted, limits::commands_per_sandbox)
                                          : limits::commands_per_sandbox);
}

std::shared_ptr<void> commands::take_memory(const exec_request& wanted) {
  auto bytes = wanted.command_line.size() + wanted.posix_line.size();
  for (const auto& each : wanted.argv)
    bytes += each.size();
  return take_memory(bytes);
}

std::shared_ptr<void> commands::take_memory(std::uint64_t bytes) {
  auto taken = std::make_shared<std::pair<byte_share, byte_share>>(byte_share{waiting_bytes_},
                                                                   options().waiting_bytes);
  return taken->first.take(bytes) && taken->second.take(bytes) ? taken : nullptr;
}

void commands::run(waiting_command what, const reply<process_actor>& to) {
  if (is_full())
    return to.fail({errc::limit_reached, "too many commands run in this sandbox at once"});
  auto& wanted = what.wanted;
  if (wanted.expands_cwd) {
    auto whole = expanded(core_, wanted.cwd);
    if (!whole)
      return to.fail(whole.reason());
    wanted.cwd = std::move(*whole);
  }
  start(make_spec(wanted), wanted, std::move(what.on_over))->start(to);
}

void commands::probe(const request_context& context, const reply<bool>& to) {
  if (is_full())
    return to.deliver(false); // It can run no program now.
  exec_request request;
  request.command_line = "true";
  constexpr std::int64_t patience_ms = 10'000;
  request.timeout_ms = patience_ms;
  request.context = context;
  start(make_spec(request), request, nullptr)->probe(to);
}

void commands::resume(const runtime::survivor& which, const survivor_note& note,
                      then_function on_over, const std::optional<reply<process_actor>>& told) {
  auto options = make_options(core_, note.timeout_ms, {});
  options.rules = note.rules;
  if (!which.ended) // Else it was in time, or it is in the note that it was not.
    options.deadline = note.deadline;
  if (!note.key.empty())
    options.note = note;
  options.on_over = std::move(on_over);
  options.launch = [in = engine_sandbox(), which](runtime::process_listener listener) {
    return in->take_over(which, std::move(listener));
  };
  const auto made = add(std::move(options));
  told ? made->start(*told) : made->start();
}

void commands::interrupt_all(const then_function& then) {
  const auto left = std::make_shared<std::size_t>(processes_.size());
  const auto one_less = [left, then](const result<caf::ok_atom>&) {
    if (--*left == 0)
      then();
  };
  for (const auto& [number, process] : std::map{processes_})
    process->interrupt(reply<caf::ok_atom>::function{one_less});
}

void commands::ends(const error&) {
  for (auto& [number, process] : processes_)
    process->kill();
}

} // namespace insula::actors::inside_sandbox
