#include "apps/image_room.hpp"

#include "apps/room_protocol.hpp"
#include "apps/room_settings.hpp"
#include "base/program_words.hpp"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace insula {

namespace {

using namespace std::chrono_literals;

/// A room whose socket is closed has ended, or is about to. It need not, if it was taken over.
constexpr auto end_patience = 2s;

/// What the room's program has of the server's environment: how a pull reaches registries, and how
/// the program itself is put together. All else may be a secret.
constexpr std::array passed_on {
  "SSL_CERT_FILE", "http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy",
    "NO_PROXY", "LD_LIBRARY_PATH",
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS",
#endif
};

std::vector<std::string> environment_of_room() {
  std::vector<std::string> all;
  for (const std::string name : passed_on)
    if (const char* value = std::getenv(name.c_str()))
      all.push_back(name + "=" + value);
  return all;
}

/// 0, or why it has not started.
int start(const unique_fd& way, const unique_fd& settings, const std::string& state_directory,
          pid_t& made) {
  namespace there = room_protocol;
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, way.get(), there::way_there);
  ::posix_spawn_file_actions_adddup2(&actions, settings.get(), there::settings_there);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, there::settings_there + 1);
  // The directory is for those who look at a list of processes.
  std::vector<std::string> words{image_room::program_name, state_directory};
  auto environment = environment_of_room();
  // The signals that end a server are blocked, and stay so: the room ends with the server's socket.
  const int why = ::posix_spawn(&made, "/proc/self/exe", &actions, nullptr,
                                program_words(words).data(), program_words(environment).data());
  ::posix_spawn_file_actions_destroy(&actions);
  return why;
}

} // namespace

std::optional<told_image> read_told_image(std::string_view text) {
  told_image is;
  for (auto* part : {&is.record, &is.tree, &is.bundle}) {
    const auto end = text.find('\0');
    if (end == text.npos)
      return std::nullopt;
    *part = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  std::istringstream lines{std::string{text}};
  for (std::string line; std::getline(lines, line);)
    if (const auto blank = line.find(' '); blank != line.npos)
      is.programs[line.substr(0, blank)] = line.substr(blank + 1);
  return is;
}

result<image_room> image_room::prepare(const settings& how) {
  const auto failed = [] {
    return error{errc::launch_failed,
                 std::string{"starting the process that brings images: "} + std::strerror(errno)};
  };
  const auto kept = keep_room_settings(how);
  if (!kept)
    return error{errc::launch_failed, kept.reason().message};
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return failed();
  image_room made;
  made.way_.reset(ends[0]);
  const unique_fd theirs{ends[1]};
  // Above the numbers that they get there, so that neither is overwritten before it is copied.
  constexpr int first = room_protocol::settings_there + 1;
  const unique_fd way{::fcntl(theirs.get(), F_DUPFD_CLOEXEC, first)};
  const unique_fd file{::fcntl(kept->get(), F_DUPFD_CLOEXEC, first)};
  if (!way || !file)
    return failed();
  pid_t process = -1;
  if (const int why = start(way, file, how.state_directory, process); why != 0) {
    errno = why;
    return failed();
  }
  made.process_ = child_process{process};
  return made;
}

image_room image_room::on(unique_fd way) {
  image_room made;
  made.way_ = std::move(way);
  return made;
}

bool image_room::send(const room_order& order, std::string_view text) const {
  return room_protocol::send_packet(way_.get(), order, text, MSG_DONTWAIT);
}

std::optional<room_packet> image_room::receive() const {
  auto got = room_protocol::receive_packet<room_head>(way_.get());
  if (!got) {
    ::shutdown(way_.get(), SHUT_RDWR); // One that has said what makes no sense ends as well.
    process_.take_end(end_patience);
    return std::nullopt;
  }
  return room_packet{got->first, std::move(got->second)};
}

} // namespace insula
