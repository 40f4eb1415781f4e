#include "runtime/spawner_client.hpp"

#include "base/id.hpp"
#include "base/log.hpp"
#include "runtime/cgroup.hpp"
#include "runtime/descriptors.hpp"
#include "runtime/not_held.hpp"
#include "runtime/program_file.hpp"
#include "runtime/spawner/spawner.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <spawn.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

// The spawner's program, linked in.
extern "C" const unsigned char insula_spawner_begin[], insula_spawner_end[];

namespace insula::runtime {

namespace {

using namespace std::chrono_literals;

constexpr auto start_patience = 30s;

error failed(const std::string& what) {
  return {errc::launch_failed, what + ": " + std::strerror(errno)};
}

/// Connects to the socket that a living spawner listens on; nothing if there is none.
unique_fd find_spawner(const std::string& state_directory) {
  const unique_fd directory{::open(state_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  unique_fd socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/spawner.sock",
                directory.get());
  if (!directory || !socket ||
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return {};
  return socket;
}

/// Words before a command with which it becomes the first process of a scope of its own. systemd
/// ends all that is in a unit's cgroup before it starts that unit again, and starts none whose
/// cgroup hands controllers down; what is to outlive the server has to be elsewhere. None: there is
/// no need, or no way.
std::vector<std::string> scope_words(const spawner_options& options) {
  constexpr const char* program = "/usr/bin/systemd-run";
  if (cgroup_tree::of_this_process({}).mode() != "v2" ||
      ::access("/run/systemd/system", F_OK) != 0 || ::access(program, X_OK) != 0)
    return {};
  std::array<unsigned char, 5> random{}; // The scope of an earlier spawner may not be gone yet.
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size()))
    return {};
  return {program,
          "--scope",
          "--quiet",
          "--collect",
          "--slice=insula.slice",
          "--unit=insula-" + options.key + "-" + base32(random.data(), random.size()),
          "--description=Sandboxes of Insula in " + options.state_directory,
          "--property=Delegate=yes",
          "--property=TasksMax=infinity",
          "--"};
}

struct started_spawner {
  unique_fd socket;
  pid_t pid = 0;
  unique_fd program; ///< What comes before it runs it by our number of this one, later.
};

/// Runs the spawner, which is a program of its own inside this one, in a session of its own.
/// `before`: words before its command.
result<started_spawner> start_spawner(const spawner_options& options,
                                      std::vector<std::string> before) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return failed("socketpair");
  started_spawner made{unique_fd{ends[0]}, 0, {}};
  const unique_fd theirs{ends[1]};
  made.program = program_file("insula-spawner", insula_spawner_begin, insula_spawner_end);
  if (!made.program)
    return failed("memfd_create");
  constexpr int socket_there = 3;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, 2, 1);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), socket_there);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, socket_there + 1);
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  // By our own number: the child has closed its copy when it comes to running it.
  const auto path =
    "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(made.program.get());
  const auto first = before.empty() ? path : before.front();
  auto& words = before;
  words.insert(words.end(),
               {words.empty() ? spawner::program_name : path, options.state_directory, options.key,
                options.disk, std::to_string(options.pool_bytes), std::to_string(socket_there),
                std::to_string(options.memory_reserve), std::to_string(options.most_uncharged)});
  std::vector<char*> argv;
  for (auto& each : words)
    argv.push_back(each.data());
  argv.push_back(nullptr);
  const std::array<const char*, 2> env{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", nullptr};
  const int error = ::posix_spawn(&made.pid, first.c_str(), &actions, &attributes, argv.data(),
                                  const_cast<char**>(env.data()));
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    errno = error;
    return failed("starting the spawner");
  }
  return made;
}

bool send_request(int socket, const spawner::request& wanted) {
  return ::send(socket, &wanted, sizeof wanted, MSG_NOSIGNAL) == sizeof wanted;
}

struct heard_notice {
  spawner::notice said{};
  std::string text;
  std::vector<unique_fd> fds;
};

/// Nothing: there was none in time, or the spawner has gone.
std::optional<heard_notice> receive_notice(int socket, std::chrono::milliseconds patience) {
  pollfd ready{socket, POLLIN, 0};
  if (::poll(&ready, 1, static_cast<int>(patience.count())) <= 0)
    return std::nullopt;
  struct {
    spawner::notice said;
    char text[spawner::max_label];
  } packet;
  int fds[spawner::max_held_fds], count = 0;
  const ssize_t n = receive_packet(socket, {&packet, sizeof packet}, fds, count, 0);
  if (n < static_cast<ssize_t>(sizeof packet.said))
    return std::nullopt;
  heard_notice heard{
    packet.said, {packet.text, static_cast<std::size_t>(n) - sizeof packet.said}, {}};
  for (int i = 0; i < count; ++i)
    heard.fds.emplace_back(fds[i]);
  return heard;
}

