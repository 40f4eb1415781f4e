#include "apps/fetch_image.hpp"

#include "apps/server_calls.hpp"
#include "base/printable.hpp"
#include "runtime/spawner/protocol.hpp"
#include "storage/images/beneath.hpp"
#include "storage/images/digest.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <grp.h>
#include <malloc.h>
#include <netdb.h>
#include <optional>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace insula {

namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
namespace images = storage::images;
namespace registry = storage::registry;

constexpr std::time_t kept_for_s = 24 * 60 * 60;
constexpr std::size_t longest_words = 4096;
/// Beyond what the process begins with. The largest document needs some 200 MiB when it is read.
[[maybe_unused]] constexpr std::uint64_t fetch_memory = 512u << 20;
constexpr uid_t fetcher = runtime::spawner::fetcher_uid;

error failed(const std::string& what) {
  return {errc::io_failed, what + ": " + std::strerror(errno)};
}

// ---- What the two say: packets

enum class fetch_news : std::uint32_t { progress = 1, pulled, was_here, failed };

/// Before the digest, or the words of an error.
struct news_head {
  fetch_news kind;
  std::uint32_t code; ///< Of an error.
  registry::pull_progress now;
};

void tell(int way, const news_head& head, std::string words = {}) {
  words.resize(std::min(words.size(), longest_words));
  std::array<iovec, 2> parts{
    {{const_cast<news_head*>(&head), sizeof head}, {words.data(), words.size()}}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ::sendmsg(way, &message, MSG_NOSIGNAL);
}

// ---- The child

constexpr int way_out = 3, held_lock = 4;

/// The lock as well: until this process is gone, nobody else writes there.
void keep_only(int way, int lock) {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC); // Closed with all others.
  const int first = ::fcntl(way, F_DUPFD, held_lock + 1);
  const int second = ::fcntl(lock, F_DUPFD, held_lock + 1);
  for (const int each : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    ::dup2(nothing, each);
  ::dup2(first, way_out);
  ::dup2(second, held_lock);
  ::close_range(held_lock + 1, ~0u, 0);
}

/// A ceiling for both, which nobody raises again.
bool limit(__rlimit_resource what, std::uint64_t most) {
  rlimit now{};
  ::getrlimit(what, &now);
  now.rlim_cur = now.rlim_max = std::min<rlim_t>(most, now.rlim_max);
  return ::setrlimit(what, &now) == 0;
}

/// The program itself, its libraries, and whatever it has by now. 0: nobody says it.
[[maybe_unused]] std::uint64_t address_space() {
  std::uint64_t pages = 0;
  std::ifstream{"/proc/self/statm"} >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

bool limit_use(std::uint64_t max_bytes) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Its threads share one heap: each of their own would take some 64 MiB of addresses.
  const auto now = address_space();
  if (now == 0 || ::mallopt(M_ARENA_MAX, 1) != 1 || !limit(RLIMIT_AS, now + fetch_memory))
    return false;
#endif
  constexpr std::uint64_t cpu_s = 4 * 60 * 60;
  constexpr std::uint64_t files = 256;
  return limit(RLIMIT_FSIZE, std::max(max_bytes, limits::image_document_bytes)) &&
         limit(RLIMIT_CORE, 0) && limit(RLIMIT_CPU, cpu_s) && limit(RLIMIT_NOFILE, files);
}

/// None: errno says why not.
bool give_up_rights(const pull_place& place, pid_t parent) {
  if (::chdir(place.path().c_str()) != 0 || ::chroot(".") != 0 || ::setgroups(0, nullptr) != 0 ||
      ::setresgid(fetcher, fetcher, fetcher) != 0 || ::setresuid(fetcher, fetcher, fetcher) != 0)
    return false;
  // After the change of user, which would clear it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
    return false;
  errno = ESRCH;
  return ::getppid() == parent;
}

result<registry::pulled> fetch(const fetch_order& order, const pull_place& place, int way,
                               pid_t parent) {
  auto options = order.client;
  options.authorities = registry::machine_authorities();
  options.cancelled = [] { return false; }; // It is killed.
  // Whatever the C library and libcurl read of the machine, but for the names of hosts.
  addrinfo* found = nullptr;
  if (::getaddrinfo("localhost", nullptr, nullptr, &found) == 0)
    ::freeaddrinfo(found);
  registry::registry_client client{order.image, options};
  if (!limit_use(order.max_bytes))
    return failed("limiting the process that fetches");
  if (!give_up_rights(place, parent))
    return failed("taking its rights from the process that fetches");
  if (auto ok = allow_only_fetch_calls(); !ok)
    return ok.reason();

  registry::pull_options how;
  how.which = order.which;
  how.max_bytes = order.max_bytes;
  how.is_here = [&](const std::string& digest) { return order.here.contains(digest); };
  auto next = std::chrono::steady_clock::now();
  how.on_progress = [&](const registry::pull_progress& now) {
    if (std::chrono::steady_clock::now() < next)
      return;
    next = std::chrono::steady_clock::now() + 50ms;
    tell(way, {fetch_news::progress, 0, now});
  };
  return registry::pull(client, order.image, "/layout", how, options.cancelled);
}

[[noreturn]] void run_child(const fetch_order& order, const pull_place& place, int way,
                            pid_t parent) {
  // What ends a command by the terminal is for the parent to hear, and ends this one with it.
  ::setpgid(0, 0);
  for (const int each : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    ::signal(each, SIG_DFL);
  for (const int each : {SIGPIPE, SIGXFSZ})
    ::signal(each, SIG_IGN);
  ::prctl(PR_SET_NAME, "insula-fetch");
  ::umask(022);
  keep_only(way, place.lock());
  way = way_out;
  const auto made = fetch(order, place, way, parent);
  if (made)
    tell(way, {made->was_here ? fetch_news::was_here : fetch_news::pulled, 0, {}}, made->digest);
  else
    tell(way, {fetch_news::failed, static_cast<std::uint32_t>(made.reason().code), {}},
         made.reason().message);
  ::_exit(0);
}

// ---- The parent

class child {
public:
  explicit child(pid_t pid)
      : pid_(pid) {}
  ~child() {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  child(const child&) = delete;
  child& operator=(const child&) = delete;

private:
  const pid_t pid_;
};

/// None: there is more to come.
std::optional<result<registry::pulled>> judge(const news_head& head, std::string words) {
  switch (head.kind) {
    case fetch_news::progress: return std::nullopt;
    case fetch_news::pulled:
    case fetch_news::was_here:
      if (!images::is_digest(words))
        break;
      return registry::pulled{std::move(words), head.kind == fetch_news::was_here};
    case fetch_news::failed:
      return error{head.code >= static_cast<std::uint32_t>(errc::invalid_request) &&
                       head.code <= static_cast<std::uint32_t>(errc::machine_full)
                     ? static_cast<errc>(head.code)
                     : errc::io_failed,
                   printable(std::move(words))};
  }
  return error{errc::io_failed, "the process that fetches says what makes no sense"};
}

/// As the name service of the C library reads them, which knows no other root.
void copy_into(const std::string& directory, const char* from) {
  std::error_code ignored;
  const auto to = directory + from;
  const auto fresh = to + ".new";
  fs::copy_file(from, fresh, fs::copy_options::overwrite_existing, ignored);
  ::chmod(fresh.c_str(), 0644);
  if (!ignored)
    fs::rename(fresh, to, ignored);
}

/// The directory of all places, which is made; it is held by those who make places and remove them.
/// None: errno says why.
unique_fd hold_all(const std::string& path) {
  while (true) {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      return {};
    unique_fd here{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    struct stat mine {
    }, there{};
    if (here && (::flock(here.get(), LOCK_EX) != 0 || ::fstat(here.get(), &mine) != 0))
      return {};
    // The last one out removes it.
    if (here && ::stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino)
      return here;
    if (errno != ENOENT)
      return {};
  }
}

} // namespace

result<pull_place> pull_place::take(const std::string& state_directory, const std::string& what) {
  const auto all = state_directory + "/pulls";
  std::error_code refused;
  if (fs::create_directories(state_directory, refused))
    ::chmod(state_directory.c_str(), 0711);
  const auto here = hold_all(all);
  if (!here)
    return failed(all);
  constexpr std::size_t enough = 32;
  const auto digest = images::digest_of(what);
  const auto name = digest.substr(digest.find(':') + 1, enough);
  images::for_each_name(here.get(), [&](const std::string& each) {
    const unique_fd lock{
      ::openat(here.get(), (each + "/lock").c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC)};
    struct stat info {};
    const bool old = lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 &&
                     ::fstat(lock.get(), &info) == 0 &&
                     info.st_mtim.tv_sec + kept_for_s < std::time(nullptr);
    if (old && each != name)
      images::remove_all_at(here.get(), each.c_str());
    return true;
  });

  const auto path = all + "/" + name, layout = path + "/layout";
  for (const auto& each : {path, path + "/etc", layout})
    if (::mkdir(each.c_str(), 0711) != 0 && errno != EEXIST)
      return failed(each);
  unique_fd mine{::open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)};
  if (!mine || ::chmod(path.c_str(), 0711) != 0 || ::chmod((path + "/etc").c_str(), 0755) != 0 ||
      ::chown(layout.c_str(), fetcher, fetcher) != 0)
    return failed(path);
  // One that was killed a moment ago may have a child that is not gone yet.
  int tries = 0;
  while (::flock(mine.get(), LOCK_EX | LOCK_NB) != 0) {
    if (++tries == 100)
      return error{errc::limit_reached, "another one fetches this image"};
    std::this_thread::sleep_for(10ms);
  }
  ::futimens(mine.get(), nullptr);
  for (const char* each : {"/etc/resolv.conf", "/etc/hosts"})
    copy_into(path, each);
  return pull_place{path, std::move(mine)};
}

bool pull_place::is_empty() const {
  bool empty = true;
  for (const char* each : {"/blobs/sha256", "/blobs/sha512"}) {
    const unique_fd here{
      ::open((layout() + each).c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    const auto none = [](const std::string&) { return false; };
    empty = empty && (!here || images::for_each_name(here.get(), none));
  }
  return empty;
}

void pull_place::remove() {
  const auto slash = path_.rfind('/');
  const auto all = path_.substr(0, slash);
  if (const auto here = hold_all(all)) {
    images::remove_all_at(here.get(), path_.substr(slash + 1).c_str());
    ::rmdir(all.c_str()); // Unless there are others.
  }
}

result<registry::pulled>
fetch_image(const fetch_order& order, const pull_place& place,
            const std::function<void(const registry::pull_progress&)>& on_progress,
            const std::function<bool()>& cancelled) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return failed("socketpair");
  const unique_fd way{ends[0]};
  unique_fd theirs{ends[1]};
  const auto parent = ::getpid();
  const auto pid = ::fork();
  if (pid < 0)
    return failed("starting the process that fetches");
  if (pid == 0)
    run_child(order, place, theirs.get(), parent);
  const child running{pid};
  theirs.reset();
  while (true) {
    if (cancelled())
      return error{errc::deadline_exceeded, "the pull was cancelled"};
    pollfd some{way.get(), POLLIN, 0};
    constexpr int moment_ms = 100;
    if (::poll(&some, 1, moment_ms) <= 0)
      continue;
    news_head head{};
    std::array<char, longest_words> words;
    std::array<iovec, 2> parts{{{&head, sizeof head}, {words.data(), words.size()}}};
    const auto n = ::readv(way.get(), parts.data(), parts.size());
    if (n < static_cast<ssize_t>(sizeof head))
      return error{errc::io_failed, "the process that fetches has ended"};
    if (head.kind == fetch_news::progress)
      on_progress(head.now);
    if (auto made = judge(head, {words.data(), static_cast<std::size_t>(n) - sizeof head}))
      return *made;
  }
}

} // namespace insula
