#include "actors/directory.hpp"

#include "actors/owed.hpp"
#include "actors/protocol/errors.hpp"
#include "actors/sandbox_groups.hpp"
#include "actors/sandbox_list.hpp"
#include "actors/snapshots/comparison.hpp"
#include "actors/snapshots/questions.hpp"
#include "actors/snapshots/snapshot.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "base/limits.hpp"
#include "base/log.hpp"

#include <caf/all.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <variant>

namespace insula::actors {

namespace {

/// What goes on in the directory.
struct posted {
  std::function<void()> next;
};

} // namespace
} // namespace insula::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::posted)

namespace insula::actors {

namespace {

using find_promise = owed<sandbox_actor>;

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
                               caf::reacts_to<disowned_atom>, caf::reacts_to<posted>>;

struct activation {
  owned_object_actor actor;
  sandbox_object_actor sandbox; ///< The same. Null: it is of another kind, and on no list.
  std::uint64_t number = 0;     ///< Of all activations of this directory.
  sandbox_status last;          ///< As it was when it last said so.
  bool asked_status = false;    ///< It has not answered yet, and is not asked once more.
  bool late = false;            ///< Nor waited for once more.
  bool deleting = false;
  unsigned removals = 0;           ///< Requests to delete it that are under way.
  std::vector<waiting_find> after; ///< They want the id again once what was there has gone.
};

/// A page that waits for the answers of its sandboxes.
struct waiting_page {
  owed<activation_page> reply;
  std::vector<std::uint64_t> numbers; ///< Of the activations, in order.
  std::uint64_t next = 0;
  std::set<std::uint64_t> lacks; ///< Those of them that have not answered.
};

struct directory_state {
  static inline const char* name = "directory";
  std::shared_ptr<const sandbox_options> options;
  object_kinds kinds;
  owed_answers answers;
  std::unordered_map<std::string, activation> live; ///< By the name as an owner.
  std::map<caf::actor_addr, object_name> names;     ///< Of the live ones: whose end it is.
  std::uint64_t activations = 0;                    ///< Counts them.
  std::map<std::uint64_t, std::string, std::greater<>> by_number; ///< Ids of the live ones.
  std::uint64_t page = 0;                                         ///< Counts the pages.
  std::map<std::uint64_t, waiting_page> pages;                    ///< Those that wait, by number.
  std::size_t disowning = 0;                                      ///< So many have not ended yet,
  std::vector<owed<caf::ok_atom>> want_disowned;                  ///< for which these wait.

