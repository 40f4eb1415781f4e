#pragma once

#include "actors/image_catalogue.hpp"
#include "actors/workspaces.hpp"
#include "runtime/engine.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace insula::actors::snapshots {

/// The whole disk of a snapshot, for a place away from its node. A sandbox of the node's own reads
/// and writes the files, as disk_helpers has it; there are as many as `files` has threads.
struct disk_copy {
  std::string id;     ///< Of the snapshot.
  shared_image image; ///< That it lies over.
  std::shared_ptr<work_token> token;
};

/// Of a snapshot, in place of a sandbox, in what workspaces are asked. No sandbox is called so.
std::string copies_of(const std::string& id);

/// `then` is called once, on a thread of its own. Errors: those of workspaces::keep(), and
/// not_found (the engine has no such snapshot). `earlier`: as of workspaces::keep_request.
void keep_copy(runtime::engine& engine, workspaces& files, const disk_copy& of,
               storage::epoch epoch, std::int64_t taken_ms, const snapshot_reference& earlier,
               std::function<void(result<snapshot_reference>)> then);

/// The engine has the snapshot then, as if it had never been without. `disk_bytes`: at most so
/// large its disk becomes; 0: there is no limit. Errors: those of workspaces::put_back(), and of
/// sandbox::take_snapshot().
void bring_copy(runtime::engine& engine, workspaces& files, const disk_copy& of,
                const snapshot_reference& from, std::uint64_t disk_bytes,
                std::function<void(result<void>)> then);

} // namespace insula::actors::snapshots
