#pragma once

#include "actors/directory.hpp"
#include "actors/sandbox/sandbox.hpp"
#include "actors/sandbox_list.hpp"
#include "storage/memory_store.hpp"
#include "tests/actors/fake_leases.hpp"
#include "tests/support/fake_engine.hpp"
#include "tests/support/test_system.hpp"

#include <map>
#include <random>

namespace insula::test {

/// The store actor without its thread: a memory store, whose answers the test can hold back or
/// spoil.
struct fake_store {
  using release_atom = caf::atom_constant<caf::atom("release")>;
  using impl = store_actor::extend<caf::reacts_to<release_atom>>;

  storage::memory_store disk;
  bool hold_writes = false;
  bool held_is_on_its_way = false; ///< A write that is held back is not there to be read yet.
  bool hold_reads = false;
  std::optional<error> write_error;
  std::string write_error_of;      ///< Of that owner's records alone. Empty: of all.
  std::optional<error> held_error; ///< What is held back is refused with that in the end.
  std::optional<error> read_error;
  std::optional<error> told_error; ///< To the next write, which is done.
  std::vector<std::function<void()>> held;
  int writes = 0;
  int finds = 0;
  impl::pointer itself = nullptr;

  store_actor spawn(caf::actor_system& system) {
    return caf::actor_cast<store_actor>(
      system.spawn([this](impl::pointer self) -> impl::behavior_type {
        itself = self;
        return {
          [this, self](storage::write_batch& batch,
                       const request_context&) -> caf::result<caf::ok_atom> {
            ++writes;
            if (write_error && (write_error_of.empty() || batch.owner == write_error_of))
              return to_caf(*write_error);
            if (hold_writes && held_error) {
              auto refused = self->make_response_promise<caf::ok_atom>();
              held.emplace_back(
                [refused, why = *held_error]() mutable { refused.deliver(to_caf(why)); });
              return refused;
            }
            auto reply = self->make_response_promise<caf::ok_atom>();
            auto commit = [this, reply, sent = std::move(batch)] {
              disk.commit(sent, [this, reply](result<void> outcome) mutable {
                if (const auto told = std::exchange(told_error, std::nullopt))
                  outcome = *told;
                auto answer = [reply, outcome]() mutable {
                  if (outcome)
                    reply.deliver(caf::ok_atom::value);
                  else
                    reply.deliver(to_caf(outcome.reason()));
                };
                if (hold_writes)
                  held.emplace_back(answer);
                else
                  answer();
              });
            };
            if (hold_writes && held_is_on_its_way)
              held.emplace_back(commit);
            else
              commit();
            return reply;
          },
          [this, self](read_owner_atom, const std::string& owner, const std::string& prefix,
                       const request_context&) -> caf::result<std::vector<storage::entry>> {
            if (read_error)
              return to_caf(*read_error);
            if (hold_reads) {
              auto reply = self->make_response_promise<std::vector<storage::entry>>();
              held.emplace_back([this, reply, owner, prefix]() mutable {
                reply.deliver(*disk.read(owner, prefix));
              });
              return reply;
            }
            auto found = disk.read(owner, prefix);
            if (!found)
              return to_caf(found.reason());
            return std::move(*found);
          },
          [this](find_keys_atom,
                 const std::string& prefix) -> caf::result<std::vector<storage::owned_entry>> {
            ++finds;
            if (read_error)
              return to_caf(*read_error);
            return std::move(*disk.find(prefix));
          },
          [this](const scan_marks& wanted) -> caf::result<storage::mark_page> {
            if (read_error)
              return to_caf(*read_error);
            auto page = wanted.keys_only ? disk.scan_keys(wanted.mark, wanted.after, wanted.limit)
                                         : disk.scan(wanted.mark, wanted.after, wanted.limit);
            if (!page)
              return to_caf(page.reason());
            return std::move(*page);
          },
          [this](const read_entries& wanted) -> caf::result<storage::mark_page> {
            if (read_error)
              return to_caf(*read_error);
            return std::move(*disk.read_each(wanted.places));
          },
          [this](count_marks_atom, const std::string& mark) -> caf::result<std::uint64_t> {
            if (read_error)
              return to_caf(*read_error);
            return *disk.count(mark);
          },
          [this](release_atom) {
            for (auto& each : std::exchange(held, {}))
              each();
          },
        };
      }));
  }

  /// A record as an earlier server has left it.
  void put(const std::string& owner, std::vector<storage::change> record) {
    disk.commit({owner, 1, std::move(record)}, [](result<void>) {});
  }

  /// An answer is given by its actor, and nowhere else.
  void let_go() {
    hold_writes = hold_reads = false;
    caf::anon_send(itself, release_atom::value);
  }

  std::string value(const std::string& owner, const std::string& key) {
    const auto entries = disk.read(owner);
    for (const auto& each : *entries)
      if (each.key == key)
        return each.value;
    return {};
  }
};

/// A node's actors over a world that the test plays.
struct small_node {
  fake_engine engine;
  fake_leases leases;
  fake_store store;
  fake_store local; ///< The node's own.
  test_system sys;  ///< Ends before what its actors use.
  std::shared_ptr<actors::sandbox_options> options = std::make_shared<actors::sandbox_options>();

  small_node() {
    options->engine = &engine;
    options->leases = &leases;
    options->time = &sys.time;
    options->keep = std::make_shared<const actors::keepers>(
      actors::keepers{store.spawn(sys.get()), local.spawn(sys.get()), {}, &sys.time});
    options->instances = std::make_shared<actors::instance_count>(10);
    options->images->put("host", {{"host", true}, {}, "/bin/bash"});
    options->profile.env = {{"HOME", "/home/sandbox"}, {"PATH", "/usr/bin:/bin"}};
    options->ladder.stop_after = std::chrono::minutes{10};
  }
  ~small_node() {
    for (auto& each : made_)
      caf::anon_send_exit(each, caf::exit_reason::user_shutdown);
    made_.clear();
    options->keep = nullptr;
    sys.run();
  }

  sandbox_object_actor make_sandbox(const char* id = "abc") {
    auto made = actors::spawn_sandbox(sys.get(), *sandbox_id::parse(id), options);
    made_.push_back(caf::actor_cast<caf::actor>(made));
    return made;
  }
  node_directory_actor make_directory(actors::object_kinds kinds = {}) {
    auto made = actors::spawn_directory(sys.get(), options, std::move(kinds));
    made_.push_back(caf::actor_cast<caf::actor>(made));
    return made;
  }

  /// The place where the newest sandbox lives.
  fake_sandbox& place() { return *engine.creations.back().place; }
  fake_process& process() { return *place().processes.back(); }

private:
  std::vector<caf::actor> made_;
};

/// A sandbox's record with its lines in lists, as a server writes them.
inline std::vector<storage::change> with_line(std::vector<storage::change> record,
                                              const actors::group_rule& groups = {}) {
  actors::record_entries entries;
  for (const auto& each : record)
    entries.emplace(each.key, each.value.value_or(""));
  for (auto& [key, value] : actors::lines_of(entries, groups))
    record.push_back({std::move(key), std::move(value)});
  return record;
}

inline exec_request command(std::string line) {
  exec_request request;
  request.command_line = std::move(line);
  return request;
}

} // namespace insula::test
