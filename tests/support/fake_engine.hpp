#pragma once

#include "runtime/engine.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace insula::test {

/// A process as the test wants it, also one behind a terminal. Everything happens in the calling
/// thread.
class fake_process final : public runtime::terminal {
public:
  fake_process(runtime::process_spec s, runtime::process_listener l)
      : spec(std::move(s))
      , listener(std::move(l)) {}

  void write(std::string bytes, std::function<void(bool)> taken) override {
    typed += bytes;
    taken(!ended);
  }
  void resize(terminal_size to) override { size = to; }
  void read_for(std::uint64_t reader, std::uint64_t offset, std::size_t max_bytes,
                std::function<void(runtime::log_chunk)> on_output) override {
    readers.push_back(reader);
    read(offset, max_bytes, false, std::move(on_output));
  }
  void forget(std::uint64_t reader) override { forgotten.push_back(reader); }
  /// Takes what the test lets it.
  void write_input(input_piece piece, std::function<void(input_progress)> tell) override {
    if (!spec.input)
      return tell({0, input_state::over});
    if (holds_input) {
      held_input.push_back(std::move(tell));
      return;
    }
    input += piece.bytes;
    input_closed = input_closed || piece.closes;
    tell({input.size(), input_state::taken});
  }
  void measure(std::function<void(runtime::log_extent)> tell) override { tell({0, frames.size()}); }
  std::int32_t leader() const override { return number; }

  void read(std::uint64_t offset, std::size_t, bool attached,
            std::function<void(runtime::log_chunk)> on_output) override {
    last_attached = attached;
    questions.push_back({offset, attached, std::move(on_output)});
    answer();
  }
  void detach() override {
    detached = true;
    std::erase_if(questions, [](const auto& each) { return each.attached; });
  }
  void signal(int which) override { signals.push_back(which); }
  void cut_output() override {
    cut = true;
    complete_now();
  }

  // The test plays the operating system.
  void start() { listener.on_started(); }
  void fail(errc code, std::string why) { listener.on_failed({code, std::move(why)}); }
  void print(output_stream stream, std::string bytes) {
    frames.push_back({stream, std::move(bytes)});
    answer();
  }
  /// The command ends; its output goes on until complete_now().
  void exit(int status) {
    ended = runtime::process_exit{status, false, false};
    listener.on_ended(*ended);
    if (cut)
      complete_now();
  }
  void lose() {
    ended = runtime::process_exit{0, true, false};
    listener.on_ended(*ended);
    complete_now();
  }
  void complete_now() {
    if (!ended || complete)
      return;
    complete = true;
    answer();
    if (listener.on_complete)
      listener.on_complete();
  }

  runtime::process_spec spec;
  runtime::process_listener listener;
  std::vector<output_frame> frames; ///< Offsets count frames.
  std::vector<int> signals;
  std::vector<std::uint64_t> readers, forgotten;
  std::optional<runtime::process_exit> ended;
  bool detached = false;
  bool last_attached = false; ///< The last question was that of the attached reader.
  bool cut = false;
  bool complete = false;
  std::string typed;
  std::string input;
  bool input_closed = false;
  bool holds_input = false; ///< The test answers who writes.
  std::vector<std::function<void(input_progress)>> held_input;
  std::optional<terminal_size> size; ///< None: there is no terminal.
  std::int32_t number = 0;           ///< As which it runs.

private:
  struct question {
    std::uint64_t offset;
    bool attached;
    std::function<void(runtime::log_chunk)> on_output;
  };

  void answer() {
    for (auto& each : std::exchange(questions, {})) {
      if (each.offset >= frames.size() && !complete) {
        questions.push_back(std::move(each));
        continue;
      }
      runtime::log_chunk chunk;
      for (auto at = each.offset; at < frames.size(); ++at)
        chunk.frames.push_back(frames[at]);
      chunk.next_offset = frames.size();
      if (complete)
        chunk.ended = ended;
      each.on_output(std::move(chunk));
    }
  }

  std::vector<question> questions;
};

/// A shell as the test wants it.
class fake_shell final : public runtime::shell {
public:
  fake_shell(runtime::shell_spec s, runtime::shell_listener l)
      : spec(std::move(s))
      , listener(std::move(l)) {}

