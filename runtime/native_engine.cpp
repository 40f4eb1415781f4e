#include "runtime/native_engine.hpp"

#include "base/failpoint.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "base/packed_text.hpp"
#include "base/sealed_rules.hpp"
#include "base/size_text.hpp"
#include "base/tree_frames.hpp"
#include "runtime/agent/protocol.hpp"
#include "runtime/agent/tree_operations.hpp"
#include "runtime/agent_list.hpp"
#include "runtime/broker/authority.hpp"
#include "runtime/broker_client.hpp"
#include "runtime/gateway_client.hpp"
#include "runtime/held_label.hpp"
#include "runtime/input_pipe.hpp"
#include "runtime/last_totals.hpp"
#include "runtime/late_output.hpp"
#include "runtime/machine_memory.hpp"
#include "runtime/node_hosts.hpp"
#include "runtime/not_held.hpp"
#include "runtime/packet_socket.hpp"
#include "runtime/port_list.hpp"
#include "runtime/process.hpp"
#include "runtime/script_file.hpp"
#include "runtime/shell.hpp"
#include "runtime/spawner_client.hpp"
#include "runtime/terminal.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::runtime {

class native_sandbox;

/// What the engine's sandboxes share and may outlive the engine's own object with.
struct native_engine_core {
  native_engine_core(io_pool& threads, native_options given, spawner_link link)
      : options(std::move(given))
      , pool(threads)
      , gateway(pool.context(0), {options.resolvers, options.allowed_private})
      , spawner(pool.context(0), link, [this](unique_fd way) { gateway.connect(std::move(way)); })
      , brokers(pool.context(0), spawner)
      , generation(link.generation)
      , carries_requests(link.brokers && options.secrets)
      , gaining_rights(link.gaining_rights)
      , disk_snapshots(link.disk_snapshots)
      , shows_snapshots(link.shows_snapshots)
      , keeps_snapshots(link.keeps_snapshots)
      , naming_users(link.naming_users)
      , attaches_drives(link.attaches_drives)
      , cgroups(cgroup_tree::of_process(link.pid, options.key)) {
    std::set<std::uint32_t> used;
    for (auto& each : link.survivors) {
      used.insert(each.slot);
      survivors.push_back(std::move(each));
    }
    for (std::uint32_t i = 0; i < options.slots; ++i)
      if (!used.contains(options.first_slot + i))
        free_slots.push_back(options.first_slot + i);
  }

  /// Those that an earlier server has begun to end.
  std::vector<held_sandbox> take_dying() {
    std::vector<held_sandbox> dying;
    const std::lock_guard hold{guard};
    const auto end = std::stable_partition(survivors.begin(), survivors.end(),
                                           [](const auto& each) { return bool{each.control}; });
    std::move(end, survivors.end(), std::back_inserter(dying));
    survivors.erase(end, survivors.end());
    return dying;
  }

  static constexpr auto any_epoch = std::numeric_limits<std::uint64_t>::max();

  /// One that nobody has taken; by its name. Errors: not_found; stale_epoch.
  result<held_sandbox> take_survivor(const std::string& name, std::uint64_t epoch = any_epoch) {
    const std::lock_guard hold{guard};
    const auto at = std::find_if(survivors.begin(), survivors.end(),
                                 [&](const auto& each) { return each.tag == name; });
    if (at == survivors.end())
      return error{errc::not_found, "nothing that is called \"" + name + "\" has been left"};
    if (epoch < at->epoch)
      return not_held;
    auto taken = std::move(*at);
    survivors.erase(at);
    return taken;
  }

  std::optional<std::uint32_t> take_slot() {
    const std::lock_guard hold{guard};
    if (free_slots.empty())
      return std::nullopt;
    const auto slot = free_slots.front();
    free_slots.pop_front();
    return slot;
  }

  /// Only once the spawner has said that nothing of it is left. The longest unused goes first.
  void give_back(std::uint32_t slot) {
    const std::lock_guard hold{guard};
    if (slot - options.first_slot < options.slots) // Else it was an earlier configuration's.
      free_slots.push_back(slot);
    sandboxes.erase(slot);
    gateway.forget(slot);
    brokers.forget(slot);
  }

  void know(std::uint32_t slot, std::weak_ptr<native_sandbox> box) {
    const std::lock_guard hold{guard};
    sandboxes[slot] = std::move(box);
  }

  std::vector<std::shared_ptr<native_sandbox>> all() {
    std::vector<std::shared_ptr<native_sandbox>> alive;
    const std::lock_guard hold{guard};
    for (const auto& [slot, box] : sandboxes)
      if (auto held = box.lock())
        alive.push_back(std::move(held));
    return alive;
  }

  void note_failure(const error& why) {
    if (why.code == errc::launch_failed || why.code == errc::machine_full)
      ++failed_launches;
  }

  native_options options;
  io_pool& pool;
  gateway_client gateway;
  last_totals totals;
  spawner_client spawner;
  broker_client brokers;
  std::atomic<std::uint64_t> failed_launches{0};
  std::atomic<bool> handed_over{false}; ///< What is adopted from then on is left as it is.
  const std::uint64_t generation;       ///< Of this server, among those of its spawner.
  const bool carries_requests;          ///< Its spawner starts brokers, and there is a key.
  const bool gaining_rights;            ///< Its spawner can make sandboxes with `sudo`.
  const bool disk_snapshots;            ///< Its spawner takes snapshots of disks,
  const bool shows_snapshots;           ///< can show them to its sandboxes,
  const bool keeps_snapshots;           ///< and they are on the machine's disk.
  const bool naming_users;              ///< Its spawner's agents can name a user.
  const bool attaches_drives;           ///< Its spawner knows of drives.
  machine_meter memory;
  cgroup_tree cgroups;
  std::mutex guard; ///< For what follows.
  std::vector<held_sandbox> survivors;
  std::deque<std::uint32_t> free_slots;
  std::map<std::uint32_t, std::weak_ptr<native_sandbox>> sandboxes; ///< By slot.
};

namespace {

/// Ids of commands, and numbers in shells, begin anew above those of earlier servers.
constexpr int generation_shift = 40;

/// What an agent can have said when it is given up: more than all that it may be asked to report.
constexpr int late_notices = 16'384;

/// What the reason names of something that did not start.
struct start_words {
  start_words() = default;
  explicit start_words(const process_spec& spec)
      : cwd(spec.cwd)
      , program(spec.argv.empty() ? std::string{} : spec.argv.front()) {}

  std::string cwd, program;
};

std::string reason_of(const agent::notice& said, const start_words& of = {}) {
  const auto named = [](const std::string& what, const std::string& word) {
    constexpr std::size_t longest = 256; // It is logged, too.
    if (word.empty())
      return what;
    return what + ' ' + (word.size() > longest ? word.substr(0, longest) + "..." : word);
  };
  std::string what = "starting it";
  switch (static_cast<agent::exec_step>(said.step)) {
    case agent::exec_step::none: break;
    case agent::exec_step::fork: what = "making a process"; break;
    case agent::exec_step::cgroup: what = "entering the cgroups"; break;
    case agent::exec_step::limits: what = "setting limits"; break;
    case agent::exec_step::user: what = "becoming the user"; break;
    case agent::exec_step::stdio: what = "attaching the output"; break;
    case agent::exec_step::cwd: what = named("entering the working directory", of.cwd); break;
    case agent::exec_step::exec: what = named("running the program", of.program); break;
    case agent::exec_step::full: what = "finding room for another command"; break;
    case agent::exec_step::terminal: what = "opening a terminal"; break;
    case agent::exec_step::epoch: return not_held.message;
  }
  return what + ": " + std::strerror(said.value);
}

errc code_of(const agent::notice& said) {
  if (static_cast<agent::exec_step>(said.step) == agent::exec_step::epoch)
    return not_held.code;
  return said.value == EAGAIN ? errc::limit_reached : errc::launch_failed;
}

std::string joined(const std::string& cwd, const std::vector<std::string>& argv,
                   const std::vector<std::string>& env) {
  std::string text = cwd;
  text += '\0';
  for (const auto* list : {&argv, &env})
    for (const auto& each : *list) {
      text += each;
      text += '\0';
    }
  return text;
}

/// A request to start something, and its text.
struct start_request {
  start_request(agent::op what, std::uint64_t id, const std::string& cwd,
                const std::vector<std::string>& argv, const std::vector<std::string>& env,
                sandbox_user user)
      : text(joined(cwd, argv, env))
      , fits(text.size() <= agent::max_text_bytes &&
             1 + argv.size() + env.size() <= agent::max_strings) {
    head.what = what;
    head.id = id;
    head.argc = static_cast<std::uint32_t>(argv.size());
    head.envc = static_cast<std::uint32_t>(env.size());
    head.uid = user.uid;
    head.gid = user.gid;
    head.text_bytes = static_cast<std::uint32_t>(text.size());
  }

  agent::request head{};
  std::string text;
  bool fits;
};

error no_room(const char* what) {
  return {errc::limit_reached, std::string{what} + ": " + std::strerror(errno)};
}

const error has_ended{errc::sandbox_not_running, "the sandbox has ended"};
const error going{errc::node_unreachable, "the node is going down"};
const error takes_no_more{errc::launch_failed, "the sandbox takes no more commands"};
const error not_kept{errc::limit_reached, "what is to be kept of it could not be handed over"};
const error too_many_inputs{errc::limit_reached,
                            "too many commands of this sandbox have an open standard input"};
const error never_started{errc::launch_failed, "it has not been started"};
const error not_whole{errc::io_failed, "what was kept of it is not whole"};

/// Told by the launcher in the sandbox's first process, which runs nothing of the sandbox's yet.
error launch_failure(const agent::notice& said) {
  const auto step = static_cast<spawner::launch_step>(said.step);
  const auto what = std::string{name_of(step)} + ": ";
  if (step != spawner::launch_step::seccomp || !spawner::no_room_for_filter(said.value))
    return {errc::launch_failed, what + std::strerror(said.value)};
  static std::once_flag warned;
  std::call_once(warned, [&said] {
    log::warning("engine.no_room_for_filters",
                 {{"sysctl", "net.core.bpf_jit_limit"},
                  {"error", said.value},
                  {"consequence", "no sandbox starts until there is room, or a higher ceiling"}});
  });
  return {errc::machine_full,
          what + "the machine has no room for one more (net.core.bpf_jit_limit)"};
}

/// What the gateway has to know of rules: lines as of gateway::question::policy.
std::string places_of(const std::vector<request_rule>& rules) {
  std::set<std::string> lines;
  for (const auto& each : rules) {
    lines.insert("carry " + each.domain + '\n');
    if (const auto* forward = std::get_if<forward_action>(&each.action)) {
      const auto place = place_of(*forward);
      lines.insert("forward " + place.host + ' ' + std::to_string(place.port) + '\n');
    }
  }
  std::string text;
  for (const auto& each : lines)
    text += each;
  return text;
}

/// One in each line; a line that has none, or less than 1, is left out.
std::vector<std::int32_t> parse_numbers(std::string_view text) {
  std::vector<std::int32_t> all;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    std::int32_t number = 0;
    const auto [end, why] = std::from_chars(line.data(), line.data() + line.size(), number);
    if (why == std::errc{} && end == line.data() + line.size() && number > 0)
      all.push_back(number);
  }
  return all;
}

std::chrono::nanoseconds between(std::uint64_t from, std::uint64_t until) {
  return std::chrono::nanoseconds{until > from ? until - from : 0};
}

} // namespace

/// One sandbox that is on its way or lives.
class native_sandbox final : public sandbox, public std::enable_shared_from_this<native_sandbox> {
public:
  native_sandbox(std::shared_ptr<native_engine_core> engine, std::uint32_t slot, std::string name,
                 std::uint64_t epoch, sandbox_limits limits, sandbox_listener listener)
      : engine_(std::move(engine))
      , io_(engine_->pool.here())
      , slot_(slot)
      , name_(std::move(name))
      , limits_(limits)
      , listener_(std::move(listener))
      , deadline_(io_)
      , still_later_(io_)
      , last_id_(engine_->generation << generation_shift)
      , epoch_(epoch) {}

  void launch(const sandbox_spec& spec);
  void adopt(held_sandbox from, const sandbox_spec& spec);
  void fall_silent(); ///< Nothing is heard or told any more. Any thread.

