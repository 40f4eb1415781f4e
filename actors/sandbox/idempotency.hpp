#pragma once

#include "actors/sandbox/commands.hpp"
#include "actors/sandbox/idempotency_record.hpp"

#include <map>
#include <set>

namespace insula::actors::inside_sandbox {

/// A question that is answered later.
struct waiting_question {
  then_function ask;
  otherwise_function otherwise; ///< The actor ends before.
};

/// A command that is to run once, from the request on.
struct kept_command {
  std::shared_ptr<child_process> process;    ///< Null: it does not run yet.
  std::vector<reply<process_actor>> waiting; ///< As long as that is so.
  /// An earlier server has started it, and it is not known yet what has become of it.
  bool resuming = false;
  std::vector<waiting_question> when_known; ///< Once it runs, or is known not to.
  bool over = false;                        ///< It has ended, and its output is complete.
  bool notes_answer = false; ///< Once somebody has been told of it, its record says so.
};

/// Requests that have their effect once. Of each there is a record in the node's store, durable
/// before anything is done. The records go into the cluster's when the sandbox leaves the node, and
/// stay there: what they are of has ended by then, and is not done again elsewhere. The command
/// itself is kept by the engine, with its output and its end, over any number of servers: a record
/// whose command is not there, although nothing was lost since in which sandbox it was to run, is
/// one of a command that was never started.
class idempotency final : public part {
public:
  /// Runs it; the answer is that of the command.
  using run_function = std::function<void(waiting_command, const reply<process_actor>&)>;

  using part::part;

  /// Runs it unless it has been asked for before.
  void run(waiting_command what, const run_function& run, const reply<process_actor>& to);
  void find_process(const find_result& asked, const reply<replay_status>& to);
  void write_once(const write_once_request& asked, const reply<write_once_answer>& to);
  /// An alarm of the node's record.
  void expire(const alarm_due& due);
  /// Takes all records from the node's store into the cluster's, but those of remembered commands,
  /// which no client asks for twice. One of the two is called; with `otherwise`, they may be in
  /// both.
  void leave(const then_function& then, const otherwise_function& otherwise);
  /// Adds that those which came from another node go once their time is up. The record is loaded.
  void note_start(std::vector<storage::change>& changes) const;

  /// An earlier server has started the command of this key. None: there is one of that key.
  /// Else to be told whether it runs.
  std::optional<reply<process_actor>> resume(const std::string& key);
  /// For on_over of that command.
  then_function over(const std::string& key);
  /// Not all of what an earlier server has left could be taken over.
  void forget_some() { knows_all_ = false; }
  std::set<std::string> repeated_; ///< Keys of commands that clients were told of once more.
  /// All that an earlier server has left has been taken over: what it had forgotten about goes.
  void drop_unknown();

  // For command_records. The node's record is loaded.

  /// Null: it is not known, or has been let go of.
  kept_command* find(const std::string& key);
  std::optional<idempotency_record> find_remembered(const std::string& key) const;
  /// All of them, in the order of their keys.
  void each_remembered(
    const std::function<void(const std::string& key, const idempotency_record&)>& tell) const;
  /// When its end was seen first is when it ended, from then on, and that is durable.
  void note_end(const std::string& key, const process_end& end);

  /// Calls it once of each that is about to run, or that an earlier server has started, it is known
  /// what has become of it.
  void when_known(const then_function& then);

  // Of runs.

  /// The processes of that run's commands whose output is remembered.
  std::vector<std::pair<std::string, std::shared_ptr<child_process>>>
  outputs_of(std::uint64_t run) const;
  /// It is over, and what its commands have said is kept elsewhere: their processes go as they end.
  void let_go_of(std::uint64_t run);
  /// The commands of all runs before that one are forgotten.
  void forget_runs_before(std::uint64_t run);
  /// The commands of this run are known here, or there are none.
  void note_run(std::uint64_t run);
  bool knows_run(std::uint64_t run) const;

  void starting() override { knows_all_ = true; }
  void ends(const error& why) override;

private:
  /// A client was told that nothing is known of a key, and is about to ask for the command.
  struct reservation {
    std::string digest;
    steady_clock::time_point until;
  };

  std::string this_start() const;
  /// Null: there is none, in neither store.
  const std::string* find_text(const std::string& key) const;
  std::optional<idempotency_record> find_record(const std::string& key) const;
  std::size_t count_own() const;     ///< In the node's store.
  std::size_t count_records() const; ///< Those from other nodes as well.
  void write_record(const std::string& key, const idempotency_record& record);
  std::size_t bytes_of_own() const; ///< Of what is in the node's store.
  bool forget_oldest();
  void make_room(std::size_t bytes);
  void forget(const std::string& key, std::vector<storage::change>& changes);
  std::optional<std::string> unanswered(const idempotency_key& wanted);
  result<kept_command*> look_up(const idempotency_key& wanted);
  bool reserve(const find_result& asked);
  void claim(waiting_command what, const run_function& run, const reply<process_actor>& to);

  reply<process_actor> told(const std::string& key);
  void on_running(const std::string& key, const process_actor& process);
  void on_not_running(const std::string& key, const error& why);
  void on_over(const std::string& key);
  void note_extent(const std::string& key);
  void note_answer(const std::string& key);
  void drop_if_done(const std::string& key);
  void update(const std::string& key, const std::function<bool(command_state&)>& change);
  bool certainly_not_run(const std::string& key, const error& why) const;
  void take_back(const std::string& key, const error& why);
  void fail(const std::string& key, const error& why);

  std::map<std::string, kept_command>
    commands_;                                  ///< By key. One that is over does not count as use.
  std::map<std::string, reservation> reserved_; ///< By key.
  /// All that an earlier server has left has been taken over: what is not there has not run.
  bool knows_all_ = true;
  std::uint64_t let_go_ = 0; ///< The last run whose processes go as they end.
};

} // namespace insula::actors::inside_sandbox
