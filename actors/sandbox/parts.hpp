#pragma once

#include "actors/sandbox/adoption.hpp"
#include "actors/sandbox/command_records.hpp"
#include "actors/sandbox/commands.hpp"
#include "actors/sandbox/description.hpp"
#include "actors/sandbox/egress.hpp"
#include "actors/sandbox/files.hpp"
#include "actors/sandbox/gate.hpp"
#include "actors/sandbox/idempotency.hpp"
#include "actors/sandbox/idle.hpp"
#include "actors/sandbox/lease.hpp"
#include "actors/sandbox/mounts.hpp"
#include "actors/sandbox/pause.hpp"
#include "actors/sandbox/sessions.hpp"
#include "actors/sandbox/startup.hpp"
#include "actors/sandbox/teardown.hpp"
#include "actors/sandbox/terminal_room.hpp"
#include "actors/sandbox/terminals.hpp"
#include "actors/sandbox/workspace.hpp"

namespace insula::actors::inside_sandbox {

/// All parts of one sandbox, and which of them knows which. A new part is one member, and one row
/// of the table.
struct all_parts {
  /// `claim` and `quit`: as of startup and teardown.
  all_parts(core& of, startup::claim_function claim, then_function quit)
      : right(of)
      , requests(of, starts)
      , hold(of, requests, ladder, starts)
      , ladder(of, hold, ends)
      , about(of)
      , network(of)
      , tree(of, ladder, hold, starts, ends)
      , buckets(of)
      , jobs(of)
      , keys(of)
      , records(of, keys)
      , room(of)
      , shells(of, [this](const std::string& id) { room.end(id); })
      , screens(of, shells, room)
      , channels(of,
                 [this](const std::string& id) {
                   const auto made = shells.find(id);
                   return made ? result<void>{} : result<void>{made.reason()};
                 })
      , left(of, {jobs, keys, shells, screens, room})
      , starts(of, {requests, ladder, tree, network, buckets, ends}, std::move(claim))
      , ends(of, {right, requests, starts, tree, keys}, std::move(quit)) {}

  lease right;
  gate requests;
  pause hold;
  idle ladder;
  description about;
  egress network;
  workspace tree;
  mounts buckets;
  commands jobs;
  idempotency keys;
  command_records records;
  terminal_room room;
  sessions shells;
  terminals screens;
  files channels;
  adoption left;
  startup starts;
  teardown ends;

  /// In the order in which they are told. Files settle before the mounts that lie among them; the
  /// idle check is scheduled before that of a snapshot; a pause is settled when no request waits
  /// any more; the lease is the last to go.
  std::vector<part*> table() {
    return {&starts,  &network, &ladder, &tree,    &buckets,  &about,    &left, &jobs, &keys,
            &records, &shells,  &room,   &screens, &channels, &requests, &hold, &ends, &right};
  }
};

} // namespace insula::actors::inside_sandbox