  std::shared_ptr<runtime::process> run(runtime::shell_command what,
                                        runtime::process_listener heard_by) override {
    commands.push_back(std::move(what));
    processes.push_back(
      std::make_shared<fake_process>(runtime::process_spec{}, std::move(heard_by)));
    return processes.back();
  }
  void look_around(std::function<void(result<runtime::shell_surroundings>)> tell) override {
    if (looks_wait)
      looks.push_back(std::move(tell));
    else
      tell(surroundings);
  }
  void end() override {
    if (!over && !hold_end)
      finish({.status = 9, .lost = false, .out_of_memory = false});
  }

  // The test plays bash.
  void ready() { listener.on_ready(); }
  void fail(std::string why) { listener.on_failed({errc::launch_failed, std::move(why)}); }
  /// It ends, and a command that runs with it: by itself, or because it was ended.
  void finish(runtime::process_exit how, bool by_itself = false) {
    over = true;
    listener.on_ended(how);
    for (auto& each : processes)
      if (!each->ended && by_itself)
        each->exit(how.status);
      else if (!each->ended)
        each->lose();
  }

  runtime::shell_spec spec;
  runtime::shell_listener listener;
  std::vector<runtime::shell_command> commands;
  std::vector<std::shared_ptr<fake_process>> processes;
  runtime::shell_surroundings surroundings;
  bool looks_wait = false; ///< Those who look are answered by the test.
  std::vector<std::function<void(result<runtime::shell_surroundings>)>> looks;
  bool over = false;
  bool hold_end = false; ///< It takes its time.
};

class fake_sandbox : public runtime::sandbox, public std::enable_shared_from_this<fake_sandbox> {
public:
  const runtime::creation_times& creation() const override { return took; }
  std::shared_ptr<runtime::process> start(runtime::process_spec spec,
                                          runtime::process_listener listener) override {
    processes.push_back(std::make_shared<fake_process>(std::move(spec), std::move(listener)));
    return processes.back();
  }
  std::shared_ptr<runtime::terminal> open_terminal(runtime::process_spec spec, terminal_size size,
                                                   runtime::process_listener listener) override {
    processes.push_back(std::make_shared<fake_process>(std::move(spec), std::move(listener)));
    processes.back()->size = size;
    processes.back()->number = 100 + static_cast<std::int32_t>(processes.size());
    return processes.back();
  }
  std::shared_ptr<runtime::shell> open_shell(runtime::shell_spec spec,
                                             runtime::shell_listener listener) override {
    shells.push_back(std::make_shared<fake_shell>(std::move(spec), std::move(listener)));
    return shells.back();
  }
  std::vector<runtime::survivor> survivors() const override { return left; }
  std::shared_ptr<runtime::process> take_over(const runtime::survivor& which,
                                              runtime::process_listener listener) override {
    taken.push_back(which.id);
    processes.push_back(
      std::make_shared<fake_process>(runtime::process_spec{}, std::move(listener)));
    return processes.back();
  }
  std::shared_ptr<runtime::terminal>
  take_over_terminal(const runtime::survivor& which, runtime::process_listener listener) override {
    taken.push_back(which.id);
    processes.push_back(
      std::make_shared<fake_process>(runtime::process_spec{}, std::move(listener)));
    return processes.back();
  }
  std::shared_ptr<runtime::shell> take_over_shell(const runtime::survivor& which,
                                                  runtime::shell_listener listener) override {
    taken.push_back(which.id);
    shells.push_back(std::make_shared<fake_shell>(runtime::shell_spec{}, std::move(listener)));
    return shells.back();
  }
  void disown(const runtime::survivor& which) override { disowned.push_back(which.id); }
  std::optional<runtime::sandbox_usage> usage() const override { return used; }
  result<unique_fd> open_file(runtime::file_operation what, const std::string& path,
                              runtime::sandbox_user user) override {
    last_user = user;
    files.push_back((what == runtime::file_operation::read ? "read " : "write ") + path);
    if (refuse_files)
      return error{errc::sandbox_not_running, "it takes no more requests"};
    return unique_fd{};
  }
  result<unique_fd> open_tree(const runtime::tree_request& wanted, runtime::sandbox_user) override {
    auto line = (wanted.what == runtime::file_operation::read ? "read tree " : "write tree ") +
                wanted.path + (wanted.whole ? " whole" : "");
    for (const auto& each : wanted.excludes)
      line += " without " + each;
    files.push_back(line);
    if (refuse_files)
      return error{errc::sandbox_not_running, "it takes no more requests"};
    return unique_fd{};
  }
  result<unique_fd> open_file_task(file_task what, const std::vector<std::string>& words,
                                   runtime::sandbox_user user) override {
    last_user = user;
    auto line = "task " + std::to_string(static_cast<unsigned>(what));
    for (const auto& each : words)
      line += " " + each;
    files.push_back(line);
    if (refuse_files)
      return error{errc::sandbox_not_running, "it takes no more requests"};
    return unique_fd{};
  }
  void take_snapshot(const std::string& name,
                     std::function<void(result<runtime::disk_snapshot>)> on_taken) override {
    taking.push_back({name, std::move(on_taken)});
    if (!hold_snapshot)
      finish_snapshots();
  }
  void finish_snapshots() {
    for (auto& [name, tell] : std::exchange(taking, {})) {
      if (snapshot_error)
        tell(*snapshot_error);
      else if (over)
        tell(error{errc::sandbox_not_running, "it has ended"});
      else if (!snapshots->insert(name).second)
        tell(error{errc::already_exists, "there is such a snapshot"});
      else
        tell(runtime::disk_snapshot{.bytes = 4096, .stood_still = std::chrono::milliseconds{1}});
    }
  }
  /// Answers with `changes`, of which nothing is another page's.
  void compare_disks(const runtime::compare_request& wanted,
                     std::function<void(result<disk_changes>)> tell) override {
    compared.push_back(wanted);
    for (const auto& each : {wanted.newer, wanted.older})
      if (!each.empty() && !snapshots->contains(each))
        return tell(error{errc::not_found, "what the snapshot had is not there"});
    if (over)
      return tell(error{errc::sandbox_not_running, "it has ended"});
    tell(changes);
  }
  void open_disk(const std::string& snapshot,
                 std::function<void(result<unique_fd>)> tell) override {
    files.push_back("read disk " + snapshot);
    if (over)
      return tell(error{errc::sandbox_not_running, "it has ended"});
    if (!snapshots->contains(snapshot))
      return tell(error{errc::not_found, "what the snapshot had is not there"});
    tell(unique_fd{});
  }
  std::vector<runtime::compare_request> compared;
  disk_changes changes;