  const creation_times& creation() const override { return creation_; }
  std::shared_ptr<process> start(process_spec spec, process_listener listener) override;
  std::shared_ptr<terminal> open_terminal(process_spec spec, terminal_size size,
                                          process_listener listener) override;
  std::shared_ptr<shell> open_shell(shell_spec spec, shell_listener listener) override;
  std::optional<sandbox_usage> usage() const override;
  std::vector<survivor> survivors() const override;
  std::shared_ptr<process> take_over(const survivor& which, process_listener listener) override;
  std::shared_ptr<terminal> take_over_terminal(const survivor& which,
                                               process_listener listener) override;
  std::shared_ptr<shell> take_over_shell(const survivor& which, shell_listener listener) override;
  void disown(const survivor& which) override;
  result<unique_fd> open_file(file_operation what, const std::string& path,
                              sandbox_user user) override;
  result<unique_fd> open_tree(const tree_request& wanted, sandbox_user user) override;
  result<unique_fd> open_file_task(file_task what, const std::vector<std::string>& words,
                                   sandbox_user user) override;
  void trust_authority(const std::string& certificate,
                       std::function<void(result<void>)> on_trusted) override;
  void set_network(const egress_policy& policy, const request_orders& requests,
                   std::function<void(result<void>)> on_set) override;
  void measure_network(std::function<void(result<network_figures>)> tell) override;
  void open_sockets(sockets_request wanted,
                    std::function<void(result<std::vector<unique_fd>>)> tell) override;
  void name_user(const user_account& who, std::function<void(result<void>)> on_named) override;
  void list_ports(std::function<void(result<std::vector<listening_port>>)> tell) override;
  void list_quiet_shells(std::function<void(std::vector<std::int32_t>)> tell) override;
  void mount(mount_spec what, std::function<void(result<void>)> on_mounted) override;
  void unmount(const std::string& path, std::function<void(result<void>)> on_unmounted) override;
  std::vector<live_mount> mounts() const override;
  void attach_drive(drive_spec what, std::function<void(result<void>)> on_attached) override;
  void claim(sandbox_identity who, sandbox_listener heard_by) override;
  void ping(std::function<void()> on_answer) override;
  void take_snapshot(const std::string& name,
                     std::function<void(result<disk_snapshot>)> on_taken) override;
  void compare_disks(const compare_request& wanted,
                     std::function<void(result<disk_changes>)> tell) override;
  void open_disk(const std::string& snapshot, std::function<void(result<unique_fd>)> tell) override;
  void freeze(std::function<void(bool)> on_still) override;
  result<void> thaw() override;
  bool stands_still() const override;
  void destroy(std::function<void()> on_gone) override;

private:
  /// A freezing that is under way.
  struct freezing {
    std::uint64_t number;
    std::function<void(bool)> on_still;
    std::chrono::steady_clock::time_point deadline;
    std::chrono::milliseconds pause;
  };
  /// What set_network() was given.
  struct network_wish {
    egress_policy policy = {};
    request_orders requests = {};
    std::function<void(result<void>)> on_set = nullptr;
  };
  enum class stillness : std::uint8_t { not_yet, still, given_up };

  void await_stillness(freezing wanted);
  /// A snapshot that is being taken. One at a time.
  struct snapshot_taking {
    std::string name;
    std::function<void(result<disk_snapshot>)> tell;
    std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point deadline = {}; ///< For all to stand still.
    std::chrono::steady_clock::time_point still_since = {};
    disk_snapshot made = {};
  };
  void still_for(std::shared_ptr<snapshot_taking> wanted);
  void taken(const std::shared_ptr<snapshot_taking>& wanted, const result<std::uint64_t>& bytes);
  stillness look_at(const freezing& wanted);
  bool let_go_on();
  void created(result<spawner_client::launched> way);
  void connect(unique_fd control, unique_fd freezer);
  void all_reported();
  void heard(const agent::notice& said);
  void note_launch(const spawner::launch_clock& done);
  void note_agent(std::uint64_t launched_ns);
  void answered(std::uint64_t ping);
  void await_network(network_wish wanted);
  void carry_out_next();
  void carry_out(const network_wish& wanted);
  void carried_out(const result<void>& outcome);
  result<broker_orders> orders_for(const request_orders& requests, std::string& carried);
  void part_ready();
  void network_refused(const error& why);
  void begin_claim(sandbox_identity who, sandbox_listener heard_by);
  void give_up(error why);
  /// `why`: the spawner has ended it for this reason; empty: it has not.
  void gone(bool slot_is_free = true, const std::string& why = {});
  bool tell_agent(agent::op what, std::uint64_t id, std::int32_t value);
  void show(const std::string& snapshot, std::function<void(result<unique_fd>)> then);
  result<unique_fd> open_channel(agent::op what, const std::vector<std::string>& words,
                                 sandbox_user user, std::int32_t value = 0,
                                 std::span<const unique_fd> more = {});
  struct started_process {
    std::weak_ptr<agent_job> process;
    std::uint64_t memory_kills = 0; ///< Of the sandbox, before it began.
    script_file script;             ///< Until it has ended.
    start_words words = {};
  };

  /// What was kept for something, and what the agent has said of it last.
  struct survivor_state {
    held_descriptors kept;
    held_head head;
    std::optional<agent::notice> said;
  };

  using survivor_and_name = std::pair<std::uint64_t, survivor_state>;

  std::optional<survivor_state> take_survivor(std::uint64_t id);
  void prepare_late_output();
  void open_log_account(bool charged_before);
  void charge_logs(std::uint64_t bytes);
  struct known_mount {
    std::uint64_t name;
    bool ready; ///< If not, it is not there yet.
    bool good;
    bool leaving = false;
  };
  void mount_ended(std::uint64_t name);
  void hear_of_mounts();
  std::function<void(unique_fd)> late_link() const {
    return [late = late_](unique_fd pipe) { late->add(std::move(pipe)); };
  }
  void pass_on(const agent::notice& said);
  std::shared_ptr<agent_job> known(std::uint64_t id);
  std::shared_ptr<native_shell> known_shell(std::uint64_t id);
  start_words words_of(std::uint64_t id); ///< Empty where they are not known.
  std::function<void(int)> signal_link(std::uint64_t id);
  std::function<void()> forget_link(std::uint64_t id);
  void let_go(std::uint64_t id);
  void release(std::uint64_t id);
  void hold(std::uint64_t id, const held_head& head, std::string_view label,
            std::span<const int> fds);
  std::function<void(const std::string& label, std::span<const int> fds)>
  put_down_link(std::uint64_t id);
  native_process::keeping keep_link(std::uint64_t id, const held_head& head, std::string label);
  template <class Job>
  std::shared_ptr<Job> refuse(const std::shared_ptr<Job>& made, error why);
  std::uint64_t next_id();
  /// The ping by which an adoption is known to be complete. Not that of an earlier server, the
  /// answer to which may still be on its way.
  std::uint64_t adoption_ping() const { return engine_->generation << generation_shift; }
  bool request_start(const start_request& wanted, std::span<const int> fds);
  native_shell::log_share share_log();
  std::shared_ptr<void> share_input();
  std::shared_ptr<input_pipe> make_input(std::uint64_t id, const held_head& head, unique_fd end,
                                         unique_fd segment, std::shared_ptr<void> share);
  std::optional<survivor_and_name> take_input_of(std::uint64_t command);
  void drop_input_of(std::uint64_t command);
  native_shell::links shell_links(std::uint64_t id);
  native_terminal::links terminal_links(std::uint64_t id, std::string label);
  bool is_over() const override;
  /// What is taken over after fall_silent() is the next server's: it is not ended here.
  template <class Job>
  bool is_left(const std::shared_ptr<Job>& made);
  /// With guard_ held.
  held_slot mine() const { return {slot_, epoch_}; }
  std::shared_ptr<packet_socket> connection();
  std::uint64_t memory_kills();
  std::uint64_t kills_before(std::uint64_t id);
  std::string words_of_kills(const process_exit& how, std::uint64_t kills_before);
  std::function<std::string(const process_exit&)> last_words_link(std::uint64_t kills_before);
  void drop_script(std::uint64_t id);
  bool memory_ran_out(int status, std::uint64_t kills_before);

  std::shared_ptr<native_engine_core> engine_;
  boost::asio::io_context& io_; ///< Whose thread hears of everything in here.
  const std::uint32_t slot_;
  std::string name_; ///< For the log. Changed by a claim only, as the next: before any use.
  std::string tag_;  ///< By which a later server adopts it.
  sandbox_limits limits_;
  sandbox_listener listener_;
  std::vector<network_wish> network_wishes_; ///< That wait, while another one is carried out.
  std::vector<std::function<void(result<void>)>> network_asked_; ///< Of the one that is.
  bool setting_network_ = false;
  bool has_broker_ = false;
  unsigned lacks_ = 0; ///< Answers without which it is not ready, or not somebody's yet.
  bool agent_ready_ = false;
  network_wish first_network_; ///< Until the gateway has been asked for it.
  boost::asio::steady_timer deadline_;
  bool adopting_ = false;   ///< What there is has been asked for, not how the start went,
  bool unreported_ = false; ///< and not all of it has been said.
  boost::asio::steady_timer still_later_; ///< The next look whether it stands still.
  std::uint64_t asked_ns_ = 0;            ///< When the spawner was asked,
  std::uint64_t layered_ns_ = 0;          ///< and when it had done its part.
  creation_times creation_;               ///< Written before on_ready.
  error why_not_{errc::launch_failed, "the sandbox ended before it was ready"}; ///< If it does.
  std::shared_ptr<late_output> late_;        ///< Of all of its shells. From launch() or adopt() on.
  std::shared_ptr<log_account> log_account_; ///< The same.
  std::shared_ptr<std::atomic<std::size_t>> full_logs_ =
    std::make_shared<std::atomic<std::size_t>>(0);

  std::shared_ptr<std::atomic<std::size_t>> open_inputs_ =
    std::make_shared<std::atomic<std::size_t>>(0);

  std::mutex counting_;                ///< For kill_counts_.
  std::vector<unique_fd> kill_counts_; ///< Open from the first command on: each one reads them.

  mutable std::mutex guard_; ///< For what follows.
  std::shared_ptr<packet_socket> agent_;
  std::map<std::uint64_t, started_process> processes_;
  std::map<std::uint64_t, std::weak_ptr<native_shell>> shells_; ///< By the id of their keepers.
  std::uint64_t told_kills_ = 0; ///< For lack of memory, of which some command has told.
  std::map<std::uint64_t, survivor_state> survivors_; ///< That nobody has taken over.
  std::uint64_t last_id_; ///< Never one that an earlier server has used.
  std::uint64_t epoch_;   ///< Of whoever commands it. Changed by a claim only.
  std::map<std::uint64_t, std::function<void()>> pings_;
  std::map<std::string, known_mount> mounts_; ///< By path.
  unique_fd freezer_;
  std::uint64_t last_freezing_ = 0;
  bool frozen_ = false;  ///< Or it is on its way to that.
  bool copying_ = false; ///< It stands still for a snapshot, whoever wants it to go on meanwhile.
  bool ending_ = false;  ///< It is to be destroyed, so nothing in it may stand still.
  bool over_ = false;
  bool silent_ = false; ///< And it is not: only this server is.
};

namespace {

spawner::limits ceilings_of(const sandbox_limits& from) {
  spawner::limits ceilings{};
  ceilings.memory_bytes = from.memory_bytes;
  ceilings.disk_bytes = from.disk_bytes;
  ceilings.shm_bytes = from.shm_bytes;
  ceilings.cpu_percent = from.cpu_percent;
  ceilings.processes = from.processes;
  ceilings.open_files = from.open_files;
  return ceilings;
}

} // namespace

void native_sandbox::launch(const sandbox_spec& spec) {
  prepare_late_output();
  open_log_account(false);
  first_network_ = {spec.network, spec.requests};
  tag_ = spec.name;
  spawner::request wanted{};
  wanted.what = spawner::op::create;
  wanted.slot = slot_;
  wanted.epoch = spec.epoch;
  wanted.ceilings = ceilings_of(limits_);
  if (spec.image.machines_usr)
    wanted.flags |= spawner::create_with_machines_usr;
  if (!engine_->options.seccomp_filters)
    wanted.flags |= spawner::create_without_filters;
  if (spec.may_gain_rights)
    wanted.flags |= spawner::create_may_gain_rights;
  const auto fits =
    spec.host_name.copy(wanted.host_name, spawner::max_host_name - 1) == spec.host_name.size() &&
    spec.image.tree.copy(wanted.tree, spawner::max_tree_name - 1) == spec.image.tree.size() &&
    spec.name.copy(wanted.tag, spawner::max_tag - 1) == spec.name.size() &&
    spec.disk_from.copy(wanted.snapshot, max_snapshot_name) == spec.disk_from.size();
  assert(fits);
  static_cast<void>(fits);
  auto self = shared_from_this();
  deadline_.expires_after(limits::create_patience);
  boost::asio::post(io_, [self] {
    self->deadline_.async_wait([self](const boost::system::error_code& stopped) {
      if (!stopped && self->listener_.on_ready)
        self->give_up({errc::launch_failed, "the sandbox was not ready in time"});
    });
  });
  asked_ns_ = spawner::monotonic_ns();
  engine_->spawner.create(
    wanted,
    [self](result<spawner_client::launched> way) {
      boost::asio::post(self->io_,
                        [self, way = std::move(way)]() mutable { self->created(std::move(way)); });
    },
    [self](const std::string& why) {
      boost::asio::post(self->io_, [self, why] { self->gone(true, why); });
    });
}

