#include "tests/http/fakes.hpp"

#include "actors/pool_scheduler.hpp"
#include "base/limits.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/must.hpp"

#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <caf/typed_response_promise.hpp>

#include <algorithm>
#include <fcntl.h>
#include <sys/socket.h>
#include <tuple>
#include <unistd.h>

namespace insula::test {

using print_atom = caf::atom_constant<caf::atom("print")>;
using finish_atom = caf::atom_constant<caf::atom("finish")>;
using die_atom = caf::atom_constant<caf::atom("die")>;
using release_atom = caf::atom_constant<caf::atom("release")>;

void diary::add(std::string entry) {
  std::lock_guard lock{mutex_};
  entries_.push_back(std::move(entry));
  changed_.notify_all();
}

bool diary::has(const std::string& entry) {
  std::unique_lock lock{mutex_};
  return changed_.wait_for(lock, std::chrono::seconds{60}, [&] {
    return std::find(entries_.begin(), entries_.end(), entry) != entries_.end();
  });
}

std::vector<std::string> diary::all() {
  std::lock_guard lock{mutex_};
  return entries_;
}

struct house::shared {
  ~shared() {
    for (auto& operation : operations)
      operation.join();
  }

  std::shared_ptr<script> plays;
  std::shared_ptr<diary> heard;
  std::mutex mutex;
  exec_request last_exec; ///< Guarded by mutex, as what follows.
  idempotency_key last_idempotency;
  caf::actor process;
  caf::actor terminal;
  caf::actor at_terminal; ///< Its client.
  caf::actor directory;
  caf::actor pool;
  std::vector<caf::actor> sandboxes;
  bool leaving = false; ///< The house goes.
  std::vector<std::thread> operations;
};

namespace {

using together = std::shared_ptr<house::shared>;

/// All that is asked for; what is not said is left out.
std::string in_words(const mount_bucket_request& wanted) {
  std::string line = "mount " + wanted.path;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty())
      line += " " + name + "=" + value;
  };
  add("binding", wanted.binding);
  add("endpoint", wanted.endpoint);
  add("bucket", wanted.bucket);
  add("prefix", wanted.prefix);
  if (wanted.read_only)
    line += " read_only";
  if (wanted.credentials)
    line +=
      " by " + wanted.credentials->access_key_id + ":" + wanted.credentials->secret_access_key;
  for (const auto& each : wanted.options)
    line += " -o " + each;
  if (wanted.by_proxy)
    line += " by_proxy";
  return line;
}

std::string in_words(const open_terminal_request& wanted) {
  std::string line = "runs in a terminal";
  for (const auto& each : wanted.program->argv)
    line += " [" + each + "]";
  line += " in " + wanted.program->cwd;
  for (const auto& [name, value] : wanted.program->env)
    line += " " + name + "=" + value;
  return line + " at " + std::to_string(wanted.columns) + "x" + std::to_string(wanted.rows) +
         " of run " + std::to_string(wanted.context.run);
}

using process_impl =
  process_actor::extend<caf::reacts_to<print_atom, int, std::string>,
                        caf::reacts_to<finish_atom, int, bool>, caf::reacts_to<die_atom>>;

struct process_state {
  static inline const char* name = "fake_process";
  std::vector<output_frame> log;
  std::optional<process_end> end;
  std::uint64_t lost_bytes = 0;
  std::optional<caf::typed_response_promise<output_chunk>> asked;
  read_output question;
  unsigned questions = 0;
  std::uint64_t fed = 0; ///< Of its input.
};

/// One frame an answer, so that tests see where answers begin and end.
void answer(process_state& st) {
  if (!st.asked)
    return;
  output_chunk chunk;
  chunk.lost_bytes = std::exchange(st.lost_bytes, 0);
  std::uint64_t at = 0;
  for (const auto& frame : st.log) {
    if (at == st.question.offset) {
      chunk.frames.push_back(frame);
      chunk.next_offset = chunk.frames.back().end = at + frame.bytes.size();
      break;
    }
    at += frame.bytes.size();
  }
  if (chunk.frames.empty())
    chunk.next_offset = st.question.offset;
  std::uint64_t size = 0;
  for (const auto& frame : st.log)
    size += frame.bytes.size();
  if (st.end && chunk.next_offset == size)
    chunk.ended = st.end;
  if (chunk.frames.empty() && !chunk.ended)
    return;
  auto promise = std::move(*st.asked);
  st.asked.reset();
  promise.deliver(std::move(chunk));
}

