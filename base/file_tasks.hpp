#pragma once

#include "base/stream_frames.hpp"

#include <cstddef>
#include <cstdint>

/// What can be done with files in a sandbox besides reading and replacing a whole one. A task is
/// told words, and answers through a socket as a read does (stream_frames.hpp): with a file_head
/// and, if its error is 0, frames. put takes frames first, as a write does, and answers with a
/// file_head alone. Of several groups of words, `size` of a head with an error says which one
/// failed; those before it are done.
///
/// A path that ends with /. is that of a directory, to which links may lead.
///
/// mode: octal digits; empty: as it is. owner, group: a name that the sandbox knows, or a number;
/// empty: as it is.
namespace insula {

enum class file_task : std::uint32_t {
  look = 1,     ///< path… Frames: its entry for each.
  list,         ///< path, depth. Entries of what is below it, each directory's after it.
  search,       ///< path, pattern… Entries of what is no directory and has such a name.
  read,         ///< path, first, last: bytes, both counted, from 0 on. No last: to its end. No
                ///< first: so many at its end. Frames: its entry, then bytes; `size` of the head
                ///< is where they begin. ERANGE: there are none such, of a file of `size`.
  put,          ///< path, mode, owner, group.
  remove,       ///< path… What is not there is fine; a directory is an error.
  remove_trees, ///< path… What is not there is fine.
  make_directories, ///< (path, mode, owner, group)… The last three only for one that is made.
  permit,           ///< (path, mode, owner, group)…
  move,      ///< (source, target)… Makes the directories above; the target must not be there.
  replace,   ///< (path, old, new)… Frames: how often, for each, as 64 bits.
  name_user, ///< name, uid, gid, home, shell, directory, link, how; all paths absolute. Root's. The
             ///< sandbox's user with these ids gets a name, a home and a shell, and its group the
             ///< same name, which nobody else has then; home and directory are made, as the
             ///< user's; the link leads to the directory, if there is at most an empty one in its
             ///< place. how `anew`: directories that are there become the user's. Else they stay
             ///< as they are, and so does a user that has the name.
  trust, ///< pem. Root's. Takes frames first, as a write does: the bundle for a sandbox that has
         ///< none. The certificate goes where programs look for authorities, and into the bundle
         ///< (trust_bundle), in place of that of an earlier `trust`. Answers with a file_head
         ///< alone.
};

/// What one task can be told. A byte more for each word's end.
inline constexpr std::size_t max_task_words = 4096;
inline constexpr std::size_t max_task_bytes = 192 * 1024;

/// Whether a word is a path.
constexpr bool is_path(file_task what, std::size_t word) {
  switch (what) {
    case file_task::look:
    case file_task::remove:
    case file_task::remove_trees:
    case file_task::move: return true;
    case file_task::list:
    case file_task::search:
    case file_task::read:
    case file_task::put: return word == 0;
    case file_task::make_directories:
    case file_task::permit: return word % 4 == 0;
    case file_task::replace: return word % 3 == 0;
    case file_task::name_user:
    case file_task::trust: return false; // Nothing of them is completed.
  }
  return false;
}

/// Followed by the path and the names of owner and group; a frame has whole ones only. Links are
/// told of themselves.
struct file_entry {
  std::uint32_t path_bytes;
  std::uint32_t owner_bytes;
  std::uint32_t group_bytes;
  file_kind kind;
  std::uint32_t mode; ///< Permission bits.
  std::uint32_t reserved;
  std::uint64_t size;
  std::int64_t modified_ns; ///< Unix time; and when the file's inode was changed.
  std::int64_t changed_ns;
};

} // namespace insula
