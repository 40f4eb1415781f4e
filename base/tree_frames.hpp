#pragma once

#include "base/tree_groups.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

/// What travels through the socket between a tree operation (a child of the agent inside the
/// sandbox) and the one who asked for it. Native byte order: both ends are on one machine. Nothing
/// here is trusted by the asker.
///
/// Reading a tree: the child answers with a tree_result, and only if that is a success with
///     entries, an `end` last. Each is an entry_head, the name, the link's target, and for a file
///     exactly `size` bytes; behind a map, exactly those that the map names. Without the `end` the
///     tree was cut.
/// Writing a tree: the asker sends entries, an `end` last; after a file's strings come pieces, each
///     a piece_head and its bytes, an empty one last. The child then answers with a tree_result.
///     Without the `end` it gives up where it stands.
///
/// Names are relative to the tree's top, have no leading slash and no `..`, and are bytes of any
/// kind but NUL. The top itself is ".".
namespace insula {

enum class entry_kind : std::uint32_t {
  end = 0,
  file,
  directory,
  symlink,
  hard_link,  ///< Its target is a file that came before. Of trees that are read, in exact and
              ///< compact ones.
  fifo,       ///< Only when a tree is written, as what follows.
  special,    ///< A device, which nobody may make.
  measure,    ///< Only when a tree is read, as what follows. Before all others: `size` is that of
              ///< the tar archive, as base/tar_size.hpp has it. It has no name.
  map,        ///< Its target says where the next file, which has holes, has data: extents.
  same,       ///< Only when a tree is written, as fifo: it has been written already, and is to be
              ///< one file with its target, which came before, if that can be.
  attributes, ///< In whole trees, as what follows. Its target says what the next entry has beside
              ///< its mode and times: an attributes_head, then for each extended attribute an
              ///< attribute_head, its name and its value. It has no name.
  absent,     ///< What lies below has something of this name, and the tree has not.
  group,      ///< Of a disk that is read, as what follows: a group of entries begins. Its target is
              ///< a group_head. It has no name.
  content,    ///< The same of the content of the next file, which is large, whatever its group is.
};

/// How a tree is read; some of these together.
enum tree_reading : std::int32_t {
  tree_exact = 1,    ///< Without other mounts, and files with several names once.
  tree_measured = 2, ///< With a measure first, and numbers of files with several names.
  tree_compact = 4,  ///< Files with several names once, and maps of holes.
  tree_whole = 8,    ///< All that a disk has over its image: owners, attributes, FIFOs, and what is
                     ///< absent. A directory whose attribute opaque_attribute is "y" hides what the
                     ///< image has in it.
};

inline constexpr const char* opaque_attribute = "user.overlay.opaque";

struct attributes_head {
  std::uint32_t owner; ///< A user and a group of the sandbox.
  std::uint32_t group;
};
struct attribute_head {
  std::uint32_t name_bytes;
  std::uint32_t value_bytes;
};
/// Of one entry. A tree in which one has more is not sent.
inline constexpr std::size_t max_attributes_bytes = 128 * 1024;

/// Reading a disk: the asker says first which groups it has, each with what is in them: a
/// groups_head, and then its keys, in their order. Of a group that is known no entry follows, and
/// of a content that is known no bytes.
struct groups_head {
  std::uint32_t count; ///< At most max_known_groups.
  std::uint32_t reserved;
};
struct group_head {
  group_key key;
  std::uint32_t known; ///< 1: the asker has it.
  std::uint32_t reserved;
};
inline constexpr std::size_t max_known_groups = 256 * 1024;

/// A file from here on is a group by itself, so that its neighbours may change.
inline constexpr std::uint64_t large_file_bytes = 1u << 20;

/// Of an entry's target.
constexpr std::size_t max_target_bytes(entry_kind of) {
  return of == entry_kind::attributes ? max_attributes_bytes : std::size_t{16 * 1024};
}

/// A part of a file that has holes elsewhere. Parts are in order, apart and not empty. All but the
/// last one are whole blocks: GNU tar looks for each part at the beginning of a block.
struct extent {
  std::uint64_t offset;
  std::uint64_t bytes;
};
inline constexpr std::uint64_t extent_block = 512;

struct entry_head {
  entry_kind kind;
  std::uint32_t mode; ///< Permission bits.
  std::uint64_t size; ///< Of a file. In a tree that is written it may have holes.
  std::int64_t modified_s;
  std::uint32_t modified_ns;
  std::uint32_t name_bytes;
  std::uint32_t target_bytes; ///< Of a symlink, a hard link, a map or attributes.
  std::uint32_t number; ///< Of a file that has several names, in a measured tree: the same for each
                        ///< of them. 0: it has one.
};

struct piece_head {
  std::uint64_t offset;
  std::uint32_t bytes; ///< At most max_frame_bytes of stream_frames.hpp.
  std::uint32_t reserved;
};

/// The offset of an empty piece that ends a content which cannot be had whole: the file is not to
/// be.
inline constexpr std::uint64_t no_content = ~0ull;

struct tree_result {
  std::int32_t exit_code;   ///< As GNU tar's would be: 0, or 2.
  std::uint32_t text_bytes; ///< What it would have printed, which follows.
};

/// What a plain tar header can say, and every client reads. A tree with a larger file is not sent.
inline constexpr std::uint64_t max_entry_size = (1ull << 33) - 1;

inline constexpr std::size_t max_entry_name = 16 * 1024;
inline constexpr std::size_t max_extents = max_entry_name / sizeof(extent);

/// A file with fewer bytes of holes has no map, since a map takes some room itself.
inline constexpr std::uint64_t least_holes = 4096;
inline constexpr std::size_t max_tree_text = 16 * 1024;

/// Of an entry of a whole disk: a machine mounts something there, so nothing of it is seen. What
/// the disk has below is its runtime's, and is in no copy. Copies of earlier versions have it.
constexpr bool is_below_mounts(std::string_view name) {
  for (const std::string_view top : {"proc", "sys", "dev"})
    if (name == top ||
        (name.size() > top.size() && name.starts_with(top) && name[top.size()] == '/'))
      return true;
  return false;
}

} // namespace insula
