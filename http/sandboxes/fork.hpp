#pragma once

#include "actors/protocol/messages.hpp"
#include "http/sandboxes/services.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace insula::http {

/// Siblings of a sandbox that is there: each begins with the disk as it is now, and has the
/// source's limits, network policy and profile.
struct fork_request {
  std::string source;
  std::vector<std::string> ids; ///< Of the siblings; nobody has one of them, unless `repeats`.
  /// What each sibling is beyond that: its metadata, its time, and its environment, over the
  /// source's where that is copied.
  define_sandbox with;
  bool copies_env = false; ///< The source's environment may hold secrets.
  bool own_limits =
    false; ///< Those of `with` count in place of the source's, also where it has none.
  /// They begin with that one, which stays. Empty: with a hidden one of the source as it is now.
  std::string snapshot = {};
  /// The ids are those of this very request alone: a sibling that is there was made by it before.
  bool repeats = false;
  /// Siblings that run only later are not left behind, unless the request can be repeated.
  std::chrono::steady_clock::time_point until{};
  request_context context;
};

/// Answers when all of them run. If one does not, none is left that this request has made. Errors:
/// those of take_snapshot, define_sandbox and find_atom. Called on a CAF worker.
void fork_sandbox(const services& with, fork_request wanted,
                  std::function<void(result<void>)> done);

} // namespace insula::http
