#include "runtime/spawner/spawner.hpp"

#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "runtime/cgroup.hpp"
#include "runtime/program_file.hpp"
#include "runtime/spawner/disk.hpp"
#include "runtime/spawner/launch.hpp"
#include "runtime/spawner/protocol.hpp"
#include "runtime/spawner/seccomp_filter.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <sched.h>
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

constexpr std::size_t max_held_per_slot = 8192;

/// One sandbox, from its making to the removal of its last trace.
struct tenant {
  pid_t pid = -1; ///< -1: reaped.
  unique_fd process;
  unique_fd control; ///< A copy: whoever serves next is given it.
  unique_fd freezer; ///< The same. Nothing: this machine has none.
  bool asked_to_end = false;
  int status = 0;
  launch_step failed = launch_step::none; ///< It never came to life, for this reason.
  int error = 0;
  std::map<std::uint64_t, std::vector<unique_fd>> held;
};

class spawner {
public:
  spawner(const options& given, cgroup_tree cgroups)
      : given_(given)
      , cgroups_(std::move(cgroups)) {}

  result<void> prepare();
  int serve();
  void leave();

private:
  void accept_server();
  void drop_server();
  bool receive();
  void handle(const request& wanted, std::vector<unique_fd> fds);
  bool is_layer(std::string_view root, std::string_view usr) const;
  void create(const request& wanted);
  void destroy(std::uint32_t slot);
  void reap();
  void clean_up();
  bool remove_traces(std::uint32_t slot);
  void tell(event what, std::uint32_t slot, int error = 0, launch_step step = launch_step::none,
            std::initializer_list<int> fds = {}, const launch_clock& done = {});
  void end_everything();
  void watch(int fd);