spawner::request plain(spawner::op what) {
  spawner::request wanted{};
  wanted.what = what;
  return wanted;
}

spawner::request of(held_slot where, spawner::op what) {
  auto wanted = plain(what);
  wanted.slot = where.slot;
  wanted.epoch = where.epoch;
  return wanted;
}

/// Tells a spawner to end with everything it has, and waits until it has.
bool end_spawner(int socket) {
  if (!send_request(socket, plain(spawner::op::shut_down)))
    return true;
  const auto deadline = std::chrono::steady_clock::now() + start_patience;
  while (std::chrono::steady_clock::now() < deadline)
    if (!receive_notice(socket, 1s)) {
      pollfd gone{socket, POLLIN, 0};
      if (::poll(&gone, 1, 0) > 0)
        return true;
    }
  return false;
}

held_sandbox survivor_of(heard_notice& heard) {
  held_sandbox found{heard.said.slot, std::move(heard.text), {}, {}, {}, {}, heard.said.name};
  if (!heard.fds.empty())
    found.control = std::move(heard.fds[0]);
  if (heard.fds.size() > 1)
    found.freezer = std::move(heard.fds[1]);
  return found;
}

/// Says hello, and hears what there is. Nothing: the spawner ended before it had told all.
std::optional<spawner_link> greet(unique_fd& socket) {
  // What is to be held is handed over before its command starts, or that does not start: a burst of
  // them must find room while the spawner is busy.
  constexpr int room = 8 << 20;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
  auto greeting = plain(spawner::op::hello);
  greeting.name = spawner::version;
  if (!send_request(socket.get(), greeting))
    return std::nullopt;
  auto heard = receive_notice(socket.get(), start_patience);
  if (!heard || heard->said.what != spawner::event::hello)
    return std::nullopt;
  spawner_link link;
  link.version = heard->said.version;
  link.generation = heard->said.name;
  link.layers_over_images = (heard->said.flags & spawner::layers_over_images) != 0;
  link.gaining_rights = (heard->said.flags & spawner::gaining_rights) != 0;
  link.brokers = (heard->said.flags & spawner::brokering) != 0;
  link.attaches_drives = (heard->said.flags & spawner::attaching_drives) != 0;
  link.disk_snapshots = (heard->said.flags & spawner::disk_snapshots) != 0;
  link.shows_snapshots = (heard->said.flags & spawner::showing_snapshots) != 0;
  link.keeps_snapshots = (heard->said.flags & spawner::keeping_snapshots) != 0;
  link.naming_users = (heard->said.flags & spawner::naming_users) != 0;
  link.lists_of_packages = (heard->said.flags & spawner::lists_of_packages) != 0;
  while (link.version == spawner::version) {
    heard = receive_notice(socket.get(), start_patience);
    if (!heard)
      return std::nullopt;
    auto& said = heard->said;
    if (said.what == spawner::event::all_told)
      break;
    if (said.what == spawner::event::gateway && !heard->fds.empty())
      link.gateway = std::move(heard->fds.front());
    else if (said.what == spawner::event::holds)
      link.survivors.push_back(survivor_of(*heard));
    else if (said.what == spawner::event::mounts && !link.survivors.empty())
      link.survivors.back().mounts.push_back({said.name, std::move(heard->text), said.error == 0});
    else if (said.what == spawner::event::held && !link.survivors.empty())
      link.survivors.back().held.push_back(
        {said.name, std::move(heard->text), std::move(heard->fds)});
  }
  link.socket = std::move(socket);
  return link;
}

/// A warm one, as pools have them: the next server would only end it.
bool is_nobodys(const held_sandbox& left) {
  return left.tag.empty();
}