  void name_user(const runtime::user_account& who,
                 std::function<void(result<void>)> on_named) override {
    accounts.push_back(who);
    if (hold_name)
      naming.push_back(std::move(on_named));
    else
      on_named(name_error ? result<void>{*name_error} : result<void>{});
  }
  void trust_authority(const std::string& certificate,
                       std::function<void(result<void>)> on_trusted) override {
    trusted.push_back(certificate);
    on_trusted(trust_error ? result<void>{*trust_error} : result<void>{});
  }
  std::vector<std::string> trusted; ///< Authorities, in their order.
  std::optional<error> trust_error;
  void set_network(const egress_policy& policy, const runtime::request_orders& requests,
                   std::function<void(result<void>)> on_set) override {
    policies.push_back(policy);
    orders.push_back(requests);
    on_set(network_error ? result<void>{*network_error} : result<void>{});
  }
  void measure_network(std::function<void(result<network_figures>)> tell) override {
    tell(network_error ? result<network_figures>{*network_error}
                       : result<network_figures>{network});
  }
  void open_sockets(runtime::sockets_request wanted,
                    std::function<void(result<std::vector<unique_fd>>)> tell) override {
    sockets.push_back(wanted);
    if (network_error)
      return tell(*network_error);
    tell(std::vector<unique_fd>(wanted.count));
  }
  void list_ports(std::function<void(result<std::vector<listening_port>>)> tell) override {
    tell(network_error ? result<std::vector<listening_port>>{*network_error}
                       : result<std::vector<listening_port>>{ports});
  }
  void list_quiet_shells(std::function<void(std::vector<std::int32_t>)> tell) override {
    ++looks_for_quiet;
    if (hold_quiet)
      quiet_asked.push_back(std::move(tell));
    else
      tell(quiet);
  }
  void mount(runtime::mount_spec what, std::function<void(result<void>)> on_mounted) override {
    mount_specs.push_back(what);
    const auto finish = [this, path = what.path, tell = std::move(on_mounted)] {
      if (mount_error)
        return tell(*mount_error);
      mounted.push_back({path, true});
      tell({});
    };
    hold_mount ? mounting.push_back(finish) : finish();
  }
  void finish_mounts() {
    for (auto& each : std::exchange(mounting, {}))
      each();
  }
  void unmount(const std::string& path, std::function<void(result<void>)> on_unmounted) override {
    unmounted.push_back(path);
    if (unmount_error)
      return on_unmounted(*unmount_error);
    std::erase_if(mounted, [&](const auto& each) { return each.path == path; });
    on_unmounted({});
  }
  std::vector<runtime::live_mount> mounts() const override { return mounted; }
  void attach_drive(runtime::drive_spec what,
                    std::function<void(result<void>)> on_attached) override {
    const auto of = std::dynamic_pointer_cast<fake_sandbox>(what.of);
    if (over)
      return on_attached(error{errc::sandbox_not_running, "it has ended"});
    if (!of || of.get() == this || (what.snapshot.empty() && of->over) ||
        (!what.snapshot.empty() && !snapshots->contains(what.snapshot)))
      return on_attached(error{errc::not_found, "there is no such drive"});
    const bool writes = what.snapshot.empty() && !what.read_only;
    for (const auto& each : drives)
      if (each.path == what.path)
        return each.of == what.of && each.read_only == what.read_only
                 ? on_attached({})
                 : on_attached(error{errc::already_exists, "something is mounted there"});
    if (const auto writer = of->drive_writer.lock();
        writes && writer && !writer->over && writer->destroys == 0)
      return on_attached(error{errc::drive_in_use, "another sandbox writes to it"});
    if (writes)
      of->drive_writer = weak_from_this();
    drives.push_back(std::move(what));
    on_attached({});
  }
  std::vector<runtime::drive_spec> drives;
  std::weak_ptr<fake_sandbox> drive_writer;