  const options& given_;
  cgroup_tree cgroups_;
  launch_tools tools_;
  unique_fd agent_, null_;
  std::unique_ptr<disk_pool> disks_;
  std::map<std::uint32_t, tenant> tenants_;
  std::vector<std::uint32_t> ended_; ///< Reaped, and not yet all gone.
  unique_fd poller_, signals_, listener_, server_;
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

bool terminated(const char* text, std::size_t size) {
  return std::memchr(text, '\0', size) != nullptr;
}

/// The kernel has one table of open files for the whole machine, by default with room for a tenth
/// of the memory's kilobytes. One sandbox can fill that, and nobody who is not root opens anything
/// then. Without this ceiling, which systemd lifts at every start of a machine too, the memory of a
/// sandbox limits its files.
void lift_ceiling_of_files() {
  constexpr const char* path = "/proc/sys/fs/file-max";
  constexpr std::string_view unlimited = "9223372036854775807\n";
  const unique_fd file{::open(path, O_RDWR | O_CLOEXEC)};
  char now[32];
  const ssize_t n = file ? ::read(file.get(), now, sizeof now) : -1;
  if (n > 0 && std::string_view{now, static_cast<std::size_t>(n)} == unlimited)
    return;
  if (n > 0 && ::pwrite(file.get(), unlimited.data(), unlimited.size(), 0) > 0)
    return log::info(
      "spawner.file_max",
      {{"before", std::string_view{now, static_cast<std::size_t>(n) - 1}}, {"now", "unlimited"}});
  log::warning("spawner.file_max", {{"reason", std::strerror(errno)},
                                    {"path", path},
                                    {"risk", "one sandbox can use up the machine's open files"}});
}

result<void> spawner::prepare() {
  // Everything below happens in a mount namespace of our own; it goes when we go, whatever ends us.
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return failed("making a mount namespace");
  if (auto ok = cgroups_.prepare(); !ok)
    return ok;
  if (!cgroups_.can_freeze())
    log::warning("spawner.no_freezer",
                 {{"consequence", "idle sandboxes are not frozen; they are only stopped"}});

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

  for (const auto& each :
       {given_.state_directory, std::string{"/usr"}, given_.state_directory + "/disk"})
    if (const int why = try_mapped_copy(each); why != 0)
      return {
        {errc::launch_failed,
         each + (why == EINVAL ? ": Linux " + release() +
                                   " cannot map the ids of this kind of file system, which "
                                   "sandboxes need (a tmpfs: from Linux 6.3 on; an overlay: never)"
                               : ": mapping its ids: " + std::string{std::strerror(why)})}};

  const auto scratch = given_.state_directory + "/scratch";
  if ((::mkdir(scratch.c_str(), 0700) != 0 && errno != EEXIST) ||
      ::mount("insula", scratch.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=64k") != 0 ||
      ::chdir(scratch.c_str()) != 0)
    return failed(scratch);
  for (const char* each : {"root", "l0", "l1", "d"})
    if (::mkdir(each, 0755) != 0)
      return failed(scratch);

  agent_ = program_file("insula-agent", insula_agent_begin, insula_agent_end);
  null_.reset(::open("/dev/null", O_RDWR | O_CLOEXEC));
  tools_.filter = compile_seccomp_filter();
  if (!agent_ || !null_)
    return failed("loading the agent");
  if (tools_.filter.empty())
    return {{errc::launch_failed, "libseccomp could not make the system call filter"}};
  tools_.agent = agent_.get();
  tools_.null = null_.get();

  lift_ceiling_of_files();
  // What sandboxes may have open is handed down from here.
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  for (const rlim_t wanted : {rlim_t{1'048'576}, rlim_t{262'144}, files.rlim_max}) {
    const rlimit both{wanted, wanted};
    if (::setrlimit(RLIMIT_NOFILE, &both) == 0)
      break;
  }

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
  server_.reset(given_.server);
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

/// Of the descriptors, at most two, those below 0 are none.
void spawner::tell(event what, std::uint32_t slot, int error, launch_step step,
                   std::initializer_list<int> fds, const launch_clock& done) {
  if (!server_)
    return;
  notice said{};
  said.what = what;
  said.slot = slot;
  said.error = error;
  said.step = static_cast<std::uint32_t>(step);
  said.version = version;
  said.done = done;
  iovec data{&said, sizeof said};
  std::array<int, 2> sent{};
  const auto end =
    std::copy_if(fds.begin(), fds.end(), sent.begin(), [](int fd) { return fd >= 0; });
  const auto bytes = static_cast<std::size_t>(end - sent.begin()) * sizeof(int);
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof sent)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (bytes > 0) {
    message.msg_control = space;
    message.msg_controllen = CMSG_SPACE(bytes);
    auto* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(part), sent.data(), bytes);
  }
  // A server that reads reads quickly. One that does not read at all has hung, and must not hang
  // us.
  timeval patience{5, 0};
  ::setsockopt(server_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::sendmsg(server_.get(), &message, MSG_NOSIGNAL) != sizeof said)
    drop_server();
}

void spawner::accept_server() {
  unique_fd next{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
  if (!next)
    return;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(next.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != 0)
    return;
  drop_server();
  server_ = std::move(next);
  watch(server_.get());
}

/// The sandboxes stay; what the server has asked for is finished without an answer.
void spawner::drop_server() {
  if (server_)
    log::info("spawner.server_gone", {{"sandboxes", tenants_.size()}});
  server_.reset();
}

bool spawner::receive() {
  request wanted{};
  iovec data{&wanted, sizeof wanted};
  alignas(cmsghdr) char space[CMSG_SPACE(sizeof(int) * 8)];
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  const ssize_t n = ::recvmsg(server_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (n < 0)
    return errno == EAGAIN || errno == EINTR;
  if (n == 0)
    return false;
  std::vector<unique_fd> fds;
  for (auto* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part))
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
      for (std::size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
        fds.emplace_back(fd);
      }
  if (n != sizeof wanted || (message.msg_flags & MSG_TRUNC) != 0 ||
      !terminated(wanted.root_layer, max_path) || !terminated(wanted.usr_layer, max_path) ||
      !terminated(wanted.host_name, max_host_name) || wanted.slot >= max_slots) {
    log::error("spawner.bad_request", {{"bytes", n}});
    return false;
  }
  handle(wanted, std::move(fds));
  return true;
}

void spawner::handle(const request& wanted, std::vector<unique_fd> fds) {
  switch (wanted.what) {
    case op::hello:
      tell(event::hello, 0);
      for (const auto& [slot, each] : tenants_)
        tell(event::holds, slot, 0, launch_step::none, {each.control.get(), each.freezer.get()});
      return;
    case op::create: return create(wanted);
    case op::destroy: return destroy(wanted.slot);
    case op::hold:
      if (const auto at = tenants_.find(wanted.slot);
          at != tenants_.end() && at->second.held.size() < max_held_per_slot)
        at->second.held[wanted.name] = std::move(fds);
      return;
    case op::release:
      if (const auto at = tenants_.find(wanted.slot); at != tenants_.end())
        at->second.held.erase(wanted.name);
      return;
    case op::shut_down: return end_everything();
  }
  log::error("spawner.unknown_request", {{"op", static_cast<std::uint32_t>(wanted.what)}});
}

/// A sandbox's root owns what is mounted for it. So the server, which is not root, does not choose
/// freely: images are below the state directory, where only root has put them, and the machine
/// lends nothing but its /usr.
bool spawner::is_layer(std::string_view root, std::string_view usr) const {
  const auto images = given_.state_directory + "/images/";
  return root.starts_with(images) && root.find("/..") == std::string_view::npos &&
         (usr.empty() || usr == "/usr");
}

void spawner::create(const request& wanted) {
  const auto slot = wanted.slot;
  const auto refuse = [&](launch_step step, int error, const std::string& why) {
    log::error("spawner.create_failed", {{"slot", slot}, {"step", name_of(step)}, {"reason", why}});
    remove_traces(slot);
    tell(event::create_failed, slot, error, step);
  };
  if (!is_layer(wanted.root_layer, wanted.usr_layer)) {
    log::error("spawner.foreign_layer", {{"root", wanted.root_layer}, {"usr", wanted.usr_layer}});
    return tell(event::create_failed, slot, EPERM, launch_step::request);
  }
  if (tenants_.contains(slot) || ending_) {
    log::error("spawner.slot_in_use", {{"slot", slot}});
    return tell(event::create_failed, slot, EBUSY, launch_step::request);
  }
  launch_clock done{};
  done.begun = monotonic_ns();
  const cgroup_limits limits{wanted.ceilings.memory_bytes, wanted.ceilings.cpu_percent,
                             wanted.ceilings.processes};
  if (auto ok = cgroups_.create(slot, limits); !ok)
    return refuse(launch_step::cgroup, EIO, ok.reason().message);
  const auto procs = cgroups_.open_procs(slot);
  if (!procs)
    return refuse(launch_step::cgroup, EIO, procs.reason().message);
  done.cgroup = monotonic_ns();
  auto disk = disks_->create(slot, wanted.ceilings.disk_bytes);
  if (!disk)
    return refuse(launch_step::disk, EIO, disk.reason().message);
  done.disk = monotonic_ns();

  launch_request launching;
  launching.slot = slot;
  launching.disk = std::move(*disk);
  launching.root_layer = wanted.root_layer;
  launching.usr_layer = wanted.usr_layer;
  launching.host_name = wanted.host_name;
  launching.shm_bytes = wanted.ceilings.shm_bytes;
  launching.open_files = wanted.ceilings.open_files;
  launching.cgroup_procs = &*procs;
  auto made = launch(tools_, launching);
  if (made.pid < 0)
    return refuse(made.failed, made.error, std::strerror(made.error));

  done.namespaces = made.namespaces_done;
  done.layers = made.layers_done;

  auto& mine = tenants_[slot];
  mine.pid = made.pid;
  mine.process = std::move(made.process);
  mine.control = std::move(made.control);
  mine.freezer = cgroups_.open_freezer(slot);
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

void spawner::destroy(std::uint32_t slot) {
  const auto at = tenants_.find(slot);
  if (at == tenants_.end())
    return tell(event::destroyed, slot);
  at->second.asked_to_end = true;
  at->second.held.clear();
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
    if (at == tenants_.end())
      continue;
    auto& mine = at->second;
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
    if (!remove_traces(slot))
      return false;
    const auto mine = std::move(tenants_.extract(slot).mapped());
    if (mine.failed != launch_step::none)
      tell(event::create_failed, slot, mine.error, mine.failed);
    else
      tell(mine.asked_to_end ? event::destroyed : event::ended, slot, mine.status);
    return true;
  });
}

void spawner::end_everything() {
  ending_ = true;
  for (auto& [slot, each] : tenants_)
    destroy(slot);
}

/// Nothing lives any more: what was needed for it goes as well, so that no sandbox's bytes stay on
/// the machine's disk.
void spawner::leave() {
  disks_.reset();
  for (const char* each : {"/scratch", "/disk"}) {
    const auto path = given_.state_directory + each;
    ::umount2(path.c_str(), MNT_DETACH);
    ::rmdir(path.c_str());
  }
  for (const char* each : {"/disk.btrfs", "/spawner.sock"})
    ::unlink((given_.state_directory + each).c_str());
  cgroups_.leave();
}

int spawner::serve() {
  for (;;) {
    std::array<epoll_event, 16> events;
    constexpr int again_ms = 2;
    const int count = ::epoll_wait(poller_.get(), events.data(), static_cast<int>(events.size()),
                                   ended_.empty() ? -1 : again_ms);
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == signals_.get()) {
        for (signalfd_siginfo got; ::read(fd, &got, sizeof got) == sizeof got;)
          if (got.ssi_signo == SIGTERM || got.ssi_signo == SIGINT)
            end_everything();
        reap();
      } else if (fd == listener_.get()) {
        accept_server();
      } else if (fd == server_.get() && !receive()) {
        drop_server();
      }
    }
    clean_up();
    if (ending_ && tenants_.empty()) {
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
    return 1;
  }
  return self.serve();
}

} // namespace insula::runtime::spawner
