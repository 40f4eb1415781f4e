#include "actors/sandbox/terminal_room.hpp"

#include "base/limits.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace insula::actors::inside_sandbox {

namespace {

/// Clients that wait at once.
constexpr std::size_t most_wishes = limits::terminals_per_sandbox;

error no_room() {
  return {errc::limit_reached,
          "the sandbox has " + std::to_string(limits::terminals_per_sandbox) +
            " terminals, which is as many as it may, and each has a client or runs something; end "
            "one of them"};
}

} // namespace

live_terminal* terminal_room::find(const std::string& name) {
  const auto at = live_.find(name);
  return at == live_.end() ? nullptr : &at->second;
}

live_terminal* terminal_room::find(const candidate& which) {
  auto* const found = find(which.name);
  return found != nullptr && found->number == which.number ? found : nullptr;
}

terminal_room::live_terminals::iterator terminal_room::at_number(std::uint64_t number) {
  return std::find_if(live_.begin(), live_.end(),
                      [number](const auto& each) { return each.second.number == number; });
}

bool terminal_room::is_full() const {
  return live_.size() + ending_.size() + unread_.size() >= limits::terminals_per_sandbox;
}

void terminal_room::add(const std::string& name, terminal_options wanted, bool for_one) {
  const auto number = ++last_;
  wanted.place = engine_sandbox();
  wanted.figures = options().figures;
  wanted.on_over = [this, number, post = core_.post()] { post([=, this] { on_over(number); }); };
  wanted.on_use = [this, number, post = core_.post()](bool in_use) {
    post([=, this] { on_use(number, in_use); });
  };
  live_terminal made{number, core_.start_terminal(std::move(wanted))};
  made.for_one = for_one;
  live_.emplace(name, std::move(made));
}

void terminal_room::end(const std::string& name) {
  if (const auto ending = live_.extract(name)) {
    const auto& which = ending.mapped();
    ending_.emplace(which.number, which.actor);
    which.actor->end();
  }
}

void terminal_room::on_over(std::uint64_t number) {
  ending_.erase(number);
  const auto at = at_number(number);
  if (at != live_.end()) {
    if (at->second.for_one && at->second.in_use)
      unread_.emplace(number, at->second.actor); // The terminal tells when its client has gone.
    live_.erase(at);
    core_.mark_used();
  }
  serve_wishes();
}

void terminal_room::on_use(std::uint64_t number, bool in_use) {
  if (!in_use && unread_.erase(number) > 0)
    return serve_wishes();
  const auto at = at_number(number);
  if (at == live_.end())
    return;
  at->second.in_use = in_use;
  if (!in_use)
    at->second.left = ++last_left_;
  if (!core_.is_held())
    static_cast<void>(core_.thaw()); // The client asked for it, but long ago maybe.
  core_.mark_used();
  if (!in_use && at->second.for_one)
    end(std::string{at->first});
}

// ---- Room for one more

std::vector<terminal_room::candidate> terminal_room::candidates() const {
  std::vector<candidate> all;
  for (const auto& [name, each] : live_)
    if (!each.in_use)
      all.push_back({name, each.number, each.left, each.joins});
  std::sort(all.begin(), all.end(), [](const candidate& a, const candidate& b) {
    return std::pair{a.left, a.number} > std::pair{b.left, b.number};
  });
  return all;
}

/// Nothing gives way any more: the wishes that need it are refused.
void terminal_room::end_search() {
  searching_ = false;
  while (lacks_room()) {
    const auto refuse = std::move(wishes_.back().refuse);
    wishes_.pop_back();
    refuse(no_room());
  }
}

void terminal_room::give_way(const candidate& which) {
  const auto* const found = find(which);
  if (found == nullptr || found->joins != which.joins)
    return;
  log::info("sandbox.terminal_gives_way", {{"id", core_.id()}, {"terminal", which.name}});
  end(which.name);
}

void terminal_room::try_next(const std::shared_ptr<search>& among) {
  if (among->start != core_.start() || !is_alive(core_.now())) { // That sandbox has ended.
    searching_ = false;
    return serve_wishes();
  }
  if (!lacks_room() || among->left.empty())
    return end_search();
  const auto next = std::move(among->left.back());
  among->left.pop_back();
  const auto* const found = find(next);
  if (found == nullptr)
    return try_next(among);
  found->actor->is_quiet(among->quiet,
                         reply<bool>::function{[this, among, next](const result<bool>& quiet) {
                           if (quiet && *quiet)
                             give_way(next);
                           try_next(among);
                         }});
}

void terminal_room::make_room() {
  if (!lacks_room() || std::exchange(searching_, true))
    return;
  // As they are before they are looked at: what comes to one since makes what is said of it old.
  const auto among = std::make_shared<search>(search{core_.start(), {}, candidates()});
  engine_sandbox()->list_quiet_shells(
    [this, among, post = core_.post()](std::vector<std::int32_t> quiet) {
      post([this, among, quiet = std::move(quiet)] {
        among->quiet = quiet;
        try_next(among);
      });
    });
}

/// As many as there is room for.
void terminal_room::serve_wishes() {
  while (!wishes_.empty() && (!core_.runs() || !is_full())) {
    const auto first = std::move(wishes_.front());
    wishes_.pop_front();
    if (core_.runs())
      first.go();
    else
      first.refuse(has_ended);
  }
  if (core_.runs())
    make_room();
}

void terminal_room::with_room(then_function go, otherwise_function refuse) {
  if (wishes_.empty() && !is_full())
    return go();
  if (wishes_.size() >= most_wishes)
    return refuse(no_room());
  wishes_.push_back({std::move(go), std::move(refuse)});
  make_room();
}

void terminal_room::count(sandbox_status& into) const {
  into.terminals = static_cast<std::uint32_t>(live_.size());
}

bool terminal_room::in_use() const {
  return std::any_of(live_.begin(), live_.end(),
                     [](const auto& each) { return each.second.in_use; });
}

void terminal_room::ends(const error& why) {
  for (auto& each : std::exchange(wishes_, {}))
    each.refuse(why);
  for (const auto& [name, terminal] : live_)
    terminal.actor->kill();
  for (const auto& [number, terminal] : ending_)
    terminal->kill();
}

} // namespace insula::actors::inside_sandbox