process_impl::behavior_type process(process_impl::stateful_pointer<process_state> self,
                                    together all) {
  self->state.log = all->plays->output;
  if (!all->plays->reads_input)
    self->state.end = all->plays->end;
  self->state.lost_bytes = all->plays->lost_bytes;
  return {
    [self, all](const read_output& question) -> caf::result<output_chunk> {
      auto& st = self->state;
      all->heard->add("read " + std::to_string(question.offset) +
                      (question.attached ? " attached" : ""));
      if (all->plays->read_error && ++st.questions > 1)
        return to_caf(*all->plays->read_error);
      st.question = question;
      st.asked = self->make_response_promise<output_chunk>();
      auto promise = *st.asked;
      if (!all->plays->deaf_process)
        answer(st);
      return promise;
    },
    [self, all](const input_piece& piece) {
      auto& st = self->state;
      if (!all->plays->reads_input)
        return input_progress{st.fed, input_state::over};
      const bool slow = all->plays->reads_slowly && piece.bytes.size() > 1;
      st.fed += slow ? piece.bytes.size() / 2 : piece.bytes.size();
      if (slow)
        return input_progress{st.fed, input_state::slow};
      if (piece.closes) {
        all->heard->add("fed " + std::to_string(st.fed) + " bytes");
        st.end = all->plays->end;
        answer(st);
      }
      return input_progress{st.fed, input_state::taken};
    },
    [all](detach_atom, std::uint64_t) { all->heard->add("detached"); },
    [self](print_atom, int stream, std::string& bytes) {
      self->state.log.push_back({static_cast<output_stream>(stream), std::move(bytes)});
      answer(self->state);
    },
    [self](finish_atom, int code, bool timed_out) {
      self->state.end = process_end{code, timed_out, false, 0};
      answer(self->state);
    },
    [self](die_atom) { self->quit(caf::exit_reason::kill); },
  };
}

using terminal_impl = terminal_actor::extend<caf::reacts_to<print_atom, std::string>,
                                             caf::reacts_to<finish_atom, int, int>>;

struct terminal_state {
  static inline const char* name = "fake_terminal";
  std::string printed;
  std::optional<process_end> end;
  std::optional<caf::typed_response_promise<output_chunk>> asked;
  read_output question;
};

void answer(terminal_state& st) {
  if (!st.asked || (st.question.offset >= st.printed.size() && !st.end))
    return;
  const auto from = std::min<std::uint64_t>(st.question.offset, st.printed.size());
  auto bytes = st.printed.substr(from, st.question.max_bytes);
  output_chunk chunk;
  chunk.next_offset = from + bytes.size();
  if (!bytes.empty())
    chunk.frames.push_back({output_stream::out, std::move(bytes), chunk.next_offset});
  if (chunk.next_offset == st.printed.size())
    chunk.ended = st.end;
  auto promise = std::move(*st.asked);
  st.asked.reset();
  promise.deliver(std::move(chunk));
}

/// What has been printed before is what every command prints.
terminal_impl::behavior_type terminal(terminal_impl::stateful_pointer<terminal_state> self,
                                      together all) {
  for (const auto& each : all->plays->output)
    self->state.printed += each.bytes;
  return {
    [self, all](const read_output& question) -> caf::result<output_chunk> {
      auto& st = self->state;
      st.question = question;
      st.asked = self->make_response_promise<output_chunk>();
      auto promise = *st.asked;
      answer(st);
      return promise;
    },
    [](detach_atom, std::uint64_t) {},
    [all](const write_input& typed) {
      all->heard->add("typed " + typed.bytes);
      return caf::ok_atom::value;
    },
    [all](const resize_terminal& to) {
      all->heard->add("resize " + std::to_string(to.columns) + "x" + std::to_string(to.rows));
    },
    [all](const signal_terminal& wanted) {
      all->heard->add("signal " + std::to_string(wanted.number));
    },
    [self](print_atom, const std::string& bytes) {
      self->state.printed += bytes;
      answer(self->state);
    },
    [self](finish_atom, int code, int signal) {
      self->state.end = process_end{.exit_code = code, .signal = signal};
      answer(self->state);
    },
  };
}