/// Nothing: there is none, or none whose sandboxes can be taken over.
result<std::optional<spawner_link>> find_earlier(const std::string& state_directory) {
  auto socket = find_spawner(state_directory);
  if (!socket)
    return std::optional<spawner_link>{};
  auto link = greet(socket);
  if (!link) {
    pollfd there{socket.get(), POLLIN, 0};
    if (::poll(&there, 1, 0) == 0)
      return error{errc::launch_failed, "the spawner of an earlier server does not answer"};
    log::info("spawner.earlier_gone");
    return std::optional<spawner_link>{};
  }
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(link->socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
    link->pid = peer.pid;
  const bool understood = link->version == spawner::version;
  if (understood && !std::all_of(link->survivors.begin(), link->survivors.end(), is_nobodys))
    return link;
  if (understood) // Else a node with a pool would have the spawner of its first version for ever.
    log::info("spawner.replacing_earlier", {{"sandboxes", link->survivors.size()}});
  else
    log::warning("spawner.ending_earlier",
                 {{"reason", "it is of another version, and its sandboxes cannot be adopted"},
                  {"version", link->version}});
  if (!end_spawner(link->socket.get()))
    return error{errc::launch_failed, "the spawner of an earlier server does not end"};
  return std::optional<spawner_link>{};
}

/// Has what was to become the spawner ended without becoming it?
bool ended_before_spawner(const started_spawner& which) {
  pollfd gone{which.socket.get(), POLLIN, 0};
  int status = 0;
  return ::poll(&gone, 1, 0) == 1 && ::waitpid(which.pid, &status, 0) == which.pid &&
         !(WIFEXITED(status) && WEXITSTATUS(status) == spawner::status_cannot_start);
}

} // namespace

std::string node_key(const std::string& state_directory) {
  std::uint64_t hash = 0xcbf29ce484222325; // FNV-1a: short, and the same in every version.
  for (const char c : state_directory)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::array<unsigned char, sizeof hash> bytes{};
  std::memcpy(bytes.data(), &hash, sizeof hash);
  return base32(bytes.data(), bytes.size());
}

result<spawner_link> connect_to_spawner(const spawner_options& options) {
  auto earlier = find_earlier(options.state_directory);
  if (!earlier)
    return earlier.reason();
  if (*earlier) {
    log::info("spawner.found", {{"sandboxes", (*earlier)->survivors.size()}});
    return std::move(**earlier);
  }
  auto before = scope_words(options);
  while (true) {
    const bool in_scope = !before.empty();
    auto started = start_spawner(options, std::exchange(before, {}));
    if (!started)
      return started.reason();
    auto link = greet(started->socket);
    if (link && link->version == spawner::version) {
      link->pid = started->pid;
      return std::move(*link);
    }
    if (!in_scope || !ended_before_spawner(*started))
      return error{errc::launch_failed, "the spawner did not start; its reason stands above"};
    log::warning("spawner.no_scope",
                 {{"reason", "systemd-run has made none; its reason stands above"},
                  {"consequence", "where systemd runs this server, a restart ends all sandboxes"}});
  }
}

const error spawner_gone{errc::node_unreachable, "the spawner is gone, and this server ends"};

namespace {

const error spawner_deaf{errc::launch_failed, "the spawner takes no more requests"};

} // namespace

struct spawner_client::shared {
  struct entry {
    std::function<void(result<launched>)> on_created;
    end_listener on_ended;
    std::vector<std::function<void(result<void>)>> on_gone;
    std::function<void(result<void>)> on_claimed = nullptr;
    std::function<void(std::uint64_t)> on_mount_ended = nullptr;
    std::function<void()> on_broker_ended = nullptr;
    std::function<void(bool)> on_charged = nullptr;
  };
  using mount_key = std::pair<std::uint32_t, std::uint64_t>; ///< Slot and name.

  explicit shared(std::shared_ptr<packet_socket> s)
      : socket(std::move(s)) {}

  void heard(const spawner::notice& said, std::string_view text, std::vector<unique_fd> fds);
  void heard_of_mount(const spawner::notice& said, std::string_view text);
  void opened(const spawner::notice& said, std::vector<unique_fd> fds);
  void heard_of_snapshot(const spawner::notice& said, std::string_view text);
  void lost();

  std::shared_ptr<packet_socket> socket;
  std::function<void(unique_fd)> on_gateway;
  mutable std::mutex guard; ///< For what follows.
  std::condition_variable closed;
  std::map<std::uint32_t, entry> slots;
  std::map<std::uint64_t, std::function<void(result<std::vector<unique_fd>>)>> want_descriptors;
  std::uint64_t last_opened = 0;
  /// Null in place of a notice: the spawner is gone.
  using snapshot_answer = std::function<void(const spawner::notice*, std::string_view)>;
  std::map<std::uint64_t, snapshot_answer> want_snapshots;
  std::uint64_t last_snapshot = 0;
  std::map<mount_key, mount_outcome> mounting; ///< Or unmounting: one at a time.
  bool connected = true;
  bool told_to_end = false;
  std::function<void()> when_lost; ///< Null: nobody asks, or it has been told.
};

