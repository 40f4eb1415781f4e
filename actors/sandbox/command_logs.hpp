#pragma once

#include "actors/sandbox/idempotency.hpp"

namespace insula::actors::inside_sandbox {

/// What the commands of runs have said, for as long as the record has the run: their logs get names
/// on the node's disk when the run ends, before its sandbox does.
class command_logs final : public part {
public:
  command_logs(core& of, idempotency& kept)
      : part(of)
      , kept_(kept) {}

  /// The logs of that run's commands are kept from now on. `then` is called once they are, or after
  /// limits::kept_logs_patience: it is not for a disk to keep a run from its end.
  void keep(std::uint64_t run, const then_function& then);
  /// The run is over, and nobody writes to them any more.
  void end_run(std::uint64_t run);
  /// That of a command whose run is over, for its reader. `not_there`: it is not kept.
  void open(const std::string& key, command_status answer, const reply<command_status>& to,
            const then_function& not_there);
  /// The sandbox is no more, or no more this node's.
  void forget_all();
  /// The same, and `then` is called once the disk has removed them, or after
  /// limits::kept_logs_patience. The record is loaded.
  void forget_all(then_function then);

private:
  struct keeping;
  void keep_next(const std::shared_ptr<keeping>& all);

  idempotency& kept_;
};

} // namespace insula::actors::inside_sandbox
