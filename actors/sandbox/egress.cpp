#include "actors/sandbox/sandbox_state.hpp"

#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace insula::actors::inside_sandbox {

namespace {

constexpr const char* network_key = "network";

const error not_running{errc::sandbox_not_running, "the sandbox does not run"};

/// Has what the engine answers run on the actor; if that has ended, nobody waits any more.
void on_actor(const caf::actor_addr& sandbox, std::function<void()> go) {
  tell(sandbox, engine_answered{std::move(go)});
}

/// Has the running sandbox keep to what is durable. `told` is called on the actor.
void tell_engine(sandbox_pointer self, std::function<void(const result<void>&)> told) {
  auto& st = self->state;
  st.told_network = st.network;
  st.place->set_network(st.network, [me = self->address(), told](const result<void>& outcome) {
    on_actor(me, [told, outcome] { told(outcome); });
  });
}

/// It is durable. In a running sandbox it holds when this is answered; one that starts does not run
/// anything before (network_settled()).
void apply(sandbox_pointer self, const egress_policy& policy, reply_to<network_state> reply,
           errand mine) {
  auto& st = self->state;
  st.network = policy;
  log::info("sandbox.network_set", {{"id", st.id->str()},
                                    {"default", policy.allow_rest ? "allow" : "deny"},
                                    {"rules", policy.rules.size()},
                                    {"dry_run", policy.dry_run}});
  const bool running = is_alive(st.now) && st.place;
  const auto answer = [=, there = exists(st)](const result<void>& outcome) {
    auto to = reply;
    if (outcome)
      to.deliver(network_state{policy, running, there});
    else
      to.deliver(to_caf(outcome.reason()));
    mine.over();
  };
  if (running)
    tell_engine(self, answer);
  else
    answer({});
}

/// Durable first: who is told of it can build on it.
void write_policy(sandbox_pointer self, const egress_policy& policy, reply_to<network_state> reply,
                  const request_context& context, errand mine) {
  const auto failed = [reply, mine](const error& why) {
    auto to = reply;
    to.deliver(to_caf(why));
    mine.over();
  };
  if (policy.rules.size() > max_egress_rules)
    return failed(
      {errc::limit_reached, "a policy has at most " + std::to_string(max_egress_rules) + " rules"});
  with_lease(
    self,
    [=] {
      auto& record = *self->state.record;
      record.write({{network_key, to_text(policy)}}, {}, context);
      record.when_durable([=] { apply(self, policy, reply, mine); }, failed);
    },
    failed);
}

template <class Reply>
void when_alive(sandbox_pointer self, Reply reply, const request_context& context,
                std::function<void()> go) {
  const auto& st = self->state;
  if (lives(st))
    return when_running(self, reply, context, std::move(go));
  reply.deliver(to_caf(st.now == phase::deleting ? being_deleted : not_running));
  rest(self);
}

} // namespace

egress_policy recorded_network(const sandbox_state& st) {
  const auto* text = st.record->find(network_key);
  if (text == nullptr)
    return st.options->network;
  auto policy = policy_from_text(*text);
  if (policy)
    return std::move(*policy);
  // Another version has written it: what it allows is not known, so nothing is.
  log::error("sandbox.network_unreadable", {{"id", st.id->str()}});
  return egress_policy::deny_all();
}

bool network_settled(sandbox_pointer self, std::function<void()> then) {
  auto& st = self->state;
  if (st.network == st.told_network)
    return true;
  tell_engine(self, [self, then, start = st.start](const result<void>& outcome) {
    auto& now = self->state;
    if (start != now.start)
      return;
    if (outcome)
      return then();
    log::error("sandbox.network_not_set",
               {{"id", now.id->str()}, {"reason", outcome.reason().message}});
    now.place->destroy([me = self->address(), start] {
      tell(me, sandbox_failed{start, network_lost});
    });
  });
  return false;
}

void get_network(sandbox_pointer self, const request_context& context,
                 reply_to<network_state> reply) {
  with_record(self, reply, context, [=](errand mine) {
    auto& st = self->state;
    if (!is_alive(st.now) || !st.place) {
      auto answer = reply;
      answer.deliver(network_state{recorded_network(st), false, exists(st)});
      return mine.over();
    }
    st.place->measure_network([=, me = self->address()](const result<network_figures>& read) {
      on_actor(me, [=] {
        auto answer = reply;
        if (read)
          answer.deliver(network_state{self->state.network, true, true, *read});
        else
          answer.deliver(to_caf(read.reason()));
        mine.over();
      });
    });
  });
}

void set_network(sandbox_pointer self, const set_network_request& wanted,
                 reply_to<network_state> reply) {
  with_record(self, reply, wanted.context,
              [=](errand mine) { write_policy(self, wanted.policy, reply, wanted.context, mine); });
}

void change_network(sandbox_pointer self, const change_network_request& wanted,
                    reply_to<network_state> reply) {
  with_record(self, reply, wanted.context, [=](errand mine) {
    // What is on its way to the disk is in it already: no change is lost.
    auto policy = recorded_network(self->state);
    auto& rules = policy.rules;
    for (const auto& target : wanted.removed)
      std::erase_if(rules, [&](const auto& each) { return each.target == target; });
    std::vector<egress_rule> added;
    for (const auto& each : wanted.added) {
      const auto same = [&](const auto& other) { return other.target == each.target; };
      std::erase_if(rules, same);
      if (std::none_of(added.begin(), added.end(), same))
        added.push_back(each);
    }
    rules.insert(rules.begin(), added.begin(), added.end());
    write_policy(self, policy, reply, wanted.context, mine);
  });
}

void open_sockets(sandbox_pointer self, const open_sockets_request& wanted,
                  reply_to<sandbox_sockets> reply) {
  if (wanted.count < 1 || wanted.count > runtime::max_sockets_at_once)
    return static_cast<void>(
      reply.deliver(to_caf({errc::invalid_request, "1 to 16 sockets at once"})));
  when_alive(self, reply, wanted.context, [=] {
    auto use = new_use(self);
    self->state.place->open_sockets(
      {wanted.ipv6, wanted.count}, [=, me = self->address()](result<std::vector<unique_fd>> made) {
        using all = std::vector<unique_fd>;
        const auto sockets = made ? std::make_shared<all>(std::move(*made)) : nullptr;
        const auto why = made ? error{} : made.reason();
        on_actor(me, [=] {
          auto answer = reply;
          if (sockets)
            answer.deliver(sandbox_sockets{sockets, use});
          else
            answer.deliver(to_caf(why));
        });
      });
  });
}

void list_ports(sandbox_pointer self, const list_ports_request& wanted,
                reply_to<std::vector<listening_port>> reply) {
  when_alive(self, reply, wanted.context, [=] {
    self->state.place->list_ports(
      [=, me = self->address()](const result<std::vector<listening_port>>& read) {
        on_actor(me, [=] {
          auto answer = reply;
          if (read)
            answer.deliver(*read);
          else
            answer.deliver(to_caf(read.reason()));
        });
      });
  });
}

} // namespace insula::actors::inside_sandbox