void spawner_client::shared::opened(const spawner::notice& said, std::vector<unique_fd> fds) {
  std::function<void(result<std::vector<unique_fd>>)> tell;
  {
    const std::lock_guard hold{guard};
    if (auto asked = want_descriptors.extract(said.name))
      tell = std::move(asked.mapped());
  }
  if (!tell)
    return;
  const bool shown = said.what == spawner::event::snapshot_shown;
  const bool is_broker = said.what == spawner::event::broker;
  if (said.error == ESRCH)
    return tell(error{errc::sandbox_not_running, "the sandbox has ended"});
  if (said.error != 0 && said.step != 0)
    return tell(not_held);
  if (said.error == ENOENT && shown)
    return tell(error{errc::not_found, "what the snapshot had is not there"});
  if (said.error == EAGAIN && is_broker)
    return tell(error{errc::limit_reached, "the broker before is on its way out"});
  if (said.error != 0 || fds.empty())
    return tell(error{errc::io_failed, std::string{is_broker ? "starting the broker: "
                                                   : shown   ? "showing a snapshot: "
                                                             : "making sockets in the sandbox: "} +
                                         std::strerror(said.error != 0 ? said.error : EMFILE)});
  tell(std::move(fds));
}

void spawner_client::shared::heard_of_snapshot(const spawner::notice& said, std::string_view text) {
  snapshot_answer tell;
  {
    const std::lock_guard hold{guard};
    if (auto asked = want_snapshots.extract(said.name))
      tell = std::move(asked.mapped());
  }
  if (tell)
    tell(&said, text);
}

namespace {

error mount_failure(const spawner::notice& said, std::string_view text) {
  using spawner::mount_step;
  const auto step = static_cast<mount_step>(said.step);
  if (said.error == ESRCH)
    return {errc::sandbox_not_running, "the sandbox has ended"};
  if (step == mount_step::epoch)
    return not_held;
  if (step == mount_step::in_use)
    return {errc::drive_in_use, "another sandbox writes to the drive"};
  if (step == mount_step::drive)
    return {errc::not_found, "there is no such drive"};
  if (step == mount_step::place && said.error == EBUSY)
    return {errc::already_exists, "something is mounted there"};
  if (step == mount_step::program)
    return {errc::launch_failed, std::string{text}};
  if (step == mount_step::answer)
    return {errc::deadline_exceeded, std::string{text}};
  return {errc::io_failed, step == mount_step::not_empty || step == mount_step::not_there
                             ? std::string{name_of(step)}
                             : std::string{name_of(step)} + ": " + std::strerror(said.error)};
}

} // namespace

namespace {

error launch_failure(const spawner::notice& said) {
  const auto step = static_cast<spawner::launch_step>(said.step);
  if (step == spawner::launch_step::permission)
    return {errc::node_unreachable, "this node may not run sandboxes now"};
  if (step == spawner::launch_step::epoch)
    return not_held;
  const bool lacks_snapshot = step == spawner::launch_step::disk && said.error == ENOENT;
  return {lacks_snapshot ? errc::not_found : errc::launch_failed,
          std::string{name_of(step)} + ": " + std::strerror(said.error)};
}

} // namespace

void spawner_client::shared::heard_of_mount(const spawner::notice& said, std::string_view text) {
  mount_outcome tell;
  std::function<void(std::uint64_t)> ended;
  {
    const std::lock_guard hold{guard};
    if (said.what == spawner::event::mount_ended) {
      if (const auto at = slots.find(said.slot); at != slots.end())
        ended = at->second.on_mount_ended;
    } else if (auto asked = mounting.extract({said.slot, said.name})) {
      tell = std::move(asked.mapped());
    }
  }
  if (ended)
    ended(said.name);
  if (tell)
    tell(said.error == 0 ? result<void>{} : mount_failure(said, text));
}