caf::result<file_channel> open_channel(const together& all, const std::string& what) {
  all->heard->add(what);
  if (all->plays->file_error)
    return to_caf(*all->plays->file_error);
  int ends[2];
  must(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  std::lock_guard lock{all->mutex};
  all->operations.emplace_back([operation = all->plays->file, fd = ends[1]] {
    const timeval patience{60, 0}; // A test that goes wrong must end all the same.
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    if (operation)
      operation(fd);
    ::close(fd);
  });
  return file_channel{std::make_shared<unique_fd>(ends[0])};
}

sandbox_actor::behavior_type sandbox(sandbox_actor::pointer self, together all, bool ended) {
  if (ended)
    self->quit(caf::exit_reason::user_shutdown);
  return {
    [self, all](const exec_request& command) -> caf::result<process_actor> {
      {
        std::lock_guard lock{all->mutex};
        all->last_exec = command;
      }
      all->heard->add("exec " + command.command_line);
      if (all->plays->die_on_exec) {
        self->quit(caf::exit_reason::kill);
        return caf::delegated<process_actor>{};
      }
      std::lock_guard lock{all->mutex};
      if (all->plays->exec_error)
        return to_caf(*all->plays->exec_error);
      process_impl started = self->spawn(process, all);
      all->process = caf::actor_cast<caf::actor>(started);
      return process_actor{started};
    },
    [all](const find_result& asked) -> caf::result<replay_status> {
      all->heard->add("find_result");
      std::lock_guard lock{all->mutex};
      all->last_idempotency = asked.idempotency;
      if (all->plays->result_error)
        return to_caf(*all->plays->result_error);
      replay_status found;
      found.known = all->plays->known_process;
      if (found.known && all->process)
        found.process = caf::actor_cast<process_actor>(all->process);
      std::tie(found.begin, found.end) = all->plays->extent;
      return found;
    },
    [all](const find_command& asked) -> caf::result<command_status> {
      all->heard->add("find_command " + asked.id);
      std::lock_guard lock{all->mutex};
      command_status found{all->plays->command};
      if (all->process)
        found.process = caf::actor_cast<process_actor>(all->process);
      std::tie(found.begin_offset, found.end_offset) = all->plays->extent;
      found.log_gone = asked.opens_log && all->plays->log_gone;
      found.elsewhere = all->plays->commands.elsewhere;
      return found;
    },
    [all](const find_commands& asked) -> caf::result<command_list> {
      all->heard->add("find_commands " + std::to_string(asked.run));
      std::lock_guard lock{all->mutex};
      if (all->plays->commands_error)
        return to_caf(*all->plays->commands_error);
      return all->plays->commands;
    },
    [all](const interrupt_command& asked) -> caf::result<caf::ok_atom> {
      all->heard->add("interrupt " + asked.id);
      if (all->plays->interrupt_error)
        return to_caf(*all->plays->interrupt_error);
      return caf::ok_atom::value;
    },
    [all](const write_command_input& wanted) -> caf::result<input_progress> {
      const auto& piece = wanted.piece;
      all->heard->add("write_input " + wanted.key + " " +
                      (piece.offset ? std::to_string(*piece.offset) : "-") + " \"" + piece.bytes +
                      "\"" + (piece.closes ? " closes" : ""));
      if (all->plays->input_error)
        return to_caf(*all->plays->input_error);
      return all->plays->input;
    },
    [all](const create_session_request& wanted) -> caf::result<caf::ok_atom> {
      auto line = "create_session " + wanted.id + " in " + wanted.cwd;
      for (const auto& [name, value] : wanted.env)
        line += " " + name + "=" + value;
      if (wanted.command_timeout_ms)
        line += " for " + std::to_string(*wanted.command_timeout_ms);
      all->heard->add(line);
      if (all->plays->session_error)
        return to_caf(*all->plays->session_error);
      return caf::ok_atom::value;
    },
    [all](const delete_session_request& wanted) -> caf::result<caf::ok_atom> {
      all->heard->add("delete_session " + wanted.id);
      if (all->plays->session_error)
        return to_caf(*all->plays->session_error);
      return caf::ok_atom::value;
    },
    [self, all](const open_terminal_request& wanted)
      -> caf::result<terminal_actor, std::uint64_t, std::uint64_t> {
      const auto name = wanted.defined.empty() ? wanted.session : wanted.defined;
      all->heard->add("open_terminal " + name + (wanted.takes_over ? " taking over" : ""));
      if (wanted.program)
        all->heard->add(in_words(wanted));
      if ((wanted.defined.empty() && !wanted.program) || !all->plays->opens_terminals)
        return to_caf({errc::launch_failed, "there are no terminals in this house"});
      if (all->plays->terminal_error)
        return to_caf(*all->plays->terminal_error);
      std::lock_guard lock{all->mutex};
      if (wanted.program) {
        all->terminal = caf::actor_cast<caf::actor>(terminal_impl(self->spawn(terminal, all)));
        return {caf::actor_cast<terminal_actor>(all->terminal), std::uint64_t{0}, std::uint64_t{0}};
      }
      if (!all->terminal)
        all->terminal = caf::actor_cast<caf::actor>(terminal_impl(self->spawn(terminal, all)));
      else if (!wanted.takes_over)
        return to_caf({errc::already_exists, "another client is at this terminal"});
      const auto who = caf::actor_cast<caf::actor>(self->current_sender());
      if (const auto before = std::exchange(all->at_terminal, who))
        caf::anon_send(before, taken_over_atom::value);
      std::uint64_t end = 0;
      for (const auto& each : all->plays->output)
        end += each.bytes.size();
      return {caf::actor_cast<terminal_actor>(all->terminal), std::uint64_t{0}, end};
    },
    [all](const define_terminal& wanted) -> caf::result<caf::ok_atom> {
      all->heard->add("define_terminal " + wanted.command + " in " + wanted.cwd);
      if (all->plays->terminal_error)
        return to_caf(*all->plays->terminal_error);
      return caf::ok_atom::value;
    },
    [all](const find_terminal& asked) {
      all->heard->add("find_terminal " + asked.id);
      return all->plays->terminal;
    },
    [all](const forget_terminal& asked) -> caf::result<caf::ok_atom> {
      all->heard->add("forget_terminal " + asked.id);
      if (all->plays->terminal_error)
        return to_caf(*all->plays->terminal_error);
      return caf::ok_atom::value;
    },
    [](status_atom) { return sandbox_status{}; },
    [all](const read_file_request& file) {
      const auto part =
        file.part ? " from " + file.part->first + " to " + file.part->second : std::string{};
      return open_channel(all, "read_file " + file.path + part +
                                 (file.session.empty() ? "" : " in " + file.session));
    },
    [all](const write_file_request& file) {
      return open_channel(all, "write_file " + file.path +
                                 (file.session.empty() ? "" : " in " + file.session));
    },
    [all](const read_tree_request& tree) {
      auto line = "read_tree " + tree.path;
      for (const auto& each : tree.excludes)
        line += " without " + each;
      return open_channel(all, line + (tree.compact ? " as compact" : ""));
    },
    [all](const write_tree_request& tree) { return open_channel(all, "write_tree " + tree.path); },
    [all](const file_task_request& task) {
      auto line = "file_task " + std::to_string(static_cast<unsigned>(task.what));
      for (const auto& each : task.words)
        line += " [" + each + "]";
      return open_channel(all, line);
    },
    [all](const write_once_request& asked) -> caf::result<write_once_answer> {
      const bool tells = !asked.written_in.empty();
      all->heard->add(tells ? "written once in " + asked.written_in : "asks whether written");
      if (all->plays->result_error)
        return to_caf(*all->plays->result_error);
      if (tells && asked.written_in != all->plays->start)
        return to_caf({errc::sandbox_not_running, "the sandbox has ended"});
      return write_once_answer{all->plays->written || tells,
                               std::exchange(all->plays->start, all->plays->next_start)};
    },
    [all](const get_network_request&) -> caf::result<network_state> {
      if (all->plays->network_error)
        return to_caf(*all->plays->network_error);
      return all->plays->network;
    },
    [all](const set_network_request& asked) -> caf::result<network_state> {
      if (all->plays->network_error)
        return to_caf(*all->plays->network_error);
      all->heard->add("set network\n" + to_text(asked.policy));
      all->plays->network.policy = asked.policy;
      return all->plays->network;
    },
    [all](const change_network_request& asked) -> caf::result<network_state> {
      if (all->plays->network_error)
        return to_caf(*all->plays->network_error);
      std::string line = "change network";
      for (const auto& each : asked.added)
        line += (each.allow ? " allow " : " deny ") + each.target;
      for (const auto& each : asked.removed)
        line += " remove " + each;
      all->heard->add(line);
      return all->plays->network;
    },
    [all](const define_sandbox& wanted) -> caf::result<sandbox_description> {
      std::string line = "define";
      for (const auto& [name, value] : wanted.env)
        line += " " + name + "=" + value;
      if (wanted.memory_bytes + wanted.cpu_percent > 0)
        line += " memory " + std::to_string(wanted.memory_bytes) + " cpu " +
                std::to_string(wanted.cpu_percent);
      all->heard->add(line);
      if (all->plays->define_error)
        return to_caf(*all->plays->define_error);
      std::lock_guard lock{all->mutex};
      auto image = wanted.image;
      if (const auto& known = all->plays->images; known && !image.empty()) {
        auto names = wanted.image_names;
        names.push_back(image);
        const auto at = std::find_if(names.begin(), names.end(),
                                     [&](const auto& each) { return known->contains(each); });
        if (at == names.end())
          return to_caf({errc::image_refused, "there is no image " + image + " on this node"});
        image = *at;
      }
      all->plays->description = {true, wanted.metadata, image, 1'700'000'000'123, wanted.expires_ms,
                                 false};
      return all->plays->description;
    },
    [all](const redefine_sandbox& wanted) -> caf::result<sandbox_description> {
      all->heard->add("redefine");
      if (all->plays->redefine_error)
        return to_caf(*all->plays->redefine_error);
      std::lock_guard lock{all->mutex};
      auto& is = all->plays->description;
      const auto& change = wanted.metadata;
      if (change && all->plays->meanwhile)
        all->plays->meanwhile(is);
      const auto now = change ? is.metadata.find(change->api) : is.metadata.end();
      const bool differs = change && change->only_if &&
                           *change->only_if != (now == is.metadata.end() ? "" : now->second);
      if (!is.exists || differs)
        return is;
      if (change)
        is.metadata[change->api] = change->text;
      if (wanted.expires_ms)
        is.expires_ms = wanted.expires_ms;
      return is;
    },
    [all](const copy_definition& wanted) -> caf::result<define_sandbox> {
      std::lock_guard lock{all->mutex};
      define_sandbox is;
      is.memory_bytes = all->plays->description.memory_limit_bytes;
      if (wanted.with_env)
        is.env["SECRET"] = "of the source";
      return is;
    },
    [all](const take_snapshot& wanted) -> caf::result<snapshot_description> {
      all->heard->add("take " + wanted.name);
      std::lock_guard lock{all->mutex};
      if (all->plays->snapshot_error)
        return to_caf(*all->plays->snapshot_error);
      snapshot_description made{wanted.id.empty() ? "snap" : wanted.id, "abc"};
      made.root = made.id;
      made.name = wanted.name;
      made.labels = wanted.labels;
      made.keep_ms = wanted.keep_ms;
      made.hidden = wanted.hidden;
      made.image = "host";
      made.created_ms = made.last_used_ms = 1'000;
      all->plays->snapshots.push_back(made);
      return made;
    },
    [all](const roll_back& wanted) -> caf::result<sandbox_description> {
      all->heard->add("roll back to " + wanted.snapshot);
      std::lock_guard lock{all->mutex};
      if (all->plays->snapshot_error)
        return to_caf(*all->plays->snapshot_error);
      all->plays->description.snapshot = wanted.snapshot;
      return all->plays->description;
    },
    [](const attach_drive&) -> caf::result<attached_drive> {
      return to_caf({errc::not_found, "it is no drive"});
    },
    [all](const begin_run& wanted) -> caf::result<run_report> {
      all->heard->add("begin " + std::to_string(wanted.timeout_ms));
      std::lock_guard lock{all->mutex};
      auto& is = all->plays->description;
      if (!is.exists)
        return to_caf({errc::not_found, "there is no such sandbox"});
      const auto number = is.run ? is.run->number + 1 : 1;
      is.run = sandbox_run{number, run_state::running, 1000, 1100, 0, 0, wanted.timeout_ms};
      if (wanted.with && wanted.with->only_if == is.metadata[wanted.with->api])
        is.metadata[wanted.with->api] = wanted.with->text;
      return run_report{*is.run, true, is};
    },
    [all](const find_runs& wanted) -> caf::result<run_list> {
      std::lock_guard lock{all->mutex};
      const auto& is = all->plays->description;
      if (all->plays->runs_error)
        return to_caf(*all->plays->runs_error);
      if (!is.exists)
        return to_caf({errc::not_found, "there is no such sandbox"});
      run_list found{{}, false, is};
      if (is.run)
        found.runs.push_back(*is.run);
      for (const auto& each : all->plays->runs)
        if (wanted.before != 0 && each.number >= wanted.before)
          continue;
        else if (found.runs.size() < wanted.limit)
          found.runs.push_back(each);
        else
          found.more = true;
      if (wanted.number != 0)
        std::erase_if(found.runs, [&](const auto& each) { return each.number != wanted.number; });
      return found;
    },
    [all](const stop_run& wanted) -> caf::result<run_report> {
      all->heard->add("stop " + std::to_string(wanted.number));
      std::lock_guard lock{all->mutex};
      auto& is = all->plays->description;
      if (!is.run || is.run->number != wanted.number)
        return to_caf({errc::not_found, "there is no such run"});
      is.run->state = run_state::stopped;
      return run_report{*is.run, false, is};
    },
    [all](const extend_run& wanted) -> caf::result<run_report> {
      std::lock_guard lock{all->mutex};
      auto& is = all->plays->description;
      if (!is.run || is.run->number != wanted.number)
        return to_caf({errc::not_found, "there is no such run"});
      is.run->timeout_ms += wanted.by_ms;
      return run_report{*is.run, false, is};
    },
    [all](const pause_sandbox& wanted) -> caf::result<sandbox_description> {
      all->heard->add(wanted.paused ? "pause" : "resume");
      if (all->plays->pause_error)
        return to_caf(*all->plays->pause_error);
      std::lock_guard lock{all->mutex};
      auto& is = all->plays->description;
      if (is.exists && is.paused == wanted.paused)
        return to_caf({errc::invalid_request, "it is so already"});
      is.paused = is.exists && wanted.paused;
      return is;
    },
    [all](const open_sockets_request& asked) -> caf::result<sandbox_sockets> {
      if (all->plays->network_error)
        return to_caf(*all->plays->network_error);
      all->heard->add("open " + std::to_string(asked.count) + (asked.ipv6 ? " IPv6" : " IPv4"));
      std::vector<unique_fd> made;
      if (all->plays->sockets)
        made = all->plays->sockets(asked.ipv6, asked.count);
      else
        for (std::uint32_t i = 0; i < asked.count; ++i)
          made.emplace_back(::socket(asked.ipv6 ? AF_INET6 : AF_INET,
                                     SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      return sandbox_sockets{std::make_shared<std::vector<unique_fd>>(std::move(made)), nullptr};
    },
    [all](const list_ports_request&) -> caf::result<std::vector<listening_port>> {
      if (all->plays->network_error)
        return to_caf(*all->plays->network_error);
      return all->plays->ports;
    },
    [all](const mount_bucket_request& wanted) -> caf::result<caf::ok_atom> {
      all->heard->add(in_words(wanted));
      if (all->plays->mount_error)
        return to_caf(*all->plays->mount_error);
      return caf::ok_atom::value;
    },
    [all](const unmount_bucket_request& wanted) -> caf::result<caf::ok_atom> {
      all->heard->add("unmount " + wanted.path);
      if (all->plays->mount_error)
        return to_caf(*all->plays->mount_error);
      return caf::ok_atom::value;
    },
    [all](const mark_persistent&) -> caf::result<caf::ok_atom> {
      all->heard->add("mark persistent");
      return caf::ok_atom::value;
    },
    [all](const list_mounts_request&) -> caf::result<std::vector<mounted_bucket>> {
      all->heard->add("list mounts");
      if (all->plays->mount_error)
        return to_caf(*all->plays->mount_error);
      return all->plays->mounts;
    },
    [self, all, asked = std::vector<caf::typed_response_promise<bool>>{}](
      const probe_request&) mutable -> caf::result<bool> {
      if (!all->plays->deaf_probe)
        return all->plays->probe;
      all->heard->add("probed");
      asked.push_back(self->make_response_promise<bool>());
      return asked.back();
    },
    [](find_atom, const request_context&) { return caf::ok_atom::value; },
    [](delete_atom, const request_context&) { return caf::ok_atom::value; },
  };
}

using directory_impl = directory_actor::extend<caf::reacts_to<release_atom>>;

struct directory_state {
  static inline const char* name = "fake_directory";
  std::map<std::string, sandbox_actor> found;
  std::vector<std::pair<std::string, caf::typed_response_promise<sandbox_actor>>> held;
};

/// A place is how many came before.
sandbox_page page_of(script& plays, const list_sandboxes& wanted) {
  plays.list_steps.push_back(wanted);
  auto all = plays.described;
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::pair{-a.is.created_ms, a.id} < std::pair{-b.is.created_ms, b.id};
  });
  sandbox_page page;
  auto at = wanted.after.empty() ? std::size_t{0} : std::stoul(wanted.after);
  for (; at < all.size() && page.sandboxes.size() < std::min(wanted.limit, plays.most_on_page);
       ++at)
    page.sandboxes.push_back(all[at]);
  if (at < all.size())
    page.next = std::to_string(at);
  if (wanted.counted)
    page.total = all.size();
  return page;
}

/// A place is "p", and how many came before.
group_page page_of(script& plays, const list_group& wanted) {
  plays.group_steps.push_back(wanted);
  group_page page;
  auto at = wanted.after.empty() ? std::size_t{0} : std::stoul(wanted.after.substr(1));
  for (; at < plays.grouped.size() &&
         page.sandboxes.size() < std::min(wanted.limit, plays.most_on_page);
       ++at) {
    page.sandboxes.push_back(plays.grouped[at]);
    page.sandboxes.back().place = "p" + std::to_string(at + 1);
  }
  if (at < plays.grouped.size())
    page.next = "p" + std::to_string(at);
  return page;
}

caf::result<snapshot_description> snapshot_of(const script& plays, const std::string& id) {
  for (const auto& each : plays.snapshots)
    if (each.id == id)
      return each;
  return to_caf({errc::not_found, "Snapshot " + id + " not found."});
}

/// A place is how many came before.
snapshot_page page_of(const script& plays, const list_snapshots& wanted) {
  snapshot_page page;
  std::vector<snapshot_description> all;
  for (const auto& each : plays.snapshots)
    if ((wanted.origin.empty() || each.origin == wanted.origin) &&
        (wanted.root.empty() || each.root == wanted.root))
      all.push_back(each);
  auto at = wanted.after.empty() ? std::size_t{0} : std::stoul(wanted.after);
  for (; at < all.size() && page.snapshots.size() < std::min(wanted.limit, plays.most_on_page);
       ++at)
    page.snapshots.push_back(all[at]);
  if (at < all.size())
    page.next = std::to_string(at);
  return page;
}

activation_page page_of(const script& plays, const list_activations& wanted) {
  activation_page page;
  auto at = static_cast<std::size_t>(wanted.after);
  for (;
       at < plays.list.size() && page.sandboxes.size() < std::min(wanted.limit, plays.most_on_page);
       ++at)
    page.sandboxes.push_back(plays.list[at]);
  page.next = at < plays.list.size() ? at : 0;
  page.total = plays.list.size();
  return page;
}

directory_impl::behavior_type directory(directory_impl::stateful_pointer<directory_state> self,
                                        together all) {
  const auto resolve = [self, all](const std::string& id) {
    if (std::exchange(all->plays->stale_once, false))
      return self->spawn(sandbox, all, true);
    auto& known = self->state.found[id];
    if (!known) {
      known = self->spawn(sandbox, all, false);
      std::lock_guard lock{all->mutex};
      if (!all->leaving) // Nobody would let go of it.
        all->sandboxes.push_back(caf::actor_cast<caf::actor>(known));
    }
    return known;
  };
  return {
    [=](find_atom, const std::string& id, const request_context&) -> caf::result<sandbox_actor> {
      all->heard->add("find " + id);
      if (all->plays->find_error)
        return to_caf(*all->plays->find_error);
      if (!all->plays->hold_find)
        return resolve(id);
      auto promise = self->make_response_promise<sandbox_actor>();
      self->state.held.emplace_back(id, promise);
      return promise;
    },
    [=](reach_atom, const std::string& id, const request_context&) -> caf::result<sandbox_actor> {
      all->heard->add("reach " + id);
      if (all->plays->find_error)
        return to_caf(*all->plays->find_error);
      return resolve(id);
    },
    [=](delete_atom, const std::string& id, const request_context&) -> caf::result<caf::ok_atom> {
      all->heard->add("delete " + id);
      self->state.found.erase(id);
      return caf::ok_atom::value;
    },
    [=](const list_activations& wanted) { return page_of(*all->plays, wanted); },
    [=](const list_sandboxes& wanted) { return page_of(*all->plays, wanted); },
    [=](const list_group& wanted) -> caf::result<group_page> {
      if (wanted.after == "elsewhere")
        return to_caf({errc::invalid_request, "the place is not one of this list"});
      return page_of(*all->plays, wanted);
    },
    [=](const define_snapshot& asked) -> caf::result<snapshot_description> { return asked.is; },
    [=](const find_snapshot& asked) { return snapshot_of(*all->plays, asked.id); },
    [=](const hold_snapshot& asked) { return snapshot_of(*all->plays, asked.id); },
    [=](const release_snapshot&) { return caf::ok_atom::value; },
    [=](const delete_snapshot& asked) -> caf::result<snapshot_description> {
      all->heard->add("delete snapshot " + asked.id);
      auto found = snapshot_of(*all->plays, asked.id);
      std::erase_if(all->plays->snapshots, [&](const auto& each) { return each.id == asked.id; });
      return found;
    },
    [=](const compare_snapshots& asked) -> caf::result<snapshot_changes> {
      all->heard->add("compare " + asked.id + " with " + asked.older + " after " + asked.after);
      if (asked.older == "none")
        return to_caf({errc::not_found, "Snapshot none not found."});
      return snapshot_changes{"older", all->plays->changes};
    },
    [=](const list_snapshots& wanted) {
      all->heard->add("list_snapshots");
      return page_of(*all->plays, wanted);
    },
    [=](release_atom) {
      for (auto& [id, promise] : self->state.held)
        promise.deliver(resolve(id));
      self->state.held.clear();
    },
  };
}

/// Its figures are the script's.
pool_actor::behavior_type pool(pool_actor::pointer, together all) {
  return {
    [all](status_atom) {
      all->heard->add("pool stats");
      return all->plays->pool;
    },
    [all](const prime_pool& said) {
      all->heard->add(said.settings ? "pool settings" : "pool prime");
      return caf::ok_atom::value;
    },
    [all](empty_atom) -> caf::result<caf::ok_atom> {
      all->heard->add("pool empty");
      if (all->plays->pool_error)
        return to_caf(*all->plays->pool_error);
      return caf::ok_atom::value;
    },
  };
}

caf::actor_system_config& running_on(io_pool& pool, caf::actor_system_config& config) {
  actors::run_actors_on(pool, config);
  return config;
}

} // namespace

