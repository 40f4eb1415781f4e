#include "actors/store.hpp"

#include "actors/protocol/errors.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <map>

namespace insula::actors {

namespace {

/// From the disk's thread: what became of a batch.
struct batch_settled {
  std::uint64_t number;
  std::optional<error> refused;
};

using store_impl = store_actor::extend<caf::reacts_to<batch_settled>>;

struct open_batch {
  caf::typed_response_promise<caf::ok_atom> reply;
  std::string owner;
  std::string request;
};

struct store_state {
  static inline const char* name = "store";
  storage::store* disk = nullptr;
  std::uint64_t last = 0;
  std::map<std::uint64_t, open_batch> open; ///< The store itself bounds them.
};

} // namespace
} // namespace insula::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::batch_settled)

namespace insula::actors {

namespace {

store_impl::behavior_type store(counted_pointer<store_state, store_impl> self, storage::store* disk,
                                const std::shared_ptr<mailbox_depths>& depths) {
  self->count_mailbox(depths);
  self->state.disk = disk;
  return {
    [self](storage::write_batch& batch, request_context& context) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      const auto number = ++self->state.last;
      self->state.open.emplace(number, open_batch{reply, batch.owner, std::move(context.id)});
      // A strong handle: who is owed an answer must be alive to give it.
      self->state.disk->commit(
        std::move(batch), [to = caf::actor_cast<store_impl>(self), number](result<void> outcome) {
          caf::anon_send(
            to, batch_settled{number, outcome ? std::nullopt : std::optional{outcome.reason()}});
        });
      return reply;
    },
    [self](read_owner_atom, const std::string& owner, const std::string& prefix,
           const request_context& context) -> caf::result<std::vector<storage::entry>> {
      auto found = self->state.disk->read(owner, prefix);
      if (!found) {
        log::warning(
          "store.unreadable",
          {{"owner", owner}, {"reason", found.reason().message}, {"request", context.id}});
        return to_caf(found.reason());
      }
      return std::move(*found);
    },
    [self](find_keys_atom,
           const std::string& prefix) -> caf::result<std::vector<storage::owned_entry>> {
      auto found = self->state.disk->find(prefix);
      if (!found) {
        log::warning("store.unreadable", {{"prefix", prefix}, {"reason", found.reason().message}});
        return to_caf(found.reason());
      }
      return std::move(*found);
    },
    [self](const scan_marks& wanted) -> caf::result<storage::mark_page> {
      auto& records = *self->state.disk;
      auto page = wanted.keys_only ? records.scan_keys(wanted.mark, wanted.after, wanted.limit)
                                   : records.scan(wanted.mark, wanted.after, wanted.limit);
      if (!page) {
        log::warning("store.unreadable",
                     {{"mark", wanted.mark}, {"reason", page.reason().message}});
        return to_caf(page.reason());
      }
      return std::move(*page);
    },
    [self](const read_entries& wanted) -> caf::result<storage::mark_page> {
      auto found = self->state.disk->read_each(wanted.places);
      if (!found) {
        log::warning("store.unreadable", {{"entries", std::to_string(wanted.places.size())},
                                          {"reason", found.reason().message}});
        return to_caf(found.reason());
      }
      return std::move(*found);
    },
    [self](count_marks_atom, const std::string& mark) -> caf::result<std::uint64_t> {
      const auto lines = self->state.disk->count(mark);
      if (!lines) {
        log::warning("store.unreadable", {{"mark", mark}, {"reason", lines.reason().message}});
        return to_caf(lines.reason());
      }
      return *lines;
    },
    [self](const batch_settled& said) {
      auto done = self->state.open.extract(said.number);
      if (done.empty())
        return;
      auto& [reply, owner, request] = done.mapped();
      if (said.refused) {
        log::warning("store.refused",
                     {{"owner", owner}, {"reason", said.refused->message}, {"request", request}});
        return static_cast<void>(reply.deliver(to_caf(*said.refused)));
      }
      if (log::enabled(log::level::debug))
        log::debug("store.written", {{"owner", owner}, {"request", request}});
      reply.deliver(caf::ok_atom::value);
    },
  };
}

} // namespace

store_actor spawn_store(caf::actor_system& system, storage::store* disk,
                        std::shared_ptr<mailbox_depths> depths) {
  return system.spawn<caf::detached>(store, disk, std::move(depths));
}

} // namespace insula::actors
