#include "actors/sandbox/egress.hpp"

#include "actors/sandbox/request_orders.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <utility>

namespace insula::actors::inside_sandbox {

namespace {

const error not_running{errc::sandbox_not_running, "the sandbox does not run"};
const error network_lost{errc::launch_failed, "the egress gateway does not answer"};

} // namespace

egress_policy egress::recorded() const {
  const auto* text = record().find(network_key);
  if (text == nullptr)
    return options().network;
  auto policy = policy_from_text(*text);
  if (policy)
    return std::move(*policy);
  // Another version has written it: what it allows is not known, so nothing is.
  log::error("sandbox.network_unreadable", {{"id", core_.id()}});
  return egress_policy::deny_all();
}

const egress::orders& egress::of_start() {
  if (options().authority_always) {
    const auto made = changes_of_authority(core_);
    if (!made)
      log::error("sandbox.no_authority", {{"id", core_.id()}, {"reason", made.reason().message}});
    else if (!made->empty())
      record().write(*made);
  }
  return durable_ = told_ = {recorded(), recorded_orders(core_)};
}

void egress::starting() {
  // One that has survived believes it since then.
  told_of_authority_ = core_.has_survived() && is_authority_trusted(core_);
}

network_state egress::state(bool running) const {
  network_state now{recorded(), running, core_.exists()};
  if (const auto rules = rules_from_text(recorded_rules(core_).shape))
    now.requests = *rules;
  return now;
}

void egress::tell_engine(std::function<void(const result<void>&)> told) {
  told_ = durable_;
  engine_sandbox()->set_network(
    durable_.policy, durable_.requests,
    [post = core_.post(), told = std::move(told)](const result<void>& outcome) {
      post([told, outcome] { told(outcome); });
    });
}

/// An authority stays the same once there is one.
bool egress::lacks_authority() const {
  return !told_of_authority_ && has_authority(core_);
}

/// A sandbox whose files do not take it goes on: its programs will say that they do not believe.
/// `then` is called in any case.
void egress::trust_authority(std::function<void()> then) {
  const auto start = core_.start();
  told_of_authority_ = true;
  if (engine_sandbox() == nullptr)
    return then();
  engine_sandbox()->trust_authority(
    recorded_authority(core_), [=, this, post = core_.post()](const result<void>& outcome) {
      post([=, this] {
        if (start == core_.start() && core_.now() != phase::deleting)
          note_trust(outcome);
        then();
      });
    });
}

/// What the record says of it is for variables, and for the server that takes the sandbox over.
void egress::note_trust(const result<void>& outcome) {
  if (!outcome)
    log::error("sandbox.authority_not_trusted",
               {{"id", core_.id()}, {"reason", outcome.reason().message}});
  if (static_cast<bool>(outcome) != is_authority_trusted(core_))
    record().write({change_of_trust(static_cast<bool>(outcome))});
}

bool egress::settle(const then_function& then, const otherwise_function& failed) {
  if (durable_ == told_ && !lacks_authority())
    return true;
  if (durable_ == told_) {
    trust_authority([this, then, start = core_.start()] {
      if (start == core_.start() && core_.now() == phase::starting)
        then();
    });
    return false;
  }
  tell_engine([this, then, failed, start = core_.start()](const result<void>& outcome) {
    if (start != core_.start())
      return;
    if (outcome)
      return then();
    log::error("sandbox.network_not_set",
               {{"id", core_.id()}, {"reason", outcome.reason().message}});
    engine_sandbox()->destroy(
      [failed, post = core_.post()] { post([failed] { failed(network_lost); }); });
  });
  return false;
}

/// In a running sandbox it holds when this is answered; one that starts runs nothing before
/// settle() is done.
void egress::apply(const egress_policy& policy, const reply<network_state>& to) {
  durable_ = {policy, recorded_orders(core_)};
  const bool running = core_.runs();
  auto now = state(running);
  now.policy = policy; // The record may have a later one that is not durable yet.
  log::info("sandbox.network_set", {{"id", core_.id()},
                                    {"default", policy.allow_rest ? "allow" : "deny"},
                                    {"rules", policy.rules.size()},
                                    {"request_rules", now.requests.size()},
                                    {"dry_run", policy.dry_run}});
  if (!running)
    return to.deliver(now);
  tell_engine([=, this](const result<void>& outcome) {
    if (!outcome)
      return to.fail(outcome.reason());
    // One that stands still is told with the next request that it serves.
    const bool hears = core_.now() == phase::running && !core_.is_held();
    if (!lacks_authority() || !hears)
      return to.deliver(now);
    trust_authority([to, now] { to.deliver(now); });
  });
}

bool egress::delays(const request_context&, const then_function& then, const otherwise_function&) {
  if (!lacks_authority() || !core_.runs() || !core_.thaw())
    return false;
  trust_authority(then);
  return true;
}

void egress::write(const egress_policy& policy, const std::optional<sealed_rules>& requests,
                   const reply<network_state>& to, const request_context& context) {
  if (policy.rules.size() > max_egress_rules)
    return to.fail(
      {errc::limit_reached, "a policy has at most " + std::to_string(max_egress_rules) + " rules"});
  core_.with_lease(
    [=, this] {
      std::vector<storage::change> changes{{network_key, to_text(policy)}};
      if (requests) {
        const auto made = changes_of(*requests, core_);
        if (!made)
          return to.fail(made.reason());
        changes.insert(changes.end(), made->begin(), made->end());
      }
      record().write(std::move(changes), context);
      record().when_durable([=, this] { apply(policy, to); }, to.otherwise());
    },
    to.otherwise());
}

void egress::get_network(const get_network_request& asked, const reply<network_state>& to) {
  core_.with_record(to, asked.context, [this](const reply<network_state>& mine) {
    if (!core_.runs())
      return mine.deliver(state(false));
    engine_sandbox()->measure_network(
      [this, mine, post = core_.post()](const result<network_figures>& read) {
        post([this, mine, read] {
          if (!read)
            return mine.fail(read.reason());
          auto now = state(true);
          now.policy = durable_.policy;
          now.figures = *read;
          mine.deliver(std::move(now));
        });
      });
  });
}

void egress::set_network(const set_network_request& wanted, const reply<network_state>& to) {
  core_.with_record(to, wanted.context, [this, wanted](const reply<network_state>& mine) {
    write(wanted.policy, wanted.requests, mine, wanted.context);
  });
}

void egress::change_network(const change_network_request& wanted, const reply<network_state>& to) {
  core_.with_record(to, wanted.context, [this, wanted](const reply<network_state>& mine) {
    // Changes on their way to the disk are in it already: none is lost.
    auto policy = recorded();
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
    write(policy, std::nullopt, mine, wanted.context);
  });
}

template <class... Ts>
void egress::when_alive(const reply<Ts...>& to, const request_context& context, then_function go) {
  if (core_.lives())
    return core_.when_running(to, context, std::move(go));
  to.fail(core_.now() == phase::deleting ? being_deleted : not_running);
  core_.hibernate_if_idle();
}

void egress::open_sockets(const open_sockets_request& wanted, const reply<sandbox_sockets>& to) {
  if (wanted.count < 1 || wanted.count > runtime::max_sockets_at_once)
    return to.fail({errc::invalid_request, "1 to 16 sockets at once"});
  when_alive(to, wanted.context, [this, wanted, to] {
    engine_sandbox()->open_sockets(
      {wanted.ipv6, wanted.count},
      [to, use = core_.keep_awake(), post = core_.post()](result<std::vector<unique_fd>> made) {
        using all = std::vector<unique_fd>;
        const auto sockets = made ? std::make_shared<all>(std::move(*made)) : nullptr;
        const auto why = made ? error{} : made.reason();
        post([=] { sockets ? to.deliver(sandbox_sockets{sockets, use}) : to.fail(why); });
      });
  });
}

void egress::list_ports(const list_ports_request& wanted,
                        const reply<std::vector<listening_port>>& to) {
  when_alive(to, wanted.context, [this, to] {
    engine_sandbox()->list_ports(
      [to, post = core_.post()](const result<std::vector<listening_port>>& read) {
        post([to, read] { to.give(read); });
      });
  });
}

} // namespace insula::actors::inside_sandbox
