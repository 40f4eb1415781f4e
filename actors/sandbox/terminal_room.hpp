#pragma once

#include "actors/sandbox/core.hpp"

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace insula::actors::inside_sandbox {

/// A terminal that somebody can come to.
struct live_terminal {
  std::uint64_t number; ///< Tells it from the next one of its name.
  std::shared_ptr<child_terminal> actor;
  bool in_use = false;    ///< It has a client.
  std::uint64_t left = 0; ///< Which leaving was the last one; 0: there was none under this server.
  unsigned joins = 0;     ///< Clients that have been sent there.
  bool for_one = false;   ///< It ends when its client has gone.
};

/// The terminals of the sandbox, of which there are so many and no more. Where one more is wanted,
/// the one gives way that was left longest ago and is nothing but a shell at its prompt: the
/// sandbox's agent says which are. Which one is decided here, since every client comes to a
/// terminal by way of here: one that a client has come to since it was asked about stays.
class terminal_room final : public part {
public:
  using part::part;

  /// Null: there is none of that name.
  live_terminal* find(const std::string& name);
  bool has(const std::string& name) const { return live_.count(name) > 0; }
  std::size_t count() const { return live_.size(); }

  /// Calls `go`, which may add one, once there is room for it. If there is none, another gives way.
  /// `refuse` is told: limit_reached (none gives way), sandbox_not_running.
  void with_room(then_function go, otherwise_function refuse);
  /// Where there is room. What it has besides the options is filled in here. `for_one`: for one
  /// client, without which it ends.
  void add(const std::string& name, terminal_options wanted, bool for_one = false);
  /// The next client that asks gets another.
  void end(const std::string& name);

  void count(sandbox_status& into) const override;
  bool in_use() const override;
  void ends(const error& why) override;

private:
  struct wish {
    then_function go;
    otherwise_function refuse;
  };
  /// One that had no client when the agent was asked.
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

  using live_terminals = std::map<std::string, live_terminal>;

  live_terminals::iterator at_number(std::uint64_t number);
  /// Those that are ending still have theirs.
  bool is_full() const;
  /// Each of the first wishes waits for one that is ending.
  bool lacks_room() const { return wishes_.size() > ending_.size(); }
  live_terminal* find(const candidate& which);
  std::vector<candidate> candidates() const;
  void make_room();
  void try_next(const std::shared_ptr<search>& among);
  void give_way(const candidate& which);
  void end_search();
  void serve_wishes();
  void on_over(std::uint64_t number);
  void on_use(std::uint64_t number, bool in_use);

  live_terminals live_; ///< By session, or as defined ones are named.
  std::map<std::uint64_t, std::shared_ptr<child_terminal>> ending_; ///< By number.
  /// Programs that are over, of which their one client has not had all yet: that is in memory, so
  /// they keep their places until that client is gone.
  std::map<std::uint64_t, std::shared_ptr<child_terminal>> unread_;
  std::uint64_t last_ = 0, last_left_ = 0;
  std::deque<wish> wishes_; ///< In their order. The first have one that is ending.
  bool searching_ = false;  ///< For the others.
};

} // namespace insula::actors::inside_sandbox