void spawner_client::shared::heard(const spawner::notice& said, std::string_view text,
                                   std::vector<unique_fd> fds) {
  if (said.what == spawner::event::mounted || said.what == spawner::event::unmounted ||
      said.what == spawner::event::mount_ended)
    return heard_of_mount(said, text);
  if (said.what == spawner::event::sockets || said.what == spawner::event::snapshot_shown)
    return opened(said, std::move(fds));
  if (said.what == spawner::event::disk_flushed || said.what == spawner::event::snapshot_taken ||
      said.what == spawner::event::snapshot_dropped || said.what == spawner::event::snapshots)
    return heard_of_snapshot(said, text);
  if (said.what == spawner::event::broker)
    return opened(said, std::move(fds));
  if (said.what == spawner::event::broker_ended) {
    std::function<void()> tell;
    {
      const std::lock_guard hold{guard};
      if (const auto at = slots.find(said.slot); at != slots.end())
        tell = at->second.on_broker_ended;
    }
    if (tell)
      tell();
    return;
  }
  if (said.what == spawner::event::gateway) {
    if (!fds.empty())
      on_gateway(std::move(fds.front()));
    return;
  }
  entry mine;
  {
    const std::lock_guard hold{guard};
    const auto at = slots.find(said.slot);
    if (at == slots.end())
      return;
    // A slot that is to be destroyed is free only with the answer to that, else it would be taken
    // for the answer to a later one; and an answer that nobody waits for, or that comes before the
    // sandbox does, is no news.
    const bool asked = !at->second.on_gone.empty() &&
                       (said.what != spawner::event::destroyed || !at->second.on_created);
    if (said.what == spawner::event::destroyed ? !asked
                                               : said.what == spawner::event::ended && asked)
      return;
    if (said.what == spawner::event::created)
      mine.on_created = std::exchange(at->second.on_created, nullptr);
    else if (said.what == spawner::event::claimed)
      mine.on_claimed = std::exchange(at->second.on_claimed, nullptr);
    else if (said.what == spawner::event::charged)
      mine.on_charged = std::exchange(at->second.on_charged, nullptr);
    else
      mine = std::move(slots.extract(at).mapped());
  }
  using spawner::event;
  if (said.what == event::created && !fds.empty() && mine.on_created)
    return mine.on_created(launched{std::move(fds.front()),
                                    fds.size() > 1 ? std::move(fds[1]) : unique_fd{}, said.done});
  if (said.what == event::create_failed && mine.on_created)
    mine.on_created(launch_failure(said));
  if (said.what == event::claimed && mine.on_claimed)
    return mine.on_claimed(said.error == 0 ? result<void>{} : launch_failure(said));
  if (said.what == event::charged) {
    if (mine.on_charged)
      mine.on_charged(said.error == 0);
    return;
  }
  if (said.what == event::ended && mine.on_ended)
    mine.on_ended(std::string{text});
  const bool goes_on = said.what == event::destroyed && said.step != 0;
  for (const auto& each : mine.on_gone)
    each(goes_on ? result<void>{not_held} : result<void>{});
}

void spawner_client::shared::lost() {
  std::map<std::uint32_t, entry> all;
  decltype(want_descriptors) opening;
  decltype(want_snapshots) asked_of_disks;
  decltype(mounting) mounts;
  std::function<void()> told_of_loss;
  {
    const std::lock_guard hold{guard};
    if (!told_to_end)
      told_of_loss = std::exchange(when_lost, nullptr);
    if (!told_to_end)
      log::error("spawner.gone",
                 {{"consequence", "its sandboxes have ended, and no more can be made"}});
    connected = false;
    all = std::move(slots);
    slots.clear();
    opening.swap(want_descriptors);
    asked_of_disks.swap(want_snapshots);
    mounts.swap(mounting);
  }
  closed.notify_all();
  if (told_of_loss)
    told_of_loss();
  for (const auto& [key, tell] : mounts)
    tell(error{errc::sandbox_not_running, "the spawner is gone"});
  for (const auto& [name, tell] : opening)
    tell(error{errc::sandbox_not_running, "the spawner is gone"});
  for (const auto& [name, tell] : asked_of_disks)
    tell(nullptr, {});
  for (auto& [slot, each] : all) {
    if (each.on_created)
      each.on_created(spawner_gone);
    else if (each.on_ended)
      each.on_ended({});
    for (const auto& gone : each.on_gone)
      gone({});
  }
}

spawner_client::spawner_client(boost::asio::io_context& io, spawner_link& link,
                               std::function<void(unique_fd)> on_gateway)
    : io_(io)
    , shared_(
        std::make_shared<shared>(std::make_shared<packet_socket>(io_, std::move(link.socket)))) {
  shared_->on_gateway = std::move(on_gateway);
  if (link.gateway)
    shared_->on_gateway(std::move(link.gateway));
  for (const auto& each : link.survivors)
    shared_->slots[each.slot];
  shared_->socket->open(
    [to = std::weak_ptr{shared_}](std::string_view bytes, std::vector<unique_fd> fds) {
      spawner::notice said{};
      if (const auto self = to.lock(); self && from_bytes(bytes.substr(0, sizeof said), said))
        self->heard(said, bytes.substr(sizeof said), std::move(fds));
    },
    [to = std::weak_ptr{shared_}] {
      if (const auto self = to.lock())
        self->lost();
    });
}