http::server_options house::with_pool(http::server_options options) {
  options.port = 0;
  const auto made = system_.spawn(pool, shared_);
  shared_->pool = caf::actor_cast<caf::actor>(made);
  options.pool = made;
  return options;
}

house::house(http::server_options options, http::health_probe health, unsigned threads)
    : script_(std::make_shared<script>())
    , diary_(std::make_shared<diary>())
    , shared_(std::make_shared<shared>())
    , pool_(threads)
    , system_(running_on(pool_, config_))
    , directory_([&] {
      shared_->plays = script_;
      shared_->heard = diary_;
      directory_impl made = system_.spawn(directory, shared_);
      shared_->directory = caf::actor_cast<caf::actor>(made);
      return directory_actor{made};
    }())
    , server_(pool_, system_, with_pool(std::move(options)), directory_, std::move(health)) {
  const auto started = server_.start();
  if (!started)
    FAIL(started.reason().message);
}

house::~house() {
  server_.stop(std::chrono::milliseconds{0});
  caf::anon_send_exit(shared_->directory, caf::exit_reason::kill);
  caf::anon_send_exit(shared_->pool, caf::exit_reason::kill);
  caf::anon_send_exit(shared_->process, caf::exit_reason::kill);
  caf::anon_send_exit(shared_->terminal, caf::exit_reason::kill);
  // Operations speak to the test's own variables, which are about to go.
  std::vector<std::thread> under_way;
  {
    std::lock_guard lock{shared_->mutex};
    under_way.swap(shared_->operations);
    for (const auto& each : shared_->sandboxes) // Who waits for one waits no more.
      caf::anon_send_exit(each, caf::exit_reason::kill);
    shared_->sandboxes.clear();
    shared_->leaving = true;
  }
  for (auto& operation : under_way)
    operation.join();
  shared_->directory = nullptr;
  shared_->process = nullptr;
  shared_->terminal = nullptr;
  shared_->at_terminal = nullptr;
  shared_->pool = nullptr;
}