  void claim(runtime::sandbox_identity who, runtime::sandbox_listener heard_by) override {
    identity = std::move(who);
    owner = std::move(heard_by);
    if (!hold_claim)
      finish_claim();
  }
  /// It becomes somebody's, or is found dead, and is removed.
  void finish_claim() {
    if (dead)
      owner->on_failed({errc::launch_failed, "it does not answer"});
    else
      owner->on_ready(shared_from_this());
  }
  void ping(std::function<void()> on_answer) override {
    ++pings;
    if (!dead)
      on_answer();
  }
  void freeze(std::function<void(bool)> on_still) override {
    ++freezes;
    frozen = true;
    freezing = std::move(on_still);
    if (!hold_freeze)
      finish_freeze(true);
  }
  void finish_freeze(bool good) {
    frozen = good;
    if (const auto tell = std::exchange(freezing, nullptr))
      tell(good);
  }
  result<void> thaw() override {
    if (refuse_thaw)
      return error{errc::io_failed, "thawing the sandbox: Input/output error"};
    ++thaws;
    frozen = false;
    return {};
  }
  bool stands_still() const override { return frozen; }
  bool is_over() const override { return over; }
  void destroy(std::function<void()> on_gone) override {
    ++destroys;
    waiting.push_back(std::move(on_gone));
    if (!hold_destroy)
      finish_destroy();
  }
  void finish_destroy() {
    for (auto& each : processes)
      if (!each->ended)
        each->lose();
    for (auto& each : std::exchange(waiting, {}))
      each();
  }

  std::vector<std::shared_ptr<fake_process>> processes;
  std::vector<std::shared_ptr<fake_shell>> shells;
  runtime::sandbox_usage used;
  runtime::creation_times took;
  std::vector<std::string> files;
  runtime::sandbox_user last_user{};   ///< Of the last file that was opened.
  std::vector<runtime::survivor> left; ///< By an earlier server.
  std::vector<std::uint64_t> taken, disowned;
  using snapshot_teller = std::function<void(result<runtime::disk_snapshot>)>;
  std::vector<std::pair<std::string, snapshot_teller>> taking;
  std::shared_ptr<std::set<std::string>> snapshots; ///< The engine's.
  std::optional<error> snapshot_error;
  bool hold_snapshot = false;                  ///< Until finish_snapshots().
  std::vector<runtime::user_account> accounts; ///< That were named, in their order.
  std::optional<error> name_error;
  bool hold_name = false; ///< Until the test answers.
  std::vector<std::function<void(result<void>)>> naming;
  std::vector<egress_policy> policies;         ///< That were set, in their order.
  std::vector<runtime::request_orders> orders; ///< The same.
  network_figures network;
  std::vector<runtime::sockets_request> sockets;
  std::vector<listening_port> ports;
  std::vector<std::int32_t> quiet; ///< Shells, by their numbers.
  int looks_for_quiet = 0;
  bool hold_quiet = false; ///< Those who ask are answered by the test.
  std::vector<std::function<void(std::vector<std::int32_t>)>> quiet_asked;
  std::optional<error> network_error;           ///< Of whatever is asked of its network.
  std::vector<runtime::mount_spec> mount_specs; ///< That were asked for, in their order.
  std::vector<runtime::live_mount> mounted;
  std::vector<std::string> unmounted; ///< Paths.
  std::optional<error> mount_error, unmount_error;
  bool hold_mount = false; ///< Until finish_mounts().
  std::vector<std::function<void()>> mounting;
  std::vector<std::function<void()>> waiting;
  std::optional<runtime::sandbox_identity> identity; ///< None: it is not claimed.
  std::optional<runtime::sandbox_listener> owner;
  int pings = 0;
  int destroys = 0;
  bool over = false;
  bool dead = false; ///< It hangs, and nobody has noticed.
  bool hold_claim = false;
  std::function<void(bool)> freezing;
  int freezes = 0;
  int thaws = 0;
  bool frozen = false; ///< Or on its way to that.
  bool hold_freeze = false;
  bool refuse_thaw = false;
  bool hold_destroy = false;
  bool refuse_files = false;
};

