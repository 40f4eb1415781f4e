#pragma once

#include "runtime/spawner/protocol.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What the spawner, which is root, takes from a server, which is not. Pure: nothing here looks at
/// the machine. The spawner's own state, such as which slots are in use, is checked where it is.
namespace insula::runtime::spawner {

/// One packet of a server's. `text` is a part of the packet.
struct read_packet {
  request wanted;
  std::string_view text;
};

/// Nothing: no server of this version sends such a packet. It is too short or too long, a string
/// has no end, or there is no such slot. The spawner hangs up on its sender.
std::optional<read_packet> read_request(std::string_view packet);

/// Can the request be carried out as it stands? 0, EINVAL, or EPERM for a tree that is none of an
/// image. `fds`: how many descriptors came beside it.
///
/// create:       the tree's name is one of an image's (is_tree_name), the flags are known, no
///               ceiling is above those at the end of this file.
/// claim:        the ceilings, as of create.
/// hold:         at most max_held_fds descriptors, and a label of at most max_label bytes.
/// open_sockets: 1 to max_fds of them.
/// mount:        the text can be read (read_mount), the flags are known, the owner is an id of the
///               sandbox's, the cache is at most max_cache_mib.
/// charge_logs:  at most max_bytes.
/// All others carry numbers alone, of which any will do, and no descriptors.
int check(const request& wanted, std::string_view text, std::size_t fds);

/// Of a-z, 0-9 and -, and not empty.
bool is_snapshot_name(std::string_view name);

/// The directories that images are in: "host", and those that an import makes. There is no '/' in
/// such a name, it is neither "." nor "..", and it is never that of a link.
bool is_tree_name(std::string_view name);

/// The text of a mount, part by part.
struct mount_words {
  std::string path;   ///< Absolute, without empty parts, "." and "..".
  std::string source; ///< What the kernel lists it by.
  std::string type;   ///< Letters, digits, '_' and '-'.
  std::string secret;
  std::string reach; ///< For the gateway, which reads it; at most gateway::max_reach bytes.
  std::vector<std::string> argv; ///< argv[0]: a program that is_fuse_program().
};
/// Nothing: a part is missing, or is not as said there.
/// The path of an attach_drive. None: it is none.
std::optional<std::string> read_drive_path(std::string_view text);

std::optional<mount_words> read_mount(std::string_view text);

/// May such a program be run? The asker is not trusted to choose freely.
bool is_fuse_program(std::string_view name);

// The configuration allows no more. Above some of them a number overflows in the kernel and then
// means "no limit".
inline constexpr std::uint64_t max_bytes = 1ull << 50;
inline constexpr std::uint32_t max_cpu_percent = 409'600; ///< 4,096 CPUs.
inline constexpr std::uint32_t max_processes = 4'194'304;
inline constexpr std::uint32_t max_open_files = 1'048'576;
inline constexpr std::uint32_t max_cache_mib = 65'536;
inline constexpr std::size_t max_mount_path = 4095;

} // namespace insula::runtime::spawner
