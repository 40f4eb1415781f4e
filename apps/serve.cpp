#include "apps/serve.hpp"

#include "actors/kept_log.hpp"
#include "actors/node.hpp"
#include "actors/pool_scheduler.hpp"
#include "actors/record_keys.hpp"
#include "actors/sandbox_list.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "apps/blob_snapshot_archive.hpp"
#include "apps/cluster_node.hpp"
#include "apps/find_images.hpp"
#include "apps/image_room.hpp"
#include "apps/image_supply.hpp"
#include "apps/key_files.hpp"
#include "apps/known_authorities.hpp"
#include "apps/named_keys.hpp"
#include "apps/node_figures.hpp"
#include "apps/reload.hpp"
#include "apps/resolvers.hpp"
#include "apps/server_calls.hpp"
#include "apps/server_record.hpp"
#include "base/clock.hpp"
#include "base/inherited_sockets.hpp"
#include "base/io_pool.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"
#include "http/oidc/issuer.hpp"
#include "http/server.hpp"
#include "http/vercel/set_up.hpp"
#include "http/vercel/settings.hpp"
#include "runtime/host_image.hpp"
#include "runtime/kept_logs.hpp"
#include "runtime/native_engine.hpp"
#include "runtime/spawner_client.hpp"
#include "storage/images/authorities.hpp"
#include "storage/images/digest.hpp"
#include "storage/images/image_store.hpp"
#include "storage/local_lease.hpp"
#include "storage/secret.hpp"
#include "storage/sqlite_store.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <grp.h>
#include <iostream>
#include <optional>
#include <poll.h>
#include <pwd.h>
#include <set>
#include <sstream>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace insula {

namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

/// How long a shutdown waits for requests to end, and for sandboxes to be gone.
constexpr auto request_patience = 10s;
constexpr auto accepted_patience = 100ms;
constexpr auto sandbox_patience = 20s;
/// One that cannot be taken over holds up nobody any longer.
constexpr auto patience_with_survivors = 10s;

error failed(const std::string& what) {
  return {errc::io_failed, what + ": " + std::strerror(errno)};
}

struct service_user {
  uid_t uid = 0;
  gid_t gid = 0;
};

result<service_user> find_user(const std::string& name) {
  if (std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    const auto id = static_cast<uid_t>(std::stoul(name));
    return service_user{id, id};
  }
  const passwd* entry = ::getpwnam(name.c_str());
  if (entry == nullptr)
    return error{errc::invalid_request, "state.user: there is no user \"" + name + "\""};
  return service_user{entry->pw_uid, entry->pw_gid};
}