/// On the sandbox's thread, as all that follows up to start().
void native_sandbox::created(result<spawner_client::launched> way) {
  if (!way) {
    // The spawner has nothing of it any more.
    deadline_.cancel();
    bool was_wanted = true;
    {
      const std::lock_guard hold{guard_};
      over_ = true; // Else a destroy() that is under way would give the slot back once more.
      was_wanted = !ending_;
    }
    engine_->give_back(slot_);
    if (!was_wanted) { // What waited to be made goes without.
      listener_ = {};
      return;
    }
    engine_->note_failure(way.reason());
    if (const auto tell = std::exchange(listener_, {}).on_failed)
      tell(way.reason());
    return;
  }
  note_launch(way->done);
  lacks_ = 2; // The gateway's word and the agent's.
  await_network(std::exchange(first_network_, {}));
  connect(std::move(way->control), std::move(way->freezer));
}

void native_sandbox::connect(unique_fd control, unique_fd freezer) {
  auto socket = std::make_shared<packet_socket>(io_, std::move(control));
  socket->open(
    [weak = weak_from_this()](std::string_view bytes, std::vector<unique_fd>) {
      agent::notice said{};
      if (const auto self = weak.lock(); self && from_bytes(bytes, said))
        self->heard(said);
    },
    [weak = weak_from_this()] {
      // The spawner says it when PID 1 is gone, which in v1 is not before all others could die.
      if (const auto self = weak.lock()) {
        const std::lock_guard hold{self->guard_};
        self->ending_ = true;
        self->let_go_on();
      }
    });
  const std::lock_guard hold{guard_};
  freezer_ = std::move(freezer);
  if (over_)
    socket->close();
  else
    agent_ = std::move(socket);
}

// ---- What an earlier server has left

void native_sandbox::adopt(held_sandbox from, const sandbox_spec& spec) {
  prepare_late_output();
  open_log_account(true);
  told_kills_ = memory_kills(); // By an earlier server, or to nobody.
  const auto epoch = epoch_;
  adopting_ = unreported_ = true;
  has_broker_ = engine_->carries_requests; // It may.
  tag_ = from.tag;
  first_network_ = {spec.network, spec.requests};
  for (auto& each : from.mounts)
    mounts_.emplace(std::move(each.path), known_mount{each.name, true, each.good});
  for (auto& each : from.held)
    if (const auto head = head_of(each.label)) {
      const auto name = each.name;
      survivors_.emplace(name, survivor_state{std::move(each), *head, {}});
    }
  boost::asio::post(io_, [self = shared_from_this(), epoch, control = std::move(from.control),
                          freezer = std::move(from.freezer)]() mutable {
    self->deadline_.expires_after(limits::adopt_patience);
    self->deadline_.async_wait([self](const boost::system::error_code& stopped) {
      if (stopped || !self->unreported_)
        return;
      if (const auto agent = self->connection())
        agent->drain(late_notices); // It may have answered, and this thread was late.
      if (self->unreported_)
        self->give_up({errc::launch_failed, "its agent did not answer in time"});
    });
    self->lacks_ = 2; // The gateway's word, and all that the agent knows.
    self->await_network(std::exchange(self->first_network_, {}));
    self->frozen_ = static_cast<bool>(freezer); // It may be.
    self->connect(std::move(control), std::move(freezer));
    self->engine_->spawner.adopt({self->slot_, epoch}, [self](const std::string& why) {
      boost::asio::post(self->io_, [self, why] { self->gone(true, why); });
    });
    self->hear_of_mounts();
    self->tell_agent(agent::op::report, 0, 0);
    self->tell_agent(agent::op::ping, self->adoption_ping(), 0);
  });
}

/// Whatever the agent knows has been said again.
void native_sandbox::all_reported() {
  if (!std::exchange(unreported_, false) || !listener_.on_ready)
    return;
  std::vector<survivor_state> late_pipes;
  std::vector<std::uint64_t> strays; // Inputs of commands that were never asked for.
  {
    const std::lock_guard hold{guard_};
    for (auto at = survivors_.begin(); at != survivors_.end();) {
      const auto each = at++;
      const auto& head = each->second.head;
      if (head.kind == held_kind::late_pipe) {
        late_pipes.push_back(std::move(survivors_.extract(each).mapped()));
      } else if (head.kind == held_kind::input && !survivors_.contains(head.shell)) {
        strays.push_back(each->first);
        survivors_.erase(each);
      }
    }
  }
  for (const auto each : strays)
    release(each);
  for (auto& each : late_pipes)
    if (!each.kept.fds.empty())
      late_->add(std::move(each.kept.fds.front()), each.kept.name);
  part_ready();
}

namespace {

/// How many descriptors belong to it.
std::size_t descriptors_of(const held_head& head) {
  if (head.complete != 0)
    return 1;
  switch (head.kind) {
    case held_kind::command: return 3;
    case held_kind::opening_terminal: return 1;
    case held_kind::terminal: return 2;
    case held_kind::shell: return 1;
    case held_kind::shell_command: return 4;
    case held_kind::late_pipe: return 1;
    case held_kind::input: return 2;
  }
  return 0;
}

survivor_kind kind_of(const held_head& head) {
  switch (head.kind) {
    case held_kind::opening_terminal:
    case held_kind::terminal: return survivor_kind::terminal;
    case held_kind::shell: return survivor_kind::shell;
    case held_kind::shell_command:
      return head.exited != 0 ? survivor_kind::command : survivor_kind::shell_command;
    case held_kind::command:
    case held_kind::late_pipe:
    case held_kind::input: break;
  }
  return survivor_kind::command;
}

} // namespace

std::vector<survivor> native_sandbox::survivors() const {
  std::vector<survivor> all;
  const std::lock_guard hold{guard_};
  for (const auto& [id, each] : survivors_)
    if (each.head.kind != held_kind::input)
      all.push_back({id, kind_of(each.head), text_of(each.kept.label), each.head.shell,
                     each.head.kept != 0 && each.head.exited != 0});
  return all;
}

/// With its name. None: the command has none, or it is not whole.
std::optional<native_sandbox::survivor_and_name>
native_sandbox::take_input_of(std::uint64_t command) {
  std::map<std::uint64_t, survivor_state>::node_type found;
  {
    const std::lock_guard hold{guard_};
    const auto at = std::find_if(survivors_.begin(), survivors_.end(), [command](const auto& each) {
      const auto& head = each.second.head;
      return head.kind == held_kind::input && head.shell == command;
    });
    if (at == survivors_.end())
      return std::nullopt;
    found = survivors_.extract(at);
  }
  if (found.mapped().kept.fds.size() == descriptors_of(found.mapped().head))
    return survivor_and_name{found.key(), std::move(found.mapped())};
  release(found.key());
  return std::nullopt;
}

void native_sandbox::drop_input_of(std::uint64_t command) {
  if (const auto input = take_input_of(command))
    release(input->first);
}

/// None: it is not there, or lacks something.
std::optional<native_sandbox::survivor_state> native_sandbox::take_survivor(std::uint64_t id) {
  const std::lock_guard hold{guard_};
  auto found = survivors_.extract(id);
  if (!found || found.mapped().kept.fds.size() != descriptors_of(found.mapped().head))
    return std::nullopt;
  return std::move(found.mapped());
}

void native_sandbox::prepare_late_output() {
  late_output::keeper keeper;
  keeper.hold = [weak = weak_from_this()](int pipe) -> std::uint64_t {
    const auto self = weak.lock();
    if (!self)
      return 0;
    const auto id = self->next_id();
    held_head head;
    head.kind = held_kind::late_pipe;
    self->hold(id, head, {}, {&pipe, 1});
    return id;
  };
  keeper.release = [weak = weak_from_this()](std::uint64_t name) {
    if (const auto self = weak.lock())
      self->let_go(name);
  };
  late_ = std::make_shared<late_output>(io_, std::move(keeper));
}

void native_sandbox::open_log_account(bool charged_before) {
  log_account_ = std::make_shared<log_account>(
    [weak = weak_from_this()](std::uint64_t bytes) {
      if (const auto self = weak.lock()) // The end of a log may come under any lock.
        boost::asio::post(self->io_, [self, bytes] { self->charge_logs(bytes); });
    },
    charged_before);
}

void native_sandbox::charge_logs(std::uint64_t bytes) {
  const std::lock_guard hold{guard_};
  if (!over_)
    engine_->spawner.charge_logs(mine(), bytes,
                                 [account = log_account_](bool fits) { account->answered(fits); });
}

std::shared_ptr<process> native_sandbox::take_over(const survivor& which,
                                                   process_listener listener) {
  auto found = take_survivor(which.id);
  const auto head = found ? found->head : held_head{};
  if (found && head.kind == held_kind::shell_command && head.exited == 0)
    if (const auto shell = known_shell(head.shell))
      return shell->resume_command(std::move(found->kept), std::move(listener));
  const auto share = share_log();
  native_process::links to{signal_link(which.id), forget_link(which.id), {}, late_link()};
  if (!found) {
    const auto made = std::make_shared<native_process>(
      io_, output_log{engine_->options.log_directory, 0}, std::move(listener), std::move(to),
      engine_->options.reader_patience);
    drop_input_of(which.id);
    return refuse(made, not_whole);
  }
  to.share = share.counted;
  auto& fds = found->kept.fds;
  const bool complete = head.complete != 0;
  if (!complete)
    to.last_words = last_words_link(head.memory_kills);
  const auto made = std::make_shared<native_process>(
    io_, output_log{std::move(fds[complete ? 0 : 2]), head.log_bytes, share.account},
    std::move(listener), std::move(to), engine_->options.reader_patience);
  if (head.kept != 0)
    made->keep(keep_link(which.id, head, text_of(found->kept.label)));
  if (!complete)
    made->attach(std::move(fds[0]), std::move(fds[1]));
  if (auto input = take_input_of(which.id)) {
    auto& [name, state] = *input;
    auto& ends = state.kept.fds;
    const bool closed = state.head.complete != 0;
    made->attach_input(make_input(name, state.head, closed ? unique_fd{} : std::move(ends[0]),
                                  std::move(ends[closed ? 0 : 1]), share_input()));
  }
  {
    const std::lock_guard hold{guard_};
    processes_[which.id] = {made, head.memory_kills, {}};
    if (is_left(made))
      return made;
  }
  boost::asio::post(io_, [self = shared_from_this(), made, head, said = found->said,
                          id = which.id] {
    made->resume();
    if (head.kind == held_kind::shell_command || head.exited != 0) {
      made->started();
      if (head.kind == held_kind::shell_command)
        made->settle(self->late_link());
      made->ended({head.exited != 0 ? head.status : 0, head.exited == 0, head.out_of_memory != 0});
    } else if (said) {
      self->pass_on(*said);
    } else if (!self->is_over()) { // The agent has never heard of it, or it has gone already.
      made->failed(head.kept != 0 ? never_started : has_ended);
      made->ended({0, true, false});
    }
  });
  return made;
}

std::shared_ptr<terminal> native_sandbox::take_over_terminal(const survivor& which,
                                                             process_listener listener) {
  auto found = take_survivor(which.id);
  const bool open = found && found->head.kind == held_kind::terminal;
  auto channel = found && !open ? std::move(found->kept.fds[0]) : unique_fd{};
  const auto made = std::make_shared<native_terminal>(
    io_, std::move(channel), std::move(listener),
    terminal_links(which.id, found ? text_of(found->kept.label) : ""));
  if (!found)
    return refuse(made, has_ended);
  {
    const std::lock_guard hold{guard_};
    processes_[which.id] = {made, found->head.memory_kills, {}};
    if (is_left(made))
      return made;
  }
  auto kept = std::make_shared<survivor_state>(std::move(*found));
  boost::asio::post(io_, [self = shared_from_this(), made, kept, open] {
    if (open)
      made->resume(std::move(kept->kept.fds[0]), std::move(kept->kept.fds[1]));
    if (kept->said)
      self->pass_on(*kept->said);
    else if (!self->is_over())
      made->failed(has_ended);
  });
  return made;
}

