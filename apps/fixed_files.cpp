#include "apps/fixed_files.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <memory>
#include <poll.h>
#include <seccomp.h>
#include <sstream>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace insula {

namespace {

using clock = std::chrono::steady_clock;

constexpr std::size_t most_bytes = 1u << 20;
constexpr std::size_t piece_bytes = 16 * 1024;
constexpr int most_links = 40; ///< As the kernel has it.

error failed(const std::string& what) {
  return {errc::launch_failed, what + ": " + std::strerror(errno)};
}

// ---- What the two say: packets

struct question {
  std::uint32_t number;
  std::uint32_t which;
};

/// Before a piece of the file. An answer has one or more.
struct piece_head {
  std::uint32_t number; ///< Of the question.
  int why;              ///< 0, or the errno of having no file.
  bool last;
  bool others_can_read;
};

// ---- The child

struct user {
  uid_t uid;
  gid_t gid;
};

std::string place_of(const unique_fd& opened) {
  return "/proc/self/fd/" + std::to_string(opened.get());
}

/// Can `who` put other files into this directory, or lead this link elsewhere?
bool is_in_hands_of(const user& who, const unique_fd& opened, const struct stat& what) {
  if (who.uid == 0)
    return false; // It needs nobody for that.
  if (what.st_uid == who.uid)
    return true;
  if (S_ISLNK(what.st_mode) || (what.st_mode & S_ISVTX) != 0)
    return false;
  if ((what.st_mode & S_IWOTH) != 0)
    return true;
  if ((what.st_mode & S_IWGRP) == 0)
    return false;
  // With a list of further users and groups, that bit says what each of those has at most.
  return what.st_gid == who.gid ||
         ::getxattr(place_of(opened).c_str(), "system.posix_acl_access", nullptr, 0) >= 0 ||
         (errno != ENODATA && errno != EOPNOTSUPP);
}

void put_in_front(std::deque<std::string>& parts, const std::string& path) {
  std::istringstream words{path};
  std::deque<std::string> found;
  for (std::string word; std::getline(words, word, '/');)
    if (!word.empty() && word != ".")
      found.push_back(word);
  parts.insert(parts.begin(), found.begin(), found.end());
}

unique_fd start_of(const std::string& path) {
  return unique_fd{::open(path.starts_with('/') ? "/" : ".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
}

/// Goes to the file part by part and link by link. EPERM: `who` could have had it lead elsewhere.
unique_fd open_out_of_reach(const std::string& path, const user& who) {
  const auto refuse = [](int why) {
    errno = why;
    return unique_fd{};
  };
  std::deque<std::string> parts;
  put_in_front(parts, path);
  auto at = start_of(path);
  struct stat info {};
  for (int links = 0; at && !parts.empty();) {
    if (::fstat(at.get(), &info) != 0)
      return {};
    if (is_in_hands_of(who, at, info))
      return refuse(EPERM);
    const auto name = parts.front();
    parts.pop_front();
    unique_fd next{::openat(at.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC)};
    if (!next || ::fstat(next.get(), &info) != 0)
      return {};
    if (!S_ISLNK(info.st_mode)) {
      at = std::move(next);
      continue;
    }
    std::array<char, 4096> target{};
    const auto size = ::readlinkat(next.get(), "", target.data(), target.size() - 1);
    if (is_in_hands_of(who, next, info))
      return refuse(EPERM);
    if (size <= 0 || ++links > most_links)
      return refuse(ELOOP);
    put_in_front(parts, target.data());
    if (target.front() == '/')
      at = start_of("/");
  }
  if (!at || ::fstat(at.get(), &info) != 0)
    return {};
  if (!S_ISREG(info.st_mode))
    return refuse(EINVAL);
  return unique_fd{::open(place_of(at).c_str(), O_RDONLY | O_CLOEXEC)};
}

/// For the file system the child is the server's user, who may besides read everything, or not.
bool may_read_everything(bool it_may) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> rights{};
  rights[0].permitted = 1u << CAP_DAC_READ_SEARCH;
  rights[0].effective = it_may ? rights[0].permitted : 0;
  return ::syscall(SYS_capset, &header, rights.data()) == 0;
}

bool keep_only_reading_rights(const user& who) {
  ::setfsgid(who.gid);
  ::setfsuid(who.uid);
  return ::setgroups(0, nullptr) == 0 && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         may_read_everything(true);
}

bool allow_only_reading() {
  struct release {
    void operator()(void* context) const { ::seccomp_release(context); }
  };
  const std::unique_ptr<void, release> filter{::seccomp_init(SCMP_ACT_ERRNO(EPERM))};
  bool good = filter != nullptr;
  // capset() takes away or gives back the one right that is left.
  for (const int call :
       {SCMP_SYS(fstat), SCMP_SYS(newfstatat), SCMP_SYS(readlinkat), SCMP_SYS(getxattr),
        SCMP_SYS(read), SCMP_SYS(close), SCMP_SYS(capset), SCMP_SYS(recvfrom), SCMP_SYS(sendmsg),
        SCMP_SYS(exit_group), SCMP_SYS(brk), SCMP_SYS(mmap), SCMP_SYS(munmap), SCMP_SYS(mremap),
        SCMP_SYS(madvise), SCMP_SYS(futex), SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall),
        SCMP_SYS(sched_yield)})
    good = good && ::seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, call, 0) == 0;
  // For reading, and nothing is made. With O_PATH the kernel does not look at the others.
  constexpr scmp_datum_t other_ways = O_ACCMODE | O_CREAT | O_TRUNC;
  good = good && ::seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
                                    SCMP_A2(SCMP_CMP_MASKED_EQ, other_ways, 0)) == 0;
  return good && ::seccomp_load(filter.get()) == 0;
}

