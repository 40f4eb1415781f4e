#include "runtime/agent/port_list.hpp"

#include "runtime/agent/channel.hpp"

#include <arpa/inet.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace insula::runtime::agent {

namespace {

/// What is inside may have any number of descriptors: what has been found by then is told.
constexpr int longest_search_s = 3;

struct listening_socket {
  unsigned long inode;
  unsigned port;
  pid_t pid;
  char address[INET6_ADDRSTRLEN];
  char name[16];
};

listening_socket found[max_listed_ports];
int count = 0;

/// The kernel prints addresses as 32-bit words in the machine's own order.
bool read_address(const char* hex, char* text) {
  std::uint32_t words[4] = {};
  const auto digits = std::strlen(hex);
  if (digits != 8 && digits != 32)
    return false;
  for (std::size_t at = 0; at < digits; at += 8) {
    char word[9] = {};
    std::memcpy(word, hex + at, 8);
    words[at / 8] = static_cast<std::uint32_t>(std::strtoul(word, nullptr, 16));
  }
  return ::inet_ntop(digits == 8 ? AF_INET : AF_INET6, words, text, INET6_ADDRSTRLEN) != nullptr;
}

void read_table(const char* path) {
  std::FILE* table = std::fopen(path, "re");
  if (table == nullptr)
    return; // This kernel may have no IPv6.
  char line[512];
  while (count < max_listed_ports && std::fgets(line, sizeof line, table) != nullptr) {
    constexpr unsigned listens = 0x0a;
    char address[33] = {};
    unsigned state = 0;
    auto& next = found[count];
    next = {};
    const int read = std::sscanf(line,
                                 " %*d: %32[0-9A-Fa-f]:%x %*32[0-9A-Fa-f]:%*x %x %*x:%*x %*x:%*x "
                                 "%*x %*u %*d %lu",
                                 address, &next.port, &state, &next.inode);
    if (read == 4 && state == listens && read_address(address, next.address))
      ++count;
  }
  std::fclose(table);
}

void become_for_files(uid_t uid, gid_t gid) {
  // The saved ids stay root's, so that there is a way back. Of this thread only, which is the only
  // one: the C library would tell others.
  if (uid == 0)
    ::syscall(SYS_setresuid, -1, uid, -1);
  ::syscall(SYS_setresgid, -1, gid, -1);
  if (uid != 0)
    ::syscall(SYS_setresuid, -1, uid, -1);
}

void read_name(int process, char* name) {
  const int file = ::openat(process, "comm", O_RDONLY | O_CLOEXEC);
  const ssize_t n = file < 0 ? -1 : ::read(file, name, 15);
  ::close(file);
  for (ssize_t i = 0; i < n; ++i)
    if (name[i] == '\n')
      name[i] = '\0';
    else if (name[i] <= ' ' || name[i] > '~')
      name[i] = '?'; // A program chooses it.
}

/// Which of the sockets has it open? Answers how many it was the first for.
int look_into(int process, pid_t pid) {
  const int fds = ::openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* all = fds < 0 ? nullptr : ::fdopendir(fds);
  if (all == nullptr) {
    ::close(fds);
    return 0;
  }
  int owned = 0;
  while (const dirent* each = ::readdir(all)) {
    char target[64];
    const ssize_t n = ::readlinkat(fds, each->d_name, target, sizeof target - 1);
    if (n <= 0)
      continue;
    target[n] = '\0';
    unsigned long inode = 0;
    if (std::sscanf(target, "socket:[%lu]", &inode) != 1)
      continue;
    for (int i = 0; i < count; ++i)
      if (found[i].inode == inode && found[i].pid == 0) {
        found[i].pid = pid;
        read_name(process, found[i].name);
        ++owned;
      }
  }
  ::closedir(all);
  return owned;
}

long now_s() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec;
}

void find_owners() {
  DIR* processes = ::opendir("/proc");
  if (processes == nullptr)
    return;
  const long deadline = now_s() + longest_search_s;
  int missing = count;
  while (missing > 0 && now_s() <= deadline) {
    const dirent* each = ::readdir(processes);
    if (each == nullptr)
      break;
    const auto pid = static_cast<pid_t>(std::strtol(each->d_name, nullptr, 10));
    if (pid <= 1)
      continue;
    const int process =
      ::openat(::dirfd(processes), each->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat owner {};
    if (process >= 0 && ::fstat(process, &owner) == 0) {
      become_for_files(owner.st_uid, owner.st_gid);
      missing -= look_into(process, pid);
      become_for_files(0, 0);
    }
    ::close(process);
  }
  ::closedir(processes);
}

} // namespace

void send_ports(int channel) {
  read_table("/proc/self/net/tcp");
  read_table("/proc/self/net/tcp6");
  find_owners();
  for (int i = 0; i < count; ++i) {
    char line[128];
    const auto& each = found[i];
    const int length =
      std::snprintf(line, sizeof line, "%u %s %d %s\n", each.port, each.address,
                    static_cast<int>(each.pid), each.name[0] == '\0' ? "?" : each.name);
    if (!send_all(channel, line, static_cast<std::size_t>(length)))
      return;
  }
}

} // namespace insula::runtime::agent