spawner_client::~spawner_client() {
  shared_->socket->close();
}

void spawner_client::create(const spawner::request& wanted,
                            std::function<void(result<launched>)> on_created,
                            end_listener on_ended) {
  bool entered = false;
  {
    const std::lock_guard hold{shared_->guard};
    entered = shared_->connected;
    if (entered)
      shared_->slots[wanted.slot] = {on_created, std::move(on_ended), {}};
  }
  if (shared_->socket->send(as_bytes(wanted)))
    return;
  {
    const std::lock_guard hold{shared_->guard};
    if (entered && shared_->slots.erase(wanted.slot) == 0)
      return; // The spawner was lost meanwhile, and that has been told.
  }
  boost::asio::post(io_, [tell = std::move(on_created), gone = !entered] {
    tell(gone ? spawner_gone : spawner_deaf);
  });
}

void spawner_client::adopt(held_slot which, end_listener on_ended) {
  shared_->socket->send(as_bytes(of(which, spawner::op::adopt)), {}, {}, true);
  {
    const std::lock_guard hold{shared_->guard};
    if (const auto at = shared_->slots.find(which.slot); at != shared_->slots.end()) {
      at->second.on_ended = std::move(on_ended);
      return;
    }
  }
  boost::asio::post(io_, [tell = std::move(on_ended)] { tell({}); });
}

void spawner_client::claim(const spawner::request& wanted,
                           std::function<void(result<void>)> on_claimed) {
  {
    const std::lock_guard hold{shared_->guard};
    const auto at = shared_->slots.find(wanted.slot);
    if (at == shared_->slots.end())
      return; // It has ended, and that is on its way to whoever holds it.
    at->second.on_claimed = on_claimed;
  }
  if (!shared_->socket->send(as_bytes(wanted)))
    boost::asio::post(io_, [tell = std::move(on_claimed)] { tell(spawner_deaf); });
}

void spawner_client::ask_for_descriptors(
  spawner::request asked, std::function<void(result<std::vector<unique_fd>>)> on_opened) {
  {
    const std::lock_guard hold{shared_->guard};
    asked.name = ++shared_->last_opened;
    if (shared_->connected)
      shared_->want_descriptors.emplace(asked.name, on_opened);
  }
  if (shared_->socket->send(as_bytes(asked)))
    return;
  {
    const std::lock_guard hold{shared_->guard};
    if (shared_->connected && shared_->want_descriptors.erase(asked.name) == 0)
      return; // The spawner was lost meanwhile, and that has been told.
  }
  boost::asio::post(io_, [tell = std::move(on_opened)] {
    tell(error{errc::io_failed, "the spawner takes no more requests"});
  });
}

void spawner_client::open_sockets(held_slot where, const sockets_request& wanted,
                                  std::function<void(result<std::vector<unique_fd>>)> on_opened) {
  auto asked = of(where, spawner::op::open_sockets);
  asked.count = wanted.count;
  asked.ipv6 = wanted.ipv6 ? 1 : 0;
  ask_for_descriptors(asked, std::move(on_opened));
}

void spawner_client::mount(const spawner::request& wanted, std::string_view text,
                           mount_outcome tell) {
  const shared::mount_key key{wanted.slot, wanted.name};
  {
    const std::lock_guard hold{shared_->guard};
    if (shared_->connected)
      shared_->mounting.emplace(key, tell);
  }
  if (text.size() <= spawner::max_text && shared_->socket->send(as_bytes(wanted), text))
    return;
  {
    const std::lock_guard hold{shared_->guard};
    if (shared_->connected && shared_->mounting.erase(key) == 0)
      return; // The spawner was lost meanwhile, and that has been told.
  }
  boost::asio::post(io_, [tell = std::move(tell)] {
    tell(error{errc::io_failed, "the spawner takes no such request"});
  });
}

void spawner_client::unmount(held_slot where, std::uint64_t name, mount_outcome tell) {
  auto wanted = of(where, spawner::op::unmount);
  wanted.name = name;
  mount(wanted, {}, std::move(tell));
}

void spawner_client::open_broker(held_slot where,
                                 std::function<void(result<unique_fd>)> on_opened) {
  auto asked = of(where, spawner::op::broker);
  asked.count = 1;
  ask_for_descriptors(asked, [tell = std::move(on_opened)](result<std::vector<unique_fd>> opened) {
    opened ? tell(std::move(opened->front())) : tell(opened.reason());
  });
}

