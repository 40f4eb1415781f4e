#pragma once

#include "actors/sandbox/core.hpp"

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace insula::actors::inside_sandbox {

/// The description of the sandbox by the client that made it, with the time of its end. It stands
/// in the record.
class description final : public part {
public:
  /// As of disk_snapshots::begin_next_run_with().
  using begin_with_function =
    std::function<void(const std::string& snapshot, const request_context& context,
                       std::function<result<std::vector<storage::change>>()> changes,
                       std::function<void(const result<void>&)> then)>;

  explicit description(core& of, begin_with_function begin_with = nullptr)
      : part(of)
      , begin_with_(std::move(begin_with)) {}

  void define(const define_sandbox& wanted, const reply<sandbox_description>& to);
  void redefine(const redefine_sandbox& wanted, const reply<sandbox_description>& to);
  void copy(const copy_definition& wanted, const reply<define_sandbox>& to);

  bool delays(const request_context& context, const then_function& then,
              const otherwise_function& otherwise) override;
  void describe(sandbox_description& into) const override;
  void count(sandbox_status& into) const override;

private:
  void define_from(const std::optional<snapshot_description>& from, const define_sandbox& wanted,
                   const reply<sandbox_description>& to);
  void with_image(const image_wish& wanted, image_supply::found_function then);
  void keep_wishes(const request_context& context, const reply<sandbox_description>& to);
  void write(std::vector<storage::change> changes, std::optional<std::int64_t> expires_ms);

  result<std::vector<storage::change>> changes_of(const redefine_sandbox& wanted) const;
  bool changes_it(const redefine_sandbox& wanted) const;
  void redefine_with_snapshot(const redefine_sandbox& wanted, const reply<sandbox_description>& to);

  const begin_with_function begin_with_;        ///< Null: it has no disks.
  std::map<std::string, unsigned> begins_with_; ///< Definitions under way, by their snapshots.
};

// Of a sandbox whose record is loaded.

/// What makes the change. Empty: the text is not as the change says, or the record may not have the
/// new one.
std::vector<storage::change> fitting_changes(const metadata_change& wanted, const core& of);
/// What makes these hold from the next start on. Errors: those of engine::make_authority().
result<std::vector<storage::change>> changes_of(const run_limits& wanted, const core& of);
/// The memory and processors that it may use.
runtime::sandbox_limits limits_of(const core& of);
/// Of all that runs in it.
std::map<std::string, std::string> own_environment(const core& of);
/// Until it is to be deleted; none: it stays.
std::optional<std::chrono::milliseconds> time_left(const core& of);

} // namespace insula::actors::inside_sandbox