script& house::plays() {
  // What a request has read of it comes before what is changed now. Sockets alone do not say so.
  std::lock_guard lock{shared_->mutex};
  return *script_;
}

exec_request house::last_exec() {
  std::lock_guard lock{shared_->mutex};
  return shared_->last_exec;
}

void house::release() {
  caf::anon_send(shared_->directory, release_atom::value);
}

void house::print(output_stream to, std::string bytes) {
  std::lock_guard lock{shared_->mutex};
  caf::anon_send(shared_->process, print_atom::value, static_cast<int>(to), std::move(bytes));
}

void house::end_command(process_end how) {
  std::lock_guard lock{shared_->mutex};
  caf::anon_send(shared_->process, finish_atom::value, static_cast<int>(how.exit_code),
                 how.timed_out);
}

void house::kill_command() {
  std::lock_guard lock{shared_->mutex};
  caf::anon_send(shared_->process, die_atom::value);
}

void house::print_terminal(std::string bytes) {
  std::lock_guard lock{shared_->mutex};
  caf::anon_send(shared_->terminal, print_atom::value, std::move(bytes));
}

void house::end_terminal(process_end how) {
  std::lock_guard lock{shared_->mutex};
  caf::anon_send(shared_->terminal, finish_atom::value, static_cast<int>(how.exit_code),
                 static_cast<int>(how.signal));
}

