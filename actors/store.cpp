#include "actors/store.hpp"

#include "actors/protocol/errors.hpp"

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

struct store_state {
  static inline const char* name = "store";
  storage::store* disk = nullptr;
  std::uint64_t last = 0;
  std::map<std::uint64_t, caf::typed_response_promise<caf::ok_atom>>
    open; ///< The store itself bounds them.
};

} // namespace
} // namespace insula::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::batch_settled)

namespace insula::actors {

namespace {

store_impl::behavior_type store(store_impl::stateful_pointer<store_state> self,
                                storage::store* disk) {
  self->state.disk = disk;
  return {
    [self](storage::write_batch& batch) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      const auto number = ++self->state.last;
      self->state.open.emplace(number, reply);
      // A strong handle: who is owed an answer must be alive to give it.
      self->state.disk->commit(
        std::move(batch), [to = caf::actor_cast<store_impl>(self), number](result<void> outcome) {
          caf::anon_send(
            to, batch_settled{number, outcome ? std::nullopt : std::optional{outcome.reason()}});
        });
      return reply;
    },
    [self](read_owner_atom, const std::string& owner) -> caf::result<std::vector<storage::entry>> {
      auto found = self->state.disk->read(owner);
      if (!found)
        return to_caf(found.reason());
      return std::move(*found);
    },
    [self](const batch_settled& said) {
      auto done = self->state.open.extract(said.number);
      if (done.empty())
        return;
      if (said.refused)
        done.mapped().deliver(to_caf(*said.refused));
      else
        done.mapped().deliver(caf::ok_atom::value);
    },
  };
}

} // namespace

store_actor spawn_store(caf::actor_system& system, storage::store* disk) {
  return system.spawn<caf::detached>(store, disk);
}

} // namespace insula::actors