std::shared_ptr<shell> native_sandbox::take_over_shell(const survivor& which,
                                                       shell_listener listener) {
  auto found = take_survivor(which.id);
  const auto& options = engine_->options;
  const auto made = std::make_shared<native_shell>(
    io_, native_shell::options{options.log_directory, options.reader_patience, options.shells},
    std::move(listener), shell_links(which.id));
  if (!found || found->head.kind != held_kind::shell)
    return refuse(made, has_ended);
  bool has_command = false;
  std::vector<std::uint64_t> internal;
  {
    const std::lock_guard hold{guard_};
    shells_[which.id] = made;
    if (is_left(made))
      return made;
    for (const auto& [id, each] : survivors_)
      if (each.head.kind == held_kind::shell_command && each.head.shell == which.id &&
          each.head.exited == 0)
        each.head.internal != 0 ? internal.push_back(id) : void(has_command = true);
    for (const auto id : internal)
      survivors_.erase(id);
  }
  for (const auto id : internal)
    let_go(id);
  made->resume(std::move(found->kept.fds[0]), which.id, engine_->generation << generation_shift,
               has_command);
  if (found->said)
    boost::asio::post(io_, [self = shared_from_this(), made, said = *found->said] {
      if (said.what == agent::event::exited || said.what == agent::event::failed)
        self->pass_on(said);
    });
  return made;
}

void native_sandbox::disown(const survivor& which) {
  {
    const std::lock_guard hold{guard_};
    if (survivors_.erase(which.id) == 0)
      return;
  }
  if (which.kind != survivor_kind::shell_command)
    tell_agent(agent::op::signal, which.id, SIGKILL);
  let_go(which.id);
  drop_input_of(which.id);
}

void native_sandbox::note_launch(const spawner::launch_clock& done) {
  creation_.slot = between(asked_ns_, done.begun);
  creation_.cgroup = between(done.begun, done.cgroup);
  creation_.disk = between(done.cgroup, done.disk);
  creation_.namespaces = between(done.disk, done.namespaces);
  creation_.layers = between(done.namespaces, done.layers);
  layered_ns_ = done.layers;
}

/// What an agent says is untrusted: it decides how this time is divided, and nothing more.
void native_sandbox::note_agent(std::uint64_t launched_ns) {
  const auto now = spawner::monotonic_ns();
  const auto launched = std::clamp(launched_ns, std::min(layered_ns_, now), now);
  creation_.mounts = between(layered_ns_, launched);
  creation_.agent = between(launched, now);
}

void native_sandbox::heard(const agent::notice& said) {
  switch (said.what) {
    case agent::event::ready: {
      if (!listener_.on_ready || adopting_ || std::exchange(agent_ready_, true))
        return; // Said before; or the sandbox is being removed.
      if (said.value != static_cast<std::int32_t>(agent::version))
        return give_up({errc::launch_failed, "the agent speaks another version"});
      note_agent(said.id);
      return part_ready();
    }
    case agent::event::launch_failed: // PID 1 ends with it, and the spawner will say so once all is
                                      // removed.
      why_not_ = launch_failure(said);
      return;
    case agent::event::starting:
    case agent::event::started:
    case agent::event::failed:
    case agent::event::exited: {
      {
        const std::lock_guard hold{guard_};
        if (const auto at = survivors_.find(said.id); at != survivors_.end()) {
          at->second.said = said;
          return;
        }
      }
      return pass_on(said);
    }
    case agent::event::pong: return said.id == adoption_ping() ? all_reported() : answered(said.id);
  }
}

/// What becomes of something that was started.
void native_sandbox::pass_on(const agent::notice& said) {
  switch (said.what) {
    case agent::event::started:
      if (const auto at = known(said.id)) {
        at->runs_as(said.value);
        at->started();
      }
      return;
    case agent::event::failed:
      if (const auto at = known(said.id))
        at->failed({code_of(said), reason_of(said, words_of(said.id))});
      if (const auto at = known_shell(said.id))
        at->failed({code_of(said), reason_of(said)});
      return;
    case agent::event::exited: {
      const auto process = known(said.id);
      const auto shell = known_shell(said.id);
      if (!process && !shell) // Else once nobody needs to be told again, as let_go() does.
        tell_agent(agent::op::forget, said.id, 0);
      if (process) {
        drop_script(said.id);
        process->started(); // A full socket may have swallowed that: what has ended ran.
        process_exit how;
        how.status = said.value;
        how.out_of_memory = memory_ran_out(said.value, kills_before(said.id));
        process->ended(how);
      }
      if (shell)
        shell->gone(false);
      return;
    }
    default: return;
  }
}

void native_sandbox::answered(std::uint64_t ping) {
  std::function<void()> tell;
  {
    const std::lock_guard hold{guard_};
    if (auto asked = pings_.extract(ping))
      tell = std::move(asked.mapped());
  }
  if (tell)
    tell();
}

void native_sandbox::ping(std::function<void()> on_answer) {
  constexpr std::size_t most = 16; // What hangs is not asked more often than that.
  const auto id = next_id();
  {
    const std::lock_guard hold{guard_};
    if (over_ || pings_.size() >= most)
      return;
    pings_.emplace(id, std::move(on_answer));
  }
  tell_agent(agent::op::ping, id, 0);
}

// ---- The network

/// What it may reach holds before anybody is told of it.
void native_sandbox::await_network(network_wish wanted) {
  set_network(wanted.policy, wanted.requests,
              [weak = weak_from_this()](const result<void>& outcome) {
                const auto self = weak.lock();
                if (!self)
                  return;
                outcome ? self->part_ready() : self->network_refused(outcome.reason());
              });
}

/// One that runs already goes on: what held before holds, or nothing passes.
void native_sandbox::network_refused(const error& why) {
  // The gateway may miss a sandbox before the spawner says that it has ended: the reason comes with
  // that.
  if (!adopting_ && why.code == errc::sandbox_not_running)
    return;
  if (!adopting_)
    return give_up({errc::launch_failed, why.message});
  log::error("sandbox.network_not_set", {{"sandbox", name_}, {"reason", why.message}});
  part_ready();
}

void native_sandbox::set_network(const egress_policy& policy, const request_orders& requests,
                                 std::function<void(result<void>)> on_set) {
  boost::asio::post(io_, [self = shared_from_this(),
                          wish = network_wish{policy, requests, std::move(on_set)}]() mutable {
    constexpr std::size_t most_wishes = 256;
    if (self->network_wishes_.size() >= most_wishes)
      return wish.on_set(error{errc::limit_reached, "too many changes of the network wait"});
    self->network_wishes_.push_back(std::move(wish));
    if (!self->setting_network_)
      self->carry_out_next();
  });
}

/// Of those that wait the last one counts.
void native_sandbox::carry_out_next() {
  if (network_wishes_.empty())
    return;
  setting_network_ = true;
  network_asked_.clear();
  for (auto& each : network_wishes_)
    network_asked_.push_back(std::move(each.on_set));
  const auto last = std::move(network_wishes_.back());
  network_wishes_.clear();
  carry_out(last);
}

void native_sandbox::carried_out(const result<void>& outcome) {
  setting_network_ = false;
  const auto asked = std::exchange(network_asked_, {});
  carry_out_next();
  for (const auto& each : asked)
    each(outcome);
}

/// The broker first: what the gateway hands to it has its rules by then. One that is not needed
/// any more ends last.
void native_sandbox::carry_out(const network_wish& wanted) {
  const auto done = [self = shared_from_this()](const result<void>& outcome) {
    boost::asio::post(self->io_, [self, outcome] { self->carried_out(outcome); });
  };
  std::string carried;
  std::optional<broker_orders> orders;
  std::optional<error> no_orders;
  if (!wanted.requests.empty()) {
    auto made = orders_for(wanted.requests, carried);
    if (made) {
      orders = std::move(*made);
    } else {
      no_orders = made.reason();
      carried = "carry *\n"; // Nobody knows which names have rules, so none is reached.
    }
  }
  // The policy holds whatever the broker says: names with rules that have none are refused.
  const auto tell_gateway = [self = shared_from_this(), policy = wanted.policy, carried,
                             done](const result<void>& of_broker) {
    const auto then = [done, of_broker](const result<void>& outcome) {
      done(outcome ? of_broker : outcome);
    };
    const std::lock_guard ours{self->guard_}; // As in usage().
    if (self->over_)
      return done(has_ended);
    self->engine_->gateway.set_policy(self->slot_, self->epoch_, policy, carried, then);
  };
  if (no_orders)
    return tell_gateway(*no_orders);
  const std::lock_guard ours{guard_};
  if (over_)
    return done(has_ended);
  const bool had_broker = std::exchange(has_broker_, orders.has_value());
  if (orders)
    return engine_->brokers.use(mine(), std::move(*orders), tell_gateway);
  const auto end_broker = [self = shared_from_this(), done,
                           where = mine()](const result<void>& outcome) {
    if (outcome)
      self->engine_->brokers.end(where);
    done(outcome);
  };
  std::function<void(result<void>)> then = done;
  if (had_broker)
    then = end_broker;
  engine_->gateway.set_policy(slot_, epoch_, wanted.policy, {}, std::move(then));
}

result<broker_orders> native_sandbox::orders_for(const request_orders& requests,
                                                 std::string& carried) {
  if (!engine_->carries_requests)
    return error{errc::forbidden, "this node carries no requests for rules"};
  const auto rules = open_rules(*engine_->options.secrets, requests.sealed_rules);
  if (!rules)
    return rules.reason();
  carried = places_of(*rules);
  broker_orders made;
  made.text = [engine = engine_, requests, sandbox = tag_]() -> result<std::string> {
    const auto& box = *engine->options.secrets;
    auto key = open_key(box, requests.sealed_key);
    if (!key)
      return key.reason();
    const auto opened = open_rules(box, requests.sealed_rules);
    if (!opened)
      return opened.reason();
    packed_writer all;
    all.text(requests.certificate).text(*key).text(engine->options.trusted);
    all.text(to_text(*opened)).text(sandbox);
    wipe(*key);
    return all.take();
  };
  std::set<std::string> audiences;
  for (const auto& each : *rules)
    if (const auto* forward = std::get_if<forward_action>(&each.action))
      audiences.insert(forward->url);
  made.token = [engine = engine_, identity = requests.identity, audiences = std::move(audiences)](
                 const std::string& audience) -> result<std::string> {
    if (!engine->options.sign || !audiences.contains(audience))
      return error{errc::forbidden, "no token is signed for that audience"};
    return engine->options.sign(identity, audience);
  };
  return made;
}

void native_sandbox::measure_network(std::function<void(result<network_figures>)> tell) {
  const std::lock_guard ours{guard_};
  if (over_)
    return boost::asio::post(io_, [tell = std::move(tell)] { tell(has_ended); });
  engine_->gateway.measure(slot_, [self = shared_from_this(),
                                   tell = std::move(tell)](result<network_figures> read) {
    if (!read)
      return boost::asio::post(self->io_, [tell, read = std::move(read)] { tell(read); });
    self->engine_->brokers.measure(self->slot_, [self, tell, all = std::move(*read)](
                                                  const result<broker_figures>& of_broker) mutable {
      if (of_broker) {
        all.rules = of_broker->rules;
        all.bytes_out += of_broker->from_clients; // Those that have ended are counted already.
        all.bytes_in += of_broker->to_clients;
      }
      boost::asio::post(self->io_, [tell, all = std::move(all)] { tell(all); });
    });
  });
}

void native_sandbox::open_sockets(sockets_request wanted,
                                  std::function<void(result<std::vector<unique_fd>>)> tell) {
  const std::lock_guard ours{guard_};
  if (over_)
    return boost::asio::post(io_, [tell = std::move(tell)] { tell(has_ended); });
  engine_->spawner.open_sockets(
    mine(), wanted,
    [self = shared_from_this(),
     tell = std::move(tell)](result<std::vector<unique_fd>> made) mutable {
      boost::asio::post(self->io_, [tell = std::move(tell), made = std::move(made)]() mutable {
        tell(std::move(made));
      });
    });
}

void native_sandbox::list_ports(std::function<void(result<std::vector<listening_port>>)> tell) {
  auto channel = open_channel(agent::op::list_ports, {}, {0, 0});
  if (!channel)
    return boost::asio::post(io_, [tell = std::move(tell), why = channel.reason()] { tell(why); });
  read_agent_list(io_, std::move(*channel), limits::port_list_patience, limits::port_list_bytes,
                  [tell = std::move(tell)](result<std::string> text) {
                    if (text)
                      tell(parse_port_list(*text));
                    else
                      tell(text.reason());
                  });
}

void native_sandbox::list_quiet_shells(std::function<void(std::vector<std::int32_t>)> tell) {
  auto channel = open_channel(agent::op::list_quiet_shells, {}, {0, 0});
  if (!channel)
    return boost::asio::post(io_, [tell = std::move(tell)] { tell({}); });
  read_agent_list(io_, std::move(*channel), limits::port_list_patience, limits::port_list_bytes,
                  [tell = std::move(tell)](result<std::string> text) {
                    tell(text ? parse_numbers(*text) : std::vector<std::int32_t>{});
                  });
}

