#include "tests/simulation/played_links.hpp"

#include "base/limits.hpp"
#include "tests/simulation/node.hpp"

#include <caf/actor_cast.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/send.hpp>

#include <algorithm>

namespace insula::actors::cluster {

// In place of the broker and its sockets: a proxy of the other end is handed over as the broker.

void offer_on(caf::event_based_actor*, const caf::actor&, unique_fd, std::uint16_t) {}

void reach_over(caf::event_based_actor*, const caf::actor& broker, unique_fd, std::uint16_t,
                std::function<void(const caf::actor& offered)> then) {
  then(broker);
}

} // namespace insula::actors::cluster

namespace insula::simulation {

using namespace actors::cluster;

void played_links::add(const std::string& self, const std::string& peer, end with) {
  ends_[{self, peer}] = std::move(with);
  const way which{std::min(self, peer), std::max(self, peer)};
  if (dialling_.insert(which).second)
    dial(which);
}

void played_links::drop(const std::string& self, bool says_so) {
  std::erase_if(ends_, [&](const auto& each) { return each.first.first == self; });
  for (auto& [which, mine] : halves_) {
    const way back{which.second, which.first};
    if (which.second != self || mine.link == 0)
      continue;
    mine = {};
    if (const auto link = halves_[back].link; says_so && link != 0)
      world_.after(delay(), [this, back, link] {
        if (passes(back.first, back.second))
          gone(back, link, "it was closed");
      });
  }
}

void played_links::cut(const std::string& a, const std::string& b, bool there, bool back) {
  const auto set = [this](const way& which, bool is) {
    if (is)
      cut_.insert(which);
    else
      cut_.erase(which);
  };
  set({a, b}, there);
  set({b, a}, back);
}

bool played_links::all_up() const {
  return std::all_of(ends_.begin(), ends_.end(), [&](const auto& each) {
    const auto& [self, peer] = each.first;
    const auto at = halves_.find({peer, self});
    return at != halves_.end() && at->second.link != 0;
  });
}

// ---- Links come and go

/// Somebody speaks there, and it arrives: peers say every second that they are there.
bool played_links::hears(const way& which) const {
  const auto& [from, to] = which;
  const auto speaker = ends_.find({from, to});
  const auto at = halves_.find({to, from}); // What the speaker itself knows.
  return speaker != ends_.end() && at != halves_.end() && at->second.link != 0 &&
         at->second.link == halves_.at(which).link && !speaker->second.of->client->stands_still &&
         passes(from, to);
}

void played_links::dial(const way& which) {
  world_.after(world_.between(200ms, 1s), [this, which] {
    const way back{which.second, which.first};
    for (const auto& each : {which, back}) {
      auto& mine = halves_[each];
      if (mine.link == 0)
        continue;
      if (hears(each))
        mine.heard = world_.now();
      else if (world_.now() - mine.heard > limits::link_silence)
        gone(each, mine.link, "nothing is heard");
    }
    const auto is_there = [this](const way& whose) {
      const auto at = ends_.find(whose);
      return at != ends_.end() && !at->second.of->client->stands_still;
    };
    if (halves_[which].link == 0 && halves_[back].link == 0 && is_there(which) && is_there(back) &&
        passes(which.first, which.second) && passes(which.second, which.first))
      open(which);
    dial(which);
  });
}

void played_links::open(const way& which) {
  const auto link = ++last_;
  for (const auto& [from, self] : {which, way{which.second, which.first}}) {
    halves_[{from, self}] = {link, world_.now(), {}, false};
    const auto& mine = ends_.at({self, from});
    auto opened = std::make_shared<passage>();
    opened->number = link;
    opened->dialled = self < from;
    caf::anon_send(mine.peer, passage_open{opened, std::make_shared<unique_fd>()});
  }
}

void played_links::gone(const way& which, std::uint64_t link, const char* why) {
  auto& mine = halves_[which];
  if (mine.link != link)
    return;
  mine = {};
  const auto& [from, self] = which;
  const auto at = ends_.find({self, from});
  if (at == ends_.end())
    return;
  at->second.of->client->post([this, which, link, why] {
    if (const auto now = ends_.find({which.second, which.first}); now != ends_.end())
      caf::anon_send(now->second.peer, passage_gone{link, why});
  });
  // It closes its socket, of which the other end hears if anything of it arrives there.
  world_.after(delay(), [this, back = way{self, from}, link] {
    if (passes(back.first, back.second))
      gone(back, link, "it was closed");
  });
}

// ---- What is said

void played_links::say(const std::string& from, const std::string& to, caf::message what) {
  // Through the link that the speaker knows.
  const auto at = halves_.find({to, from});
  auto& there = halves_[{from, to}];
  if (at == halves_.end() || at->second.link == 0 || at->second.link != there.link)
    return;
  there.coming.push_back(std::move(what));
  if (!std::exchange(there.on_its_way, true))
    deliver({from, to});
}

void played_links::deliver(const way& which) {
  world_.after(delay(), [this, which, link = halves_[which].link] {
    auto& mine = halves_[which];
    if (mine.link != link)
      return;
    if (!passes(which.first, which.second)) // It is sent again until it arrives.
      return deliver(which);
    const auto& [from, self] = which;
    if (const auto at = ends_.find({self, from}); at != ends_.end())
      at->second.of->client->post([this, which, link, what = std::move(mine.coming.front())] {
        const auto now = ends_.find({which.second, which.first});
        if (now != ends_.end() && halves_[which].link == link)
          now->second.peer->enqueue(caf::actor_cast<caf::strong_actor_ptr>(now->second.proxy),
                                    caf::make_message_id(), what, nullptr);
      });
    mine.coming.pop_front();
    mine.on_its_way = !mine.coming.empty();
    if (mine.on_its_way)
      deliver(which);
  });
}

} // namespace insula::simulation
