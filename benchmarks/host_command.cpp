#include "benchmarks/host_command.hpp"

#include "benchmarks/child.hpp"
#include "benchmarks/clock.hpp"
#include "benchmarks/load/spawn.hpp"

#include <cerrno>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace insula::bench {

host_times run_on_host(const std::vector<std::string>& argv) {
  static const auto env = plain_environment();
  host_times times;
  const auto since = clock::now();
  auto [output, write_end] = load::make_pipe();
  const auto pid = load::spawn({argv, env, write_end.get()});
  write_end.reset();
  char bytes[4096];
  for (;;) {
    const auto got = ::read(output.get(), bytes, sizeof bytes);
    if (got == 0)
      break;
    if (got > 0 && times.first_ms == 0)
      times.first_ms = ms_since(since);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  times.exit_ms = ms_since(since);
  if (times.first_ms == 0)
    times.first_ms = times.exit_ms;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::runtime_error(argv.front() + " ended with wait status " + std::to_string(status));
  return times;
}

std::vector<std::string> in_bwrap(const std::vector<std::string>& argv) {
  std::vector<std::string> all{
    "bwrap", "--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/",
    "/",     "--proc",         "/proc",         "--dev",         "/dev",      "--"};
  all.insert(all.end(), argv.begin(), argv.end());
  return all;
}

std::string find_program(const std::string& name) {
  for (const char* place : {"/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/"})
    if (::access((place + name).c_str(), X_OK) == 0)
      return place + name;
  return {};
}

} // namespace insula::bench