/// What the task answers is read as a list is: a head, and the end of its frames.
void native_sandbox::name_user(const user_account& who,
                               std::function<void(result<void>)> on_named) {
  constexpr const char* shell = "/bin/bash";
  auto channel =
    engine_->naming_users
      ? open_file_task(file_task::name_user,
                       {who.name, std::to_string(who.user.uid), std::to_string(who.user.gid),
                        who.home, shell, who.directory, who.link, who.anew ? "anew" : ""},
                       {0, 0})
      : error{errc::launch_failed, "the sandboxes of an earlier version keep its spawner, which "
                                   "names no users; end them"};
  if (!channel)
    return boost::asio::post(
      io_, [on_named = std::move(on_named), why = channel.reason()] { on_named(why); });
  read_agent_list(io_, std::move(*channel), limits::name_user_patience, limits::port_list_bytes,
                  [on_named = std::move(on_named)](const result<std::string>& text) {
                    if (!text)
                      return on_named(text.reason());
                    file_head head{};
                    frame_head last{};
                    if (text->size() != sizeof head && text->size() != sizeof head + sizeof last)
                      return on_named(error{errc::io_failed, "the sandbox has not answered"});
                    std::memcpy(&head, text->data(), sizeof head);
                    if (head.error != 0 || head.step != static_cast<std::uint32_t>(file_step::none))
                      return on_named(error{errc::io_failed, "step " + std::to_string(head.step) +
                                                               ": " + std::strerror(head.error)});
                    if (text->size() != sizeof head + sizeof last)
                      return on_named(error{errc::io_failed, "the sandbox's answer was cut"});
                    on_named({});
                  });
}

namespace {

/// What is sent to a file task, and the socket through which.
struct task_input {
  task_input(boost::asio::io_context& io, unique_fd end)
      : socket(io, boost::asio::local::stream_protocol{}, end.release()) {}

  boost::asio::local::stream_protocol::socket socket;
  std::string frames;
};

std::string as_frames(std::string_view text) {
  std::string all;
  for (;;) {
    const auto part = text.substr(0, max_frame_bytes);
    all += as_bytes(frame_head{static_cast<std::uint32_t>(part.size())});
    if (part.empty())
      return all;
    all += part;
    text.remove_prefix(part.size());
  }
}

} // namespace

void native_sandbox::trust_authority(const std::string& certificate,
                                     std::function<void(result<void>)> on_trusted) {
  const auto answer = [self = shared_from_this(), on_trusted](const result<void>& outcome) {
    boost::asio::post(self->io_, [on_trusted, outcome] { on_trusted(outcome); });
  };
  if (!engine_->carries_requests)
    return answer(error{errc::forbidden, "this node carries no requests for rules"});
  auto channel = open_file_task(file_task::trust, {certificate}, {0, 0});
  if (!channel)
    return answer(channel.reason());
  unique_fd writes{::fcntl(channel->get(), F_DUPFD_CLOEXEC, 0)};
  if (!writes)
    return answer(error{errc::launch_failed, std::strerror(errno)});
  const auto input = std::make_shared<task_input>(io_, std::move(writes));
  input->frames = as_frames(engine_->options.trusted);
  boost::asio::async_write(input->socket, boost::asio::buffer(input->frames),
                           [input](const boost::system::error_code&, std::size_t) {});
  read_agent_list(io_, std::move(*channel), limits::name_user_patience, limits::port_list_bytes,
                  [answer](const result<std::string>& text) {
                    file_head head{};
                    if (!text)
                      return answer(text.reason());
                    if (text->size() != sizeof head)
                      return answer(error{errc::io_failed, "the sandbox has not answered"});
                    std::memcpy(&head, text->data(), sizeof head);
                    if (head.error != 0 || head.step != 0)
                      return answer(error{errc::io_failed, "step " + std::to_string(head.step) +
                                                             ": " + std::strerror(head.error)});
                    answer({});
                  });
}

// ---- Mounts

void native_sandbox::hear_of_mounts() {
  engine_->spawner.hear_of_mounts(slot_, [weak = weak_from_this()](std::uint64_t name) {
    if (const auto self = weak.lock())
      boost::asio::post(self->io_, [self, name] { self->mount_ended(name); });
  });
}

void native_sandbox::mount_ended(std::uint64_t name) {
  std::string path;
  {
    const std::lock_guard hold{guard_};
    for (auto& [where, each] : mounts_)
      if (each.name == name) {
        each.good = false;
        path = where;
      }
  }
  if (!path.empty() && listener_.on_mount_ended)
    listener_.on_mount_ended(path);
}

void native_sandbox::mount(mount_spec what, std::function<void(result<void>)> on_mounted) {
  spawner::request wanted{};
  wanted.what = spawner::op::mount;
  wanted.slot = slot_;
  wanted.name = next_id();
  wanted.count = static_cast<std::uint32_t>(what.cache_bytes >> 20);
  wanted.flags = (what.read_only ? spawner::mount_read_only : 0) |
                 (what.over_files ? spawner::mount_over_files : 0) |
                 (what.is_listed ? spawner::mount_is_listed : 0) |
                 (what.keeps_directory ? spawner::mount_keeps_directory : 0);
  wanted.owner = what.owner;
  std::string text;
  auto reach = "port " + std::to_string(what.port) + '\n' +
               known_hosts(what.reach, read_hosts_file()) + to_text(what.reach);
  for (const auto* each : {&what.path, &what.source, &what.type, &what.secret, &reach})
    (text += *each) += '\0';
  for (const auto& each : what.argv)
    (text += each) += '\0';
  const std::lock_guard ours{guard_}; // As in usage().
  if (over_ || ending_)
    return boost::asio::post(io_, [tell = std::move(on_mounted)] { tell(has_ended); });
  if (!mounts_.emplace(what.path, known_mount{wanted.name, false, true}).second)
    return boost::asio::post(io_, [tell = std::move(on_mounted)] {
      tell(error{errc::already_exists, "something is mounted there"});
    });
  hear_of_mounts();
  wanted.epoch = epoch_;
  engine_->spawner.mount(wanted, text,
                         [self = shared_from_this(), path = what.path,
                          tell = std::move(on_mounted)](const result<void>& outcome) {
                           boost::asio::post(self->io_, [self, path, tell, outcome] {
                             {
                               const std::lock_guard hold{self->guard_};
                               if (const auto at = self->mounts_.find(path); !outcome)
                                 self->mounts_.erase(path);
                               else if (at != self->mounts_.end())
                                 at->second.ready = true;
                             }
                             tell(outcome);
                           });
                         });
}

void native_sandbox::unmount(const std::string& path,
                             std::function<void(result<void>)> on_unmounted) {
  const std::lock_guard ours{guard_};
  if (over_)
    return boost::asio::post(io_, [tell = std::move(on_unmounted)] { tell(has_ended); });
  const auto at = mounts_.find(path);
  if (at == mounts_.end() || !at->second.ready || std::exchange(at->second.leaving, true))
    return boost::asio::post(io_, [tell = std::move(on_unmounted)] {
      tell(error{errc::not_found, "nothing is mounted there"});
    });
  engine_->spawner.unmount(
    mine(), at->second.name,
    [self = shared_from_this(), path, tell = std::move(on_unmounted)](const result<void>& outcome) {
      boost::asio::post(self->io_, [self, path, tell, outcome] {
        {
          const std::lock_guard hold{self->guard_};
          if (outcome)
            self->mounts_.erase(path);
          else if (const auto still = self->mounts_.find(path); still != self->mounts_.end())
            still->second.leaving = false;
        }
        tell(outcome);
      });
    });
}

std::vector<live_mount> native_sandbox::mounts() const {
  std::vector<live_mount> all;
  const std::lock_guard hold{guard_};
  for (const auto& [path, each] : mounts_)
    if (each.ready)
      all.push_back({path, each.good});
  return all;
}

void native_sandbox::attach_drive(drive_spec what, std::function<void(result<void>)> on_attached) {
  const auto of = std::dynamic_pointer_cast<native_sandbox>(what.of);
  const auto refuse = [&](const error& why) {
    boost::asio::post(io_, [tell = on_attached, why] { tell(why); });
  };
  if (!engine_->attaches_drives)
    return refuse({errc::io_failed, "the sandboxes of an earlier version keep its spawner, which "
                                    "knows of no drives; end them"});
  if (!of || of.get() == this || (what.snapshot.empty() && of->is_over()))
    return refuse({errc::not_found, "there is no such drive"});
  spawner::request wanted{};
  wanted.what = spawner::op::attach_drive;
  wanted.slot = slot_;
  wanted.name = next_id();
  wanted.count = of->slot_;
  wanted.flags = what.read_only ? spawner::mount_read_only : 0;
  wanted.owner = what.owner;
  of->tag_.copy(wanted.tag, spawner::max_tag - 1);
  if (what.snapshot.size() > spawner::max_snapshot_name)
    return refuse({errc::not_found, "there is no such snapshot"});
  what.snapshot.copy(wanted.snapshot, spawner::max_snapshot_name);
  const std::lock_guard ours{guard_}; // As in usage().
  if (over_ || ending_)
    return refuse(has_ended);
  wanted.epoch = epoch_;
  engine_->spawner.mount(
    wanted, what.path,
    [self = shared_from_this(), tell = std::move(on_attached)](const result<void>& outcome) {
      boost::asio::post(self->io_, [tell, outcome] { tell(outcome); });
    });
}

void native_sandbox::claim(sandbox_identity who, sandbox_listener heard_by) {
  boost::asio::post(io_, [self = shared_from_this(), who = std::move(who),
                          heard_by = std::move(heard_by)]() mutable {
    self->begin_claim(std::move(who), std::move(heard_by));
  });
}

/// The spawner gives it its name and limits, and the agent says meanwhile that it lives.
void native_sandbox::begin_claim(sandbox_identity who, sandbox_listener heard_by) {
  listener_ = std::move(heard_by);
  name_ = std::move(who.host_name);
  tag_ = who.name;
  limits_ = who.limits;
  spawner::request wanted{};
  wanted.what = spawner::op::claim;
  wanted.slot = slot_;
  wanted.ceilings = ceilings_of(limits_);
  [[maybe_unused]] const auto fits =
    name_.copy(wanted.host_name, spawner::max_host_name - 1) == name_.size() &&
    who.name.copy(wanted.tag, spawner::max_tag - 1) == who.name.size();
  assert(fits);
  {
    const std::lock_guard hold{guard_};
    if (over_) {
      const auto tell = std::exchange(listener_, {}).on_failed;
      return boost::asio::post(io_, [tell] { tell(has_ended); });
    }
    // With the guard: as long as it is not over, the slot is ours.
    wanted.epoch = epoch_ = who.epoch;
    lacks_ = 3; // The spawner's word, the gateway's and the agent's.
    engine_->spawner.claim(wanted, [self = shared_from_this()](const result<void>& outcome) {
      boost::asio::post(self->io_, [self, outcome] {
        outcome ? self->part_ready() : self->give_up(outcome.reason());
      });
    });
  }
  await_network({who.network, who.requests});
  ping([weak = weak_from_this()] {
    if (const auto self = weak.lock())
      self->part_ready();
  });
  deadline_.expires_after(limits::claim_patience);
  deadline_.async_wait([self = shared_from_this()](const boost::system::error_code& stopped) {
    if (!stopped && self->lacks_ > 0)
      self->give_up({errc::launch_failed, "the warm sandbox did not answer in time"});
  });
}

/// One of those has answered without whom it is not ready.
void native_sandbox::part_ready() {
  if (lacks_ == 0 || --lacks_ > 0)
    return;
  deadline_.cancel();
  if (const auto tell = std::exchange(listener_.on_ready, nullptr)) {
    listener_.on_failed = nullptr;
    tell(shared_from_this());
  }
}

bool native_sandbox::is_over() const {
  const std::lock_guard hold{guard_};
  return over_;
}

void native_sandbox::drop_script(std::uint64_t id) {
  const std::lock_guard hold{guard_};
  if (const auto at = processes_.find(id); at != processes_.end())
    at->second.script = {};
}

std::uint64_t native_sandbox::memory_kills() {
  const std::lock_guard hold{counting_};
  if (kill_counts_.empty())
    kill_counts_ = engine_->cgroups.open_kill_counts(slot_);
  return killed_processes(kill_counts_).value_or(0);
}

