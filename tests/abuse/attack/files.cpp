#include "tests/abuse/attack/attacks.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <string>
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

void many_locks(long wanted) {
  constexpr long per_file = 800; // The kernel compares each with all others of its file.
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
      if (::fcntl(file, F_SETLK, &lock) != 0)
        break;
    }
  }
  if (taken == wanted)
    errno = 0;
  met_limit(taken);
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

} // namespace insula::attack
