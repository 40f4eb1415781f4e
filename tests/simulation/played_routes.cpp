#include "tests/simulation/played_routes.hpp"

#include "tests/simulation/history.hpp"
#include "tests/simulation/node.hpp"

namespace insula::simulation {

using storage::etcd::cluster_store;

void played_routes::own(const std::string& owner, answer_function then) {
  node_.store->own(owner,
                   [this, owner, then = std::move(then)](const result<cluster_store::owning>& who) {
                     all_.check(owner);
                     if (!who)
                       return then(who.reason());
                     then(who->node == node_.name ? std::string{} : who->node);
                   });
}

bool played_routes::is_doubted(const std::string& owner, storage::etcd::revision ownership) {
  const auto at = doubted_.find(owner);
  if (at == doubted_.end() || at->second == ownership)
    return at != doubted_.end();
  doubted_.erase(at);
  return false;
}

void played_routes::locate(const std::string& owner, bool make, answer_function then) {
  if (!node_.member->good())
    return then(error{errc::node_unreachable, "this node is cut off from its cluster"});
  if (node_.store->is_mine(owner))
    return then(std::string{});
  if (const auto known = node_.owners->find(owner);
      known && known->value != node_.name && !is_doubted(owner, known->created))
    return then(known->value);
  node_.store->find_owner(owner, [this, owner, make, then = std::move(then)](
                                   const result<cluster_store::found_owner>& got) {
    if (!got)
      return then(got.reason());
    if (got->node.empty() && !got->has_been && !make)
      return then(error{errc::not_found, "there is no " + owner});
    if (got->node.empty() || got->node == node_.name)
      return own(owner, then);
    then(got->node);
  });
}

void played_routes::doubt(const std::string& owner, const std::string& node) {
  if (const auto known = node_.owners->find(owner); known && known->value == node)
    doubted_[owner] = known->created;
}

void played_routes::ask_object(const std::string& node, std::string question,
                               answer_function then) {
  all_.count("questions about objects of other nodes");
  ask_(node, "snapshot", std::move(question), [then = std::move(then)](result<std::string> told) {
    const bool is_late = !told && (told.reason().code == errc::deadline_exceeded ||
                                   told.reason().code == errc::internal);
    then(is_late ? error{errc::node_unreachable, told.reason().message} : std::move(told));
  });
}

void played_routes::claim(const std::string& owner, std::function<void(result<void>)> then) {
  locate(owner, false, [this, owner, then = std::move(then)](const result<std::string>& at) {
    if (!at || at->empty())
      return then(at ? result<void>{} : result<void>{at.reason()});
    ask_(*at, "release", owner, [this, owner, then](const result<std::string>& gone) {
      if (!gone)
        return then(gone.reason());
      own(owner, [this, owner, then](const result<std::string>& now) {
        if (now && now->empty()) {
          all_.count("objects claimed");
          return then({});
        }
        then(now ? error{errc::node_unreachable, owner + " is at " + *now} : now.reason());
      });
    });
  });
}

void played_routes::give_up(const std::string& owner, const answer_function& reply) {
  own(owner, [this, owner, reply](const result<std::string>& now) {
    if (!now || !now->empty())
      return reply(now ? result<std::string>{std::string{"ok"}} : now);
    node_.store->give_up(owner, [reply](const result<void>& gone) {
      reply(gone ? result<std::string>{std::string{"ok"}} : result<std::string>{gone.reason()});
    });
  });
}

} // namespace insula::simulation
