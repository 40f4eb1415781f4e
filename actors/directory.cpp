#include "actors/directory.hpp"

#include "actors/protocol/errors.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <unordered_map>

namespace insula::actors {

namespace {

using find_promise = caf::typed_response_promise<sandbox_actor>;

struct waiting_find {
  find_promise reply;
  request_context context;
  bool starts_it = true; ///< Its sandbox runs when this is answered.
};

/// Said to oneself when the list's time is up.
using list_due_atom = caf::atom_constant<caf::atom("listdue")>;
/// From the engine: one of those that nobody had adopted has ended.
using disowned_atom = caf::atom_constant<caf::atom("disowned")>;
using directory_impl =
  node_directory_actor::extend<caf::reacts_to<list_due_atom, std::uint64_t /* which list */>,
                               caf::reacts_to<disowned_atom>>;
using list_promise = caf::typed_response_promise<std::vector<sandbox_status>>;

struct activation {
  sandbox_object_actor actor;
  sandbox_status last;       ///< As it was when it last said so.
  bool asked_status = false; ///< It has not answered yet, and is not asked once more.
  bool deleting = false;
  std::vector<waiting_find> after; ///< They want the id again once what was there has gone.
};

struct directory_state {
  static inline const char* name = "directory";
  std::shared_ptr<const sandbox_options> options;
  std::unordered_map<std::string, activation> live;
  std::map<caf::actor_addr, sandbox_id> ids; ///< Of the live ones: whose end it is.
  std::uint64_t list = 0;                    ///< Counts the lists.
  std::vector<list_promise> want_list;       ///< Who waits for this one: all get the same.
  std::size_t list_lacks = 0;                ///< So many of those asked for it have not answered.
  std::size_t disowning = 0;                 ///< So many have not ended yet,
  std::vector<caf::typed_response_promise<caf::ok_atom>> want_disowned; ///< for which these wait.

