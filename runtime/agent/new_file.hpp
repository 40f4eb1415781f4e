#pragma once

#include <limits.h>
#include <sys/stat.h>

namespace insula::runtime::agent {

/// For a child that is still root, in the directory that the launcher has left the agent in: the
/// sandbox's own one below /proc, which nobody inside can reach. Makes the place there in which
/// new files are made, and removes files of writers that were killed.
void open_workshop();

/// A file that is to take the place of another one, or of none, as a whole: until then it has no
/// name, so that it goes with its writer. It is made in the workshop, where no watcher sees it, and
/// its move from there is all that a watcher of its directory is told.
///
/// Where something of its own is mounted (/dev/shm, a bucket) no file can be moved to from outside,
/// and a directory that hands on its group or an access list does so to what is made in it: there
/// it is made beside its place, and is seen for as long as putting it there takes. A file system
/// without nameless files shows it from the beginning.
class new_file {
public:
  new_file() = default;
  ~new_file() { give_up(); }
  new_file(const new_file&) = delete;
  new_file& operator=(const new_file&) = delete;

  /// To be at `path`, a name without links in it. False: errno says why; EACCES, EPERM and EROFS if
  /// no file can be made there.
  bool open(const char* path);
  /// To be copied from, and nothing else. False: there is no workshop.
  bool open_for_copy();

  int fd() const { return fd_; }

  /// Closes it and puts it in its place. False: errno says why, and nothing is left of it.
  bool put_in_place();

private:
  bool make(int directory, const char* named);
  bool give_name();
  void give_up();

  int fd_ = -1;
  int directory_ = -1; ///< Of name_.
  bool named_ = false;
  const char* path_ = nullptr;
  char name_[PATH_MAX + 32] = {}; ///< The one that it has, or gets, before it is in its place.
};

} // namespace insula::runtime::agent
