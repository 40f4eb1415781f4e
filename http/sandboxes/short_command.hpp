#pragma once

#include "actors/protocol/messages.hpp"
#include "base/error.hpp"
#include "http/sandboxes/services.hpp"

#include <caf/actor.hpp>

#include <functional>
#include <string>
#include <utility>

namespace insula::http {

/// How a command has ended of which only that matters.
struct short_outcome {
  process_end end;
  std::string out, err; ///< The first 64 KiB of each.
};

/// The input of a command that runs. Copies are of the same command. Any thread.
class command_feed {
public:
  explicit command_feed(caf::actor to)
      : to_(std::move(to)) {}

  /// The next bytes of the input; with the `last` ones it is closed. One piece at a time: `then`
  /// comes, on a CAF worker, when all of it has been taken (true), or the command reads no more
  /// (false). A command that has ended calls nothing: its outcome has been told.
  void write(std::string bytes, bool last, std::function<void(bool taken)> then) const;

private:
  caf::actor to_;
};

/// Runs a command in a sandbox and calls `then` once, on a CAF worker, when it has ended. The
/// sandbox is not started for it unless the request's context says so. `wanted` has its context.
void run_short_command(const services& with, const std::string& id, exec_request wanted,
                       std::function<void(const result<short_outcome>&)> then);

/// The same with a command that reads: `began` is called before `then`, on a CAF worker too, unless
/// the command does not come to run. A feed that is dropped leaves the input open.
void run_fed_command(const services& with, const std::string& id, exec_request wanted,
                     std::function<void(command_feed)> began,
                     std::function<void(const result<short_outcome>&)> then);

} // namespace insula::http