/// Whoever imports an image asks whether a server runs by taking its lock for a moment, which must
/// not keep a server from starting: only a lock that is held for longer is another server's.
bool take_lock(const unique_fd& file) {
  constexpr int tries = 20;
  for (int i = 0; ::flock(file.get(), LOCK_EX | LOCK_NB) != 0; ++i) {
    if (i == tries || (errno != EWOULDBLOCK && errno != EINTR))
      return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

/// The places below the state directory, made and given to whom they belong. One server at a time.
struct state_directory {
  std::string path;
  unique_fd lock;
  unique_fd records; ///< The service user's; opened while its parents can still be searched.
  unique_fd logs;

  static result<state_directory> prepare(const std::string& wanted, const service_user& owner);
};

result<state_directory> state_directory::prepare(const std::string& wanted,
                                                 const service_user& owner) {
  state_directory state;
  std::error_code refused;
  fs::create_directories(wanted, refused);
  state.path = fs::canonical(wanted, refused).string();
  if (refused)
    return error{errc::io_failed, "the state directory " + wanted + ": " + refused.message()};
  constexpr std::size_t longest =
    400; // The spawner is told of directories below it in fixed structs.
  if (state.path.size() > longest)
    return error{errc::invalid_request,
                 "the path of the state directory is longer than 400 bytes: " + state.path};
  ::chmod(state.path.c_str(), 0711);
  state.lock.reset(::open((state.path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!state.lock)
    return failed(state.path + "/lock");
  if (!take_lock(state.lock))
    return error{errc::io_failed, "another insula uses the state directory " + state.path};
  const auto pid = std::to_string(::getpid()) + "\n"; // For whoever replaces this server.
  if (::ftruncate(state.lock.get(), 0) != 0 ||
      ::pwrite(state.lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()))
    return failed(state.path + "/lock");
  const auto open_own = [&](const char* name) -> unique_fd {
    const auto path = state.path + "/" + name;
    if ((::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) ||
        ::chown(path.c_str(), owner.uid, owner.gid) != 0)
      return {};
    return unique_fd{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  };
  state.records = open_own("records");
  if (!state.records)
    return failed(state.path + "/records");
  state.logs = open_own("logs");
  if (!state.logs)
    return failed(state.path + "/logs");
  return state;
}

std::string path_of(const unique_fd& directory) {
  return "/proc/self/fd/" + std::to_string(directory.get());
}

/// Files that were made while we were still root.
void give_away(const unique_fd& directory, const service_user& to) {
  const auto path = path_of(directory);
  std::error_code ignored;
  for (const auto& each : fs::directory_iterator{path, ignored})
    if (each.hard_link_count(ignored) == 1 && ::lchown(each.path().c_str(), to.uid, to.gid) != 0)
      log::warning("state.owner",
                   {{"file", each.path().filename().string()}, {"reason", std::strerror(errno)}});
}

/// For good, and in every thread: the C library carries it to all of them.
result<void> become(const service_user& user) {
  if (user.uid == 0)
    return {};
  if (::setgroups(0, nullptr) != 0 || ::setresgid(user.gid, user.gid, user.gid) != 0 ||
      ::setresuid(user.uid, user.uid, user.uid) != 0)
    return failed("giving up root");
  return {};
}

/// Every sandbox costs a few descriptors, every connection one.
void raise_open_files() {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  for (const rlim_t wanted : {rlim_t{1'048'576}, rlim_t{262'144}, files.rlim_max}) {
    const rlimit both{wanted, std::max(wanted, files.rlim_max)};
    if (::setrlimit(RLIMIT_NOFILE, &both) == 0)
      return;
  }
}

/// What it says about the file is for the operator, who knows it by another path.
result<std::unique_ptr<storage::sqlite_store>>
open_store(const state_directory& state, const std::string& name, storage::survives what) {
  const auto path = path_of(state.records) + "/" + name;
  auto opened = storage::sqlite_store::open(path, "", what);
  if (opened)
    return opened;
  auto why = opened.reason();
  const auto shown = state.path + "/records/" + name;
  for (auto at = why.message.find(path); at != std::string::npos;
       at = why.message.find(path, at + shown.size()))
    why.message.replace(at, path.size(), shown);
  return why;
}

/// All that run in a sandbox at once share its part of the processors, and may hold a lock of the
/// kernel's meanwhile that its neighbours need (docs/decisions/0054).
unsigned processes_for(unsigned processors) {
  return std::clamp(512 * processors, 1024u, 4096u);
}

runtime::sandbox_limits limits_of(const sandbox_config& from) {
  const auto processors = std::max(1u, std::thread::hardware_concurrency());
  const auto machine = static_cast<double>(processors);
  runtime::sandbox_limits limits;
  limits.memory_bytes = from.memory_bytes;
  limits.disk_bytes = from.disk_bytes;
  limits.shm_bytes = from.shm_bytes;
  limits.log_bytes = from.log_bytes;
  limits.cpu_percent = static_cast<std::uint32_t>(std::lround(std::min(from.cpus, machine) * 100));
  limits.processes = from.processes != 0 ? from.processes : processes_for(processors);
  limits.open_files = from.open_files;
  return limits;
}

const char* name_of(disk_backend backend) {
  switch (backend) {
    case disk_backend::automatic: return "auto";
    case disk_backend::btrfs: return "btrfs";
    case disk_backend::tmpfs: return "tmpfs";
  }
  return "auto";
}

std::string url_of(const config& values, std::uint16_t port) {
  const auto& address = values.server.listen.address;
  const bool six = address.find(':') != std::string::npos;
  return (values.server.tls_certificate.empty() ? "http://" : "https://") +
         (six ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

/// Where what outlives a node is kept, and who may write there.
struct kept_records {
  std::unique_ptr<storage::sqlite_store> disk; ///< On a lone node.
  std::unique_ptr<storage::local_lease> local;
  storage::store* store = nullptr;
  storage::lease_service* leases = nullptr;
  const storage::store_figures* figures = nullptr; ///< None in a cluster.
};

result<kept_records> open_records(const state_directory& state, cluster_node* cluster) {
  kept_records records;
  if (cluster != nullptr) {
    records.store = &cluster->records();
    records.leases = &cluster->records();
    return records;
  }
  auto disk = open_store(state, "insula.db", storage::survives::power_cut);
  if (!disk)
    return disk.reason();
  auto leases = storage::local_lease::open(**disk);
  if (!leases)
    return leases.reason();
  records.disk = std::move(*disk);
  records.local = std::move(*leases);
  records.store = records.disk.get();
  records.leases = records.local.get();
  records.figures = &records.disk->figures();
  return records;
}

/// What this node had in its cluster may be another's by now: nothing of that goes on here.
void forget_earlier_life(const state_directory& state, runtime::engine& engine) {
  for (const auto& name : engine.survivors()) {
    log::warning("sandbox.left", {{"id", name}});
    engine.disown(name, [] {});
  }
  std::error_code ignored;
  for (const auto* name : {"/node.db", "/node.db-wal", "/node.db-shm"})
    fs::remove(path_of(state.records) + name, ignored);
}

/// Records of an earlier version come to be in the list. A node that has just joined has nothing of
/// its own, and so keeps none of those that it owns for this.
void list_older_records(const kept_records& records, const actors::group_rule& groups,
                        cluster_node* cluster) {
  const bool gives_up = cluster != nullptr && !cluster->resumed();
  const auto found = cluster != nullptr ? actors::found_records::older : actors::found_records::all;
  actors::tell(actors::list_older_records(
    *records.store, *records.leases, found, groups, [&](const std::string& id) {
      if (gives_up)
        cluster->records().give_up(id, [](const result<void>&) {});
    }));
}

/// Several nodes may make it at the same time; the first one's is everybody's.
result<std::string> common_secret(storage::store& where, std::string_view name) {
  auto secret = storage::kept_secret(where, name);
  if (!secret && secret.reason().code == errc::stale_epoch)
    secret = storage::kept_secret(where, name);
  return secret;
}

void say_ready(const config& values, std::uint16_t port) {
  const auto url = url_of(values, port);
  std::cout << "insula is ready on " << url << '\n'
            << "Try:  curl -sN " << url << "/v1/sandbox/hello/exec";
  if (!values.server.api_key.empty())
    std::cout << " -H \"Authorization: Bearer $SANDBOX_API_KEY\"";
  std::cout << " -d '{\"argv\":[\"sh\",\"-c\",\"echo hello from $(hostname)\"]}'" << std::endl;
}

/// The numbers in a variable that is for this process alone, which have to close on exec from now
/// on.
std::vector<int> take_descriptors(const char* variable) {
  std::vector<int> found;
  const char* text = ::getenv(variable);
  for (std::istringstream words{text == nullptr ? "" : text}; words;)
    if (int fd = -1; words >> fd && fd > 2 && ::fcntl(fd, F_SETFD, FD_CLOEXEC) == 0)
      found.push_back(fd);
  ::unsetenv(variable);
  return found;
}

std::set<std::uint16_t> definite_ports(const config& values) {
  std::set<std::uint16_t> ports{values.server.listen.port};
  for (const auto& each : {values.server.metrics_listen, values.server.execd_listen})
    if (each)
      ports.insert(each->port);
  if (!values.cluster.self.empty()) {
    const auto& mine = values.cluster.nodes.at(values.cluster.self);
    ports.insert({mine.internal.port, mine.link.port});
  }
  ports.erase(0);
  return ports;
}

/// The signals that end a node are taken by wait_for_end() and by nobody else.
sigset_t block_signals() {
  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int number : {SIGINT, SIGTERM, SIGHUP})
    ::sigaddset(&taken, number);
  ::pthread_sigmask(SIG_BLOCK, &taken, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return taken;
}

/// Until a signal comes that ends a node: which one. 0: the spawner has ended, as `alone` says by
/// being readable. Where both are so, it is the signal that has ended the spawner too. SIGHUP, also
/// of a terminal that is closed, ends nothing, and `on_hangup` is called, with descriptors of which
/// one is readable when the node is to end.
int wait_for_end(const sigset_t& signals, const unique_fd& alone,
                 const std::function<void(std::vector<int>)>& on_hangup) {
  const unique_fd came{::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK)};
  sigset_t ending = signals;
  ::sigdelset(&ending, SIGHUP);
  const unique_fd ends{::signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK)}; // It is never read.
  while (true) {
    std::array<pollfd, 2> both{{{came.get(), POLLIN, 0}, {alone.get(), POLLIN, 0}}};
    ::poll(both.data(), both.size(), -1);
    signalfd_siginfo said{};
    if (::read(came.get(), &said, sizeof said) == static_cast<ssize_t>(sizeof said)) {
      if (said.ssi_signo != SIGHUP)
        return static_cast<int>(said.ssi_signo);
      on_hangup({ends.get(), alone.get()});
      continue;
    }
    if (both[1].revents != 0)
      return 0;
  }
}

/// What begins the names of all that belongs to one store of records.
std::string space_of(const std::string& secret) {
  return storage::images::digest_of("snapshots " + secret).substr(sizeof "sha256:" - 1, 16);
}

/// Where disks are copied, sandboxes of the node's own need some slots.
unsigned instance_ceiling(const config& values) {
  const auto wanted = values.sandbox.max_instances;
  if (values.snapshots.directory.empty() && values.snapshots.endpoint.empty())
    return wanted;
  constexpr unsigned own = limits::own_sandboxes;
  const auto left = values.runtime.slots > own ? values.runtime.slots - own : 1;
  if (wanted > left)
    log::warning("node.fewer_instances",
                 {{"max_instances", left},
                  {"reason", "of runtime.slots " + std::to_string(own) +
                               " are for what copies disks to the place of snapshots"}});
  return std::min(wanted, left);
}

/// The last snapshots, of those whose files are to outlive this end. Another signal cuts it short.
void keep_files(const actors::node& node, const sigset_t& signals) {
  auto kept = node.keep_files();
  const auto until = std::chrono::steady_clock::now() + limits::last_snapshots_patience;
  constexpr timespec pause{0, 20'000'000};
  while (kept.wait_for(0s) != std::future_status::ready) {
    const int number = ::sigtimedwait(&signals, nullptr, &pause);
    if (std::chrono::steady_clock::now() > until || (number > 0 && number != SIGHUP))
      return log::error("node.files_not_kept", {{"reason", "there was no more time for that"}});
  }
  if (const auto failed = kept.get(); failed > 0)
    log::error("node.files_not_kept", {{"sandboxes", failed}});
}

/// In a cluster, where any node may start the sandbox next.
result<std::vector<std::string>> users_in(storage::store& records, const std::string& name,
                                          const actors::sandbox_image& is) {
  if (is.digest.empty() || is.reference.empty())
    return error{errc::limit_reached, "the image " + name +
                                        " is from no registry, and sandboxes of other nodes may "
                                        "need it; insula image rm removes it"};
  const auto all = records.find(actors::image_source_key);
  if (!all)
    return all.reason();
  std::vector<std::string> users;
  for (const auto& each : *all)
    if (each.key == actors::image_source_key && each.value.ends_with("@" + is.digest))
      users.push_back(each.owner);
  return users;
}

image_supply::settings supply_of(const config& values, const state_directory& state,
                                 cluster_node* cluster, bool may_sweep) {
  image_supply::settings how{values.images,
                             values.image.default_name,
                             values.sandbox.env,
                             values.runtimes,
                             {values.image.available.begin(), values.image.available.end()},
                             may_sweep};
  how.pinned.insert({values.image.default_name, "host"});
  for (const auto& [runtime, image] : values.runtimes)
    how.pinned.insert(image.empty() ? runtime : image);
  if (cluster != nullptr) {
    how.users = [records = &cluster->records()](const std::string& name,
                                                const actors::sandbox_image& is) {
      return users_in(*records, name, is);
    };
    return how;
  }
  auto finder = storage::owner_finder::open(path_of(state.records) + "/insula.db");
  if (finder)
    how.users = [records = std::make_shared<storage::owner_finder>(std::move(*finder))](
                  const std::string& name,
                  const actors::sandbox_image&) -> result<std::vector<std::string>> {
      auto users = records->find(actors::image_key, name);
      return !users || !users->empty() ? users : records->find(actors::image_asked_key, name);
    };
  else
    log::warning("images.not_removed", {{"reason", finder.reason().message}});
  return how;
}

result<void> run(const config& values, const config_origin& from) {
  if (::geteuid() != 0)
    return {{errc::invalid_request,
             "insula serve needs root to make sandboxes; it gives root up once it has started"}};
  const auto signals = block_signals();
  const auto inherited = order_inherited(take_descriptors(listen_variable), definite_ports(values));
  const auto told = take_descriptors(ready_variable);
  raise_open_files();
  ::umask(022);

  const auto user = find_user(values.state.user);
  if (!user)
    return user.reason();
  auto state = state_directory::prepare(values.state.directory, *user);
  if (!state)
    return state.reason();
  const system_clock time;
  auto opened = key_files::open(values, time.unix_ms() / 1000);
  if (!opened)
    return opened.reason();
  // What seals secrets of sandboxes, and what signs tokens about them, for as long as this runs.
  const auto secrets = std::make_shared<const secret_box>(std::move(opened->secrets));
  const auto issuer =
    std::make_shared<http::oidc::issuer>(issuer_of(values), std::move(opened->oidc), time);
  log::info("node.keys", {{"sealing", secrets->key_id()}, {"issuer", issuer->settings().name}});
  auto trusted = trusted_authorities(values);
  if (!trusted)
    return trusted.reason();
  auto known = known_authorities(values, *trusted);
  if (!known)
    return known.reason();
  auto images = find_images(state->path, values, *trusted);
  if (!images)
    return images.reason();
  runtime::spawner_options spawning{state->path, runtime::node_key(state->path),
                                    name_of(values.runtime.backend), values.runtime.pool_bytes,
                                    values.node.memory_reserve};
  auto spawner = runtime::connect_to_spawner(spawning);
  if (!spawner)
    return spawner.reason();
  if (!spawner->layers_over_images && !values.sandbox.ca_file.empty()) {
    // Variables that name a file which is not there would have programs refuse every certificate.
    log::warning("spawner.ca_file_unused",
                 {{"reason", "the sandboxes of an earlier version keep its spawner, which does not "
                             "know of sandbox.ca_file"}});
    *trusted = {};
    images = find_images(state->path, values, *trusted);
    if (!images)
      return images.reason();
  }
  if (spawner->gaining_rights && !spawner->lists_of_packages && values.sandbox.allow_sudo)
    log::warning("spawner.no_package_lists",
                 {{"reason", "the sandboxes of an earlier version keep its spawner, which does not "
                             "know of dpkg's lists"},
                  {"consequence", "in new sandboxes with sudo dpkg knows no files of packages of "
                                  "this machine's image"}});
  std::set<std::string> roots;
  for (const auto& [name, image] : *images)
    roots.insert(state->path + "/images/" + image.layers.tree + "/root");
  // What an earlier server has left may stand on images that nobody names any more.
  const auto survivors = spawner->survivors.size();
  const bool first = survivors == 0;
  if (first) {
    storage::images::image_store{state->path}.sweep(roots);
    runtime::remove_old_host_images(state->path + "/images/host");
    storage::images::remove_old_layers(state->path + "/images");
  }
  // Before there is a second thread, and after the spawner has moved this process to another
  // cgroup.
  auto again = reloader::prepare(values, from, user->uid, user->gid);
  if (!again)
    return again.reason();
  auto room =
    image_room::prepare({state->path, std::move(*trusted), values.images, values.log_level});
  if (!room)
    return room.reason();
  // Before there is a second thread, since this is each thread's own. The spawner, which needs its
  // privileges, runs.
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return failed("giving up new privileges");
  storage::key_places key_places{[] {
    using namespace std::chrono;
    return std::int64_t{
      duration_cast<microseconds>(std::chrono::system_clock::now().time_since_epoch()).count()};
  }};
  key_places.set_ceilings(ceilings_of(values));
  io_pool pool{values.server.threads};
  io_pool pipes{1}; // Beside them: output goes to files, and a disk can make that wait.
  runtime::native_options engines{spawning.key,
                                  path_of(state->logs),
                                  values.runtime.first_slot,
                                  values.runtime.slots,
                                  values.network.resolvers.empty() ? machines_resolvers()
                                                                   : values.network.resolvers,
                                  values.network.allow_private,
                                  values.node.memory_reserve};
  engines.seccomp_filters = values.sandbox.seccomp_filters;
  engines.secrets = secrets;
  engines.sign = http::oidc::issuer::signer(issuer);
  engines.trusted = std::move(*known);
  runtime::native_engine engine{pipes, std::move(engines), std::move(*spawner)};
  // Not the callback's own: it may come when all else here has gone.
  const auto alone = std::make_shared<unique_fd>(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!*alone)
    return failed("eventfd");
  if (const auto full = engine.refuses_more())
    log::warning(
      "node.no_room",
      {{"reason", full->message},
       {"consequence", "no sandbox starts until more than node.memory_reserve is free"}});
  engine.when_alone([alone] { ::eventfd_write(alone->get(), 1); });
  // Whatever stops this start: the spawner does not stay behind without a server, unless it has
  // what the next one will want to adopt.
  bool leave_sandboxes = !first;
  const auto end_sandboxes = [&] {
    if (!leave_sandboxes)
      engine.shut_down(sandbox_patience);
  };
  struct at_end {
    std::function<void()> what;
    ~at_end() { what(); }
  } const ending{end_sandboxes};

  std::unique_ptr<cluster_node> cluster;
  if (!values.cluster.self.empty()) {
    auto joined = cluster_node::join(values.cluster, path_of(state->records));
    if (!joined)
      return joined.reason();
    cluster = std::move(*joined);
    if (!cluster->resumed())
      forget_earlier_life(*state, engine);
    cluster->set_engine(engine); // Its permission is for what is still there.
    key_places.share(&cluster->key_ledger());
  }
  const at_end without_ledger{[&] { key_places.share(nullptr); }};
  auto records = open_records(*state, cluster.get());
  if (!records)
    return records.reason();
  auto local = open_store(*state, "node.db", storage::survives::process_end);
  if (!local)
    return local.reason();
  give_away(state->records, *user);
  auto secret = common_secret(*records->store, "ids");
  if (!secret)
    return secret.reason();
  auto blobs = open_blobs(values.snapshots, user->uid);
  if (!blobs)
    return blobs.reason();
  std::optional<blob_snapshot_archive> snapshots;
  if (*blobs) {
    // Of this store of records alone: who shares the place is not seen.
    const auto space = common_secret(*records->store, "snapshots");
    if (!space)
      return space.reason();
    snapshots.emplace(std::move(*blobs), space_of(*space), *records->store, time);
  }

  const auto catalogue = std::make_shared<actors::image_catalogue>(std::move(*images));
  image_supply supply{std::move(*room), catalogue, supply_of(values, *state, cluster.get(), first)};

  // It outlives the actors, which read what is kept.
  runtime::kept_logs kept_logs{path_of(state->logs),
                               {values.sandbox.kept_log_bytes, values.node.kept_log_bytes}};
  kept_logs.take_over(
    [&store = **local](const std::string& id) -> std::optional<std::set<std::string>> {
      auto keys = actors::keys_of_logs(store, id);
      return keys ? std::optional{std::move(*keys)} : std::nullopt;
    });

  caf::actor_system_config settings;
  actors::run_actors_on(pool, settings);
  if (cluster)
    actors::cluster::load_links(settings);
  caf::actor_system system{settings};

  actors::sandbox_options options;
  options.engine = &engine;
  options.leases = records->leases;
  options.time = &time;
  const auto most_instances = instance_ceiling(values);
  options.instances = std::make_shared<actors::instance_count>(most_instances);
  options.key_places = &key_places;
  options.served_since_ms = system_clock{}.unix_ms();
  options.survivors_until = time.now() + patience_with_survivors;
  const auto instances = options.instances;
  if (cluster) {
    options.ours = [of = cluster.get()](const std::string& id) { return of->is_here(id); };
    options.tenure = [of = cluster.get()](const std::string& id) { return of->tenure(id); };
    options.routes = cluster.get();
    options.was_alone = ::access((path_of(state->records) + "/insula.db").c_str(), F_OK) == 0;
  }
  options.image_name = values.image.default_name;
  options.images = catalogue;
  options.supply = &supply;
  options.limits = limits_of(values.sandbox);
  options.profile.env = {{"HOME", "/home/sandbox"}, {"LANG", "C.UTF-8"},
                         {"LOGNAME", "sandbox"},    {"PATH", std::string{default_path}},
                         {"SHELL", "/bin/bash"},    {"USER", "sandbox"}};
  options.profile.gains = values.sandbox.gains;
  options.allow_sudo = values.sandbox.allow_sudo;
  options.ladder = {values.sandbox.freeze_after, values.sandbox.stop_after};
  options.buckets = values.buckets;
  options.buckets.allowed_private = values.network.allow_private;
  options.files = snapshots ? &*snapshots : nullptr;
  if (snapshots) {
    actors::snapshots::disk_copies::cache_settings cache{{}, values.snapshots.cache_bytes};
    if (cluster)
      cache.owns = [of = cluster.get()](const std::string& id) {
        return of->is_here(actors::snapshots::owner_of_snapshot(id));
      };
    options.copies =
      std::make_shared<actors::snapshots::disk_copies>(engine, *snapshots, std::move(cache));
  }
  options.acknowledges_copies = values.snapshots.acknowledges_copies;
  options.keeps_disks = snapshots || (!cluster && engine.keeps_snapshots());
  if (values.snapshots.all && !options.keeps_disks)
    return error{errc::invalid_request,
                 "snapshots.all: the disks of this node's sandboxes are in memory: expected "
                 "snapshots.directory or snapshots.endpoint"};
  const bool keeps_disks = options.keeps_disks;
  options.disk_helpers = std::make_shared<actors::snapshots::disk_helpers>(engine);
  options.logs = &kept_logs;
  options.keep_interval = values.snapshots.interval;
  options.all_persistent = values.snapshots.all;
  options.network =
    values.network.allow_all ? egress_policy::allow_all() : egress_policy::deny_all();
  options.groups = http::vercel::group_of;
  options.captions = http::vercel::caption_of;
  options.claims = http::vercel::claims_of;
  options.authority_always = values.network.ca_always;
  options.run_disks = http::vercel::retention_in;
  options.run_limits = http::vercel::limits_in;
  list_older_records(*records, options.groups, cluster.get());
  const auto counts = options.figures;
  const auto copies = options.copies;
  const auto node_ends = options.node_ends;
  const pool_settings warm{values.pool.target, values.pool.refresh_interval,
                           values.pool.scale_batch_size};
  std::optional<actors::node> node{std::in_place,      system, *records->store, **local,
                                   std::move(options), warm};
  const at_end without_snapshots{[&] {
    if (snapshots)
      snapshots->end(); // Before the actors that it answers.
    if (copies)
      copies->end(); // The cluster goes before the engine, which may answer later.
  }};
  // Before its actors end, which would end what they have taken over.
  const at_end handing_over{[&] {
    if (node && leave_sandboxes)
      engine.hand_over();
  }};

  // Also before its actors end: then nothing of them is asked for any more.
  bool has_left = false;
  const auto leave_cluster = [&](bool for_good) {
    if (cluster && !std::exchange(has_left, true))
      cluster->leave(for_good);
  };
  const at_end leaving_cluster{[&] {
    if (cluster)
      cluster->forget_node();
    leave_cluster(!leave_sandboxes);
    if (cluster)
      cluster->end_links();
  }};
  if (cluster) {
    cluster->set_node(*node, instances, static_cast<std::uint32_t>(warm.target));
    cluster->on_failures([&engine] { return engine.failed_launches(); });
    cluster->set_images(catalogue,
                        [&supply](const auto& wanted) { return supply.signs_of(wanted); });
    if (auto ok = cluster->start_links(system, pool, values.cluster, inherited); !ok)
      return ok;
  }

  http::server_options serving;
  serving.address = values.server.listen.address;
  serving.port = values.server.listen.port;
  serving.api_key = values.server.api_key;
  serving.named_keys = named_keys_of(values);
  serving.allowed_hosts = values.server.allowed_hosts;
  serving.max_connections = values.server.max_connections;
  serving.inherited = inherited;
  serving.default_session = values.default_session;
  serving.projects = values.vercel.projects;
  serving.drive_bytes = values.vercel.drive_bytes;
  serving.any_image = values.image.replaces_unknown;
  serving.preview_domain = values.preview.domain;
  serving.previews_public = values.preview.is_public;
  serving.secret = std::move(*secret);
  serving.spool_directory = path_of(state->logs);
  if (!values.server.tls_certificate.empty())
    serving.tls = http::tls_files{values.server.tls_certificate, values.server.tls_key};
  if (const auto& where = values.server.metrics_listen)
    serving.metrics = {where->address, where->port, !is_loopback(*where)};
  if (const auto& where = values.server.execd_listen)
    serving.execd = {where->address, where->port};
  node_description described;
  described.version = INSULA_VERSION;
  described.cgroups = runtime::cgroup_tree::of_this_process("").mode();
  described.image = values.image.default_name;
  described.max_instances = most_instances;
  described.slots = values.runtime.slots;
  if (cluster) {
    const auto& mine = values.cluster.nodes.at(values.cluster.self);
    serving.cluster = {{std::shared_ptr<void>{}, cluster.get()}, // It outlives the server.
                       {values.cluster.certificate, values.cluster.key, values.cluster.authority},
                       mine.internal.address,
                       mine.internal.port,
                       cluster.get()};
  }
  serving.pool = node->pool();
  serving.images = &supply;
  serving.keeps_snapshots = keeps_disks;
  serving.issuer = issuer;
  serving.secrets = secrets;
  serving.more_figures = [described, counts, &snapshots, &supply, &key_places,
                          store = records->figures, &engine,
                          of = cluster.get()](metrics::text& into) {
    write_build_info(into, described);
    counts->write(into);
    if (store != nullptr)
      store->write(into);
    if (snapshots)
      snapshots->write(into);
    write_image_figures(into, supply.read_figures());
    write_key_figures(into, key_places.counts());
    if (const auto totals = engine.total_network())
      write_network_totals(into, *totals);
    write_process_figures(into);
    if (of != nullptr)
      into.single("insula_etcd_questions_total", metrics::kind::counter, "Questions to etcd.",
                  of->questions());
  };
  http::server server{pool, system, std::move(serving), node->directory(),
                      [&engine] { return engine.ailments(); }};
  if (auto ok = server.start(); !ok)
    return ok;
  if (cluster)
    cluster->on_peer_lost(
      [&server](const std::string& name, bool for_good) { server.break_off(name, for_good); });
  const at_end without_server{[&] {
    if (cluster)
      cluster->on_peer_lost(nullptr);
  }};
  const auto record = publish_server_record(state->path);
  if (!record)
    return record.reason();
  if (::getenv(every_call_variable) != nullptr)
    log::warning("node.every_call", {{"variable", every_call_variable}});
  else if (auto ok = allow_only_server_calls(); !ok)
    return ok;
  if (auto ok = become(*user); !ok)
    return ok;
  // After that, which would change it: no image of memory that has had secrets in it is written.
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  log::info("node.ready", {{"state", state->path}, {"cgroups", described.cgroups}});
  say_ready(values, server.port());
  const auto word = "ready " + std::to_string(survivors) + "\n";
  for (const int fd : told) {
    [[maybe_unused]] const auto said = ::write(fd, word.data(), word.size());
    ::close(fd);
  }
  for (const int fd : inherited)
    ::close(fd);

  // Where nothing has to be kept, the end waits for nobody. A cluster's store does not find that.
  const auto may_have_persistent = [&] {
    if (cluster)
      return true;
    const auto marks = records->store->find(actors::persistent_key);
    const auto members = records->store->count(actors::group_lists); // Their runs leave disks.
    return values.snapshots.all || !marks || !marks->empty() || !members || *members > 0;
  };
  const int number = wait_for_end(signals, *alone, [&](std::vector<int> ends) {
    again->reload({server, key_places, *issuer}, std::move(ends));
  });
  const bool is_alone = number == 0;
  if (is_alone) {
    // A new spawner needs root, which this process has given up. With it have gone all sandboxes.
    log::error("node.spawner_gone", {{"consequence", "this server ends, to be started again"}});
    if (cluster)
      cluster->take_no_more();
  } else {
    log::info("node.stopping", {{"signal", ::strsignal(number)}});
  }
  // First: then the streams that are open can say that it is over.
  leave_sandboxes = number == SIGTERM;
  if (leave_sandboxes) {
    // Whose connection was taken just now gets its answer here; later ones wait for the next
    // server.
    server.stop_accepting();
    std::this_thread::sleep_for(accepted_patience);
    engine.hand_over();
  } else if (!is_alone && keeps_disks && may_have_persistent()) {
    server.stop_accepting();
    keep_files(*node, signals);
  }
  *node_ends = !is_alone;
  end_sandboxes();
  const bool for_good = !std::exchange(leave_sandboxes, true);
  if (cluster)
    cluster->forget_node();
  if (snapshots)
    snapshots->end(); // What it has of sandboxes goes before their engine.
  supply.end();
  node.reset();
  leave_cluster(for_good);
  server.stop(request_patience);
  if (is_alone)
    return {{errc::launch_failed, "the spawner has ended, and all sandboxes with it. A server that "
                                  "is started again has a new one"}};
  return {};
}

} // namespace

int serve(const config& values, const config_origin& from) {
  log::set_level(values.log_level);
  if (::getenv(check_variable) != nullptr) {
    const auto ok =
      values.cluster.self.empty() ? result<void>{} : cluster_node::check(values.cluster);
    if (!ok)
      std::cerr << "insula: " << ok.reason().message << '\n';
    return ok ? 0 : 1;
  }
  warn_of(values);
  if (const auto ok = run(values, from); !ok) {
    std::cerr << "insula: " << ok.reason().message << '\n';
    return 1;
  }
  log::info("node.stopped");
  return 0;
}

} // namespace insula
