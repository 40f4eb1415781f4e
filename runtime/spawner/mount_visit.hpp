#pragma once

#include "runtime/spawner/protocol.hpp"

#include <cstdint>
#include <string>

/// What a child of the spawner does inside a sandbox, as its root, to have something mounted there
/// or not any more. Paths are what those in the sandbox make of them, so nothing is followed that
/// could lead elsewhere.
namespace insula::runtime::spawner {

/// How the visit went, as its last packet.
struct visit_report {
  mount_step failed;
  std::int32_t error;
  std::uint32_t device = 0; ///< Of what is mounted, by which the kernel knows its connection.
};

struct mount_visit {
  std::string path;   ///< Absolute, normalised, not the root.
  std::string source; ///< By which the kernel lists it.
  std::string type;   ///< As FUSE's subtype.
  bool read_only = false;
  bool over_files = false;      ///< The directory need not be empty.
  bool keeps_directory = false; ///< Also when it is away, and that is empty.
  bool is_listed = false;       ///< It is good only if it can be listed.
  std::uint32_t owner = 0;      ///< Of directories that have to be made; as the sandbox sees it.
};

/// Mounts. The device goes to `way` first, with one byte; whoever serves it must do so for this to
/// come to an end. Then a visit_report, with what is mounted if it went well, which stays for as
/// long as somebody holds that. `process`: a pidfd of the sandbox's.
[[noreturn]] void visit_to_mount(const mount_visit& what, int process, int way);

/// The same for files that are there: `files` is a mount that is attached nowhere, and becomes the
/// directory. Then a visit_report alone.
[[noreturn]] void visit_to_attach(const mount_visit& what, int process, int way, int files);

/// Takes away what is mounted at the path, whoever uses it, and the directory if it is empty. Then
/// a visit_report.
[[noreturn]] void visit_to_unmount(const mount_visit& what, int process, int way);

} // namespace insula::runtime::spawner