void spawner_client::end_broker(held_slot where) {
  shared_->socket->send(as_bytes(of(where, spawner::op::broker)));
}

void spawner_client::hear_of_broker(std::uint32_t slot, std::function<void()> on_broker_ended) {
  const std::lock_guard hold{shared_->guard};
  if (const auto at = shared_->slots.find(slot); at != shared_->slots.end())
    at->second.on_broker_ended = std::move(on_broker_ended);
}

void spawner_client::hear_of_mounts(std::uint32_t slot,
                                    std::function<void(std::uint64_t)> on_mount_ended) {
  const std::lock_guard hold{shared_->guard};
  if (const auto at = shared_->slots.find(slot); at != shared_->slots.end())
    at->second.on_mount_ended = std::move(on_mount_ended);
}

void spawner_client::destroy(held_slot which, std::function<void(result<void>)> on_gone) {
  bool alive = false, first = false;
  {
    const std::lock_guard hold{shared_->guard};
    if (const auto at = shared_->slots.find(which.slot); at != shared_->slots.end()) {
      first = at->second.on_gone.empty();
      at->second.on_ended = nullptr;
      at->second.on_gone.push_back(on_gone);
      alive = true;
    }
  }
  if (!alive)
    return boost::asio::post(io_, [tell = std::move(on_gone)] { tell({}); });
  if (first) // One per sandbox, so it needs no other ceiling.
    shared_->socket->send(as_bytes(of(which, spawner::op::destroy)), {}, {}, true);
}

bool spawner_client::hold(held_slot where, std::uint64_t name, std::string_view label,
                          std::span<const int> fds) {
  auto wanted = of(where, spawner::op::hold);
  wanted.name = name;
  return shared_->socket->send(as_bytes(wanted), label.substr(0, spawner::max_label), fds) &&
         shared_->socket->all_sent();
}

void spawner_client::release(held_slot where, std::uint64_t name) {
  auto wanted = of(where, spawner::op::release);
  wanted.name = name;
  shared_->socket->send(as_bytes(wanted));
}

void spawner_client::charge_logs(held_slot where, std::uint64_t bytes,
                                 std::function<void(bool)> tell) {
  auto wanted = of(where, spawner::op::charge_logs);
  wanted.name = bytes;
  {
    const std::lock_guard hold{shared_->guard};
    const auto at = shared_->slots.find(where.slot);
    if (at == shared_->slots.end())
      return;
    at->second.on_charged = tell;
  }
  if (!shared_->socket->send(as_bytes(wanted)))
    boost::asio::post(io_, [tell = std::move(tell)] { tell(false); });
}

namespace {

/// Of what was asked about a snapshot. None: it worked.
std::optional<error> snapshot_failure(const spawner::notice* said) {
  if (said == nullptr)
    return error{errc::io_failed, "the spawner takes no such request, or is gone"};
  if (static_cast<spawner::launch_step>(said->step) == spawner::launch_step::epoch)
    return not_held;
  switch (said->error) {
    case 0: return std::nullopt;
    case EEXIST: return error{errc::already_exists, "there is such a snapshot"};
    case ESRCH: return error{errc::sandbox_not_running, "the sandbox has ended"};
    case ENOSPC:
      return error{errc::disk_full, "the disks of this node have no room for a snapshot"};
    case EAGAIN: return error{errc::limit_reached, "too many snapshots wait for the disk"};
    default:
      return error{errc::io_failed, std::string{"the snapshot: "} + std::strerror(said->error)};
  }
}

} // namespace

/// Its errors are told on the thread of `io_`, as all answers are.
void spawner_client::ask_for_snapshot(
  spawner::request wanted, const std::string& name,
  std::function<void(const spawner::notice*, std::string_view)> tell) {
  bool entered = false;
  {
    const std::lock_guard hold{shared_->guard};
    wanted.name = ++shared_->last_snapshot;
    entered = shared_->connected;
    if (entered)
      shared_->want_snapshots.emplace(wanted.name, tell);
  }
  const bool fits = name.copy(wanted.snapshot, spawner::max_snapshot_name) == name.size();
  if (fits && entered && shared_->socket->send(as_bytes(wanted)))
    return;
  {
    const std::lock_guard hold{shared_->guard};
    if (entered && shared_->want_snapshots.erase(wanted.name) == 0)
      return; // The spawner was lost meanwhile, and that has been told.
  }
  boost::asio::post(io_, [tell = std::move(tell)] { tell(nullptr, {}); });
}