class fake_engine final : public runtime::engine {
public:
  struct creation {
    runtime::sandbox_spec spec;
    runtime::sandbox_listener listener;
    std::shared_ptr<fake_sandbox> place = std::make_shared<fake_sandbox>();

    void ready() { listener.on_ready(place); }
    void fail(std::string why, errc code = errc::launch_failed) {
      listener.on_failed({code, std::move(why)});
    }
    void end() {
      place->over = true;
      for (auto& each : place->processes)
        if (!each->ended)
          each->lose();
      (place->owner ? *place->owner : listener).on_ended();
    }
  };

  std::optional<error> refuses_more() const override { return refuses; }
  result<runtime::made_authority> make_authority() const override {
    const auto number = std::to_string(++authorities);
    return runtime::made_authority{"certificate " + number + '\n', "key " + number};
  }
  mutable std::atomic<int> authorities{0};
  void create(runtime::sandbox_spec spec, runtime::sandbox_listener listener) override {
    creations.push_back({std::move(spec), std::move(listener)});
    creations.back().place->hold_name = holds_names;
    creations.back().place->snapshots = snapshots;
    if (const auto& from = creations.back().spec.disk_from;
        !from.empty() && !snapshots->contains(from))
      return creations.back().fail("there is no snapshot " + from, errc::not_found);
    if (ready_at_once)
      creations.back().ready();
  }
  std::vector<std::string> survivors() const override {
    std::vector<std::string> names;
    for (const auto& [name, place] : left)
      names.push_back(name);
    return names;
  }
  std::optional<error> refuses;
  bool survives(const std::string& name) const override { return left.count(name) > 0; }
  void adopt(const runtime::sandbox_spec& spec, runtime::sandbox_listener listener) override {
    auto found = left.extract(spec.name);
    if (!found)
      return listener.on_failed({errc::not_found, "nothing of that name has been left"});
    adoptions.push_back({spec, std::move(listener), found.mapped()});
    if (ready_at_once)
      adoptions.back().ready();
  }
  void disown(const std::string& name, std::function<void()> on_gone) override {
    left.erase(name);
    disowned.push_back(name);
    on_gone();
  }
  void drop_snapshot(const std::string& name,
                     std::function<void(result<void>)> on_dropped) override {
    snapshots->erase(name);
    on_dropped({});
  }
  bool keeps_snapshots() const override { return !in_memory; }
  void list_snapshots(std::function<void(result<std::vector<std::string>>)> tell) override {
    tell(std::vector<std::string>{snapshots->begin(), snapshots->end()});
  }
  std::vector<std::string> ailments() const override { return {}; }

  std::shared_ptr<std::set<std::string>> snapshots = std::make_shared<std::set<std::string>>();
  std::map<std::string, std::shared_ptr<fake_sandbox>> left; ///< By an earlier server.
  std::vector<creation> adoptions;
  std::vector<std::string> disowned;
  std::deque<creation> creations; ///< One may bring about the next.
  bool ready_at_once = true;
  bool holds_names = false; ///< As hold_name of each that is created.
  bool in_memory = false;   ///< Its snapshots are.
};

} // namespace insula::test