namespace {

bool read_all(int fd, void* into, std::size_t size) {
  auto* at = static_cast<char*>(into);
  while (size > 0) {
    const auto n = ::recv(fd, at, size, 0);
    if (n <= 0)
      return false;
    at += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

void write_all(int fd, const void* from, std::size_t size) {
  const auto* at = static_cast<const char*>(from);
  while (size > 0) {
    const auto n = ::send(fd, at, size, MSG_NOSIGNAL);
    if (n <= 0)
      return; // The other end has had enough.
    at += n;
    size -= static_cast<std::size_t>(n);
  }
}

} // namespace

bool read_frames(int fd, std::string& content) {
  for (;;) {
    frame_head head{};
    if (!read_all(fd, &head, sizeof head))
      return false;
    if (head.bytes == 0)
      return true;
    const auto size = content.size();
    content.resize(size + head.bytes);
    if (head.bytes > max_frame_bytes || !read_all(fd, content.data() + size, head.bytes))
      return false;
  }
}

void write_frame(int fd, std::string_view bytes) {
  const frame_head head{static_cast<std::uint32_t>(bytes.size())};
  write_all(fd, &head, sizeof head);
  write_all(fd, bytes.data(), bytes.size());
}

void write_head(int fd, file_head head) {
  write_all(fd, &head, sizeof head);
}

} // namespace insula::test