  ~directory_state() {
    for (auto& [id, each] : live)
      caf::anon_send_exit(each.actor, caf::exit_reason::user_shutdown);
  }
};

using directory_pointer = counted_pointer<directory_state, directory_impl>;

object_name name_of(const sandbox_id& id) {
  return {{}, id.str()};
}

/// The kind is one of this node's.
activation& activate(directory_pointer self, const object_name& name) {
  auto& st = self->state;
  auto& mine = st.live[name.owner()];
  if (mine.actor)
    return mine;
  if (name.kind.empty()) {
    mine.sandbox = spawn_sandbox(self->system(), *sandbox_id::parse(name.id), st.options, true);
    mine.actor = mine.sandbox;
    mine.last.id = name.id;
    mine.number = ++st.activations;
    st.by_number.emplace(mine.number, name.id);
  } else {
    mine.actor = st.kinds.find(name.kind)->second(self->system(), name.id);
  }
  st.names.emplace(mine.actor.address(), name);
  self->monitor(mine.actor);
  return mine;
}

/// None: there can be no such object.
std::optional<object_name> known_object(directory_pointer self, std::string_view owner) {
  auto name = object_name::parse(owner);
  if (name && !name->kind.empty() && !self->state.kinds.contains(name->kind))
    return std::nullopt;
  return name;
}

void forget(directory_pointer self, const object_name& name, const caf::actor_addr& which);

// A question comes too late to an activation that has just hibernated. The next one is asked
// instead, once.

void find(directory_pointer self, const sandbox_id& id, waiting_find asked, bool again = false) {
  auto& mine = activate(self, name_of(id));
  if (mine.deleting) {
    if (mine.after.size() >= limits::waiting_per_sandbox)
      asked.reply.deliver(to_caf({errc::limit_reached, "too many requests wait for this sandbox"}));
    else
      mine.after.push_back(std::move(asked));
    return;
  }
  if (!asked.starts_it)
    return static_cast<void>(asked.reply.deliver(sandbox_actor{mine.sandbox}));
  self->request(mine.sandbox, caf::infinite, find_atom::value, asked.context)
    .then([reply = asked.reply, actor = sandbox_actor{mine.sandbox}](
            caf::ok_atom) mutable { reply.deliver(std::move(actor)); },
          [self, id, asked, again, which = mine.actor.address()](caf::error& why) mutable {
            if (again || !came_too_late(why))
              return static_cast<void>(asked.reply.deliver(std::move(why)));
            forget(self, name_of(id), which);
            find(self, id, std::move(asked), true);
          });
}

/// It refuses to be deleted.
void stays(directory_pointer self, const sandbox_id& id, const caf::actor_addr& which) {
  const auto at = self->state.live.find(id.str());
  if (at == self->state.live.end() || at->second.actor.address() != which)
    return;
  if (--at->second.removals > 0)
    return;
  at->second.deleting = false;
  for (auto& each : std::exchange(at->second.after, {}))
    find(self, id, std::move(each));
}

void remove(directory_pointer self, const sandbox_id& id, owed<caf::ok_atom> reply,
            const request_context& context, bool again = false) {
  auto& mine = activate(self, name_of(id));
  mine.deleting = true;
  ++mine.removals;
  self->request(mine.sandbox, caf::infinite, delete_atom::value, context)
    .then(
      [self, id, reply, which = mine.actor.address()](caf::ok_atom) mutable {
        forget(self, name_of(id), which);
        reply.deliver(caf::ok_atom::value);
      },
      [self, id, reply, again, context, which = mine.actor.address()](caf::error& why) mutable {
        if (from_caf(why).code == errc::drive_in_use) {
          stays(self, id, which);
          return static_cast<void>(reply.deliver(std::move(why)));
        }
        forget(self, name_of(id), which);
        if (again || !came_too_late(why))
          reply.deliver(std::move(why));
        else
          remove(self, id, std::move(reply), context, true);
      });
}

void ring(directory_pointer self, const object_name& name, alarm_due due, owed<caf::ok_atom> reply,
          bool again = false) {
  auto& mine = activate(self, name);
  if (mine.deleting)
    return static_cast<void>(
      reply.deliver(to_caf({errc::sandbox_not_running, "it is being deleted"})));
  self->request(mine.actor, caf::infinite, due)
    .then([reply](caf::ok_atom) mutable { reply.deliver(caf::ok_atom::value); },
          [self, name, due, reply, again, which = mine.actor.address()](caf::error& why) mutable {
            if (again || !came_too_late(why))
              return static_cast<void>(reply.deliver(std::move(why)));
            forget(self, name, which);
            ring(self, name, std::move(due), std::move(reply), true);
          });
}

// ---- Snapshots

template <class Answer>
using told_function = std::function<void(result<Answer>)>;

template <class Answer>
told_function<Answer> answer_to(owed<Answer> reply) {
  return [reply](result<Answer> told) mutable {
    if (told)
      reply.deliver(std::move(*told));
    else
      reply.deliver(to_caf(told.reason()));
  };
}

/// Passes what is asked of a snapshot on to its activation.
template <class Answer, class Message>
void pass_on(directory_pointer self, const Message& asked, const std::string& id,
             const told_function<Answer>& then, bool again = false) {
  const object_name name{std::string{snapshots::kind}, id};
  auto& mine = activate(self, name);
  if (mine.deleting)
    return then(error{errc::node_unreachable, "it goes on at another node"});
  self->request(caf::actor_cast<snapshot_object_actor>(mine.actor), caf::infinite, asked)
    .then([then](const Answer& told) { then(told); },
          [=, which = mine.actor.address()](const caf::error& why) {
            if (again || !came_too_late(why))
              return then(from_caf(why));
            forget(self, name, which);
            pass_on(self, asked, id, then, true);
          });
}

/// What is called, on any thread, goes on in the directory.
std::function<void(std::function<void()>)> post_to(directory_pointer self) {
  return [me = self->address()](std::function<void()> next) {
    if (const auto to = caf::actor_cast<directory_impl>(me))
      caf::anon_send(to, posted{std::move(next)});
  };
}

template <class Answer>
result<Answer> read_told(const result<std::string>& text) {
  if (!text)
    return text.reason();
  if constexpr (std::is_same_v<Answer, caf::ok_atom>)
    return caf::ok_atom::value;
  else
    return snapshots::read_description(*text);
}

/// To the snapshot's object, wherever it lives.
template <class Answer, class Message>
void send_on(directory_pointer self, const Message& asked, const std::string& id,
             const told_function<Answer>& then) {
  auto* const routes = self->state.options->routes;
  if (routes == nullptr)
    return pass_on(self, asked, id, then);
  const auto post = post_to(self);
  ask_owner(
    *routes, snapshots::owner_of_snapshot(id), snapshots::text_of(asked),
    [=] { post([=] { pass_on(self, asked, id, then); }); },
    [=](const result<std::string>& told) { post([=] { then(read_told<Answer>(told)); }); });
}

/// A new one is this node's.
void send_on(directory_pointer self, const define_snapshot& asked, const std::string& id,
             const told_function<snapshot_description>& then) {
  auto* const routes = self->state.options->routes;
  if (routes == nullptr)
    return pass_on(self, asked, id, then);
  routes->locate(snapshots::owner_of_snapshot(id), true,
                 [=, post = post_to(self)](const result<std::string>& node) {
                   post([=] {
                     if (node && node->empty())
                       return pass_on(self, asked, id, then);
                     then(node ? error{errc::node_unreachable, "this node takes no snapshots now"}
                               : node.reason());
                   });
                 });
}

/// The handler of a message for a snapshot.
template <class Message, class Answer = snapshot_description>
auto of_snapshot(directory_pointer self, std::string Message::*id) {
  return [self, id](const Message& asked) -> caf::result<Answer> {
    if (!self->state.kinds.contains(snapshots::kind))
      return to_caf(snapshots::no_common_place);
    if (!sandbox_id::parse(asked.*id))
      return to_caf({errc::not_found, "Snapshot " + asked.*id + " not found."});
    auto promise = self->make_response_promise<Answer>();
    const auto reply = self->state.answers.owe(promise);
    send_on(self, asked, asked.*id, answer_to(reply));
    return promise;
  };
}

void answer_here(directory_pointer self, const snapshots::question& asked, const std::string& id,
                 const told_function<std::string>& then) {
  std::visit(
    [&](const auto& one) {
      if constexpr (std::is_same_v<std::decay_t<decltype(one)>, release_snapshot>)
        pass_on<caf::ok_atom>(self, one, id, [then](const result<caf::ok_atom>& told) {
          told ? then(std::string{}) : then(told.reason());
        });
      else
        pass_on<snapshot_description>(
          self, one, id, [then](const result<snapshot_description>& told) {
            told ? then(snapshots::text_of(*told)) : then(told.reason());
          });
    },
    asked);
}

/// What another node asks of one that lives here. A server that has just begun may not know yet
/// what is its own.
void answer_peer(directory_pointer self, const std::string& question,
                 const told_function<std::string>& then) {
  auto* const routes = self->state.options->routes;
  auto asked = snapshots::read_question(question);
  if (!asked || !self->state.kinds.contains(snapshots::kind) || routes == nullptr)
    return then(error{errc::invalid_request, "the question makes no sense to this node"});
  const auto id = snapshots::snapshot_of(*asked);
  const auto owner = snapshots::owner_of_snapshot(id);
  if (!object_name::parse(owner))
    return then(error{errc::invalid_request, "the id of the snapshot is malformed"});
  if (self->state.options->ours(owner))
    return answer_here(self, *asked, id, then);
  routes->locate(owner, false, [=, post = post_to(self)](const result<std::string>& node) {
    post([=] {
      if (node && node->empty())
        return answer_here(self, *asked, id, then);
      then(node ? error{errc::stale_epoch, "snapshot " + id + " is not this node's"}
                : node.reason());
    });
  });
}

void list_page(directory_pointer self, const list_snapshots& wanted, const snapshots::listed& range,
               owed<snapshot_page> reply) {
  self
    ->request(self->state.options->keep->finder, caf::infinite,
              scan_marks{range.mark, range.after, wanted.limit})
    .then(
      [reply, wanted](const storage::mark_page& found) mutable {
        reply.deliver(snapshots::page_of(wanted, found));
      },
      [reply](caf::error& why) mutable { reply.deliver(std::move(why)); });
}

void take_answer(directory_pointer self, activation& from, sandbox_status* said);

/// An activation has ended. Those who came for the id meanwhile get a new one. Several may have
/// asked for that end, and the id may have its next activation when the last of them hears of it.
void forget(directory_pointer self, const object_name& name, const caf::actor_addr& which) {
  self->state.names.erase(which);
  const auto at = self->state.live.find(name.owner());
  if (at == self->state.live.end() || at->second.actor.address() != which)
    return;
  auto ended = self->state.live.extract(at);
  self->state.by_number.erase(ended.mapped().number);
  take_answer(self, ended.mapped(), nullptr);
  for (auto& each : ended.mapped().after)
    find(self, *sandbox_id::parse(name.id), std::move(each));
}

// ---- Leaving this node

/// What an earlier server has left, and no activation could take over, ends as well: should this
/// node be a member again, it might run beside its successor at another one.
void disown_survivors(directory_pointer self, owed<caf::ok_atom> reply) {
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
void evict_all(directory_pointer self, owed<caf::ok_atom> reply) {
  const auto left = std::make_shared<std::size_t>(self->state.live.size());
  if (*left == 0)
    return disown_survivors(self, std::move(reply));
  for (auto& [text, mine] : self->state.live) {
    mine.deleting = true;
    auto over = [self, left, reply, name = *object_name::parse(text),
                 which = mine.actor.address()]() mutable {
      forget(self, name, which);
      if (--*left == 0)
        disown_survivors(self, reply);
    };
    self->request(mine.actor, caf::infinite, evict_atom::value)
      .then([over](caf::ok_atom) mutable { over(); },
            [over](const caf::error&) mutable { over(); }); // It has ended by itself.
  }
}

void hand_over(directory_pointer self, const std::string& owner, owed<caf::ok_atom> reply) {
  const auto name = known_object(self, owner);
  const bool lives = self->state.live.contains(owner);
  // A sandbox without an activation gets one: it may run, because it could not be adopted, and then
  // ends; or this node may keep something of it that has to go with it.
  // A snapshot may have to be copied first.
  const bool may_need_it = name && (name->kind.empty() || name->kind == snapshots::kind);
  if (!may_need_it && !lives)
    return static_cast<void>(reply.deliver(caf::ok_atom::value));
  auto& mine = activate(self, *name);
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

// ---- Activations, by pages: all of a page are asked at once, and one that does not answer in time
// holds nobody up

/// Answers with what is known. Without effect if that has happened.
void finish_page(directory_pointer self, std::uint64_t which) {
  auto& st = self->state;
  auto done = st.pages.extract(which);
  if (done.empty())
    return;
  auto& page = done.mapped();
  activation_page told;
  for (const auto number : page.numbers) {
    const auto id = st.by_number.find(number);
    if (id == st.by_number.end())
      continue; // It has ended meanwhile.
    auto& each = st.live.at(id->second);
    each.late = each.asked_status;
    told.sandboxes.push_back(each.last);
    told.sandboxes.back().current = !each.asked_status;
  }
  told.next = page.next;
  told.total = st.by_number.size();
  page.reply.deliver(std::move(told));
}

/// `said` is null if it has ended instead.
void take_answer(directory_pointer self, activation& from, sandbox_status* said) {
  auto& st = self->state;
  if (!std::exchange(from.asked_status, false))
    return;
  from.late = false;
  if (said != nullptr)
    from.last = std::move(*said);
  std::vector<std::uint64_t> whole;
  for (auto& [number, page] : st.pages)
    if (page.lacks.erase(from.number) != 0 && page.lacks.empty())
      whole.push_back(number);
  for (const auto number : whole)
    finish_page(self, number);
}

void ask_for_status(directory_pointer self, const std::string& id, activation& whom) {
  if (std::exchange(whom.asked_status, true))
    return;
  const auto answered = [self, id, number = whom.number](sandbox_status* said) {
    const auto at = self->state.live.find(id);
    if (at != self->state.live.end() && at->second.number == number)
      take_answer(self, at->second, said);
  };
  self->request(whom.sandbox, caf::infinite, status_atom::value)
    .then([answered](sandbox_status& said) { answered(&said); },
          [answered](const caf::error&) { answered(nullptr); });
}

void list_page(directory_pointer self, const list_activations& wanted,
               owed<activation_page> reply) {
  auto& st = self->state;
  waiting_page page{std::move(reply)};
  auto at = wanted.after == 0 ? st.by_number.begin() : st.by_number.upper_bound(wanted.after);
  for (; at != st.by_number.end() && page.numbers.size() < wanted.limit; ++at) {
    page.numbers.push_back(at->first);
    auto& each = st.live.at(at->second);
    ask_for_status(self, at->second, each);
    if (!each.late)
      page.lacks.insert(at->first);
  }
  page.next = at == st.by_number.end() ? 0 : page.numbers.back();
  const auto which = ++st.page;
  const bool whole = page.lacks.empty();
  st.pages.emplace(which, std::move(page));
  if (whole)
    return finish_page(self, which);
  self->delayed_send(self, limits::list_patience, list_due_atom::value, which);
}

void note(std::string_view event, const sandbox_id& id, const request_context& context) {
  if (log::enabled(log::level::debug))
    log::debug(event, {{"id", id.str()}, {"request", context.id}});
}

// ---- All that there are

void list_page(directory_pointer self, const list_sandboxes& wanted, storage::mark_position after,
               owed<sandbox_page> reply) {
  const std::string mark{sandbox_list};
  const auto finder = self->state.options->keep->finder;
  const auto failed = [reply](caf::error& why) mutable { reply.deliver(std::move(why)); };
  const auto read = [=](std::uint64_t total) {
    self->request(finder, caf::infinite, scan_marks{mark, after, wanted.limit})
      .then(
        [to = reply, total](const storage::mark_page& found) mutable {
          sandbox_page page;
          for (const auto& each : found.lines)
            page.sandboxes.push_back(read_line(each));
          if (found.more)
            page.next = cursor_of(found.lines.back());
          page.total = total;
          to.deliver(std::move(page));
        },
        failed);
  };
  if (!wanted.counted)
    return read(0);
  self->request(finder, caf::infinite, count_marks_atom::value, mark).then(read, failed);
}

/// First the marks of the page, then the lines that they stand for.
void list_page(directory_pointer self, const list_group& wanted, const marked_range& range,
               owed<group_page> reply) {
  const auto finder = self->state.options->keep->finder;
  const auto failed = [reply](caf::error& why) mutable { reply.deliver(std::move(why)); };
  const auto read = [=](const storage::mark_page& marks) {
    read_entries lines;
    for (const auto& each : marks.lines)
      lines.places.push_back(line_behind(each));
    self->request(finder, caf::infinite, std::move(lines))
      .then(
        [=, to = reply](const storage::mark_page& found) mutable {
          group_page page;
          std::string last; // The place up to which all has been looked at.
          auto mark = marks.lines.begin();
          for (const auto& each : found.lines) {
            mark = std::find_if(mark, marks.lines.end(),
                                [&](const auto& one) { return one.owner == each.owner; });
            last = place_of(wanted, *mark++);
            auto [id, is] = read_line(each);
            page.sandboxes.push_back({std::move(id), std::move(is), last});
          }
          if (found.more)
            page.next = last;
          else if (marks.more)
            page.next = place_of(wanted, marks.lines.back());
          to.deliver(std::move(page));
        },
        failed);
  };
  self->request(finder, caf::infinite, scan_marks{range.mark, range.after, wanted.limit, true})
    .then(read, failed);
}

/// None: it is good.
std::optional<error> check_limit(std::uint32_t limit) {
  if (limit > 0 && limit <= limits::list_page_sandboxes)
    return std::nullopt;
  return error{errc::invalid_request,
               "a page has 1 to " + std::to_string(limits::list_page_sandboxes) + " entries"};
}

/// Connections that are open go on being served: what was used after its snapshot, while others had
/// theirs, gets another one.
template <class Which>
void keep_all_files(directory_pointer self, owed<std::uint64_t> reply, Which which,
                    unsigned more_rounds) {
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
                                        std::shared_ptr<const sandbox_options> options,
                                        object_kinds kinds) {
  self->count_mailbox(options->figures->directories);
  options->objects->set(self->address());
  self->state.options = std::move(options);
  self->state.kinds = std::move(kinds);
  // One that hibernates says nothing; any other end is a bug, but its id must go on working.
  self->set_down_handler([self](const caf::down_msg& down) {
    const auto at = self->state.names.find(down.source);
    if (at == self->state.names.end())
      return;
    const auto name = at->second;
    if (down.reason && down.reason != caf::exit_reason::normal)
      log::error("directory.lost_activation",
                 {{"id", name.owner()}, {"reason", self->system().render(down.reason)}});
    forget(self, name, down.source);
  });
  return {
    [self](const define_snapshot& asked) -> caf::result<snapshot_description> {
      if (!self->state.kinds.contains(snapshots::kind))
        return to_caf(snapshots::no_common_place);
      if (!sandbox_id::parse(asked.is.id))
        return to_caf({errc::invalid_request, "the id of the snapshot is malformed"});
      auto promise = self->make_response_promise<snapshot_description>();
      const auto reply = self->state.answers.owe(promise);
      send_on(self, asked, asked.is.id, answer_to(reply));
      return promise;
    },
    of_snapshot(self, &find_snapshot::id),
    of_snapshot(self, &hold_snapshot::id),
    of_snapshot<release_snapshot, caf::ok_atom>(self, &release_snapshot::id),
    of_snapshot(self, &delete_snapshot::id),
    [self](const compare_snapshots& asked) -> caf::result<snapshot_changes> {
      return self->delegate(snapshots::spawn_comparison(self->system(), self->state.options),
                            asked);
    },
    [self](const peer_question& asked) -> caf::result<std::string> {
      auto promise = self->make_response_promise<std::string>();
      const auto reply = self->state.answers.owe(promise);
      answer_peer(self, asked.text, answer_to(reply));
      return promise;
    },
    [](const posted& what) { what.next(); },
    [self](const list_snapshots& wanted) -> caf::result<snapshot_page> {
      if (auto wrong = check_limit(wanted.limit))
        return to_caf(*wrong);
      const auto range = snapshots::range_of(wanted);
      if (!range)
        return to_caf(range.reason());
      auto promise = self->make_response_promise<snapshot_page>();
      const auto reply = self->state.answers.owe(promise);
      list_page(self, wanted, *range, reply);
      return promise;
    },
    [self](find_atom, const std::string& text,
           request_context& context) -> caf::result<sandbox_actor> {
      const auto id = sandbox_id::parse(text);
      if (!id)
        return to_caf({errc::invalid_request, "malformed sandbox id"});
      auto promise = self->make_response_promise<sandbox_actor>();
      const auto reply = self->state.answers.owe(promise);
      note("directory.find", *id, context);
      find(self, *id, {reply, std::move(context)});
      return promise;
    },
    [self](reach_atom, const std::string& text,
           request_context& context) -> caf::result<sandbox_actor> {
      const auto id = sandbox_id::parse(text);
      if (!id)
        return to_caf({errc::invalid_request, "malformed sandbox id"});
      auto promise = self->make_response_promise<sandbox_actor>();
      const auto reply = self->state.answers.owe(promise);
      note("directory.reach", *id, context);
      find(self, *id, {reply, std::move(context), false});
      return promise;
    },
    [self](delete_atom, const std::string& text,
           const request_context& context) -> caf::result<caf::ok_atom> {
      const auto id = sandbox_id::parse(text);
      if (!id)
        return to_caf({errc::invalid_request, "malformed sandbox id"});
      auto promise = self->make_response_promise<caf::ok_atom>();
      const auto reply = self->state.answers.owe(promise);
      note("directory.delete", *id, context);
      remove(self, *id, reply, context);
      return promise;
    },
    [self](reach_atom, const object_name& asked) -> caf::result<owned_object_actor> {
      const auto name = known_object(self, asked.owner());
      if (!name || *name != asked || name->kind.empty())
        return to_caf({errc::invalid_request, "the object's kind or id is not valid"});
      auto& mine = activate(self, *name);
      if (mine.deleting)
        return to_caf({errc::node_unreachable, "it goes on at another node"});
      return mine.actor;
    },
    [self](alarm_due& due) -> caf::result<caf::ok_atom> {
      const auto name = known_object(self, due.whose.owner);
      if (!name)
        return to_caf({errc::invalid_request, "the object's kind or id is not valid"});
      auto promise = self->make_response_promise<caf::ok_atom>();
      const auto reply = self->state.answers.owe(promise);
      ring(self, *name, std::move(due), reply);
      return promise;
    },
    [self](adopt_atom, const std::string& name) {
      if (const auto id = sandbox_id::parse(name))
        caf::anon_send(activate(self, name_of(*id)).actor, adopt_atom::value);
      else
        self->state.options->engine->disown(name, [] {});
    },
    [self](evict_atom) -> caf::result<caf::ok_atom> {
      auto promise = self->make_response_promise<caf::ok_atom>();
      const auto reply = self->state.answers.owe(promise);
      evict_all(self, reply);
      return promise;
    },
    [self](evict_atom, const std::string& owner) -> caf::result<caf::ok_atom> {
      const auto name = object_name::parse(owner);
      const auto at = self->state.live.find(owner);
      if (!name || at == self->state.live.end())
        return caf::ok_atom::value;
      auto promise = self->make_response_promise<caf::ok_atom>();
      at->second.deleting = true;
      const auto over = [self, name = *name, which = at->second.actor.address(),
                         reply = self->state.answers.owe(promise)] {
        forget(self, name, which);
        reply.deliver(caf::ok_atom::value);
      };
      self->request(at->second.actor, caf::infinite, evict_atom::value)
        .then([over](caf::ok_atom) { over(); },
              [over](const caf::error&) { over(); }); // It has ended by itself.
      return promise;
    },
    [self](hand_over_atom, const std::string& id) -> caf::result<caf::ok_atom> {
      auto promise = self->make_response_promise<caf::ok_atom>();
      const auto reply = self->state.answers.owe(promise);
      hand_over(self, id, reply);
      return promise;
    },
    [self](keep_files_atom) -> caf::result<std::uint64_t> {
      auto promise = self->make_response_promise<std::uint64_t>();
      const auto reply = self->state.answers.owe(promise);
      constexpr unsigned more_rounds = 2;
      keep_all_files(self, reply, keep_files_atom::value, more_rounds);
      return promise;
    },
    [self](const list_activations& wanted) -> caf::result<activation_page> {
      if (auto wrong = check_limit(wanted.limit))
        return to_caf(*wrong);
      auto promise = self->make_response_promise<activation_page>();
      const auto reply = self->state.answers.owe(promise);
      list_page(self, wanted, reply);
      return promise;
    },
    [self](const list_sandboxes& wanted) -> caf::result<sandbox_page> {
      if (auto wrong = check_limit(wanted.limit))
        return to_caf(*wrong);
      auto after = position_of(wanted.after);
      if (!after)
        return to_caf(after.reason());
      auto promise = self->make_response_promise<sandbox_page>();
      const auto reply = self->state.answers.owe(promise);
      list_page(self, wanted, std::move(*after), reply);
      return promise;
    },
    [self](const list_group& wanted) -> caf::result<group_page> {
      if (auto wrong = check_limit(wanted.limit))
        return to_caf(*wrong);
      const auto range = range_of(wanted);
      if (!range)
        return to_caf(range.reason());
      auto promise = self->make_response_promise<group_page>();
      const auto reply = self->state.answers.owe(promise);
      list_page(self, wanted, *range, reply);
      return promise;
    },
    [self](disowned_atom) {
      auto& st = self->state;
      if (--st.disowning == 0)
        for (auto& each : std::exchange(st.want_disowned, {}))
          each.deliver(caf::ok_atom::value);
    },
    [self](list_due_atom, std::uint64_t which) { finish_page(self, which); },
  };
}

} // namespace

node_directory_actor spawn_directory(caf::actor_system& system,
                                     std::shared_ptr<const sandbox_options> options,
                                     object_kinds kinds) {
  return system.spawn(directory, std::move(options), std::move(kinds));
}

} // namespace insula::actors
