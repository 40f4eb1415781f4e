#include "runtime/spawner/spawner.hpp"

#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "runtime/cgroup.hpp"
#include "runtime/epoch_fence.hpp"
#include "runtime/program_file.hpp"
#include "runtime/spawner/brokers.hpp"
#include "runtime/spawner/bucket_mounts.hpp"
#include "runtime/spawner/claim.hpp"
#include "runtime/spawner/create_queue.hpp"
#include "runtime/spawner/disk.hpp"
#include "runtime/spawner/disk_jobs.hpp"
#include "runtime/spawner/drive_mounts.hpp"
#include "runtime/spawner/filter_ceilings.hpp"
#include "runtime/spawner/gateway_link.hpp"
#include "runtime/spawner/hidden_files.hpp"
#include "runtime/spawner/inner_sockets.hpp"
#include "runtime/spawner/launch.hpp"
#include "runtime/spawner/layers.hpp"
#include "runtime/spawner/machine_ceilings.hpp"
#include "runtime/spawner/memory_shares.hpp"
#include "runtime/spawner/memory_watch.hpp"
#include "runtime/spawner/own_places.hpp"
#include "runtime/spawner/package_lists.hpp"
#include "runtime/spawner/past_epochs.hpp"
#include "runtime/spawner/permission.hpp"
#include "runtime/spawner/protocol.hpp"
#include "runtime/spawner/request_check.hpp"
#include "runtime/spawner/seccomp_filter.hpp"
#include "runtime/spawner/sudo_layer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <iterator>
#include <linux/openat2.h>
#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <sched.h>
#include <span>
#include <sys/epoll.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

// The agent's program, linked in.
extern "C" const unsigned char insula_agent_begin[], insula_agent_end[];

namespace insula::runtime::spawner {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t max_held_per_slot = 8192;

/// Copies of disks that are made at the same moment share a commit of the file system, which is
/// what takes their time. Those that write much keep others waiting, and are fewer.
constexpr std::size_t flushes_at_once = 4, commits_at_once = 16;

/// For a server that does not read: in one turn of the loop, all that is said to it together. Then
/// it is told nothing any more.
constexpr std::chrono::nanoseconds send_patience = 5s;

/// What a server wants kept beyond its own end.
struct held_things {
  std::vector<unique_fd> fds;
  std::shared_ptr<void> counted; ///< For as long as they are held.
  std::string label;
};

/// One sandbox, from its making to the removal of its last trace.
struct tenant {
  pid_t pid = -1; ///< -1: reaped.
  unique_fd process;
  unique_fd control; ///< A copy: whoever serves next is given it.
  limits ceilings{};
  unique_fd freezer; ///< The same. Nothing: this machine has none.
  bool asked_to_end = false;
  bool claimed = false;
  int status = 0;
  launch_step failed = launch_step::none; ///< It never came to life, for this reason.
  int error = 0;
  std::uint64_t id = 0;  ///< Of no other one ever.
  std::string ended_for; ///< Why it was ended without the server's word; empty: it was not.
  std::string tag;
  epoch_fence fence;
  std::map<std::uint64_t, held_things> held;
  std::shared_ptr<const package_lists> lists; ///< That are below it. None: it has none.
};

memory_rules rules_of(const options& given) {
  const auto machine = machine_meter{}.read();
  memory_rules rules;
  rules.reserve =
    given.memory_reserve > 0 ? given.memory_reserve : usual_reserve(machine ? machine->all : 0);
  if (given.most_uncharged > 0)
    rules.most_held = given.most_uncharged;
  return rules;
}

class spawner {
public:
  spawner(const options& given, cgroup_tree cgroups)
      : given_(given)
      , cgroups_(std::move(cgroups))
      , gateway_(given.state_directory)
      , brokers_(cgroups_, gateway_, given.state_directory)
      , mounts_(
          cgroups_, gateway_, [this](const bucket_mounts::outcome& how) { tell_of_mount(how); },
          [this](int fd) { watch(fd); })
      , drives_(
          [this](const drive_mounts::outcome& how) {
            tell_of_mount({event::mounted, how.slot, how.name, how.error, how.failed});
          },
          [this](int fd) { watch(fd); })
      , permission_(cgroups_)
      , memory_(cgroups_, rules_of(given)) {}

  result<void> prepare();
  int serve();
  void leave();

private:
  void accept_server();
  void drop_server();
  enum class received { request, nothing, end };
  received receive();
  void handle(const request& wanted, std::string_view text, std::vector<unique_fd> fds);
  void tell_all();
  bool admits(const request& wanted);
  std::uint64_t newest_epoch(const std::string& tag) const;
  void refuse(const request& wanted, int error, launch_step step, mount_step of_mount);
  void refuse_late(const request& wanted);
  void hold(const request& wanted, std::string_view label, std::vector<unique_fd> fds);
  bool nobody_left() const { return had_server_ && !server_ && tenants_.empty() && forks_.empty(); }
  bool settle_create(const request& wanted);
  void wait_to_create(const request& wanted);
  at_hand there() const;
  void want_package_lists(const std::string& tree);
  void create(const request& wanted);
  bool create_next();
  void claim(const request& wanted);
  void open_sockets(const request& wanted);
  void mount(const request& wanted, std::string_view text);
  void unmount(const request& wanted);
  void charge_logs(const request& wanted);
  void flush_disk(const request& wanted);
  void take_snapshot(const request& wanted);
  void show_snapshot(const request& wanted);
  void attach_drive(const request& wanted, std::string_view text);
  void expect_use(const std::string& snapshot);
  void drop_snapshot(const request& wanted);
  void list_snapshots(const request& wanted);
  void tell_of_snapshot(event what, const request& wanted, int error, std::string_view text = {},
                        bool more = false);
  void make_disk(const request& wanted);
  void disk_is_made(std::uint32_t slot, result<unique_fd> made);
  void discard_disk(std::uint32_t slot);
  void forget_creates();
  void tell_of_mount(const bucket_mounts::outcome& how);
  const tenant* alive(std::uint32_t slot) const;
  void give_gateway();
  void give_broker(const request& wanted);
  void destroy(std::uint32_t slot);
  void reap();
  void clean_up();
  bool remove_traces(std::uint32_t slot);
  void tell(event what, std::uint32_t slot, int error = 0, launch_step step = launch_step::none,
            std::initializer_list<int> fds = {}, const launch_clock& done = {});
  void send(notice said, std::string_view text, std::span<const int> fds);
  void tell_of_end(std::uint32_t slot, const tenant& whose);
  void end_everything();
  void permit(std::uint64_t until);
  void permission_is_over();
  void end_holders();
  bool let_die();
  void watch(int fd);

