#pragma once

#include "base/unique_fd.hpp"
#include "runtime/spawner/mount_visit.hpp"
#include "runtime/spawner/protocol.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace insula::runtime::spawner {

/// Where one sandbox's drive is a directory of other sandboxes, from the asking for it until the
/// other sandbox is no more. A visitor, a child that lives for moments and has a deadline, puts the
/// directory in its place; nothing here blocks.
///
/// One sandbox at a time may write to a drive: that counts here, and not in a server, so that it
/// holds while no server runs.
class drive_mounts {
public:
  using clock = std::chrono::steady_clock;

  /// How it went, as an answer to op::attach_drive.
  struct outcome {
    std::uint32_t slot;
    std::uint64_t name;
    int error = 0; ///< 0: it is there.
    mount_step failed = mount_step::none;
  };

  /// `watch`: from now on readable() is to be called when there is something.
  drive_mounts(std::function<void(const outcome&)> tell, std::function<void(int)> watch)
      : tell_(std::move(tell))
      , watch_(std::move(watch)) {}

  /// `files`: the drive's, as the sandbox of `process` sees owners, attached nowhere. `source`: the
  /// slot whose drive it is; none: it is of a snapshot, which nobody writes to. `path` has been
  /// checked. A drive that is at this path already is left there.
  void attach(const request& wanted, const std::string& path, std::optional<std::uint32_t> source,
              int process, unique_fd files);

  /// Its first process has been reaped, and with it all that is mounted in it. Its own drive is
  /// nobody's any more.
  void sandbox_ended(std::uint32_t slot);
  /// No visitor is in it.
  bool none_of(std::uint32_t slot) const;

  /// Is it of one of them? Then that has been read.
  bool readable(int fd);
  /// Was this child, which has ended, one of theirs?
  bool ended(pid_t child);
  /// In milliseconds for epoll_wait(), until look() has something to do; -1: never.
  int until_look() const;
  void look();

private:
  struct one {
    std::uint32_t slot;
    std::uint64_t name;
    std::string path;
    std::optional<std::uint32_t> source;
    bool writes;
    pid_t visitor = -1; ///< -1: it is in its place.
    unique_fd way{};    ///< To the visitor.
    visit_report report{mount_step::visit, ECHILD};
    bool gone = false; ///< Its sandbox is no more.
    clock::time_point due = clock::time_point::max();
  };
  void hear(one& mine);

  std::function<void(const outcome&)> tell_;
  std::function<void(int)> watch_;
  std::list<one> all_;
};

} // namespace insula::runtime::spawner
