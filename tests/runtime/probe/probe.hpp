#pragma once

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/// Tries from inside of a sandbox what must not work, and what must. One line each: name=ALLOWED,
/// or name=<errno>. What is expected stands in expected.tsv. Static, so that it runs in any image.
namespace insula::probe {

/// Somewhere for the kernel to read from and to write to.
inline char bytes[4096];

/// Every attempt is a child, so that none spoils the next. It has worked when `what` is not
/// negative.
template <class Attempt>
void attempt(const char* name, Attempt what) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(5);
    errno = 0;
    const long worked = what();
    const char* why = ::strerrorname_np(errno);
    std::printf("%s=%s\n", name, worked >= 0 ? "ALLOWED" : why != nullptr ? why : "UNKNOWN");
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    std::printf("%s=KILLED(%d)\n", name, WTERMSIG(status));
}

/// Whether one of several works, else the errno of all of them, or of the first that has another.
template <class Attempt>
long any_of(long first, long last, Attempt what) {
  int common = 0;
  for (long each = first; each <= last; ++each) {
    errno = 0;
    if (what(each) >= 0)
      return 0;
    if (common != 0 && errno != common)
      return -1;
    common = errno;
  }
  errno = common;
  return -1;
}

inline long write_to(const char* path, const char* text) {
  const int file = ::open(path, O_WRONLY);
  return file < 0 ? -1 : ::write(file, text, std::strlen(text));
}

/// A file that reads as empty counts as nothing to be seen.
inline long read_from(const char* path) {
  const int file = ::open(path, O_RDONLY);
  const ssize_t n = file < 0 ? -1 : ::read(file, bytes, 16);
  if (n == 0)
    errno = ENODATA;
  return n > 0 ? n : -1;
}

inline long list(const char* path) {
  DIR* directory = ::opendir(path);
  if (directory == nullptr)
    return -1;
  int names = 0;
  while (const dirent* entry = ::readdir(directory))
    names += entry->d_name[0] != '.';
  if (names == 0)
    errno = ENODATA;
  return names > 0 ? names : -1;
}

template <class... Arguments>
long call(long number, Arguments... arguments) {
  return ::syscall(number, arguments...);
}

void namespaces_and_mounts();
void kernel_interfaces();
void sockets();
void processes();
void files();
void terminals();
void facts(); ///< Lines of another kind: name=<what there is>.

} // namespace insula::probe
