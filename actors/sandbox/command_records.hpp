#pragma once

#include "actors/sandbox/command_logs.hpp"
#include "actors/sandbox/idempotency.hpp"

namespace insula::actors::inside_sandbox {

/// Remembered commands: what has become of one that can be asked for by its id.
class command_records final : public part {
public:
  command_records(core& of, idempotency& kept, command_logs& logs)
      : part(of)
      , kept_(kept)
      , logs_(logs) {}

  void find(const find_command& asked, const reply<command_status>& to);
  void list(const find_commands& asked, const reply<command_list>& to);
  void interrupt(const interrupt_command& asked, const reply<caf::ok_atom>& to);
  /// Also of a command that is not remembered, and kept under its key.
  void write_input(write_command_input what, const reply<input_progress>& to);

private:
  void tell_of(const find_command& asked, const reply<command_status>& to);
  void list_now(std::uint64_t run, const reply<command_list>& to);
  void tell_of_running(const std::string& key, const std::shared_ptr<child_process>& process,
                       command_status answer, const reply<command_status>& to);
  bool is_elsewhere(std::uint64_t run) const;
  void end_as_lost(command_state& state) const;
  void take_end(const std::string& key, const process_status& status, command_state& into);
  void measure(const std::shared_ptr<child_process>& process, command_status answer,
               const reply<command_status>& to);
  void write_now(const std::shared_ptr<write_command_input>& what, const reply<input_progress>& to);
  void interrupt_now(const std::string& key, int signal, const reply<caf::ok_atom>& to);

  idempotency& kept_;
  command_logs& logs_;
};

} // namespace insula::actors::inside_sandbox