  const options& given_;
  cgroup_tree cgroups_;
  launch_tools tools_;
  unique_fd agent_, null_;
  layers layers_;
  hidden_files hidden_;
  sudo_layer sudo_;
  unique_fd spare_; ///< Given up so that a server can be taken when there are no descriptors left.
  std::unique_ptr<disk_pool> disks_;
  disk_jobs flushes_, commits_;          ///< What takes seconds, and what takes milliseconds.
  std::shared_ptr<package_lists> lists_; ///< Of the image for which they were wanted last.
  std::uint64_t lists_made_ = 0;
  own_places places_;
  gateway_link gateway_;
  brokers brokers_;
  bucket_mounts mounts_;
  drive_mounts drives_;
  permission permission_;
  memory_watch memory_;
  std::uint64_t last_id_ = 0;
  bool server_permits_ = false;                 ///< This server has given permission.
  std::size_t held_fds_ = 0, max_held_fds_ = 0; ///< Of all tenants together.
  std::map<std::uint32_t, tenant> tenants_;
  past_epochs past_; ///< Of what has ended under this server; none other can be late.
  std::vector<std::uint32_t> ended_; ///< Reaped, and not yet all gone.
  create_queue to_create_;
  /// A create whose disk is being made of a snapshot.
  struct forked {
    request wanted;
    bool unwanted = false; ///< Its end was asked for meanwhile.
  };
  std::map<std::uint32_t, forked> forks_;
  std::map<std::uint32_t, unique_fd> made_disks_; ///< Of those that wait in to_create_.
  unique_fd poller_, signals_, listener_, server_;
  std::uint64_t servers_ = 0; ///< That have said hello.
  bool had_server_ = false;
  bool greeted_ = false;                     ///< This server has said hello.
  std::chrono::nanoseconds patience_left_{}; ///< Of send_patience, in this turn.
  bool deaf_ = false; ///< The server is told nothing any more: it is gone, or as good as that.
  bool ending_ = false;
};

error failed(const std::string& what) {
  return {errc::launch_failed, what + ": " + std::strerror(errno)};
}

std::string release() {
  utsname machine{};
  ::uname(&machine);
  return machine.release;
}

result<void> spawner::prepare() {
  // Everything below happens in a mount namespace of our own; it goes when we go, whatever ends us.
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return failed("making a mount namespace");
  if (!layers_.open(given_.state_directory))
    return failed(layers_.failed_at());
  if (auto ok = cgroups_.prepare(); !ok)
    return ok;
  if (!cgroups_.can_freeze())
    log::warning("spawner.no_freezer",
                 {{"consequence", "idle sandboxes are not frozen; they are only stopped"}});

  if (cgroups_.mode() != "v2")
    log::warning(
      "spawner.cgroup_v1",
      {{"mode", cgroups_.mode()},
       {"consequence", "buffers of sockets are limited beside a sandbox's memory, not as "
                       "a part of it"}});

  struct statvfs room {};
  if (::statvfs(given_.state_directory.c_str(), &room) != 0)
    return failed(given_.state_directory);
  auto bytes = given_.pool_bytes;
  if (bytes == 0)
    bytes =
      std::max<std::uint64_t>(std::uint64_t{room.f_bavail} * room.f_frsize / 5 * 4, 256ull << 20);
  bytes &= ~0xfffffull;
  auto disks = given_.disk == "tmpfs" ? make_tmpfs_pool(given_.state_directory)
                                      : make_btrfs_pool(given_.state_directory, bytes);
  if (!disks && given_.disk == "auto") {
    log::warning("spawner.no_btrfs", {{"reason", disks.reason().message}, {"instead", "tmpfs"}});
    disks = make_tmpfs_pool(given_.state_directory);
  }
  if (!disks)
    return disks.reason();
  disks_ = std::move(*disks);

  const auto disk = given_.state_directory + "/disk";
  const unique_fd disk_directory{::open(disk.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  for (const auto& [what, where] : {std::pair{layers_.images(), given_.state_directory + "/images"},
                                    std::pair{layers_.machines_usr(), std::string{"/usr"}},
                                    std::pair{disk_directory.get(), disk}})
    if (const int why = try_mapped_copy(what); why != 0)
      return {
        {errc::launch_failed,
         where + (why == EINVAL ? ": Linux " + release() +
                                    " cannot map the ids of this kind of file system, which "
                                    "sandboxes need (a tmpfs: from Linux 6.3 on; an overlay: never)"
                                : ": mapping its ids: " + std::string{std::strerror(why)})}};

  const auto scratch = given_.state_directory + "/scratch";
  if ((::mkdir(scratch.c_str(), 0700) != 0 && errno != EEXIST) ||
      ::mount("insula", scratch.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64k") != 0 ||
      ::chdir(scratch.c_str()) != 0)
    return failed(scratch);
  for (const char* each :
       {"root", "l0", "o", "p", "l1", "h", "s", "d", "dev", "proc", "sys", "sysfs"})
    if (::mkdir(each, 0755) != 0)
      return failed(scratch);

  agent_ = program_file("insula-agent", insula_agent_begin, insula_agent_end);
  null_.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
  tools_.filter = compile_seccomp_filter(true);
  tools_.without_filters = compile_seccomp_filter(false);
  auto of_mounts = compile_seccomp_filter(false, filter_for::mount);
  if (!agent_ || !null_)
    return failed("loading the agent");
  if (tools_.filter.empty() || tools_.without_filters.empty() || of_mounts.empty())
    return {{errc::launch_failed, "libseccomp could not make the system call filter"}};
  mounts_.use(std::move(of_mounts));
  tools_.agent = agent_.get();
  tools_.controllers = list_of_controllers();
  tools_.machines_usr = layers_.machines_usr();

  raise_ceilings_of_machine();
  raise_ceiling_of_filters();
  narrow_filters_of_processes(tools_.filter); // Before the first of the other threads.
  hidden_.look(layers_.machines_usr());
  // What sandboxes may have open is handed down from here.
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  for (const rlim_t wanted : {rlim_t{1'048'576}, rlim_t{262'144}, files.rlim_max}) {
    const rlimit both{wanted, wanted};
    if (::setrlimit(RLIMIT_NOFILE, &both) == 0)
      break;
  }
  // The rest is for what is made here, whatever a server wants kept.
  ::getrlimit(RLIMIT_NOFILE, &files);
  max_held_fds_ = static_cast<std::size_t>(files.rlim_cur) / 4 * 3;
  if (!gateway_.start())
    return failed("starting the egress gateway");

  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP})
    ::sigaddset(&taken, number);
  ::sigprocmask(SIG_BLOCK, &taken, nullptr);
  signals_.reset(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  poller_.reset(::epoll_create1(EPOLL_CLOEXEC));

  // The path may be longer than a socket's address; the directory's descriptor makes it short.
  const unique_fd directory{
    ::open(given_.state_directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/spawner.sock",
                directory.get());
  ::unlink(address.sun_path);
  listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto old_mask = ::umask(0177);
  const bool bound =
    listener_ &&
    ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
    ::listen(listener_.get(), 4) == 0;
  ::umask(old_mask);
  if (!signals_ || !poller_ || !bound)
    return failed("making the spawner's socket");
  watch(signals_.get());
  watch(listener_.get());
  if (!permission_.start())
    return failed("watching over the permission");
  watch(permission_.news());
  if (!memory_.start())
    return failed("watching over the memory");
  watch(memory_.news());
  for (const auto& [each, threads] :
       {std::pair{&flushes_, flushes_at_once}, {&commits_, commits_at_once}}) {
    if (!each->start(threads))
      return failed("a thread for snapshots");
    watch(each->news());
  }
  server_.reset(given_.server);
  had_server_ = static_cast<bool>(server_);
  if (server_)
    watch(server_.get());
  return {};
}

void spawner::watch(int fd) {
  epoll_event wish{};
  wish.events = EPOLLIN;
  wish.data.fd = fd;
  ::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, fd, &wish);
}

/// Of the descriptors those below 0 are none.
void spawner::tell(event what, std::uint32_t slot, int error, launch_step step,
                   std::initializer_list<int> fds, const launch_clock& done) {
  notice said{};
  said.what = what;
  said.slot = slot;
  said.error = error;
  said.step = static_cast<std::uint32_t>(step);
  said.done = done;
  std::array<int, max_held_fds> sent{};
  const auto end =
    std::copy_if(fds.begin(), fds.end(), sent.begin(), [](int fd) { return fd >= 0; });
  send(said, {}, {sent.begin(), end});
}

void spawner::send(notice said, std::string_view text, std::span<const int> fds) {
  if (!server_ || deaf_)
    return;
  said.version = version;
  iovec parts[] = {{&said, sizeof said}, {const_cast<char*>(text.data()), text.size()}};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * max_fds)] = {};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  if (!fds.empty()) {
    message.msg_control = space;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    auto* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
  }
  // A server that reads reads quickly. One that does not, or reads one packet now and then, must
  // not hang us.
  const auto try_once = [&] {
    return ::sendmsg(server_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  };
  auto sent = try_once();
  while (sent < 0 && (errno == EAGAIN || errno == EINTR) && patience_left_ > 0ns) {
    const auto begun = std::chrono::steady_clock::now();
    pollfd room{server_.get(), POLLOUT, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(patience_left_);
    ::poll(&room, 1, static_cast<int>(left.count()));
    patience_left_ -= std::chrono::steady_clock::now() - begun;
    sent = try_once();
  }
  deaf_ = sent != static_cast<ssize_t>(sizeof said + text.size());
}

/// All that a server needs to go on where the one before it has stopped.
void spawner::tell_all() {
  notice said{};
  said.what = event::hello;
  said.flags = layers_over_images | gaining_rights | lists_of_packages | naming_users |
               disk_snapshots | showing_snapshots | attaching_drives | brokering;
  if (disks_ && disks_->keeps_snapshots())
    said.flags |= keeping_snapshots;
  said.name = ++servers_;
  send(said, {}, {});
  give_gateway();
  for (const auto& [slot, each] : tenants_) {
    said = {};
    said.what = event::holds;
    said.slot = slot;
    said.name = each.fence.newest();
    const std::array<int, 2> ways{each.control.get(), each.freezer.get()};
    const bool lives = ways[0] >= 0 && !each.asked_to_end;
    send(said, each.tag, {ways.data(), !lives ? 0u : ways[1] >= 0 ? 2u : 1u});
    if (!lives)
      continue;
    for (const auto& mounted : mounts_.live_of(slot)) {
      said.what = event::mounts;
      said.name = mounted.name;
      said.error = mounted.good ? 0 : ENOTCONN;
      send(said, mounted.path, {});
    }
    said.error = 0;
    for (const auto& [name, things] : each.held) {
      said.what = event::held;
      said.name = name;
      std::array<int, max_held_fds> fds;
      const auto last = std::transform(things.fds.begin(), things.fds.end(), fds.begin(),
                                       [](const auto& fd) { return fd.get(); });
      send(said, things.label, {fds.begin(), last});
    }
  }
  tell(event::all_told, 0);
}

void spawner::give_gateway() {
  if (!server_ || deaf_ || servers_ == 0)
    return;
  if (const auto way = gateway_.serve())
    tell(event::gateway, 0, 0, launch_step::none, {way.get()});
}

void spawner::give_broker(const request& wanted) {
  notice said{};
  said.what = event::broker;
  said.slot = wanted.slot;
  said.name = wanted.name;
  if (wanted.count == 0) {
    brokers_.end(wanted.slot);
    return send(said, {}, {});
  }
  if (alive(wanted.slot) == nullptr) {
    said.error = ESRCH;
    return send(said, {}, {});
  }
  const auto way = brokers_.serve(wanted.slot);
  said.error = way ? 0 : errno;
  if (!way && errno != EAGAIN)
    log::error("broker.not_started", {{"slot", wanted.slot}, {"reason", std::strerror(errno)}});
  const int fd = way.get();
  send(said, {}, {&fd, way ? 1u : 0u});
}

void spawner::accept_server() {
  const auto accepted = [&] {
    return unique_fd{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
  };
  if (!spare_)
    spare_.reset(::fcntl(null_.get(), F_DUPFD_CLOEXEC, 0));
  auto next = accepted();
  if (!next && errno == EMFILE && spare_) { // Else it would wait, and we would look again for ever.
    spare_.reset(); // The server before this one, or a sandbox, gives another.
    next = accepted();
  }
  if (!next)
    return;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(next.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != 0)
    return;
  drop_server();
  server_ = std::move(next);
  server_permits_ = false;
  greeted_ = false;
  past_.clear();
  had_server_ = true;
  mounts_.calm();
  watch(server_.get());
}

/// The sandboxes stay. What the server has sent counts although it hears of nothing any more: it
/// has built on that.
void spawner::drop_server() {
  if (!server_)
    return;
  deaf_ = true;
  ::shutdown(server_.get(), SHUT_RD); // One that goes on sending does not keep us.
  int most = 65'536;
  do
    forget_creates(); // They were for nobody else.
  while (receive() == received::request && --most > 0);
  forget_creates();
  mounts_.forget_askers();
  log::info("spawner.server_gone", {{"sandboxes", tenants_.size()}});
  server_.reset();
  deaf_ = false;
}

spawner::received spawner::receive() {
  std::array<char, sizeof(request) + max_text> packet;
  iovec data{packet.data(), packet.size()};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * 8)];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  ssize_t n = 0;
  do // A server that died without having read all: what it had sent is still there.
    n = ::recvmsg(server_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  if (n <= 0)
    return n < 0 && errno == EAGAIN ? received::nothing : received::end;
  std::vector<unique_fd> fds;
  for (auto* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part))
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
      for (std::size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
        fds.emplace_back(fd);
      }
  const bool whole = (message.msg_flags & MSG_TRUNC) == 0;
  const auto read =
    whole ? read_request({packet.data(), static_cast<std::size_t>(n)}) : std::nullopt;
  // What there is was told to this server at its first hello.
  if (!read || (read->wanted.what == op::hello && std::exchange(greeted_, true))) {
    log::error("spawner.bad_request", {{"bytes", n}});
    return received::end;
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    log::error("spawner.no_descriptors", {{"slot", read->wanted.slot}});
    fds.clear(); // Of some the next server could make nothing.
  }
  handle(read->wanted, read->text, std::move(fds));
  return received::request;
}

/// False: whoever asks does not hold the sandbox any more.
bool spawner::admits(const request& wanted) {
  switch (wanted.what) {
    case op::create:
    case op::claim: { // Not yet of the slot, which may be another's.
      const std::string tag{wanted.tag};
      return tag.empty() || wanted.epoch >= newest_epoch(tag);
    }
    case op::destroy:
    case op::hold:
    case op::release:
    case op::open_sockets:
    case op::mount:
    case op::unmount:
    case op::charge_logs:
    case op::flush_disk:
    case op::take_snapshot:
    case op::show_snapshot:
    case op::attach_drive:
    case op::broker:
    case op::adopt: {
      const auto at = tenants_.find(wanted.slot);
      return at == tenants_.end() || at->second.fence.admits(wanted.epoch);
    }
    case op::drop_snapshot:
    case op::list_snapshots:
    case op::hello:
    case op::shut_down:
    case op::permit: return true; // Of the whole node.
  }
  return true;
}

std::uint64_t spawner::newest_epoch(const std::string& tag) const {
  auto newest = past_.of(tag);
  for (const auto& [slot, each] : tenants_)
    if (each.tag == tag)
      newest = std::max(newest, each.fence.newest());
  return newest;
}

/// Answers in the words of what was asked; mounts have steps of their own.
void spawner::refuse(const request& wanted, int error, launch_step step, mount_step of_mount) {
  const auto tell_asker = [&](event what, auto failed_step) {
    notice said{};
    said.what = what;
    said.slot = wanted.slot;
    said.name = wanted.name;
    said.error = error;
    said.step = static_cast<std::uint32_t>(failed_step);
    send(said, {}, {});
  };
  switch (wanted.what) {
    case op::create: return tell_asker(event::create_failed, step);
    case op::claim: return tell_asker(event::claimed, step);
    case op::destroy: return tell_asker(event::destroyed, step);
    case op::open_sockets: return tell_asker(event::sockets, step);
    case op::mount: return tell_asker(event::mounted, of_mount);
    case op::attach_drive: return tell_asker(event::mounted, of_mount);
    case op::unmount: return tell_asker(event::unmounted, of_mount);
    case op::charge_logs: return tell_asker(event::charged, step);
    case op::flush_disk: return tell_asker(event::disk_flushed, step);
    case op::take_snapshot: return tell_asker(event::snapshot_taken, step);
    case op::show_snapshot: return tell_asker(event::snapshot_shown, step);
    case op::broker: return tell_asker(event::broker, step);
    case op::drop_snapshot: return tell_asker(event::snapshot_dropped, step);
    case op::list_snapshots: return tell_asker(event::snapshots, step);
    default: return; // Nobody waits for an answer.
  }
}

void spawner::refuse_late(const request& wanted) {
  log::warning("spawner.late_request", {{"op", static_cast<std::uint32_t>(wanted.what)},
                                        {"slot", wanted.slot},
                                        {"epoch", wanted.epoch}});
  refuse(wanted, ESTALE, launch_step::epoch, mount_step::epoch);
}

void spawner::hold(const request& wanted, std::string_view label, std::vector<unique_fd> fds) {
  const auto at = tenants_.find(wanted.slot);
  if (at == tenants_.end() || at->second.asked_to_end)
    return;
  auto& all = at->second.held;
  if (!all.contains(wanted.name) && (fds.empty() || all.size() >= max_held_per_slot))
    return;
  const auto known = all.find(wanted.name);
  const auto replaced = known == all.end() || fds.empty() ? 0 : known->second.fds.size();
  if (held_fds_ + fds.size() > max_held_fds_ + replaced)
    return log::error("spawner.too_much_held", {{"slot", wanted.slot}, {"descriptors", held_fds_}});
  auto& mine = all[wanted.name];
  mine.label = label;
  if (fds.empty())
    return;
  held_fds_ += fds.size();
  mine.counted = {nullptr, [this, count = fds.size()](void*) { held_fds_ -= count; }};
  mine.fds = std::move(fds);
}

void spawner::handle(const request& wanted, std::string_view text, std::vector<unique_fd> fds) {
  if (!settle_create(wanted) || (wanted.what != op::create && !admits(wanted)))
    return refuse_late(wanted);
  if (const int why = check(wanted, text, fds.size()); why != 0) {
    log::error("spawner.bad_request",
               {{"op", static_cast<std::uint32_t>(wanted.what)}, {"slot", wanted.slot}});
    return refuse(wanted, why, launch_step::request, mount_step::request);
  }
  switch (wanted.what) {
    case op::hello: return tell_all();
    case op::create: return wait_to_create(wanted);
    case op::claim: return claim(wanted);
    case op::destroy: return destroy(wanted.slot);
    case op::hold: return hold(wanted, text, std::move(fds));
    case op::release:
      if (const auto at = tenants_.find(wanted.slot); at != tenants_.end())
        at->second.held.erase(wanted.name);
      return;
    case op::open_sockets: return open_sockets(wanted);
    case op::mount: return mount(wanted, text);
    case op::unmount: return unmount(wanted);
    case op::charge_logs: return charge_logs(wanted);
    case op::flush_disk: return flush_disk(wanted);
    case op::take_snapshot: return take_snapshot(wanted);
    case op::show_snapshot: return show_snapshot(wanted);
    case op::attach_drive: return attach_drive(wanted, text);
    case op::broker: return give_broker(wanted);
    case op::drop_snapshot: return drop_snapshot(wanted);
    case op::list_snapshots: return list_snapshots(wanted);
    case op::shut_down: return end_everything();
    case op::permit: return permit(wanted.name);
    case op::adopt: return; // It has been admitted: that is all.
  }
}

/// What is asked of a sandbox comes after its creation, unless that waits for what is not at hand:
/// nothing here does, so the slot is one that nobody has yet. Its end comes in place of its
/// creation. False: the asker does not hold it any more.
bool spawner::settle_create(const request& wanted) {
  const auto* waits = to_create_.of(wanted.slot);
  const auto fork = forks_.find(wanted.slot);
  switch (wanted.what) {
    case op::hello:
    case op::shut_down:
    case op::drop_snapshot:
    case op::list_snapshots:
    case op::permit: // Of the whole node.
    case op::create:
    case op::claim: return true;
    case op::destroy:
      if (fork != forks_.end()) { // Its disk is on its way, and the slot free when that is gone.
        fork->second.unwanted |= wanted.epoch >= fork->second.wanted.epoch;
        return wanted.epoch >= fork->second.wanted.epoch;
      }
      if (waits == nullptr)
        return true;
      if (wanted.epoch < waits->epoch)
        return false;
      to_create_.drop(wanted.slot);
      discard_disk(wanted.slot);
      tell(event::create_failed, wanted.slot, ECANCELED, launch_step::request);
      return true;
    default:
      if (const auto now = to_create_.take(wanted.slot, there()))
        create(*now);
      return true;
  }
}

void spawner::wait_to_create(const request& wanted) {
  const std::string_view tag{wanted.tag};
  auto newest = tag.empty() ? 0 : to_create_.newest_epoch(tag);
  for (const auto& [slot, each] : forks_)
    if (!tag.empty() && tag == each.wanted.tag)
      newest = std::max(newest, each.wanted.epoch);
  if (wanted.epoch < newest)
    return refuse_late(wanted);
  const bool has_room = !to_create_.full() || create_next();
  if (!has_room || to_create_.of(wanted.slot) != nullptr || forks_.contains(wanted.slot))
    return tell(event::create_failed, wanted.slot, has_room ? EBUSY : EAGAIN, launch_step::request);
  if (*wanted.snapshot != '\0')
    return make_disk(wanted);
  to_create_.add(wanted);
  if (needs_package_lists(wanted))
    want_package_lists(wanted.tree);
}

/// Before it is created: a commit of the file system is waited for.
void spawner::make_disk(const request& wanted) {
  const auto slot = wanted.slot;
  if (tenants_.contains(slot) || ending_)
    return tell(event::create_failed, slot, EBUSY, launch_step::request);
  const auto bytes = share_memory(wanted.ceilings, disks_->in_memory()).disk_bytes;
  const bool taken =
    commits_.add([this, slot, bytes, from = std::string{wanted.snapshot}]() -> disk_jobs::finish {
      const auto made = std::make_shared<result<unique_fd>>(disks_->create_from(from, slot, bytes));
      return [this, slot, made] { disk_is_made(slot, std::move(*made)); };
    });
  if (!taken)
    return tell(event::create_failed, slot, EAGAIN, launch_step::disk);
  forks_[slot] = {wanted};
  if (needs_package_lists(wanted))
    want_package_lists(wanted.tree);
}

void spawner::disk_is_made(std::uint32_t slot, result<unique_fd> made) {
  const auto [wanted, unwanted] = forks_.extract(slot).mapped();
  if (!made) {
    const bool is_missing = made.reason().code == errc::not_found; // It may come from a copy.
    log::write(
      is_missing ? log::level::info : log::level::error, "spawner.create_failed",
      {{"slot", slot}, {"step", name_of(launch_step::disk)}, {"reason", made.reason().message}});
    const int why = is_missing ? ENOENT : EIO;
    return tell(event::create_failed, slot, unwanted ? ECANCELED : why, launch_step::disk);
  }
  if (unwanted || ending_) {
    made->reset();
    disks_->destroy(slot);
    return tell(event::create_failed, slot, ECANCELED, launch_step::request);
  }
  expect_use(wanted.snapshot);
  made_disks_[slot] = std::move(*made);
  to_create_.add(wanted); // Its ceiling is the other one's: no more wait than there are slots.
}

/// The one that was made of a snapshot, if there is one.
void spawner::discard_disk(std::uint32_t slot) {
  if (made_disks_.erase(slot) > 0)
    disks_->destroy(slot);
}

void spawner::forget_creates() {
  to_create_.clear();
  for (auto& [slot, each] : forks_)
    each.unwanted = true;
  while (!made_disks_.empty())
    discard_disk(made_disks_.begin()->first);
}

at_hand spawner::there() const {
  return {hidden_.ready(), !lists_ || lists_->ready()};
}

/// Begins to copy them, unless that has been done for the image as it is now.
void spawner::want_package_lists(const std::string& tree) {
  const auto root = layers_.root_of(tree);
  if (!package_lists::can_be_over(root.get()) ||
      (lists_ && lists_->is_over(root.get()) && !lists_->failed()))
    return;
  lists_ =
    std::make_shared<package_lists>(*disks_, "lists-" + std::to_string(++lists_made_), root.get());
}

/// Not before all that it needs is there().
void spawner::create(const request& wanted) {
  const auto slot = wanted.slot;
  const bool forks = made_disks_.contains(slot);
  const auto refuse = [&](launch_step step, int error, const std::string& why) {
    log::error("spawner.create_failed", {{"slot", slot}, {"step", name_of(step)}, {"reason", why}});
    made_disks_.erase(slot);
    remove_traces(slot);
    tell(event::create_failed, slot, error, step);
  };
  if (tenants_.contains(slot) || ending_) {
    discard_disk(slot);
    log::error("spawner.slot_in_use", {{"slot", slot}});
    return tell(event::create_failed, slot, EBUSY, launch_step::request);
  }
  if (!admits(wanted)) { // Which what was asked for before may have changed.
    discard_disk(slot);
    return refuse_late(wanted);
  }
  if (permission_.over()) {
    discard_disk(slot);
    return tell(event::create_failed, slot, EPERM, launch_step::permission);
  }
  const bool machines_usr = (wanted.flags & create_with_machines_usr) != 0;
  if (machines_usr) {
    if (auto ok = hidden_.make_layer(given_.state_directory + "/disk/hidden"); !ok)
      return refuse(launch_step::layers, EIO, ok.reason().message);
    tools_.hidden = hidden_.layer();
  }
  launch_clock done{};
  done.begun = monotonic_ns();
  // A sandbox's root owns what is mounted for it. So the server, which is not root, does not choose
  // freely: only root puts images there, and the machine lends nothing but its /usr and a copy of
  // what dpkg knows of that.
  const auto root = layers_.root_of(wanted.tree);
  if (!root)
    return refuse(launch_step::layers, errno, std::strerror(errno));
  const auto over = layers_.over_of(wanted.tree);
  if (!over && errno != ENOENT)
    return refuse(launch_step::layers, errno, std::strerror(errno));
  const cgroup_limits limits{wanted.ceilings.memory_bytes, wanted.ceilings.cpu_percent,
                             wanted.ceilings.processes};
  if (auto ok = cgroups_.create(slot, limits); !ok)
    return refuse(launch_step::cgroup, EIO, ok.reason().message);
  std::vector<unique_fd> procs;
  for (const auto part : {cgroup_part::commands, cgroup_part::reserve}) {
    auto opened = cgroups_.open_procs(slot, part);
    if (!opened)
      return refuse(launch_step::cgroup, EIO, opened.reason().message);
    std::move(opened->begin(), opened->end(), std::back_inserter(procs));
  }
  done.cgroup = monotonic_ns();
  const auto memory = share_memory(wanted.ceilings, disks_->in_memory());
  auto disk = forks ? result<unique_fd>{std::move(made_disks_.extract(slot).mapped())}
                    : disks_->create(slot, memory.disk_bytes);
  if (!disk)
    return refuse(launch_step::disk, EIO, disk.reason().message);
  const unique_fd upper{::openat(disk->get(), "u", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (!upper)
    return refuse(launch_step::disk, errno, std::strerror(errno));
  done.disk = monotonic_ns();

  launch_request launching;
  launching.slot = slot;
  // A snapshot has them.
  launching.fill_layers = [&] { return forks || places_.make(root.get(), upper.get()); };
  launching.disk = disk->get();
  launching.root_layer = root.get();
  launching.over_root = over.get();
  launching.machines_usr = machines_usr;
  launching.host_name = wanted.host_name;
  launching.memory = memory;
  launching.open_files = wanted.ceilings.open_files;
  launching.seccomp_filters = (wanted.flags & create_without_filters) == 0;
  if ((wanted.flags & create_may_gain_rights) != 0) {
    if (auto ok = sudo_.make(given_.state_directory + "/disk/sudo"); !ok)
      return refuse(launch_step::layers, EIO, ok.reason().message);
    launching.may_gain_rights = true;
    launching.sudo = sudo_.over(machines_usr ? layers_.machines_usr() : root.get(), machines_usr);
    if (machines_usr && lists_ && lists_->is_over(root.get()))
      launching.package_lists = lists_->layer();
    if (launching.sudo < 0)
      log::warning(
        "spawner.no_sudo",
        {{"slot", slot},
         {"tree", wanted.tree},
         {"reason", "a link is in the way to usr/local/bin or etc/sudoers.d of the image"}});
  }
  launching.cgroup_procs = &procs;
  launching.shown_cgroups = cgroups_.shown(slot);
  auto made = launch(tools_, launching);
  if (made.pid < 0)
    return refuse(made.failed, made.error, std::strerror(made.error));

  done.namespaces = made.namespaces_done;
  done.layers = made.layers_done;

  auto& mine = tenants_[slot];
  mine.pid = made.pid;
  mine.process = std::move(made.process);
  mine.control = std::move(made.control);
  mine.tag = wanted.tag;
  mine.fence = epoch_fence{wanted.epoch};
  mine.ceilings = wanted.ceilings;
  mine.freezer = cgroups_.open_freezer(slot);
  mine.id = ++last_id_;
  if (launching.package_lists >= 0)
    mine.lists = lists_;
  const auto on_disk = given_.state_directory + "/disk/";
  memory_.add({mine.id, slot, mine.pid, given_.state_directory + "/images/" + wanted.tree + "/root",
               on_disk + "sb-" + std::to_string(slot),
               launching.sudo < 0 ? std::string{} : on_disk + "sudo",
               mine.lists ? on_disk + mine.lists->name() : std::string{}});
  gateway_.add(slot, std::move(made.network), wanted.host_name);
  if (made.failed == launch_step::none)
    return tell(event::created, slot, 0, launch_step::none,
                {mine.control.get(), mine.freezer.get()}, done);
  log::error(
    "spawner.create_failed",
    {{"slot", slot}, {"step", name_of(made.failed)}, {"reason", std::strerror(made.error)}});
  mine.failed = made.failed;
  mine.error = made.error;
  destroy(slot);
}

/// A create takes a millisecond or two; what is quick and waited for goes first. False: there is
/// none that can be made now.
bool spawner::create_next() {
  const auto wanted = to_create_.take_next(there());
  if (wanted)
    create(*wanted);
  return wanted.has_value();
}

void spawner::claim(const request& wanted) {
  const auto at = tenants_.find(wanted.slot);
  // What is used has its name, and its files may be what those in it have made of them.
  const bool free = at != tenants_.end() && !at->second.claimed && at->second.held.empty();
  if (!free || at->second.pid < 0 || at->second.asked_to_end)
    return tell(event::claimed, wanted.slot, ESRCH, launch_step::host_name);
  if (permission_.over())
    return tell(event::claimed, wanted.slot, EPERM, launch_step::permission);
  auto& mine = at->second;
  if (!mine.fence.admits(wanted.epoch))
    return refuse_late(wanted);
  mine.claimed = true;
  const auto refuse = [&](launch_step step, int error) {
    log::error("spawner.claim_failed",
               {{"slot", wanted.slot}, {"step", name_of(step)}, {"reason", std::strerror(error)}});
    tell(event::claimed, wanted.slot, error, step);
  };
  if (const int why = rename_host(mine.process.get(), wanted.host_name); why != 0)
    return refuse(launch_step::host_name, why);
  gateway_.rename(wanted.slot, wanted.host_name);
  const auto &was = mine.ceilings, &is = wanted.ceilings;
  const cgroup_limits before{was.memory_bytes, was.cpu_percent, was.processes};
  const cgroup_limits after{is.memory_bytes, is.cpu_percent, is.processes};
  if (!(before == after))
    if (const auto ok = cgroups_.limit(wanted.slot, after); !ok) {
      log::error("spawner.claim_failed", {{"slot", wanted.slot}, {"reason", ok.reason().message}});
      return tell(event::claimed, wanted.slot, EIO, launch_step::limits);
    }
  const bool in_memory = disks_->in_memory();
  const auto had = share_memory(was, in_memory), has = share_memory(is, in_memory);
  if (had.disk_bytes != has.disk_bytes)
    if (const auto ok = disks_->resize(wanted.slot, has.disk_bytes); !ok) {
      log::error("spawner.claim_failed", {{"slot", wanted.slot}, {"reason", ok.reason().message}});
      return tell(event::claimed, wanted.slot, EIO, launch_step::limits);
    }
  const auto creator = first_uid + wanted.slot * uids_per_slot;
  if (!(had == has)) {
    if (const int why = resize_shm(mine.pid, has); why != 0)
      return refuse(launch_step::limits, why);
    if (const int why = limit_system_v(mine.process.get(), creator, has); why != 0)
      return refuse(launch_step::limits, why);
  }
  if (was.open_files != is.open_files)
    if (const int why = limit_open_files(mine.pid, creator, is.open_files); why != 0)
      return refuse(launch_step::limits, why);
  mine.ceilings = is;
  mine.tag = wanted.tag;
  tell(event::claimed, wanted.slot);
}

/// Null: there is none, or it is on its way out.
const tenant* spawner::alive(std::uint32_t slot) const {
  const auto at = tenants_.find(slot);
  const bool there = at != tenants_.end() && at->second.pid > 0 && !at->second.asked_to_end;
  return there ? &at->second : nullptr;
}

void spawner::mount(const request& wanted, std::string_view text) {
  if (const auto* mine = alive(wanted.slot))
    mounts_.mount(wanted, text, mine->process.get());
  else
    tell_of_mount({event::mounted, wanted.slot, wanted.name, ESRCH, mount_step::visit});
}

void spawner::unmount(const request& wanted) {
  if (const auto* mine = alive(wanted.slot))
    mounts_.unmount(wanted.slot, wanted.name, mine->process.get());
  else
    tell_of_mount({event::unmounted, wanted.slot, wanted.name, ESRCH, mount_step::visit});
}

void spawner::tell_of_mount(const bucket_mounts::outcome& how) {
  notice said{};
  said.what = how.what;
  said.slot = how.slot;
  said.name = how.name;
  said.error = how.error;
  said.step = static_cast<std::uint32_t>(how.failed);
  send(said, how.said, {});
}

void spawner::charge_logs(const request& wanted) {
  int why = ESRCH;
  if (alive(wanted.slot) != nullptr)
    why = disks_->charge(wanted.slot, wanted.name) ? 0 : errno;
  tell(event::charged, wanted.slot, why);
}

void spawner::tell_of_snapshot(event what, const request& wanted, int error, std::string_view text,
                               bool more) {
  notice said{};
  said.what = what;
  said.slot = wanted.slot;
  said.name = wanted.name;
  said.error = error;
  said.flags = more ? 1 : 0;
  send(said, text, {});
}

namespace {

int number_of(const error& why) {
  switch (why.code) {
    case errc::already_exists: return EEXIST;
    case errc::not_found: return ESRCH;
    case errc::disk_full: return ENOSPC;
    default: return EIO;
  }
}

} // namespace

void spawner::flush_disk(const request& wanted) {
  constexpr auto answer = event::disk_flushed;
  if (alive(wanted.slot) == nullptr)
    return tell_of_snapshot(answer, wanted, ESRCH);
  auto copy = disks_->copy(wanted.slot, wanted.snapshot);
  if (!copy)
    return tell_of_snapshot(answer, wanted, number_of(copy.reason()));
  const bool taken = flushes_.add(
    [this, wanted, way = std::shared_ptr<disk_copy>{std::move(*copy)}]() -> disk_jobs::finish {
      const auto flushed = way->flush();
      if (!flushed)
        log::error("spawner.disk_not_flushed",
                   {{"slot", wanted.slot}, {"reason", flushed.reason().message}});
      return [this, wanted, error = flushed ? 0 : number_of(flushed.reason())] {
        tell_of_snapshot(answer, wanted, error);
      };
    });
  if (!taken)
    tell_of_snapshot(answer, wanted, EAGAIN);
}

/// Whatever becomes of the sandbox meanwhile: its disk is open.
void spawner::take_snapshot(const request& wanted) {
  constexpr auto answer = event::snapshot_taken;
  if (alive(wanted.slot) == nullptr)
    return tell_of_snapshot(answer, wanted, ESRCH);
  auto copy = disks_->copy(wanted.slot, wanted.snapshot);
  if (!copy)
    return tell_of_snapshot(answer, wanted, number_of(copy.reason()));
  const bool taken = commits_.add(
    [this, wanted, way = std::shared_ptr<disk_copy>{std::move(*copy)}]() -> disk_jobs::finish {
      const auto bytes = way->take();
      if (!bytes)
        log::error("spawner.no_snapshot",
                   {{"slot", wanted.slot}, {"reason", bytes.reason().message}});
      return [this, wanted, bytes] {
        bytes ? tell_of_snapshot(answer, wanted, 0, std::to_string(*bytes))
              : tell_of_snapshot(answer, wanted, number_of(bytes.reason()));
        if (bytes)
          expect_use(wanted.snapshot);
      };
    });
  if (!taken)
    tell_of_snapshot(answer, wanted, EAGAIN);
}

/// If too much waits, the next start waits.
void spawner::expect_use(const std::string& snapshot) {
  static_cast<void>(commits_.add([this, snapshot]() -> disk_jobs::finish {
    disks_->expect_use(snapshot);
    return [] {};
  }));
}

void spawner::show_snapshot(const request& wanted) {
  notice said{};
  said.what = event::snapshot_shown;
  said.slot = wanted.slot;
  said.name = wanted.name;
  const auto* at = alive(wanted.slot);
  const auto files = disks_->open_snapshot(wanted.snapshot);
  unique_fd shown;
  if (at == nullptr)
    said.error = ESRCH;
  else if (!files)
    said.error = ENOENT;
  else if (shown = shown_to(at->pid, files->get()); !shown)
    said.error = errno;
  const int fd = shown.get();
  send(said, {}, {&fd, shown ? std::size_t{1} : 0});
}

/// Whose disk it is does not matter to the other one: it sees one directory of that, which no link
/// leads out of, with its own ids.
void spawner::attach_drive(const request& wanted, std::string_view text) {
  const auto refuse = [&](mount_step step, int error) {
    tell_of_mount({event::mounted, wanted.slot, wanted.name, error, step});
  };
  const auto* at = alive(wanted.slot);
  if (at == nullptr)
    return refuse(mount_step::visit, ESRCH);
  const bool live = *wanted.snapshot == '\0';
  // By its name too: the slot may be another's by now.
  const auto* drive = alive(wanted.count);
  if (live && (drive == nullptr || wanted.count == wanted.slot || drive->tag != wanted.tag))
    return refuse(mount_step::drive, ENOENT);
  const auto disk = live ? disks_->open(wanted.count) : disks_->open_snapshot(wanted.snapshot);
  if (!disk)
    return refuse(mount_step::drive, ENOENT);
  const auto path = std::string{"u/"} + drive_directory;
  open_how how{};
  how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  const unique_fd directory{
    static_cast<int>(::syscall(SYS_openat2, disk->get(), path.c_str(), &how, sizeof how))};
  if (!directory) {
    const bool is_none = errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EXDEV;
    return refuse(is_none ? mount_step::drive : mount_step::file_system, errno);
  }
  auto files = drive_for(at->pid, directory.get(), !live || (wanted.flags & mount_read_only) != 0);
  if (!files)
    return refuse(mount_step::file_system, errno);
  drives_.attach(wanted, *read_drive_path(text), live ? std::optional{wanted.count} : std::nullopt,
                 at->process.get(), std::move(files));
}

void spawner::drop_snapshot(const request& wanted) {
  tell_of_snapshot(event::snapshot_dropped, wanted,
                   disks_->drop_snapshot(wanted.snapshot) ? 0 : EBUSY);
}

void spawner::list_snapshots(const request& wanted) {
  const auto all = disks_->snapshots();
  auto at = std::upper_bound(all.begin(), all.end(), std::string_view{wanted.snapshot});
  std::string text;
  for (; at != all.end() && text.size() + at->size() < max_said; ++at)
    (text += *at) += '\0';
  tell_of_snapshot(event::snapshots, wanted, 0, text, at != all.end());
}

void spawner::open_sockets(const request& wanted) {
  notice said{};
  said.what = event::sockets;
  said.slot = wanted.slot;
  said.name = wanted.name;
  const auto* at = alive(wanted.slot);
  std::vector<unique_fd> made;
  if (at == nullptr)
    said.error = ESRCH;
  else if (wanted.count < 1 || wanted.count > max_fds)
    said.error = EINVAL;
  else
    said.error = make_sockets(at->process.get(), wanted.ipv6 != 0, wanted.count, made);
  std::array<int, max_fds> fds{};
  const auto end = std::transform(made.begin(), made.end(), fds.begin(),
                                  [](const auto& each) { return each.get(); });
  send(said, {}, {fds.begin(), end});
}

void spawner::destroy(std::uint32_t slot) {
  const auto at = tenants_.find(slot);
  if (at == tenants_.end())
    return tell(event::destroyed, slot);
  at->second.asked_to_end = true;
  at->second.held.clear();
  brokers_.end(slot);
  gateway_.remove(slot);
  mounts_.sandbox_ends(slot);
  // PID 1 takes everything in its namespace with it.
  if (at->second.pid > 0)
    ::syscall(SYS_pidfd_send_signal, at->second.process.get(), SIGKILL, nullptr, 0);
  cgroups_.let_die(slot);
}

void spawner::reap() {
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto at = std::find_if(tenants_.begin(), tenants_.end(),
                                 [pid](auto& each) { return each.second.pid == pid; });
    if (at == tenants_.end()) {
      std::optional<std::uint32_t> unserved;
      if (!mounts_.ended(pid) && !drives_.ended(pid) && !brokers_.ended(pid, status, unserved))
        gateway_.ended(pid, status);
      if (unserved)
        tell(event::broker_ended, *unserved);
      continue;
    }
    auto& mine = at->second;
    brokers_.end(at->first);
    gateway_.remove(at->first);
    memory_.remove(at->first);
    if (!mine.asked_to_end)
      mounts_.sandbox_ends(at->first);
    mounts_.sandbox_ended(at->first);
    drives_.sandbox_ended(at->first);
    mine.status = status;
    mine.pid = -1;
    mine.process.reset();
    mine.control.reset();
    mine.freezer.reset();
    mine.held.clear();
    ended_.push_back(at->first);
  }
}

bool spawner::remove_traces(std::uint32_t slot) {
  const bool groups = cgroups_.remove(slot);
  const bool disk = disks_->destroy(slot);
  return groups && disk;
}

/// Removes what is left of those who have ended, and says so. What is still busy is tried again.
void spawner::clean_up() {
  std::erase_if(ended_, [this](std::uint32_t slot) {
    if (!mounts_.none_of(slot) || !drives_.none_of(slot) || !brokers_.none_of(slot) ||
        !remove_traces(slot))
      return false;
    const auto mine = std::move(tenants_.extract(slot).mapped());
    past_.note(mine.tag, mine.fence.newest());
    if (mine.failed != launch_step::none)
      tell(event::create_failed, slot, mine.error, mine.failed);
    else if (mine.asked_to_end)
      tell(event::destroyed, slot, mine.status);
    else
      tell_of_end(slot, mine);
    return true;
  });
}

void spawner::permit(std::uint64_t until) {
  if (until == 0)
    until = permission::without_end;
  if (server_permits_ && until < permission_.until())
    return;
  server_permits_ = true;
  const bool stood_still = permission_.over();
  permission_.renew(until);
  if (stood_still && !permission_.over())
    log::info("spawner.permission_renewed", {{"sandboxes", tenants_.size()}});
}

void spawner::permission_is_over() {
  if (!permission_.take_news())
    return;
  log::warning("spawner.permission_over",
               {{"sandboxes", tenants_.size()}, {"consequence", "they stand still"}});
  if (cgroups_.can_freeze())
    return;
  // This machine cannot have them stand still, so they end.
  for (const auto& [slot, each] : tenants_)
    if (each.pid > 0)
      ::syscall(SYS_pidfd_send_signal, each.process.get(), SIGKILL, nullptr, 0);
}

/// Of those that hold memory which they are not charged for.
void spawner::end_holders() {
  for (const auto& verdict : memory_.take_verdicts())
    for (auto& [slot, each] : tenants_) {
      if (each.id != verdict.id || each.pid <= 0)
        continue;
      if (each.asked_to_end) { // It has been killed, and stands still since.
        cgroups_.let_die(slot);
        continue;
      }
      each.ended_for = reason_of(verdict);
      log::error("spawner.sandbox_ended", {{"slot", slot},
                                           {"tag", each.tag},
                                           {"kind", name_of(verdict.kind)},
                                           {"bytes", verdict.bytes}});
      ::syscall(SYS_pidfd_send_signal, each.process.get(), SIGKILL, nullptr, 0);
      cgroups_.let_die(slot); // It stands still.
    }
}

void spawner::tell_of_end(std::uint32_t slot, const tenant& whose) {
  notice said{};
  said.what = event::ended;
  said.slot = slot;
  said.error = whose.status;
  send(said, whose.ended_for, {});
}

/// Those that end while all stand still. True: some of them still do not.
bool spawner::let_die() {
  bool any = false;
  if (permission_.over())
    for (const auto& [slot, each] : tenants_)
      if (each.asked_to_end && each.pid > 0) {
        cgroups_.let_die(slot);
        any = true;
      }
  return any;
}

void spawner::end_everything() {
  ending_ = true;
  // A server that comes now waits for an answer, until it finds this one gone and starts another.
  ::epoll_ctl(poller_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
  while (const auto wanted = to_create_.take_next({true, true}))
    create(*wanted); // They are refused now.
  for (auto& [slot, each] : tenants_)
    destroy(slot);
}

/// Nothing lives any more: what was needed for it goes as well, so that no sandbox's bytes stay on
/// the machine's disk, but for those of snapshots. An image that was not opened may have some.
void spawner::leave() {
  gateway_.end();
  lists_.reset();
  flushes_.end(); // They use the disks.
  commits_.end();
  const bool is_empty = disks_ && disks_->keeps_snapshots() && disks_->snapshots().empty();
  disks_.reset();
  for (const char* each : {"/scratch", "/disk"}) {
    const auto path = given_.state_directory + each;
    ::umount2(path.c_str(), MNT_DETACH);
    ::rmdir(path.c_str());
  }
  if (is_empty)
    ::unlink((given_.state_directory + "/disk.btrfs").c_str());
  cgroups_.leave();
  // Last: the next one begins when it does not find us any more.
  ::unlink((given_.state_directory + "/spawner.sock").c_str());
}

int spawner::serve() {
  int turns_without_create = 0;
  for (;;) {
    std::array<epoll_event, 16> events;
    constexpr int again_ms = 2, dying_ms = 10;
    int patience = to_create_.has_next(there())             ? 0
                   : !to_create_.empty() || !ended_.empty() ? again_ms
                   : let_die()                              ? dying_ms
                                                            : -1;
    for (const int until : {gateway_.until_restart(), mounts_.until_look(), drives_.until_look(),
                            brokers_.until_look()})
      if (until >= 0 && (patience < 0 || until < patience))
        patience = until;
    const int count =
      ::epoll_wait(poller_.get(), events.data(), static_cast<int>(events.size()), patience);
    patience_left_ = send_patience;
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == signals_.get()) {
        for (signalfd_siginfo got; ::read(fd, &got, sizeof got) == sizeof got;)
          if (got.ssi_signo == SIGTERM || got.ssi_signo == SIGINT)
            end_everything();
        reap();
      } else if (fd == listener_.get()) {
        accept_server();
      } else if (fd == server_.get()) {
        if (receive() == received::end)
          drop_server();
      } else if (fd == permission_.news()) {
        permission_is_over();
      } else if (fd == memory_.news()) {
        end_holders();
      } else if (fd == flushes_.news()) {
        flushes_.finish_done();
      } else if (fd == commits_.news()) {
        commits_.finish_done();
      } else {
        if (!mounts_.readable(fd))
          drives_.readable(fd);
      }
    }
    mounts_.look();
    drives_.look();
    brokers_.look();
    clean_up();
    if (gateway_.restart()) {
      brokers_.gateway_changed();
      give_gateway();
    }
    if (deaf_)
      drop_server();
    constexpr int turns_at_most = 32; // However much else there is to do.
    // It has nothing to do if there was nothing; one that was stopped and goes on does not know.
    turns_without_create = count == 0 ? turns_at_most : turns_without_create + 1;
    if (turns_without_create >= turns_at_most && create_next())
      turns_without_create = 0;
    if (((ending_ && tenants_.empty() && forks_.empty()) || nobody_left()) && mounts_.hurry()) {
      leave();
      return 0;
    }
  }
}

} // namespace

int run(const options& given) {
  std::signal(SIGPIPE, SIG_IGN);
  auto cgroups = cgroup_tree::of_this_process(given.key);
  if (!cgroups.sweep())
    log::warning("spawner.leftovers", {{"cgroups", given.key}});
  spawner self{given, std::move(cgroups)};
  if (auto ok = self.prepare(); !ok) {
    log::error("spawner.cannot_start", {{"reason", ok.reason().message}});
    self.leave();
    return status_cannot_start;
  }
  return self.serve();
}

} // namespace insula::runtime::spawner