/// Of processes that nobody waited for, whoever ends next tells.
std::string native_sandbox::words_of_kills(const process_exit& how, std::uint64_t kills_before) {
  std::uint64_t now = 0, before = 0;
  {
    const std::lock_guard hold{guard_};
    if (over_) // The slot may be another's.
      return {};
    now = memory_kills();
    before = std::min(kills_before, told_kills_);
    told_kills_ = std::max(told_kills_, now);
  }
  if (how.out_of_memory || now <= before) // What has been killed itself is told of by its end.
    return {};
  log::warning(
    "sandbox.out_of_memory",
    {{"sandbox", name_}, {"killed", now - before}, {"limit_bytes", limits_.memory_bytes}});
  const auto limit = limits_.memory_bytes > 0
                       ? " (the sandbox's limit is " + size_text(limits_.memory_bytes) + ")"
                       : std::string{};
  const auto count = now - before;
  return (count == 1
            ? "1 process of the sandbox was killed: out of memory"
            : std::to_string(count) + " processes of the sandbox were killed: out of memory") +
         limit + "\n";
}

std::function<std::string(const process_exit&)>
native_sandbox::last_words_link(std::uint64_t kills_before) {
  return [weak = weak_from_this(), kills_before](const process_exit& how) {
    const auto self = weak.lock();
    return self ? self->words_of_kills(how, kills_before) : std::string{};
  };
}

std::uint64_t native_sandbox::kills_before(std::uint64_t id) {
  const std::lock_guard hold{guard_};
  const auto at = processes_.find(id);
  return at == processes_.end() ? 0 : at->second.memory_kills;
}

/// The kernel counts whom it kills, and does not say who it was: a command that was killed while
/// the count grew.
bool native_sandbox::memory_ran_out(int status, std::uint64_t kills_before) {
  const bool killed = (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ||
                      (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
  if (!killed || memory_kills() <= kills_before)
    return false;
  log::warning("command.out_of_memory",
               {{"sandbox", name_}, {"limit_bytes", limits_.memory_bytes}});
  return true;
}

std::shared_ptr<agent_job> native_sandbox::known(std::uint64_t id) {
  const std::lock_guard hold{guard_};
  const auto at = processes_.find(id);
  return at == processes_.end() ? nullptr : at->second.process.lock();
}

start_words native_sandbox::words_of(std::uint64_t id) {
  const std::lock_guard hold{guard_};
  const auto at = processes_.find(id);
  return at == processes_.end() ? start_words{} : at->second.words;
}

std::shared_ptr<native_shell> native_sandbox::known_shell(std::uint64_t id) {
  const std::lock_guard hold{guard_};
  const auto at = shells_.find(id);
  return at == shells_.end() ? nullptr : at->second.lock();
}

std::shared_ptr<packet_socket> native_sandbox::connection() {
  const std::lock_guard hold{guard_};
  return agent_;
}

void native_sandbox::give_up(error why) {
  deadline_.cancel();
  lacks_ = 0;
  const auto tell = std::exchange(listener_, {}).on_failed;
  if (tell)
    engine_->note_failure(why);
  destroy([tell, why] {
    if (tell)
      tell(why);
  });
}

/// PID 1 has ended, and the spawner has removed what there was; or it goes on as another's.
void native_sandbox::gone(bool slot_is_free, const std::string& why) {
  if (!why.empty())
    log::error("sandbox.ended_by_node", {{"sandbox", name_}, {"reason", why}});
  deadline_.cancel();
  still_later_.cancel();
  if (const auto agent = connection())
    agent->drain(std::numeric_limits<int>::max()); // Its last words may still be on their way; no
                                                   // more will come.
  std::map<std::uint64_t, started_process> orphans;
  std::map<std::uint64_t, std::weak_ptr<native_shell>> shells;
  std::map<std::uint64_t, std::function<void()>> pings; // Nobody answers them any more.
  {
    const std::lock_guard hold{guard_};
    over_ = true;
    let_go_on(); // If it is the spawner that has gone, nobody else has them die.
    freezer_.reset();
    orphans.swap(processes_);
    shells.swap(shells_);
    pings.swap(pings_);
    if (agent_)
      agent_->close();
  }
  for (const auto& [id, orphan] : orphans)
    if (const auto each = orphan.process.lock())
      each->ended(end_with_sandbox(why));
  for (const auto& [id, shell] : shells)
    if (const auto each = shell.lock())
      each->gone(true, why);
  late_->close();
  if (slot_is_free)
    engine_->give_back(slot_);
  const auto heard_by = std::exchange(listener_, {});
  if (heard_by.on_failed) {
    ++engine_->failed_launches;
    // What the spawner takes with it as it dies is not the sandbox's own fault.
    heard_by.on_failed(engine_->spawner.connected() ? why_not_ : spawner_gone);
  } else if (heard_by.on_ended) {
    if (!why.empty() && heard_by.on_forced_end)
      heard_by.on_forced_end();
    heard_by.on_ended();
  }
}

void native_sandbox::fall_silent() {
  boost::asio::post(io_, [self = shared_from_this()] {
    self->deadline_.cancel();
    self->still_later_.cancel();
    self->listener_ = {};
    std::map<std::uint64_t, started_process> mine;
    std::map<std::uint64_t, std::weak_ptr<native_shell>> shells;
    {
      const std::lock_guard hold{self->guard_};
      self->over_ = self->silent_ = true;
      mine.swap(self->processes_);
      shells.swap(self->shells_);
      self->pings_.clear();
      self->freezer_.reset();
      if (self->agent_)
        self->agent_->close();
    }
    for (const auto& [id, each] : mine)
      if (const auto one = each.process.lock())
        one->fall_silent();
    for (const auto& [id, each] : shells)
      if (const auto one = each.lock())
        one->fall_silent();
    self->late_->close();
  });
}

bool native_sandbox::tell_agent(agent::op what, std::uint64_t id, std::int32_t value) {
  agent::request wanted{};
  wanted.what = what;
  wanted.id = id;
  wanted.value = value;
  const std::lock_guard hold{guard_};
  wanted.epoch = epoch_;
  return agent_ && agent_->send(as_bytes(wanted));
}

std::function<void(int)> native_sandbox::signal_link(std::uint64_t id) {
  return [weak = weak_from_this(), id](int number) {
    if (const auto self = weak.lock())
      self->tell_agent(agent::op::signal, id, number);
  };
}

std::function<void()> native_sandbox::forget_link(std::uint64_t id) {
  return [weak = weak_from_this(), id] {
    const auto self = weak.lock();
    if (!self)
      return;
    {
      const std::lock_guard hold{self->guard_};
      self->processes_.erase(id);
    }
    self->let_go(id);
  };
}

/// First what was kept of it, then what is known of it inside: whoever comes in between finds its
/// end, and nobody to tell of it.
void native_sandbox::let_go(std::uint64_t id) {
  release(id);
  tell_agent(agent::op::forget, id, 0);
}

void native_sandbox::release(std::uint64_t id) {
  const std::lock_guard hold{guard_};
  if (!over_) // Else the slot may be another's by now.
    engine_->spawner.release(mine(), id);
}

void native_sandbox::hold(std::uint64_t id, const held_head& head, std::string_view label,
                          std::span<const int> fds) {
  const std::lock_guard hold{guard_};
  if (!over_)
    engine_->spawner.hold(mine(), id, held_label(head, label), fds);
}

std::function<void(const std::string&, std::span<const int>)>
native_sandbox::put_down_link(std::uint64_t id) {
  return [weak = weak_from_this(), id](const std::string& now, std::span<const int> fds) {
    const auto self = weak.lock();
    if (!self)
      return;
    const std::lock_guard hold{self->guard_};
    if (!self->over_)
      self->engine_->spawner.hold(self->mine(), id, now, fds);
  };
}

native_process::keeping native_sandbox::keep_link(std::uint64_t id, const held_head& head,
                                                  std::string label) {
  return {head, std::move(label), put_down_link(id)};
}

/// Null: as many are open as may be.
std::shared_ptr<void> native_sandbox::share_input() {
  std::shared_ptr<void> counted{open_inputs_.get(), [all = open_inputs_](void*) { --*all; }};
  return (*open_inputs_)++ < limits::inputs_per_sandbox ? counted : nullptr;
}

std::shared_ptr<input_pipe> native_sandbox::make_input(std::uint64_t id, const held_head& head,
                                                       unique_fd end, unique_fd segment,
                                                       std::shared_ptr<void> share) {
  input_pipe::keeper with;
  with.put_down = put_down_link(id);
  with.release = [weak = weak_from_this(), id] {
    if (const auto self = weak.lock())
      self->release(id);
  };
  with.share = std::move(share);
  return std::make_shared<input_pipe>(io_, head, std::move(end), std::move(segment),
                                      std::move(with));
}

/// With guard_ held.
template <class Job>
bool native_sandbox::is_left(const std::shared_ptr<Job>& made) {
  if (silent_)
    boost::asio::post(io_, [made] { made->fall_silent(); });
  return silent_;
}

template <class Job>
std::shared_ptr<Job> native_sandbox::refuse(const std::shared_ptr<Job>& made, error why) {
  boost::asio::post(io_, [made, why = std::move(why)] { made->failed(why); });
  return made;
}

std::uint64_t native_sandbox::next_id() {
  const std::lock_guard hold{guard_};
  return ++last_id_;
}

/// With guard_ held.
bool native_sandbox::request_start(const start_request& wanted, std::span<const int> fds) {
  auto head = wanted.head;
  head.epoch = epoch_;
  return agent_->send(as_bytes(head), wanted.text, fds);
}

native_shell::log_share native_sandbox::share_log() {
  std::shared_ptr<void> counted{nullptr, [all = full_logs_](void*) { --*all; }};
  if ((*full_logs_)++ < limits::full_logs_per_sandbox)
    return {limits_.log_bytes, log_account_, std::move(counted)};
  return {0, log_account_};
}

std::shared_ptr<process> native_sandbox::start(process_spec spec, process_listener listener) {
  const auto id = next_id();
  const auto share = share_log();
  const auto kills = memory_kills();
  native_process::links to{signal_link(id), forget_link(id), share.counted, late_link(),
                           last_words_link(kills)};
  const auto made = std::make_shared<native_process>(
    io_, output_log{engine_->options.log_directory, share.bytes, share.account},
    std::move(listener), std::move(to), engine_->options.reader_patience);
  if (spec.awaits_reader)
    made->await_reader();
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0)
    return refuse(made, no_room("pipe"));
  unique_fd out_read{out[0]}, out_write{out[1]};
  if (::pipe2(err, O_CLOEXEC) != 0)
    return refuse(made, no_room("pipe"));
  unique_fd err_read{err[0]}, err_write{err[1]};
  unique_fd input_read, input_write, segment;
  std::shared_ptr<void> open_input;
  if (spec.input) {
    open_input = share_input();
    if (!open_input)
      return refuse(made, too_many_inputs);
    int in[2];
    if (::pipe2(in, O_CLOEXEC) != 0)
      return refuse(made, no_room("pipe"));
    input_read.reset(in[0]);
    input_write.reset(in[1]);
    ::fcntl(input_write.get(), F_SETFL, O_NONBLOCK);
    ::fchmod(input_read.get(), S_IRUSR | S_IRGRP | S_IROTH); // As /dev/stdin it is opened again.
    segment = input_pipe::make_segment();
    if (!segment)
      return refuse(made, no_room("memfd"));
  } else {
    input_read.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!input_read)
      return refuse(made, no_room("/dev/null"));
  }
  script_file script;
  if (!spec.script.empty()) {
    script = script_file{spec.script};
    if (!script)
      return refuse(made, no_room("memfd"));
  }
  const std::array<int, 4> theirs{input_read.get(), out_write.get(), err_write.get(), script.get()};
  for (const int end : {out_read.get(), err_read.get()})
    ::fcntl(end, F_SETFL, O_NONBLOCK);
  const start_request wanted{agent::op::exec, id, spec.cwd, spec.argv, spec.env, spec.user};
  if (!wanted.fits)
    return refuse(made, {errc::invalid_request, "the command is too large"});

  held_head head;
  head.kind = held_kind::command;
  head.log_bytes = share.bytes;
  head.memory_kills = kills;
  head.kept = spec.kept;
  const int log = made->log_file();
  if (spec.kept)
    made->keep(keep_link(id, head, spec.label));
  held_head input_head;
  input_head.kind = held_kind::input;
  input_head.shell = id;
  const auto input_id = spec.input ? next_id() : 0;
  const std::lock_guard hold{guard_};
  if (silent_)
    return refuse(made, going); // Nothing was asked, so that it may be asked of the next server.
  if (over_ || !agent_)
    return refuse(made, has_ended);
  if (spec.input) { // Before its command: a server that found that alone would give it no input.
    if (!engine_->spawner.hold(mine(), input_id, held_label(input_head),
                               std::array{input_write.get(), segment.get()}))
      return refuse(made, not_kept);
    made->attach_input(make_input(input_id, input_head, std::move(input_write), std::move(segment),
                                  std::move(open_input)));
  }
  // If the disk refuses it a log, a later server will not know the command.
  const bool held =
    log >= 0 && engine_->spawner.hold(mine(), id, held_label(head, spec.label),
                                      std::array{out_read.get(), err_read.get(), log});
  if (spec.kept && !held)
    return refuse(made, not_kept);
  failpoint("command.held");
  made->attach(std::move(out_read), std::move(err_read));
  const std::size_t count = script ? 4 : 3;
  processes_[id] = {made, head.memory_kills, std::move(script), start_words{spec}};
  if (!request_start(wanted, {theirs.data(), count})) {
    processes_.erase(id);
    return refuse(made, takes_no_more);
  }
  return made;
}

