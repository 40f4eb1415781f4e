#pragma once

#include "actors/sandbox/core.hpp"

#include <map>

namespace insula::actors::inside_sandbox {

/// A command that waits to be run, and what it counts for until then.
struct waiting_command {
  exec_request wanted;
  std::shared_ptr<void> memory;
  /// It has ended and its output is complete, or it never ran.
  then_function on_over = nullptr;
};

/// The commands of the sandbox that run in no session, and its file operations.
class commands final : public part {
public:
  using part::part;

  /// Null: too much waits already.
  std::shared_ptr<void> take_memory(const exec_request& wanted);
  std::shared_ptr<void> take_memory(std::uint64_t bytes);
  void run(waiting_command what, const reply<process_actor>& to);
  void probe(const request_context& context, const reply<bool>& to);

  /// A command that an earlier server has started. `told`: it runs, or why it does not. None: no
  /// request waits for it.
  void resume(const runtime::survivor& which, const survivor_note& note, then_function on_over,
              const std::optional<reply<process_actor>>& told);
  std::size_t running_count() const { return processes_.size(); }
  /// By SIGTERM, and at last by SIGKILL; `then` is called when all have ended.
  void interrupt_all(const then_function& then);
  /// Calls it once all that there are now have ended, with all of their output, or after
  /// limits::kept_logs_patience.
  void when_over(const then_function& then);

  bool in_use() const override { return !processes_.empty(); }
  void ends(const error& why) override;

private:
  void over(std::uint64_t number);
  bool is_full() const;
  std::shared_ptr<child_process> add(process_options options);
  runtime::process_spec make_spec(exec_request& request) const;
  std::shared_ptr<child_process> start(runtime::process_spec spec, const exec_request& wanted,
                                       then_function on_over);

  /// Until their command and its output are over.
  std::map<std::uint64_t, std::shared_ptr<child_process>> processes_;
  std::uint64_t last_ = 0;
  /// Each is called once, when the processes up to that one are over.
  std::multimap<std::uint64_t, std::shared_ptr<then_function>> when_over_;
  std::shared_ptr<byte_budget> waiting_bytes_ =
    std::make_shared<byte_budget>(limits::waiting_sandbox_bytes); ///< For what commands say.
};

// Of a sandbox that runs, or is about to.

/// "NAME=value": what every command is given, then the image's, the sandbox's own, what is
/// particular, and what is wanted, each over those before.
std::vector<std::string> environment(const core& of,
                                     const std::map<std::string, std::string>& particular = {},
                                     const std::map<std::string, std::string>& wanted = {});
/// A leading ~, $NAME and ${NAME}, by what every command is given. Errors: invalid_request.
result<std::string> expanded(const core& of, const std::string& path);
/// All of a command but what is run.
process_options make_options(core& of, std::optional<std::int64_t> timeout_ms,
                             const request_context& context);

} // namespace insula::actors::inside_sandbox
