#include "actors/sandbox/sandbox_state.hpp"

#include "actors/survivor_note.hpp"
#include "base/limits.hpp"

#include <cctype>
#include <filesystem>

namespace insula::actors::inside_sandbox {

/// What every command is given, then the image's, then what is particular, each over those before.
std::vector<std::string> environment(const sandbox_state& st,
                                     const std::map<std::string, std::string>& particular,
                                     const std::map<std::string, std::string>& wanted) {
  auto env = st.options->env;
  const auto own = own_environment(st);
  for (const auto* more : {&st.image->env, &own, &particular, &wanted})
    for (const auto& [name, value] : *more)
      env[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : env)
    lines.push_back(name + "=" + value);
  return lines;
}

result<std::string> expanded(const sandbox_state& st, const std::string& path) {
  if (path.find_first_of("~$") == std::string::npos)
    return path;
  std::map<std::string, std::string> known;
  for (const auto& each : environment(st, {}, {}))
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

namespace {

/// A shell takes a line as its argument up to a length; a longer one it reads from a descriptor
/// that the line itself then does not see.
runtime::process_spec make_spec(const sandbox_state& st, exec_request request) {
  const auto& options = *st.options;
  runtime::process_spec spec;
  spec.argv = {st.image->shell, "-c"};
  const bool bash = st.image->shell.ends_with("/bash");
  if (!bash && !request.posix_line.empty())
    request.command_line = std::move(request.posix_line);
  if (request.command_line.size() <= limits::inline_command_bytes) {
    spec.argv.push_back(std::move(request.command_line));
  } else {
    spec.argv.emplace_back(bash ? "eval \"$(</proc/self/fd/9)\" 9<&-"
                                : "eval \"$(cat /proc/self/fd/9)\" 9<&-");
    spec.script = std::move(request.command_line);
  }
  spec.env = environment(st, {}, request.env);
  spec.cwd = request.cwd.empty() ? options.working_directory : request.cwd;
  spec.user =
    request.user ? runtime::sandbox_user{request.user->uid, request.user->gid} : options.user;
  return spec;
}

} // namespace

process_options make_options(sandbox_pointer self, std::optional<std::int64_t> timeout_ms,
                             const request_context& context) {
  auto& st = self->state;
  note("sandbox.command", st, context);
  process_options options;
  options.place = st.place;
  options.timeout_ms = timeout_ms;
  options.memory_bytes = limits_of(st).memory_bytes;
  options.figures = st.options->figures;
  options.request = context.id;
  if (!std::exchange(st.watch.has_had_command, true))
    options.start_began = st.watch.began;
  return options;
}

std::shared_ptr<void> new_use(sandbox_pointer self) {
  ++self->state.uses;
  return {nullptr, [me = self->address()](void*) { tell(me, use_over{}); }};
}

started_process_actor add_process(sandbox_pointer self, process_options options) {
  auto& st = self->state;
  const auto number = ++st.last_process;
  options.on_over = [me = self->address(), number, also = std::move(options.on_over)] {
    if (also)
      also();
    tell(me, process_over{number});
  };
  return st.processes.emplace(number, spawn_process(self->system(), std::move(options)))
    .first->second;
}

namespace {

started_process_actor add_command(sandbox_pointer self, runtime::process_spec spec,
                                  std::optional<std::int64_t> timeout_ms,
                                  const request_context& context, const std::string& key = {},
                                  command_rules rules = {}) {
  auto options = make_options(self, timeout_ms, context);
  options.spec = std::move(spec);
  options.rules = rules;
  auto note = note_of({}, timeout_ms);
  note.key = key;
  note.rules = rules;
  options.spec.label = note.label();
  if (!key.empty()) {
    options.spec.kept = true;
    options.note = std::move(note);
    options.on_over = over_with_result(self, key, nullptr);
  }
  return add_process(self, std::move(options));
}

/// The kernel counts what commands start, but not the commands themselves: those are put into the
/// sandbox from outside.
bool full(const sandbox_state& st) {
  const std::size_t wanted = st.options->limits.processes;
  return st.processes.size() >= (wanted > 0 ? std::min(wanted, limits::commands_per_sandbox)
                                            : limits::commands_per_sandbox);
}

const error too_many{errc::limit_reached, "too many commands run in this sandbox at once"};

} // namespace

std::shared_ptr<void> take_memory(sandbox_state& st, const exec_request& wanted) {
  const auto bytes = wanted.command_line.size() + wanted.posix_line.size();
  auto taken = std::make_shared<std::pair<byte_share, byte_share>>(byte_share{st.waiting_bytes},
                                                                   st.options->waiting_bytes);
  return taken->first.take(bytes) && taken->second.take(bytes) ? taken : nullptr;
}

void run_command(sandbox_pointer self, exec_request wanted, std::shared_ptr<void> memory,
                 reply_to<process_actor> reply) {
  if (!wanted.once.key.empty())
    return run_once(self, std::move(wanted), std::move(memory), reply);
  if (!wanted.session.empty())
    return run_in_session(self, std::move(wanted), std::move(memory), reply);
  start_command(self, std::move(wanted), reply);
}

void start_command(sandbox_pointer self, exec_request wanted, reply_to<process_actor> reply) {
  if (full(self->state))
    return refuse_command(self, wanted, too_many, std::move(reply));
  if (wanted.expands_cwd) {
    auto whole = expanded(self->state, wanted.cwd);
    if (!whole)
      return refuse_command(self, wanted, whole.reason(), std::move(reply));
    wanted.cwd = std::move(*whole);
  }
  const auto timeout_ms = wanted.timeout_ms;
  const auto context = std::move(wanted.context);
  const auto key = wanted.once.key;
  const auto rules = wanted.rules;
  const auto made =
    add_command(self, make_spec(self->state, std::move(wanted)), timeout_ms, context, key, rules);
  if (key.empty())
    return static_cast<void>(reply.delegate(made, start_atom::value));
  self->request(made, caf::infinite, start_atom::value)
    .then([self, key](const process_actor& runs) { result_runs(self, key, runs); },
          [self, key](const caf::error& why) { result_does_not_run(self, key, from_caf(why)); });
}

void run_probe(sandbox_pointer self, const request_context& context, reply_to<bool> reply) {
  if (full(self->state))
    return static_cast<void>(reply.deliver(false)); // It can run no program now.
  exec_request request;
  request.command_line = "true";
  constexpr std::int64_t patience_ms = 10'000;
  reply.delegate(
    add_command(self, make_spec(self->state, std::move(request)), patience_ms, context),
    probe_atom::value);
}

// ---- Files

namespace {

/// `open` starts the operation once there is a sandbox to start it in.
template <class Open>
caf::result<file_channel> open_channel(sandbox_pointer self, request_context context, Open open,
                                       std::string session = {}) {
  auto reply = self->make_response_promise<file_channel>();
  when_running(
    self,
    {[=]() mutable {
       const auto& st = self->state;
       note("sandbox.file", st, context);
       if (!session.empty())
         if (const auto made = find_session(self, session); !made)
           return static_cast<void>(reply.deliver(to_caf(made.reason())));
       auto socket = open(*st.place, st.options->user);
       if (!socket)
         return static_cast<void>(reply.deliver(to_caf(socket.reason())));
       reply.deliver(file_channel{std::make_shared<unique_fd>(std::move(*socket)), new_use(self)});
     },
     [=](const error& why) mutable { reply.deliver(to_caf(why)); }, context});
  return reply;
}

} // namespace

caf::result<file_channel> open_file(sandbox_pointer self, runtime::file_operation what,
                                    std::string path, request_context context,
                                    std::string session) {
  return open_channel(
    self, std::move(context),
    [what, path = std::move(path)](runtime::sandbox& place, const runtime::sandbox_user& user) {
      return place.open_file(what, path, user);
    },
    std::move(session));
}

caf::result<file_channel> open_part(sandbox_pointer self, read_file_request wanted) {
  return open_channel(
    self, std::move(wanted.context),
    [path = std::move(wanted.path),
     part = std::move(*wanted.part)](runtime::sandbox& place, const runtime::sandbox_user& user) {
      return place.open_file_task(file_task::read, {path, part.first, part.second}, user);
    },
    std::move(wanted.session));
}

caf::result<file_channel> open_tree(sandbox_pointer self, runtime::tree_request wanted,
                                    request_context context) {
  return open_channel(
    self, std::move(context),
    [wanted = std::move(wanted)](runtime::sandbox& place, const runtime::sandbox_user& user) {
      return place.open_tree(wanted, user);
    });
}

namespace {

/// From `base` on, without empty segments, `.` and `..`, as text; a last /. stays.
std::string clean(const std::string& base, const std::string& path) {
  auto text = (std::filesystem::path{base} / path).lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/'))
    text.pop_back();
  return path.ends_with("/.") ? text + "/." : text;
}

} // namespace

void run_file_task(sandbox_pointer self, file_task_request wanted, reply_to<file_channel> reply) {
  const auto context = wanted.context;
  const bool only_if_there = wanted.only_if_there;
  const auto run = [=] {
    when_running(self, reply, context, [=]() mutable {
      const auto& st = self->state;
      note("sandbox.file_task", st, context);
      auto words = wanted.words;
      for (std::size_t i = 0; i < words.size(); ++i) {
        if (!is_path(wanted.what, i))
          continue;
        auto whole = expanded(st, words[i]);
        if (!whole)
          return static_cast<void>(reply.deliver(to_caf(whole.reason())));
        words[i] = clean(st.options->working_directory, *whole);
      }
      auto socket = st.place->open_file_task(wanted.what, words, st.options->user);
      if (!socket)
        return static_cast<void>(reply.deliver(to_caf(socket.reason())));
      reply.deliver(file_channel{std::make_shared<unique_fd>(std::move(*socket)), new_use(self)});
    });
  };
  only_if_there ? when_there(self, reply, context, run) : run();
}

} // namespace insula::actors::inside_sandbox