  /// CAF destroys the state before it runs what was attached to the actor: this is where an end can
  /// be told.
  ~directory_state() {
    const auto why = to_caf({errc::sandbox_not_running, "the node is going down"});
    for (auto& each : want_list)
      each.deliver(why);
    for (auto& each : want_disowned)
      each.deliver(why);
    for (auto& [id, each] : live)
      caf::anon_send_exit(each.actor, caf::exit_reason::user_shutdown);
  }
};

using directory_pointer = counted_pointer<directory_state, directory_impl>;

activation& activate(directory_pointer self, const sandbox_id& id) {
  auto& mine = self->state.live[id.str()];
  if (!mine.actor) {
    mine.actor = spawn_sandbox(self->system(), id, self->state.options, true);
    mine.last.id = id.str();
    self->state.ids.emplace(mine.actor.address(), id);
    self->monitor(mine.actor);
  }
  return mine;
}

void forget(directory_pointer self, const sandbox_id& id, const caf::actor_addr& which);

/// The question came too late: the activation had just hibernated. The next one is asked instead,
/// once.
bool came_too_late(const caf::error& why) {
  return why == caf::sec::request_receiver_down;
}

void find(directory_pointer self, const sandbox_id& id, waiting_find asked, bool again = false) {
  auto& mine = activate(self, id);
  if (mine.deleting) {
    if (mine.after.size() >= limits::waiting_per_sandbox)
      asked.reply.deliver(to_caf({errc::limit_reached, "too many requests wait for this sandbox"}));
    else
      mine.after.push_back(std::move(asked));
    return;
  }
  if (!asked.starts_it)
    return static_cast<void>(asked.reply.deliver(sandbox_actor{mine.actor}));
  self->request(mine.actor, caf::infinite, find_atom::value, asked.context)
    .then([reply = asked.reply, actor = sandbox_actor{mine.actor}](
            caf::ok_atom) mutable { reply.deliver(std::move(actor)); },
          [self, id, asked, again, which = mine.actor.address()](caf::error& why) mutable {
            if (again || !came_too_late(why))
              return static_cast<void>(asked.reply.deliver(std::move(why)));
            forget(self, id, which);
            find(self, id, std::move(asked), true);
          });
}

void remove(directory_pointer self, const sandbox_id& id,
            caf::typed_response_promise<caf::ok_atom> reply, const request_context& context,
            bool again = false) {
  auto& mine = activate(self, id);
  mine.deleting = true;
  self->request(mine.actor, caf::infinite, delete_atom::value, context)
    .then(
      [self, id, reply, which = mine.actor.address()](caf::ok_atom) mutable {
        forget(self, id, which);
        reply.deliver(caf::ok_atom::value);
      },
      [self, id, reply, again, context, which = mine.actor.address()](caf::error& why) mutable {
        forget(self, id, which);
        if (again || !came_too_late(why))
          reply.deliver(std::move(why));
        else
          remove(self, id, std::move(reply), context, true);
      });
}

void ring(directory_pointer self, const sandbox_id& id, alarm_due due,
          caf::typed_response_promise<caf::ok_atom> reply, bool again = false) {
  auto& mine = activate(self, id);
  if (mine.deleting)
    return static_cast<void>(
      reply.deliver(to_caf({errc::sandbox_not_running, "it is being deleted"})));
  self->request(mine.actor, caf::infinite, due)
    .then([reply](caf::ok_atom) mutable { reply.deliver(caf::ok_atom::value); },
          [self, id, due, reply, again, which = mine.actor.address()](caf::error& why) mutable {
            if (again || !came_too_late(why))
              return static_cast<void>(reply.deliver(std::move(why)));
            forget(self, id, which);
            ring(self, id, std::move(due), std::move(reply), true);
          });
}

/// An activation has ended. Those who came for the id meanwhile get a new one. Several may have
/// asked for that end, and the id may have its next activation when the last of them hears of it.
void forget(directory_pointer self, const sandbox_id& id, const caf::actor_addr& which) {
  self->state.ids.erase(which);
  const auto at = self->state.live.find(id.str());
  if (at == self->state.live.end() || at->second.actor.address() != which)
    return;
  auto ended = self->state.live.extract(at);
  for (auto& each : ended.mapped().after)
    find(self, id, std::move(each));
}

// ---- Leaving this node

/// What an earlier server has left, and no activation could take over, ends as well: should this
/// node be a member again, it might run beside its successor at another one.
void disown_survivors(directory_pointer self, caf::typed_response_promise<caf::ok_atom> reply) {
  auto& st = self->state;
  for (const auto& name : st.options->engine->survivors()) {
    log::warning("directory.survivor_ended", {{"id", name}});
    ++st.disowning;
    st.options->engine->disown(name, [me = caf::actor_cast<caf::actor_addr>(self->address())] {
      if (const auto to = caf::actor_cast<caf::actor>(me))
        caf::anon_send(to, disowned_atom::value);
    });
  }
  if (st.disowning == 0)
    reply.deliver(caf::ok_atom::value);
  else
    st.want_disowned.push_back(std::move(reply));
}

/// All activations there are now; later ones are somebody's who has owned their ids since.
void evict_all(directory_pointer self, caf::typed_response_promise<caf::ok_atom> reply) {
  const auto left = std::make_shared<std::size_t>(self->state.live.size());
  if (*left == 0)
    return disown_survivors(self, std::move(reply));
  for (auto& [text, mine] : self->state.live) {
    mine.deleting = true;
    auto over = [self, left, reply, id = *sandbox_id::parse(text),
                 which = mine.actor.address()]() mutable {
      forget(self, id, which);
      if (--*left == 0)
        disown_survivors(self, reply);
    };
    self->request(mine.actor, caf::infinite, evict_atom::value)
      .then([over](caf::ok_atom) mutable { over(); },
            [over](const caf::error&) mutable { over(); }); // It has ended by itself.
  }
}

void hand_over(directory_pointer self, const std::string& id,
               caf::typed_response_promise<caf::ok_atom> reply) {
  const auto named = sandbox_id::parse(id);
  const bool lives = self->state.live.contains(id);
  // What could not be adopted runs, though it has no activation: it gets one that ends it.
  if (!named || (!lives && !self->state.options->engine->survives(id)))
    return static_cast<void>(reply.deliver(caf::ok_atom::value));
  auto& mine = activate(self, *named);
  if (mine.deleting)
    return static_cast<void>(reply.deliver(to_caf({errc::limit_reached, "it is being deleted"})));
  self->request(mine.actor, caf::infinite, hand_over_atom::value)
    .then([reply](caf::ok_atom) mutable { reply.deliver(caf::ok_atom::value); },
          [reply](caf::error& why) mutable {
            if (came_too_late(why))
              reply.deliver(caf::ok_atom::value);
            else
              reply.deliver(std::move(why));
          });
}

// ---- The list: everybody is asked at once, and who does not answer in time holds nobody up

void finish_list(directory_pointer self) {
  auto& st = self->state;
  ++st.list;
  std::vector<sandbox_status> rows;
  for (const auto& [id, each] : st.live) {
    rows.push_back(each.last);
    rows.back().current = !each.asked_status;
  }
  std::sort(rows.begin(), rows.end(), [](auto& a, auto& b) { return a.id < b.id; });
  for (auto& each : std::exchange(st.want_list, {}))
    each.deliver(rows);
}

void begin_list(directory_pointer self) {
  auto& st = self->state;
  st.list_lacks = 0;
  for (auto& [id, each] : st.live) {
    if (std::exchange(each.asked_status, true))
      continue;
    ++st.list_lacks;
    // `said` is null if it has ended instead.
    const auto answered = [self, which = st.list, id = id,
                           whose = each.actor.address()](sandbox_status* said) {
      auto& state = self->state;
      const auto at = state.live.find(id);
      if (at != state.live.end() && at->second.actor.address() == whose) {
        at->second.asked_status = false;
        if (said != nullptr)
          at->second.last = std::move(*said);
      }
      if (which == state.list && --state.list_lacks == 0)
        finish_list(self);
    };
    self->request(each.actor, caf::infinite, status_atom::value)
      .then([answered](sandbox_status& said) { answered(&said); },
            [answered](const caf::error&) { answered(nullptr); });
  }
  if (st.list_lacks == 0)
    return finish_list(self);
  self->delayed_send(self, limits::list_patience, list_due_atom::value, st.list);
}

void note(std::string_view event, const sandbox_id& id, const request_context& context) {
  if (log::enabled(log::level::debug))
    log::debug(event, {{"id", id.str()}, {"request", context.id}});
}

// ---- All that there are

constexpr std::array<const char*, 5> described_by{"created_ms", "about", "image", "expires_ms",
                                                  "paused"};

std::int64_t number_in(const std::string& text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void describe(sandbox_description& into, const storage::owned_entry& by) {
  if (by.key == described_by[0]) {
    into.exists = true;
    into.created_ms = number_in(by.value);
  } else if (by.key == described_by[1]) {
    into.about = by.value;
  } else if (by.key == described_by[2]) {
    into.image = by.value;
  } else if (by.key == described_by[3]) {
    into.expires_ms = number_in(by.value);
  } else if (by.key == described_by[4]) {
    into.paused = true;
  }
}

void describe_all(directory_pointer self,
                  caf::typed_response_promise<std::vector<described_sandbox>> reply) {
  struct gathered {
    std::map<std::string, sandbox_description> all;
    std::size_t lacks = described_by.size();
    bool failed = false;
  };
  const auto so_far = std::make_shared<gathered>();
  for (const std::string key : described_by)
    self->request(self->state.options->keep->finder, caf::infinite, find_keys_atom::value, key)
      .then(
        [=](const std::vector<storage::owned_entry>& found) mutable {
          for (const auto& each : found)
            describe(so_far->all[each.owner], each);
          if (--so_far->lacks > 0 || so_far->failed)
            return;
          std::vector<described_sandbox> rows;
          for (auto& [id, is] : so_far->all)
            if (is.exists)
              rows.push_back({id, std::move(is)});
          reply.deliver(std::move(rows));
        },
        [=](caf::error& why) mutable {
          if (!std::exchange(so_far->failed, true))
            reply.deliver(std::move(why));
          --so_far->lacks;
        });
}

/// Connections that are open go on being served: what was used after its snapshot, while others had
/// theirs, gets another one.
template <class Which>
void keep_all_files(directory_pointer self, caf::typed_response_promise<std::uint64_t> reply,
                    Which which, unsigned more_rounds) {
  struct counted {
    std::size_t left;
    std::uint64_t failed = 0;
  };
  const auto so_far = std::make_shared<counted>(counted{self->state.live.size()});
  const auto one_less = [=](bool failed) {
    auto to = reply;
    so_far->failed += failed ? 1 : 0;
    if (--so_far->left > 0)
      return;
    if (more_rounds > 0) // One that failed counts as used.
      keep_all_files(self, to, keep_used_files_atom::value, more_rounds - 1);
    else
      to.deliver(so_far->failed);
  };
  if (so_far->left == 0)
    return static_cast<void>(reply.deliver(std::uint64_t{0}));
  for (const auto& [id, each] : self->state.live)
    self->request(each.actor, caf::infinite, which)
      .then([one_less](caf::ok_atom) { one_less(false); },
            // One that has just ended has nothing to keep.
            [one_less](const caf::error& why) { one_less(!came_too_late(why)); });
}

directory_impl::behavior_type directory(directory_pointer self,
                                        std::shared_ptr<const sandbox_options> options) {
  self->count_mailbox(options->figures->directories);
  self->state.options = std::move(options);
  // One that hibernates says nothing; any other end is a bug, but its id must go on working.
  self->set_down_handler([self](const caf::down_msg& down) {
    const auto at = self->state.ids.find(down.source);
    if (at == self->state.ids.end())
      return;
    const auto id = at->second;
    if (down.reason && down.reason != caf::exit_reason::normal)
      log::error("directory.lost_activation",
                 {{"id", id.str()}, {"reason", self->system().render(down.reason)}});
    forget(self, id, down.source);
  });
  return {
    [self](find_atom, const std::string& text,
           request_context& context) -> caf::result<sandbox_actor> {
      const auto id = sandbox_id::parse(text);
      if (!id)
        return to_caf({errc::invalid_request, "malformed sandbox id"});
      auto reply = self->make_response_promise<sandbox_actor>();
      note("directory.find", *id, context);
      find(self, *id, {reply, std::move(context)});
      return reply;
    },
    [self](reach_atom, const std::string& text,
           request_context& context) -> caf::result<sandbox_actor> {
      const auto id = sandbox_id::parse(text);
      if (!id)
        return to_caf({errc::invalid_request, "malformed sandbox id"});
      auto reply = self->make_response_promise<sandbox_actor>();
      note("directory.reach", *id, context);
      find(self, *id, {reply, std::move(context), false});
      return reply;
    },
    [self](delete_atom, const std::string& text,
           const request_context& context) -> caf::result<caf::ok_atom> {
      const auto id = sandbox_id::parse(text);
      if (!id)
        return to_caf({errc::invalid_request, "malformed sandbox id"});
      auto reply = self->make_response_promise<caf::ok_atom>();
      note("directory.delete", *id, context);
      remove(self, *id, reply, context);
      return reply;
    },
    [self](alarm_due& due) -> caf::result<caf::ok_atom> {
      const auto id = sandbox_id::parse(due.whose.owner);
      if (!id)
        return to_caf({errc::invalid_request, "malformed sandbox id"});
      auto reply = self->make_response_promise<caf::ok_atom>();
      ring(self, *id, std::move(due), reply);
      return reply;
    },
    [self](adopt_atom, const std::string& name) {
      if (const auto id = sandbox_id::parse(name))
        caf::anon_send(activate(self, *id).actor, adopt_atom::value);
      else
        self->state.options->engine->disown(name, [] {});
    },
    [self](evict_atom) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      evict_all(self, reply);
      return reply;
    },
    [self](hand_over_atom, const std::string& id) -> caf::result<caf::ok_atom> {
      auto reply = self->make_response_promise<caf::ok_atom>();
      hand_over(self, id, reply);
      return reply;
    },
    [self](keep_files_atom) -> caf::result<std::uint64_t> {
      auto reply = self->make_response_promise<std::uint64_t>();
      constexpr unsigned more_rounds = 2;
      keep_all_files(self, reply, keep_files_atom::value, more_rounds);
      return reply;
    },
    [self](list_atom) -> caf::result<std::vector<sandbox_status>> {
      auto reply = self->make_response_promise<std::vector<sandbox_status>>();
      self->state.want_list.push_back(reply);
      if (self->state.want_list.size() == 1)
        begin_list(self);
      return reply;
    },
    [self](describe_atom) -> caf::result<std::vector<described_sandbox>> {
      auto reply = self->make_response_promise<std::vector<described_sandbox>>();
      describe_all(self, reply);
      return reply;
    },
    [self](disowned_atom) {
      auto& st = self->state;
      if (--st.disowning == 0)
        for (auto& each : std::exchange(st.want_disowned, {}))
          each.deliver(caf::ok_atom::value);
    },
    [self](list_due_atom, std::uint64_t which) {
      if (which == self->state.list)
        finish_list(self);
    },
  };
}

} // namespace

node_directory_actor spawn_directory(caf::actor_system& system,
                                     std::shared_ptr<const sandbox_options> options) {
  return system.spawn(directory, std::move(options));
}

} // namespace insula::actors
