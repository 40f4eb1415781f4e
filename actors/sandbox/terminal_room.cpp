#include "actors/sandbox/sandbox_state.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/// A sandbox has so many terminals and no more. Where one more is wanted, the one gives way that
/// was left longest ago and is nothing but a shell at its prompt: the sandbox's agent says which
/// are. Here is decided which, since whoever comes to a terminal comes by way of here: one that
/// somebody has come to since it was asked about stays.
namespace insula::actors::inside_sandbox {

namespace {

/// Clients that wait at once.
constexpr std::size_t most_wishes = limits::terminals_per_sandbox;

/// Those that are ending still have theirs.
bool is_full(const sandbox_state& st) {
  return st.terminals.size() + st.ending_terminals.size() >= limits::terminals_per_sandbox;
}

/// Each of the first waits for one that is ending.
bool lacks_room(const sandbox_state& st) {
  return st.terminal_wishes.size() > st.ending_terminals.size();
}

error no_room() {
  return {errc::limit_reached,
          "the sandbox has " + std::to_string(limits::terminals_per_sandbox) +
            " terminals, which is as many as it may, and each has a client or runs something; end "
            "one of them"};
}

/// One that nobody was at when the agent was asked.
struct candidate {
  std::string name;
  std::uint64_t number, left;
  unsigned joins;
};

/// A search for one that gives way, with the agent's answer.
struct search {
  std::uint64_t start;
  std::vector<std::int32_t> quiet;
  std::vector<candidate> left; ///< The next one is the last.
};

std::vector<candidate> candidates_in(const sandbox_state& st) {
  std::vector<candidate> all;
  for (const auto& [name, each] : st.terminals)
    if (!each.in_use)
      all.push_back({name, each.number, each.left, each.joins});
  std::sort(all.begin(), all.end(), [](const candidate& a, const candidate& b) {
    return std::pair{a.left, a.number} > std::pair{b.left, b.number};
  });
  return all;
}

void serve_wishes(sandbox_pointer self);

/// Nothing gives way any more, so who waits for that waits in vain.
void end_search(sandbox_pointer self) {
  auto& st = self->state;
  st.making_room = false;
  while (lacks_room(st)) {
    const auto refuse = std::move(st.terminal_wishes.back().refuse);
    st.terminal_wishes.pop_back();
    refuse(no_room());
  }
}

void give_way(sandbox_pointer self, const candidate& which) {
  auto& st = self->state;
  const auto at = st.terminals.find(which.name);
  if (at == st.terminals.end() || at->second.number != which.number ||
      at->second.joins != which.joins)
    return;
  log::info("sandbox.terminal_gives_way", {{"id", st.id->str()}, {"terminal", which.name}});
  st.end_terminal(which.name);
}

void try_next(sandbox_pointer self, const std::shared_ptr<search>& among) {
  auto& st = self->state;
  if (among->start != st.start || !is_alive(st.now)) { // That sandbox has ended.
    st.making_room = false;
    return serve_wishes(self);
  }
  if (!lacks_room(st) || among->left.empty())
    return end_search(self);
  const auto next = std::move(among->left.back());
  among->left.pop_back();
  const auto at = st.terminals.find(next.name);
  if (at == st.terminals.end() || at->second.number != next.number)
    return try_next(self, among);
  self->request(at->second.actor, caf::infinite, is_quiet_atom::value, among->quiet)
    .then(
      [self, among, next](bool quiet) {
        if (quiet)
          give_way(self, next);
        try_next(self, among);
      },
      [self, among](const caf::error&) { try_next(self, among); });
}

void make_room(sandbox_pointer self) {
  auto& st = self->state;
  if (!lacks_room(st) || std::exchange(st.making_room, true))
    return;
  // As they are before they are looked at: what comes to one since makes what is said of it old.
  const auto among = std::make_shared<search>(search{st.start, {}, candidates_in(st)});
  st.place->list_quiet_shells([self, me = self->address(), among](std::vector<std::int32_t> quiet) {
    tell(me, engine_answered{[self, among, quiet = std::move(quiet)] {
           among->quiet = quiet;
           try_next(self, among);
         }});
  });
}

/// As many as there is room for.
void serve_wishes(sandbox_pointer self) {
  auto& st = self->state;
  const bool alive = is_alive(st.now) && st.place;
  while (!st.terminal_wishes.empty() && (!alive || !is_full(st))) {
    const auto wish = std::move(st.terminal_wishes.front());
    st.terminal_wishes.pop_front();
    if (alive)
      wish.go();
    else
      wish.refuse({errc::sandbox_not_running, "the sandbox has ended"});
  }
  if (alive)
    make_room(self);
}

} // namespace

void with_terminal_room(sandbox_pointer self, std::function<void()> go,
                        std::function<void(const error&)> refuse) {
  auto& st = self->state;
  if (st.terminal_wishes.empty() && !is_full(st))
    return go();
  if (st.terminal_wishes.size() >= most_wishes)
    return refuse(no_room());
  st.terminal_wishes.push_back({std::move(go), std::move(refuse)});
  make_room(self);
}

void terminal_is_over(sandbox_pointer self) {
  serve_wishes(self);
}

} // namespace insula::actors::inside_sandbox