void spawner_client::flush_disk(held_slot where, const std::string& name, snapshot_outcome tell) {
  ask_for_snapshot(of(where, spawner::op::flush_disk), name,
                   [tell = std::move(tell)](const spawner::notice* said, std::string_view) {
                     const auto failed = snapshot_failure(said);
                     tell(failed ? result<std::uint64_t>{*failed} : result<std::uint64_t>{0});
                   });
}

void spawner_client::take_snapshot(held_slot where, const std::string& name,
                                   snapshot_outcome tell) {
  ask_for_snapshot(of(where, spawner::op::take_snapshot), name,
                   [tell = std::move(tell)](const spawner::notice* said, std::string_view text) {
                     if (const auto failed = snapshot_failure(said))
                       return tell(*failed);
                     std::uint64_t bytes = 0;
                     std::from_chars(text.data(), text.data() + text.size(), bytes);
                     tell(bytes);
                   });
}

void spawner_client::show_snapshot(held_slot where, const std::string& name,
                                   std::function<void(result<unique_fd>)> tell) {
  auto asked = of(where, spawner::op::show_snapshot);
  name.copy(asked.snapshot, spawner::max_snapshot_name);
  ask_for_descriptors(asked, [tell = std::move(tell)](result<std::vector<unique_fd>> opened) {
    opened ? tell(std::move(opened->front())) : tell(opened.reason());
  });
}

void spawner_client::drop_snapshot(const std::string& name,
                                   std::function<void(result<void>)> tell) {
  ask_for_snapshot(plain(spawner::op::drop_snapshot), name,
                   [tell = std::move(tell)](const spawner::notice* said, std::string_view) {
                     const auto failed = snapshot_failure(said);
                     tell(failed ? result<void>{*failed} : result<void>{});
                   });
}

void spawner_client::list_after(const std::string& name, std::vector<std::string> before,
                                std::function<void(result<std::vector<std::string>>)> tell) {
  ask_for_snapshot(plain(spawner::op::list_snapshots), name,
                   [this, before = std::move(before), tell = std::move(tell)](
                     const spawner::notice* said, std::string_view text) mutable {
                     if (const auto failed = snapshot_failure(said))
                       return tell(*failed);
                     for (auto end = text.find('\0'); end != std::string_view::npos;
                          end = text.find('\0')) {
                       before.emplace_back(text.substr(0, end));
                       text.remove_prefix(end + 1);
                     }
                     if ((said->flags & 1) == 0 || before.empty())
                       return tell(std::move(before));
                     const auto last = before.back();
                     list_after(last, std::move(before), std::move(tell));
                   });
}

void spawner_client::list_snapshots(std::function<void(result<std::vector<std::string>>)> tell) {
  list_after({}, {}, std::move(tell));
}

void spawner_client::permit(std::chrono::nanoseconds until) {
  auto wanted = plain(spawner::op::permit);
  wanted.name = static_cast<std::uint64_t>(until.count());
  shared_->socket->send(as_bytes(wanted));
}

void spawner_client::shut_down(std::chrono::milliseconds patience) {
  std::unique_lock hold{shared_->guard};
  shared_->told_to_end = true;
  shared_->socket->send(as_bytes(plain(spawner::op::shut_down)), {}, {}, true);
  shared_->closed.wait_for(hold, patience, [this] { return !shared_->connected; });
}

void spawner_client::let_go() {
  // What is held is not lost for being last. A spawner that reads reads quickly.
  for (int i = 0; i < 100 && !shared_->socket->all_sent(); ++i)
    std::this_thread::sleep_for(10ms);
  shared_->socket->close();
  std::map<std::uint32_t, shared::entry> waiting; // Destroyed after the lock, as the next.
  decltype(shared::want_descriptors) opening;
  decltype(shared::want_snapshots) asked_of_disks;
  decltype(shared::mounting) mounts;
  const std::lock_guard hold{shared_->guard};
  shared_->connected = false;
  shared_->when_lost = nullptr;
  waiting.swap(shared_->slots);
  opening.swap(shared_->want_descriptors);
  asked_of_disks.swap(shared_->want_snapshots);
  mounts.swap(shared_->mounting);
}

void spawner_client::when_lost(std::function<void()> tell) {
  {
    const std::lock_guard hold{shared_->guard};
    if (shared_->connected || shared_->told_to_end || !tell) {
      shared_->when_lost = std::move(tell);
      return;
    }
  }
  tell();
}

bool spawner_client::connected() const {
  const std::lock_guard hold{shared_->guard};
  return shared_->connected;
}

} // namespace insula::runtime