/// None: errno says why.
unique_fd open_file(const std::string& path, const user& who) {
  auto file = open_out_of_reach(path, who);
  if (!file && errno == EPERM && may_read_everything(false)) {
    file.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    may_read_everything(true);
    errno = EPERM; // That it may not do it either is the less surprising of both reasons.
  }
  struct stat info {};
  if (file && (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))) {
    file.reset();
    errno = EINVAL;
  }
  return file;
}

/// False: the server has ended.
bool answer(int way, const question& asked, const std::vector<std::string>& paths,
            const user& who) {
  piece_head head{asked.number, 0, false, false};
  std::array<char, piece_bytes> piece;
  const auto send = [&](std::size_t bytes) {
    std::array<iovec, 2> parts{{{&head, sizeof head}, {piece.data(), bytes}}};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = parts.size();
    return ::sendmsg(way, &message, MSG_NOSIGNAL) >= 0;
  };
  const auto end = [&](int why) {
    head.why = why;
    head.last = true;
    return send(0);
  };
  errno = ENOENT;
  const auto file = asked.which < paths.size() ? open_file(paths[asked.which], who) : unique_fd{};
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0)
    return end(errno);
  head.others_can_read = (info.st_mode & (S_IRGRP | S_IROTH)) != 0;
  std::size_t sent = 0;
  ssize_t n = 0;
  while ((n = ::read(file.get(), piece.data(), piece.size())) > 0) {
    sent += static_cast<std::size_t>(n);
    if (sent > most_bytes)
      return end(EFBIG);
    if (!send(static_cast<std::size_t>(n)))
      return false;
  }
  return end(n < 0 ? errno : 0);
}

[[noreturn]] void serve(int way, const std::vector<std::string>& paths, const user& who) {
  // The signals that end a server are blocked, and stay so: this one ends with the server's socket.
  const auto number = static_cast<unsigned>(way);
  if (number > 0)
    ::close_range(0, number - 1, 0);
  ::close_range(number + 1, ~0u, 0);
  ::prctl(PR_SET_NAME, "insula-files");
  if (!keep_only_reading_rights(who) || !allow_only_reading())
    ::_exit(1);
  question asked{};
  while (::recv(way, &asked, sizeof asked, 0) == static_cast<ssize_t>(sizeof asked) &&
         answer(way, asked, paths, who)) {
  }
  ::_exit(0);
}

// ---- The server

/// Why there is no file, for the operator.
std::string reason_of(int why) {
  switch (why) {
    case EPERM:
      return "the server's user could change where this path leads, so root does not go there for "
             "it";
    case EINVAL: return "it is no regular file";
    case EFBIG: return "it has more than 1 MiB";
    default: return std::strerror(why);
  }
}

enum class wait_end { there_is_something, too_late, nobody_waits };

wait_end wait_for(int way, const fixed_files::patience& how_long) {
  std::vector<pollfd> all{{way, POLLIN, 0}};
  for (const int each : how_long.ends)
    all.push_back({each, POLLIN, 0});
  int some = 0;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(how_long.until - clock::now());
    some =
      ::poll(all.data(), all.size(), static_cast<int>(std::max<std::int64_t>(0, left.count())));
  } while (some < 0 && errno == EINTR);
  if (some <= 0)
    return wait_end::too_late;
  const auto is_quiet = [](const pollfd& each) { return each.revents == 0; };
  return std::all_of(all.begin() + 1, all.end(), is_quiet) ? wait_end::there_is_something
                                                           : wait_end::nobody_waits;
}

} // namespace

result<fixed_files> fixed_files::prepare(std::vector<std::string> paths, uid_t uid, gid_t gid) {
  fixed_files files;
  files.paths_ = std::move(paths);
  if (files.paths_.empty())
    return files;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return failed("socketpair");
  files.way_.reset(ends[0]);
  const unique_fd theirs{ends[1]};
  const auto child = ::fork();
  if (child < 0)
    return failed("starting what reads the configuration again");
  if (child == 0)
    serve(theirs.get(), files.paths_, {uid, gid});
  files.child_ = child_process{child};
  return files;
}

result<fixed_files::content> fixed_files::read(std::size_t which, const patience& how_long) {
  const auto& path = paths_.at(which);
  const auto refused = [&](const std::string& why) {
    return error{errc::io_failed, path + ": cannot be read: " + why};
  };
  const question asked{++question_, static_cast<std::uint32_t>(which)};
  // It takes no further question while it has not done with some.
  if (way_ && ::send(way_.get(), &asked, sizeof asked, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
      errno != EAGAIN)
    way_.reset();
  content found;
  while (way_) {
    if (const auto how = wait_for(way_.get(), how_long); how != wait_end::there_is_something)
      return refused(how == wait_end::too_late ? "that takes too long" : "the server ends");
    piece_head head{};
    std::array<char, piece_bytes> piece;
    std::array<iovec, 2> parts{{{&head, sizeof head}, {piece.data(), piece.size()}}};
    const auto n = ::readv(way_.get(), parts.data(), parts.size());
    if (n < static_cast<ssize_t>(sizeof head)) {
      way_.reset();
      break;
    }
    if (head.number != asked.number)
      continue; // It has come too late for the question before.
    if (head.why != 0)
      return refused(reason_of(head.why));
    found.text.append(piece.data(), static_cast<std::size_t>(n) - sizeof head);
    found.others_can_read = head.others_can_read;
    if (head.last)
      return found;
  }
  child_.take_end(std::chrono::milliseconds{0});
  return refused("the process that reads it has ended; the server needs a restart");
}

} // namespace insula
