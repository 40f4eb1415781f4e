#include "actors/sandbox/sandbox.hpp"

#include "actors/sandbox/sandbox_state.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <charconv>

namespace insula::actors {

namespace inside_sandbox {

void note(std::string_view event, const sandbox_state& st, const request_context& context) {
  if (log::enabled(log::level::debug))
    log::debug(event, {{"id", st.id->str()}, {"request", context.id}});
}

namespace {

sandbox_status status_of(const sandbox_state& st) {
  sandbox_status row;
  row.id = st.id->str();
  row.state = name_of(st.now);
  const auto made = st.record->value("created_ms");
  std::from_chars(made.data(), made.data() + made.size(), row.created_ms);
  row.sessions = static_cast<std::uint32_t>(st.sessions.size());
  row.terminals = static_cast<std::uint32_t>(st.terminals.size());
  const auto limits = limits_of(st);
  row.memory_limit_bytes = limits.memory_bytes;
  row.cpu_limit_percent = limits.cpu_percent;
  if (const auto used = st.place ? st.place->usage() : std::nullopt) {
    row.memory_bytes = used->memory_bytes;
    if (used->cpu)
      row.cpu_us = static_cast<std::uint64_t>(used->cpu->count());
    row.processes = used->processes;
  }
  return row;
}

sandbox_impl::behavior_type sandbox(sandbox_pointer self, const sandbox_id& id,
                                    std::shared_ptr<const sandbox_options> options,
                                    bool hibernates) {
  auto& mine = self->state;
  self->count_mailbox(options->figures->sandboxes);
  options->figures->entered(mine.now);
  mine.id = id;
  mine.hibernates = hibernates;
  mine.record.emplace(self, options->keep, kept_in::cluster, id.str());
  mine.local.emplace(self, options->keep, kept_in::node, id.str());
  mine.options = std::move(options);
  self->set_down_handler([self](const caf::down_msg& gone) {
    std::erase_if(self->state.ending_sessions,
                  [&](const auto& each) { return each.address() == gone.source; });
  });
  return {
    [self](exec_request& request) -> caf::result<process_actor> {
      auto memory = take_memory(self->state, request);
      if (!memory)
        return to_caf({errc::limit_reached, "too much waits to be run"});
      auto reply = self->make_response_promise<process_actor>();
      const auto context = request.context;
      auto wanted = std::make_shared<exec_request>(std::move(request));
      const auto run = [=] {
        when_running(self, reply, context, [=]() mutable {
          run_command(self, std::move(*wanted), std::move(memory), reply);
        });
      };
      wanted->only_if_there ? when_there(self, reply, context, run) : run();
      return reply;
    },
    [self](find_result& asked) -> caf::result<known_result> {
      auto reply = self->make_response_promise<known_result>();
      when_running(self, reply, asked.context, [=] { find_result_of(self, asked, reply); });
      return reply;
    },
    [self](const find_command& asked) -> caf::result<known_command> {
      auto reply = self->make_response_promise<known_command>();
      find_command_of(self, asked, reply);
      return reply;
    },
    [self](const interrupt_command& asked) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      interrupt(self, asked, reply);
      return reply;
    },
    [self](create_session_request& request) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      when_running(self, reply, request.context, [=] { create_session(self, request, reply); });
      return reply;
    },
    [self](const delete_session_request& request) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      remove_session(self, request, reply);
      return reply;
    },
    [self](
      open_terminal_request& request) -> caf::result<terminal_actor, std::uint64_t, std::uint64_t> {
      auto reply = self->make_response_promise<terminal_actor, std::uint64_t, std::uint64_t>();
      if (!request.defined.empty()) {
        open_defined_terminal(self, request, reply);
        return reply;
      }
      when_running(self, reply, request.context, [=] { open_terminal(self, request, reply); });
      return reply;
    },
    [self](const define_terminal& wanted) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      define(self, wanted, reply);
      return reply;
    },
    [self](const find_terminal& asked) -> caf::result<known_terminal> {
      auto reply = self->make_response_promise<known_terminal>();
      find(self, asked, reply);
      return reply;
    },
    [self](const forget_terminal& asked) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      forget(self, asked, reply);
      return reply;
    },
    [self](status_atom) { return status_of(self->state); },
    [self](read_file_request& request) {
      if (request.part)
        return open_part(self, std::move(request));
      return open_file(self, runtime::file_operation::read, std::move(request.path),
                       std::move(request.context), std::move(request.session));
    },
    [self](write_file_request& request) {
      return open_file(self, runtime::file_operation::write, std::move(request.path),
                       std::move(request.context), std::move(request.session));
    },
    [self](read_tree_request& request) {
      return open_tree(self,
                       {runtime::file_operation::read, std::move(request.path),
                        std::move(request.excludes), false, request.compact},
                       std::move(request.context));
    },
    [self](write_tree_request& request) {
      return open_tree(self, {runtime::file_operation::write, std::move(request.path), {}},
                       std::move(request.context));
    },
    [self](file_task_request& request) -> caf::result<file_channel> {
      auto reply = self->make_response_promise<file_channel>();
      run_file_task(self, std::move(request), reply);
      return reply;
    },
    [self](write_once_request& asked) -> caf::result<write_once_answer> {
      auto reply = self->make_response_promise<write_once_answer>();
      when_running(self, reply, asked.context, [=] { write_once(self, asked, reply); });
      return reply;
    },
    [self](get_network_request& asked) -> caf::result<network_state> {
      auto reply = self->make_response_promise<network_state>();
      get_network(self, asked.context, reply);
      return reply;
    },
    [self](set_network_request& asked) -> caf::result<network_state> {
      auto reply = self->make_response_promise<network_state>();
      set_network(self, asked, reply);
      return reply;
    },
    [self](change_network_request& asked) -> caf::result<network_state> {
      auto reply = self->make_response_promise<network_state>();
      change_network(self, asked, reply);
      return reply;
    },
    [self](const define_sandbox& wanted) -> caf::result<sandbox_description> {
      auto reply = self->make_response_promise<sandbox_description>();
      define(self, wanted, reply);
      return reply;
    },
    [self](const redefine_sandbox& wanted) -> caf::result<sandbox_description> {
      auto reply = self->make_response_promise<sandbox_description>();
      redefine(self, wanted, reply);
      return reply;
    },
    [self](const pause_sandbox& wanted) -> caf::result<sandbox_description> {
      auto reply = self->make_response_promise<sandbox_description>();
      set_paused(self, wanted, reply);
      return reply;
    },
    [self](const open_sockets_request& asked) -> caf::result<sandbox_sockets> {
      auto reply = self->make_response_promise<sandbox_sockets>();
      open_sockets(self, asked, reply);
      return reply;
    },
    [self](const list_ports_request& asked) -> caf::result<std::vector<listening_port>> {
      auto reply = self->make_response_promise<std::vector<listening_port>>();
      list_ports(self, asked, reply);
      return reply;
    },
    [self](mount_bucket_request& wanted) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      mount_bucket(self, wanted, reply);
      return reply;
    },
    [self](const unmount_bucket_request& wanted) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      unmount_bucket(self, wanted, reply);
      return reply;
    },
    [self](const list_mounts_request& asked) -> caf::result<std::vector<mounted_bucket>> {
      auto reply = self->make_response_promise<std::vector<mounted_bucket>>();
      list_mounts(self, asked, reply);
      return reply;
    },
    [self](const mark_persistent& wanted) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      mark(self, wanted, reply);
      return reply;
    },
    [self](probe_request& asked) -> caf::result<bool> {
      auto reply = self->make_response_promise<bool>();
      when_running(self, {[=, context = asked.context] { run_probe(self, context, reply); },
                          [reply](const error&) mutable { reply.deliver(false); }, asked.context});
      return reply;
    },
    [self](find_atom, request_context& context) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      when_running(self, reply, std::move(context),
                   [reply]() mutable { reply.deliver(caf::ok_atom::value); });
      return reply;
    },
    [self](delete_atom, request_context& context) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      auto& st = self->state;
      st.deleting.push_back(reply);
      if (st.now != phase::deleting) {
        if (st.place && is_alive(st.now))
          st.options->figures->ended(sandbox_end::deleted);
        st.deletion = std::move(context);
        begin_delete(self);
      }
      return reply;
    },
    [self](evict_atom) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      evict(self, reply);
      return reply;
    },
    [self](hand_over_atom) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      hand_over(self, reply);
      return reply;
    },
    [self](alarm_due& due) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      attend(self, std::move(due), reply);
      return reply;
    },
    [self](keep_files_atom) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      keep_files(self, reply);
      return reply;
    },
    [self](keep_used_files_atom) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      keep_used_files(self, reply);
      return reply;
    },
    [self](files_kept& said) { heard(self, said); },
    [self](const files_back& said) { heard(self, said); },
    [self](files_due_atom) { look_at_files(self); },
    [self](lease_settled& said) { heard(self, said); },
    [self](sandbox_ready& said) { heard(self, said); },
    [self](sandbox_failed& said) { heard(self, said); },
    [self](const sandbox_ended& said) { heard(self, said); },
    [self](const sandbox_gone& said) { heard(self, said); },
    [self](const survivor_ended& said) { heard(self, said); },
    [self](adopt_atom) { adopt(self); },
    [self](const stood_still& said) { heard(self, said); },
    [self](const process_over& said) {
      self->state.processes.erase(said.number);
      if (self->state.processes.empty())
        touch(self);
    },
    [self](const result_resumed& said) {
      said.process ? result_runs(self, said.key, *said.process)
                   : result_does_not_run(self, said.key, said.process.reason());
    },
    [self](const result_over& said) { result_is_over(self, said.key); },
    [self](const use_over&) {
      --self->state.uses;
      touch(self);
    },
    [](const engine_answered& said) { said.go(); },
    [self](const terminal_over& said) {
      auto& st = self->state;
      st.ending_terminals.erase(said.number);
      for (auto at = st.terminals.begin(); at != st.terminals.end(); ++at)
        if (at->second.number == said.number) {
          st.terminals.erase(at);
          touch(self);
          break;
        }
      terminal_is_over(self);
    },
    [self](const terminal_used& said) {
      auto& st = self->state;
      for (auto& [session, terminal] : st.terminals)
        if (terminal.number == said.number) {
          terminal.in_use = said.in_use;
          if (!said.in_use)
            terminal.left = ++st.last_left;
          if (!is_held(st))
            static_cast<void>(thaw(self)); // Who comes has asked for it before, but long ago maybe.
          touch(self);
        }
    },
    [self](hibernate_atom) {
      const auto& st = self->state;
      if (st.now == phase::asleep && st.waiting.empty() && st.deleting.empty() && st.alarms == 0 &&
          st.errands == 0 && st.given_up.empty())
        self->quit();
    },
    [self](idle_atom) { look(self); },
    [self](patience_over_atom) { refuse_impatient(self); },
  };
}

} // namespace

} // namespace inside_sandbox

sandbox_object_actor spawn_sandbox(caf::actor_system& system, sandbox_id id,
                                   std::shared_ptr<const sandbox_options> options,
                                   bool hibernates) {
  return system.spawn(inside_sandbox::sandbox, std::move(id), std::move(options), hibernates);
}

} // namespace insula::actors