native_terminal::links native_sandbox::terminal_links(std::uint64_t id, std::string label) {
  native_terminal::links to{signal_link(id), {}, forget_link(id)};
  to.hold = [weak = weak_from_this(), id, label = std::move(label)](std::span<const int> fds) {
    held_head head;
    head.kind = held_kind::terminal;
    if (const auto self = weak.lock())
      self->hold(id, head, label, fds);
  };
  return to;
}

std::shared_ptr<terminal> native_sandbox::open_terminal(process_spec spec, terminal_size size,
                                                        process_listener listener) {
  const auto id = next_id();
  int ends[2] = {-1, -1};
  const bool paired =
    ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0;
  auto unpaired = no_room("socketpair");
  const unique_fd theirs{ends[1]};
  const auto made = std::make_shared<native_terminal>(io_, unique_fd{ends[0]}, std::move(listener),
                                                      terminal_links(id, spec.label),
                                                      reader_pace{spec.waits_for_reader});
  if (!paired)
    return refuse(made, std::move(unpaired));
  start_request wanted{agent::op::open_terminal, id, spec.cwd, spec.argv, spec.env, spec.user};
  wanted.head.value = static_cast<std::int32_t>(size.columns | std::uint32_t{size.rows} << 16);
  wanted.head.flags = spec.needs_cwd ? agent::needs_cwd : 0;
  if (!wanted.fits)
    return refuse(made, {errc::invalid_request, "the command is too large"});

  held_head head;
  head.kind = held_kind::opening_terminal;
  head.memory_kills = memory_kills();
  const int channel = theirs.get();
  const std::lock_guard hold{guard_};
  if (over_ || !agent_)
    return refuse(made, has_ended);
  engine_->spawner.hold(mine(), id, held_label(head, spec.label), {&ends[0], 1});
  processes_[id] = {made, head.memory_kills, {}, start_words{spec}};
  if (!request_start(wanted, {&channel, 1})) {
    processes_.erase(id);
    return refuse(made, takes_no_more);
  }
  return made;
}

native_shell::links native_sandbox::shell_links(std::uint64_t id) {
  native_shell::links to;
  to.kill = [signal = signal_link(id)] { signal(SIGKILL); };
  to.forgotten = [weak = weak_from_this(), id] {
    const auto self = weak.lock();
    if (!self)
      return;
    {
      const std::lock_guard hold{self->guard_};
      self->shells_.erase(id);
    }
    self->let_go(id);
  };
  to.frozen = [weak = weak_from_this()] {
    const auto self = weak.lock();
    return self && self->stands_still();
  };
  to.hold = [weak = weak_from_this()](const std::string& label, std::span<const int> fds) {
    const auto self = weak.lock();
    if (!self)
      return std::uint64_t{0};
    const auto name = self->next_id();
    const std::lock_guard hold{self->guard_};
    if (self->over_ || self->engine_->spawner.hold(self->mine(), name, label, fds))
      return name;
    const auto head = head_of(label);
    if (!head || head->kept == 0)
      return name;
    self->engine_->spawner.release(self->mine(), name);
    return std::uint64_t{0};
  };
  to.relabel = [weak = weak_from_this()](std::uint64_t name, const std::string& label,
                                         std::span<const int> fds) {
    const auto self = weak.lock();
    if (!self)
      return;
    const std::lock_guard hold{self->guard_};
    if (!self->over_)
      self->engine_->spawner.hold(self->mine(), name, label, fds);
  };
  to.release = [weak = weak_from_this()](std::uint64_t name) {
    const auto self = weak.lock();
    if (!self)
      return;
    const std::lock_guard hold{self->guard_};
    if (!self->over_)
      self->engine_->spawner.release(self->mine(), name);
  };
  to.memory_kills = [weak = weak_from_this()] {
    const auto self = weak.lock();
    return self ? self->memory_kills() : 0;
  };
  to.memory_ran_out = [weak = weak_from_this()](int status, std::uint64_t before) {
    const auto self = weak.lock();
    return self && self->memory_ran_out(status, before);
  };
  to.last_words = [weak = weak_from_this()](const process_exit& how, std::uint64_t before) {
    const auto self = weak.lock();
    return self ? self->words_of_kills(how, before) : std::string{};
  };
  to.make_room = [weak = weak_from_this(), id] {
    if (const auto self = weak.lock())
      self->tell_agent(agent::op::make_room, id, 0);
  };
  to.share_log = [weak = weak_from_this()] {
    const auto self = weak.lock();
    return self ? self->share_log() : native_shell::log_share{};
  };
  to.late = late_;
  return to;
}

std::shared_ptr<shell> native_sandbox::open_shell(shell_spec spec, shell_listener listener) {
  const auto id = next_id();
  const auto& options = engine_->options;
  const auto made = std::make_shared<native_shell>(
    io_, native_shell::options{options.log_directory, options.reader_patience, options.shells},
    std::move(listener), shell_links(id));
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return refuse(made, no_room("socketpair"));
  const unique_fd theirs{ends[1]};
  held_head head;
  head.kind = held_kind::shell;
  hold(id, head, spec.label, {&ends[0], 1});
  made->attach(unique_fd{ends[0]}, id);
  const unique_fd nothing{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  if (!nothing)
    return refuse(made, no_room("/dev/null"));
  const start_request wanted{
    agent::op::open_shell, id, spec.cwd, {agent::keeper_name, spec.program}, spec.env, spec.user};
  if (!wanted.fits)
    return refuse(made, {errc::invalid_request, "the environment is too large"});
  const std::array<int, 4> fds{nothing.get(), nothing.get(), nothing.get(), theirs.get()};
  const std::lock_guard hold{guard_};
  if (over_ || !agent_)
    return refuse(made, has_ended);
  shells_[id] = made;
  if (!request_start(wanted, fds)) {
    shells_.erase(id);
    return refuse(made, takes_no_more);
  }
  return made;
}

std::optional<sandbox_usage> native_sandbox::usage() const {
  const std::lock_guard ours{guard_}; // As in destroy(): the slot is ours until over_ is set.
  if (over_)
    return std::nullopt;
  const auto read = engine_->cgroups.usage(slot_);
  sandbox_usage now;
  now.memory_bytes = read.memory_bytes;
  if (read.cpu_us)
    now.cpu = std::chrono::microseconds{*read.cpu_us};
  if (read.processes) // The starter is there as well, and nobody's command.
    now.processes = *read.processes - std::min(*read.processes, 1u);
  return now;
}

// ---- Standing still

void native_sandbox::freeze(std::function<void(bool)> on_still) {
  freezing wanted{0, std::move(on_still), {}, std::chrono::milliseconds{1}};
  {
    const std::lock_guard hold{guard_};
    if (!over_ && !ending_ && freezer_ && engine_->cgroups.freeze(freezer_.get())) {
      frozen_ = true;
      wanted.number = ++last_freezing_;
      wanted.deadline = std::chrono::steady_clock::now() + limits::freeze_patience;
    }
  }
  boost::asio::post(io_, [self = shared_from_this(), wanted = std::move(wanted)]() mutable {
    self->await_stillness(std::move(wanted));
  });
}

/// The kernel is asked again and again, at growing distances: it stands still after microseconds,
/// unless something in it waits for a disk.
void native_sandbox::await_stillness(freezing wanted) {
  constexpr std::chrono::milliseconds longest_pause{50};
  const auto found = look_at(wanted);
  if (found != stillness::not_yet)
    return wanted.on_still(found == stillness::still);
  still_later_.expires_after(wanted.pause);
  wanted.pause = std::min(2 * wanted.pause, longest_pause);
  still_later_.async_wait([weak = weak_from_this(), wanted = std::move(wanted)](auto) mutable {
    if (const auto self = weak.lock())
      self->await_stillness(std::move(wanted));
  });
}

native_sandbox::stillness native_sandbox::look_at(const freezing& wanted) {
  const std::lock_guard ours{guard_}; // As in usage().
  if (over_ || ending_ || !frozen_ || wanted.number != last_freezing_)
    return stillness::given_up;
  if (engine_->cgroups.is_frozen(slot_))
    return stillness::still;
  if (std::chrono::steady_clock::now() < wanted.deadline) {
    engine_->cgroups.freeze(freezer_.get()); // Which v1 needs.
    return stillness::not_yet;
  }
  let_go_on();
  return stillness::given_up;
}

/// With guard_ held. True: nothing stands still, nor will.
bool native_sandbox::let_go_on() {
  if (frozen_ && !copying_ && !engine_->cgroups.thaw(freezer_.get()))
    return false;
  frozen_ = false;
  return true;
}

result<void> native_sandbox::thaw() {
  const std::lock_guard hold{guard_};
  if (over_)
    return has_ended;
  if (!let_go_on())
    return error{errc::io_failed, std::string{"thawing the sandbox: "} + std::strerror(errno)};
  return {};
}

bool native_sandbox::stands_still() const {
  const std::lock_guard hold{guard_};
  return frozen_;
}

// ---- Snapshots

static_assert(max_snapshot_name == spawner::max_snapshot_name);
static_assert(std::string_view{drive_directory}.substr(1) == spawner::drive_directory);

namespace {

const error no_snapshots{errc::io_failed, "the sandboxes of an earlier version keep its spawner, "
                                          "which takes no snapshots; end them"};

} // namespace

void native_sandbox::take_snapshot(const std::string& name,
                                   std::function<void(result<disk_snapshot>)> on_taken) {
  const auto wanted = std::make_shared<snapshot_taking>(snapshot_taking{name, std::move(on_taken)});
  const std::lock_guard ours{guard_};
  if (over_ || !engine_->disk_snapshots)
    return boost::asio::post(
      io_, [wanted, why = over_ ? has_ended : no_snapshots] { wanted->tell(why); });
  engine_->spawner.flush_disk(
    mine(), name, [self = shared_from_this(), wanted](const result<std::uint64_t>& flushed) {
      boost::asio::post(self->io_, [self, wanted, flushed] {
        if (!flushed)
          return wanted->tell(flushed.reason());
        const auto now = std::chrono::steady_clock::now();
        wanted->made.flush = now - wanted->since;
        wanted->deadline = now + limits::freeze_patience;
        self->still_for(wanted);
      });
    });
}

/// A machine without a freezer, or something in the sandbox that waits for a disk, gets a snapshot
/// of one moment of the file system all the same: the sandbox goes on meanwhile.
void native_sandbox::still_for(std::shared_ptr<snapshot_taking> wanted) {
  constexpr std::chrono::microseconds pause{200};
  bool waits = false;
  {
    const std::lock_guard ours{guard_};
    if (over_ || ending_)
      return boost::asio::post(io_, [wanted] { wanted->tell(has_ended); });
    if (copying_ && wanted->still_since == std::chrono::steady_clock::time_point{}) {
      waits = true; // Another one is being taken.
      wanted->deadline = std::chrono::steady_clock::now() + limits::freeze_patience;
    } else if (freezer_) {
      if (!std::exchange(copying_, true)) {
        wanted->still_since = std::chrono::steady_clock::now();
        engine_->cgroups.freeze(freezer_.get());
      }
      waits =
        !engine_->cgroups.is_frozen(slot_) && std::chrono::steady_clock::now() < wanted->deadline;
      if (waits)
        engine_->cgroups.freeze(freezer_.get()); // Which v1 needs.
    }
  }
  if (waits) {
    const auto again = std::make_shared<boost::asio::steady_timer>(io_, pause);
    return again->async_wait(
      [self = shared_from_this(), wanted, again](auto) { self->still_for(wanted); });
  }
  wanted->since = std::chrono::steady_clock::now();
  engine_->spawner.take_snapshot(
    mine(), wanted->name, [self = shared_from_this(), wanted](const result<std::uint64_t>& bytes) {
      boost::asio::post(self->io_, [self, wanted, bytes] { self->taken(wanted, bytes); });
    });
}

void native_sandbox::taken(const std::shared_ptr<snapshot_taking>& wanted,
                           const result<std::uint64_t>& bytes) {
  auto& made = wanted->made;
  {
    const std::lock_guard ours{guard_};
    if (std::exchange(copying_, false) && !over_ && !frozen_) {
      engine_->cgroups.thaw(freezer_.get());
      if (wanted->still_since != std::chrono::steady_clock::time_point{})
        made.stood_still = std::chrono::steady_clock::now() - wanted->still_since;
    }
  }
  made.commit = std::chrono::steady_clock::now() - wanted->since;
  if (!bytes)
    return wanted->tell(bytes.reason());
  made.bytes = *bytes;
  wanted->tell(made);
}

/// `then` is called on a thread of its own, which holds nothing.
void native_sandbox::show(const std::string& snapshot,
                          std::function<void(result<unique_fd>)> then) {
  const std::lock_guard ours{guard_};
  if (over_ || !engine_->shows_snapshots)
    return boost::asio::post(io_, [then, why = over_ ? has_ended : no_snapshots] { then(why); });
  engine_->spawner.show_snapshot(
    mine(), snapshot, [self = shared_from_this(), then](result<unique_fd> shown) {
      const auto disk = std::make_shared<result<unique_fd>>(std::move(shown));
      boost::asio::post(self->io_, [then, disk] { then(std::move(*disk)); });
    });
}

void native_sandbox::compare_disks(const compare_request& wanted,
                                   std::function<void(result<disk_changes>)> tell) {
  const auto disks = std::make_shared<std::vector<unique_fd>>();
  const auto compare = [self = shared_from_this(), wanted, disks, tell] {
    auto channel = self->open_channel(agent::op::compare_disks, {wanted.after}, {0, 0},
                                      static_cast<std::int32_t>(wanted.limit), *disks);
    disks->clear();
    if (!channel)
      return tell(channel.reason());
    read_agent_list(self->io_, std::move(*channel), limits::compare_patience, max_changes_bytes,
                    [tell](const result<std::string>& text) {
                      text ? tell(read_disk_changes(*text)) : tell(text.reason());
                    });
  };
  const auto add = [self = shared_from_this(), disks, tell](const std::string& name, auto next) {
    self->show(name, [disks, tell, next](result<unique_fd> shown) {
      if (!shown)
        return tell(shown.reason());
      disks->push_back(std::move(*shown));
      next();
    });
  };
  add(wanted.newer,
      [wanted, add, compare] { wanted.older.empty() ? compare() : add(wanted.older, compare); });
}

void native_sandbox::open_disk(const std::string& snapshot,
                               std::function<void(result<unique_fd>)> tell) {
  show(snapshot, [self = shared_from_this(), tell](result<unique_fd> shown) {
    if (!shown)
      return tell(shown.reason());
    std::vector<unique_fd> disk;
    disk.push_back(std::move(*shown));
    tell(self->open_channel(agent::op::read_disk, {"."}, {0, 0}, 0, disk));
  });
}

result<unique_fd> native_sandbox::open_file(file_operation what, const std::string& path,
                                            sandbox_user user) {
  return open_channel(what == file_operation::read ? agent::op::read_file : agent::op::write_file,
                      {path}, user);
}

result<unique_fd> native_sandbox::open_tree(const tree_request& wanted, sandbox_user user) {
  std::vector<std::string> words{wanted.path};
  words.insert(words.end(), wanted.excludes.begin(), wanted.excludes.end());
  if (wanted.what == file_operation::write) {
    using agent::tree_writing;
    const auto how = wanted.whole   ? tree_writing::whole
                     : wanted.exact ? tree_writing::exact
                                    : tree_writing::ordinary;
    return open_channel(agent::op::write_tree, words, user, static_cast<std::int32_t>(how));
  }
  const std::int32_t how = wanted.exact     ? tree_exact
                           : wanted.compact ? tree_measured | tree_compact
                                            : tree_measured;
  return open_channel(agent::op::read_tree, words, user, how);
}

result<unique_fd> native_sandbox::open_file_task(file_task what,
                                                 const std::vector<std::string>& words,
                                                 sandbox_user user) {
  return open_channel(agent::op::file_task, words, user, static_cast<std::int32_t>(what));
}

/// A socket whose other end a child of the agent has; `words` are what it is told.
result<unique_fd> native_sandbox::open_channel(agent::op what,
                                               const std::vector<std::string>& words,
                                               sandbox_user user, std::int32_t value,
                                               std::span<const unique_fd> more) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return error{errc::launch_failed, std::string{"socketpair: "} + std::strerror(errno)};
  unique_fd ours{ends[0]}, theirs{ends[1]};
  // As much as the system allows: fewer turns for a large file.
  constexpr int buffer = 1 << 20;
  for (const int end : ends)
    ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  ::fcntl(ours.get(), F_SETFL, O_NONBLOCK);
  agent::request wanted{};
  wanted.what = what;
  wanted.value = value;
  wanted.argc = static_cast<std::uint32_t>(words.size());
  wanted.uid = user.uid;
  wanted.gid = user.gid;
  std::string text;
  for (const auto& each : words)
    (text += each) += '\0';
  if (text.size() > agent::max_text_bytes || words.size() > agent::max_strings)
    return error{errc::invalid_request, "too many words for one request"};
  wanted.text_bytes = static_cast<std::uint32_t>(text.size());
  std::vector<int> fds{theirs.get()};
  for (const auto& each : more)
    fds.push_back(each.get());
  const std::lock_guard hold{guard_};
  wanted.epoch = epoch_;
  if (over_ || !agent_ || !agent_->send(as_bytes(wanted), text, fds))
    return error{errc::sandbox_not_running, "the sandbox takes no more requests"};
  return ours;
}

