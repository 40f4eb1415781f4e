#include "tests/abuse/attack/attacks.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace insula::attack {

namespace {

/// What no disk makes smaller.
void fill_with_noise(char* bytes, std::size_t count) {
  unsigned long long state = 88'172'645'463'325'252ull;
  for (std::size_t i = 0; i + sizeof state <= count; i += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes + i, &state, sizeof state);
  }
}

alignas(4096) char block[1 << 16];

} // namespace

void fill_bytes(const char* directory) {
  const std::string name = std::string{directory} + "/full";
  fill_with_noise(block, sizeof block);
  const auto fill = [&name] {
    const int file = ::open(name.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0644);
    long mebibytes = 0, written = 0;
    for (ssize_t n; file >= 0 && (n = ::write(file, block, sizeof block)) > 0;)
      written += n;
    const int why = errno;
    mebibytes = written >> 20;
    ::close(file);
    errno = why;
    return mebibytes;
  };
  met_limit(fill());
  for (;;) { // Removed and written again: the disk gets no rest.
    fill();
    ::unlink(name.c_str());
  }
}

void fill_inodes(const char* directory) {
  if (::chdir(directory) != 0 || (::mkdir("many", 0755) != 0 && errno != EEXIST) ||
      ::chdir("many") != 0)
    ::_exit(1);
  char name[32];
  for (long count = 0;; ++count) {
    std::snprintf(name, sizeof name, "%ld", count);
    const int file = ::open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (file < 0) {
      met_limit(count);
      break;
    }
    ::close(file);
  }
  press_on();
}

void many_locks(const char* kind, long wanted) {
  constexpr long per_file = 800; // The kernel compares each with all others of its file.
  const int set = std::string_view{kind} == "open" ? F_OFD_SETLK : F_SETLK;
  long taken = 0;
  while (taken < wanted) {
    const auto name = "locked" + std::to_string(taken / per_file);
    const int file = ::open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0)
      break;
    for (long at = per_file; at > 0 && taken < wanted; --at, ++taken) {
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_start = 2 * at;
      lock.l_len = 1;
      if (::fcntl(file, set, &lock) != 0)
        break;
    }
  }
  if (taken == wanted)
    errno = 0;
  met_limit(taken);
  press_on();
}

void many_directories(const char* place, long handles, long names) {
  if (::chdir(place) != 0)
    ::_exit(1);
  const std::string tail(200, 'n');
  for (long i = 0; i < names; ++i)
    if (::symlink("x", (std::to_string(i) + tail).c_str()) != 0 && errno != EEXIST)
      break;
  long count = 0;
  errno = 0;
  for (; count < handles; ++count) {
    // After a change the kernel gathers the names anew, and the older handles keep theirs.
    const auto change = "change" + std::to_string(count % 2);
    ::close(::open(change.c_str(), O_CREAT | O_WRONLY, 0600));
    ::unlink(("change" + std::to_string((count + 1) % 2)).c_str());
    DIR* const all = ::opendir(".");
    if (all == nullptr)
      break;
    while (::readdir(all) != nullptr) {
    }
    errno = 0;
  }
  met_limit(count);
  press_on();
}

void deep_directories(long levels) {
  const std::string name(255, 'd');
  long made = 0;
  while (made < levels && ::mkdir(name.c_str(), 0755) == 0 && ::chdir(name.c_str()) == 0)
    ++made;
  if (made == levels)
    errno = 0;
  met_limit(made);
}

void flood(long gibibytes) {
  std::memset(block, 'y', sizeof block);
  for (long long left = gibibytes << 30; left > 0;) {
    const ssize_t n = ::write(STDOUT_FILENO, block, sizeof block);
    if (n <= 0)
      ::_exit(1);
    left -= n;
  }
}

void chatter() {
  errno = 0;
  met_limit(0);
  std::memset(block, 'y', sizeof block);
  for (;;)
    if (::write(STDOUT_FILENO, block, sizeof block) < 0)
      ::_exit(1);
}

} // namespace insula::attack
