#include "apps/fixed_files.hpp"

#include "runtime/descriptors.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <linux/capability.h>
#include <memory>
#include <poll.h>
#include <seccomp.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace insula {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t most_bytes = 1u << 20;
constexpr std::chrono::milliseconds patience = 5s; ///< For a file system that does not answer.
constexpr int most_links = 40;                     ///< As the kernel has it.

error failed(const std::string& what) {
  return {errc::launch_failed, what + ": " + std::strerror(errno)};
}

// ---- The child

struct user {
  uid_t uid;
  gid_t gid;
};

/// Can `who` put other files into this directory, or lead this link elsewhere?
bool is_in_hands_of(const user& who, const struct stat& what) {
  if (what.st_uid == who.uid)
    return true;
  if (S_ISLNK(what.st_mode))
    return false;
  const bool by_group = what.st_gid == who.gid && (what.st_mode & S_IWGRP) != 0;
  const bool by_all = (what.st_mode & S_IWOTH) != 0;
  return (by_group || by_all) && (what.st_mode & S_ISVTX) == 0;
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
    if (is_in_hands_of(who, info))
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
    if (is_in_hands_of(who, info))
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
  const auto again = "/proc/self/fd/" + std::to_string(at.get());
  return unique_fd{::open(again.c_str(), O_RDONLY | O_CLOEXEC)};
}

bool keep_only_reading_rights() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> rights{};
  rights[0].effective = rights[0].permitted = 1u << CAP_DAC_READ_SEARCH;
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_capset, &header, rights.data()) == 0;
}

bool allow_only_reading() {
  struct release {
    void operator()(void* context) const { ::seccomp_release(context); }
  };
  const std::unique_ptr<void, release> filter{::seccomp_init(SCMP_ACT_ERRNO(EPERM))};
  bool good = filter != nullptr;
  for (const int call :
       {SCMP_SYS(fstat), SCMP_SYS(newfstatat), SCMP_SYS(readlinkat), SCMP_SYS(close),
        SCMP_SYS(recvmsg), SCMP_SYS(sendmsg), SCMP_SYS(exit_group), SCMP_SYS(brk), SCMP_SYS(mmap),
        SCMP_SYS(munmap), SCMP_SYS(mremap), SCMP_SYS(madvise), SCMP_SYS(futex),
        SCMP_SYS(rt_sigreturn), SCMP_SYS(restart_syscall), SCMP_SYS(sched_yield)})
    good = good && ::seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, call, 0) == 0;
  // For reading, and nothing is made. With O_PATH the kernel does not look at the others.
  constexpr scmp_datum_t other_ways = O_ACCMODE | O_CREAT | O_TRUNC;
  good = good && ::seccomp_rule_add(filter.get(), SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
                                    SCMP_A2(SCMP_CMP_MASKED_EQ, other_ways, 0)) == 0;
  return good && ::seccomp_load(filter.get()) == 0;
}

/// What the child says beside a descriptor.
struct answer {
  int why; ///< 0, or the errno of having none.
};

[[noreturn]] void serve(int way, const std::vector<std::string>& paths, const user& who) {
  // The signals that end a server are blocked, and stay so: this one ends with the server's socket.
  const auto number = static_cast<unsigned>(way);
  if (number > 0)
    ::close_range(0, number - 1, 0);
  ::close_range(number + 1, ~0u, 0);
  ::prctl(PR_SET_NAME, "insula-files");
  if (!keep_only_reading_rights() || !allow_only_reading())
    ::_exit(1);
  for (;;) {
    unsigned char which = 0;
    int none[1], count = 0;
    if (runtime::receive_packet(way, {&which, 1}, none, count, 0) != 1)
      ::_exit(0);
    if (count > 0)
      ::close(none[0]);
    errno = ENOENT;
    const auto file = which < paths.size() ? open_out_of_reach(paths[which], who) : unique_fd{};
    answer said{file ? 0 : errno};
    iovec part{&said, sizeof said};
    const int fd = file.get();
    if (runtime::send_packet<1>(way, &part, 1, &fd, file ? 1 : 0) < 0)
      ::_exit(0);
  }
}

} // namespace

// ---- The server

result<fixed_files> fixed_files::prepare(std::vector<std::string> paths, uid_t uid, gid_t gid) {
  fixed_files files;
  files.paths_ = std::move(paths);
  files.has_child_ = uid != 0 && !files.paths_.empty();
  if (!files.has_child_)
    return files;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return failed("socketpair");
  files.child_.reset(ends[0]);
  const unique_fd theirs{ends[1]};
  const auto child = ::fork();
  if (child < 0)
    return failed("starting what reads the configuration again");
  if (child == 0)
    serve(theirs.get(), files.paths_, {uid, gid});
  return files;
}

result<fixed_files::content> fixed_files::read(std::size_t which) {
  const auto& path = paths_.at(which);
  const auto refused = [&](const std::string& why) {
    return error{errc::io_failed, path + ": cannot be read: " + why};
  };
  const auto open_ourselves = [&] {
    return unique_fd{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  };
  unique_fd file;
  if (!has_child_) {
    file = open_ourselves();
  } else {
    const auto number = static_cast<unsigned char>(which);
    pollfd answered{child_.get(), POLLIN, 0};
    answer said{};
    int fds[1], count = 0;
    if (::send(child_.get(), &number, 1, MSG_NOSIGNAL) != 1 ||
        ::poll(&answered, 1, static_cast<int>(patience.count())) != 1 ||
        runtime::receive_packet(child_.get(), {&said, sizeof said}, fds, count, MSG_DONTWAIT) !=
          static_cast<ssize_t>(sizeof said)) {
      child_.reset(); // A late answer would be taken for that to the next question.
      return refused("the process that opens it has ended or does not answer");
    }
    if (count > 0)
      file.reset(fds[0]);
    errno = said.why;
    if (said.why == EPERM && !(file = open_ourselves()))
      return refused(
        "the server's user could change where this path leads, so root does not go there for it");
  }
  if (!file)
    return refused(std::strerror(errno));
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return refused("it is no regular file");
  content found;
  found.others_can_read = (info.st_mode & (S_IRGRP | S_IROTH)) != 0;
  std::array<char, 16 * 1024> buffer;
  ssize_t n = 0;
  while ((n = ::read(file.get(), buffer.data(), buffer.size())) > 0) {
    found.text.append(buffer.data(), static_cast<std::size_t>(n));
    if (found.text.size() > most_bytes)
      return refused("it has more than 1 MiB");
  }
  if (n < 0)
    return refused(std::strerror(errno));
  return found;
}

} // namespace insula