void native_sandbox::destroy(std::function<void()> on_gone) {
  std::vector<std::shared_ptr<native_shell>> shells; // They may go with us, and not under the lock.
  // The slot is ours exactly as long as over_ is not set: afterwards another sandbox may have it.
  const std::lock_guard ours{guard_};
  if (over_)
    return boost::asio::post(io_, std::move(on_gone));
  ending_ = true;
  for (const auto& [id, each] : shells_)
    if (const auto& shell = shells.emplace_back(each.lock()))
      shell->doomed();
  engine_->spawner.destroy(
    mine(), [self = shared_from_this(), on_gone = std::move(on_gone)](const result<void>& outcome) {
      boost::asio::post(self->io_, [self, on_gone, is_free = bool{outcome}] {
        bool first = false;
        {
          const std::lock_guard hold{self->guard_};
          first = !self->over_;
        }
        if (first) {
          self->listener_ = {};
          self->gone(is_free);
        }
        on_gone();
      });
    });
}

namespace {

/// In the name of whoever had it last.
void end_survivor(const std::shared_ptr<native_engine_core>& core, const held_sandbox& which,
                  std::function<void()> on_gone) {
  core->spawner.destroy(
    {which.slot, which.epoch},
    [core, slot = which.slot, on_gone = std::move(on_gone)](const result<void>& outcome) {
      if (outcome)
        core->give_back(slot);
      on_gone();
    });
}

} // namespace

native_engine::native_engine(io_pool& pool, native_options options, spawner_link spawner)
    : core_(std::make_shared<native_engine_core>(pool, std::move(options), std::move(spawner))) {
  // Their slots are free when the last of them is gone.
  for (const auto& each : core_->take_dying())
    end_survivor(core_, each, [] {});
}

/// Nobody is called back any more once this has gone.
native_engine::~native_engine() {
  core_->brokers.let_go();
  core_->spawner.let_go();
  core_->gateway.let_go();
  core_->pool.settle(); // What the spawner has said last has been passed on.
  for (const auto& each : core_->all())
    each->fall_silent();
  core_->pool.settle();
}

void native_engine::drop_snapshot(const std::string& name,
                                  std::function<void(result<void>)> on_dropped) {
  if (!core_->disk_snapshots)
    return boost::asio::post(core_->pool.here(),
                             [tell = std::move(on_dropped)] { tell(no_snapshots); });
  core_->spawner.drop_snapshot(name, std::move(on_dropped));
}

bool native_engine::keeps_snapshots() const {
  return core_->keeps_snapshots;
}

void native_engine::list_snapshots(std::function<void(result<std::vector<std::string>>)> tell) {
  if (!core_->disk_snapshots)
    return boost::asio::post(core_->pool.here(), [tell = std::move(tell)] { tell(no_snapshots); });
  core_->spawner.list_snapshots(std::move(tell));
}

std::optional<error> native_engine::refuses_more() const {
  const auto now = core_->memory.read();
  const auto reserve = core_->options.memory_reserve;
  if (!now || now->available >= (reserve > 0 ? reserve : usual_reserve(now->all)))
    return std::nullopt;
  return error{errc::machine_full, "the node's memory is nearly used up"};
}

void native_engine::create(sandbox_spec spec, sandbox_listener listener) {
  if (auto why = spec.of_the_node ? std::nullopt : refuses_more()) {
    boost::asio::post(core_->pool.here(),
                      [tell = std::move(listener.on_failed), why = std::move(*why)] { tell(why); });
    return;
  }
  if (spec.may_gain_rights && !core_->gaining_rights) {
    boost::asio::post(core_->pool.here(), [tell = std::move(listener.on_failed)] {
      tell({errc::launch_failed,
            "the sandboxes of an earlier version keep its spawner, which makes none with `sudo`; "
            "end them"});
    });
    return;
  }
  if (!spec.disk_from.empty() && !core_->disk_snapshots) {
    boost::asio::post(core_->pool.here(),
                      [tell = std::move(listener.on_failed)] { tell(no_snapshots); });
    return;
  }
  const auto slot = core_->take_slot();
  if (!slot) {
    boost::asio::post(core_->pool.here(), [tell = std::move(listener.on_failed)] {
      tell({errc::capacity_exceeded, "every range of user ids of this node is in use"});
    });
    return;
  }
  const auto made = std::make_shared<native_sandbox>(core_, *slot, spec.host_name, spec.epoch,
                                                     spec.limits, std::move(listener));
  core_->know(*slot, made);
  made->launch(spec);
}

std::vector<std::string> native_engine::survivors() const {
  std::vector<std::string> names;
  const std::lock_guard hold{core_->guard};
  for (const auto& each : core_->survivors)
    names.push_back(each.tag);
  return names;
}

bool native_engine::survives(const std::string& name) const {
  const std::lock_guard hold{core_->guard};
  return std::any_of(core_->survivors.begin(), core_->survivors.end(),
                     [&](const auto& each) { return each.tag == name; });
}

void native_engine::adopt(const sandbox_spec& spec, sandbox_listener listener) {
  auto found = core_->take_survivor(spec.name, spec.epoch);
  if (!found)
    return boost::asio::post(core_->pool.here(), [tell = std::move(listener.on_failed),
                                                  why = found.reason()] { tell(why); });
  const auto slot = found->slot;
  const auto made = std::make_shared<native_sandbox>(core_, slot, spec.name, spec.epoch,
                                                     spec.limits, std::move(listener));
  core_->know(slot, made);
  made->adopt(std::move(*found), spec);
  if (core_->handed_over) // Too late for hand_over() to find it.
    made->fall_silent();
}

void native_engine::disown(const std::string& name, std::function<void()> on_gone) {
  auto found = core_->take_survivor(name);
  if (!found)
    return boost::asio::post(core_->pool.here(), std::move(on_gone));
  end_survivor(core_, *found, std::move(on_gone));
}

void native_engine::hand_over() {
  core_->handed_over = true;
  for (const auto& each : core_->all())
    each->fall_silent();
  core_->pool.settle();
  core_->brokers.let_go();
  core_->spawner.let_go();
  core_->gateway.let_go();
  core_->pool.settle();
}

result<made_authority> native_engine::make_authority() const {
  if (!core_->carries_requests)
    return error{errc::forbidden, "this node carries no requests for rules"};
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(
    std::chrono::system_clock::now().time_since_epoch());
  auto made = broker::make_authority(now.count());
  if (!made)
    return made.reason();
  auto sealed = seal_key(*core_->options.secrets, made->key);
  wipe(made->key);
  if (!sealed)
    return sealed.reason();
  return made_authority{std::move(made->certificate), std::move(*sealed)};
}

std::vector<std::string> native_engine::ailments() const {
  if (core_->spawner.connected())
    return {};
  return {"the spawner is gone, and this server ends"};
}

std::uint64_t native_engine::failed_launches() const {
  return core_->failed_launches;
}

std::optional<network_totals> native_engine::total_network() const {
  return core_->totals.get(
    [this](last_totals::tell_fn tell) { core_->gateway.total(std::move(tell)); },
    limits::gateway_totals_patience);
}

void native_engine::when_alone(std::function<void()> tell) {
  core_->spawner.when_lost(std::move(tell));
}

void native_engine::permit(std::chrono::nanoseconds boottime_deadline) {
  core_->spawner.permit(boottime_deadline);
}

void native_engine::shut_down(std::chrono::milliseconds patience) {
  core_->spawner.shut_down(patience);
}

} // namespace insula::runtime
