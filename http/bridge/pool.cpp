#include "http/bridge/api.hpp"

#include "actors/protocol/errors.hpp"
#include "base/limits.hpp"
#include "http/bridge/bridge_json.hpp"
#include "http/bridge/error_response.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/cluster_control.hpp"

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>

namespace insula::http::bridge {

namespace {

using namespace std::chrono_literals;

/// The pool never waits for anything before it answers, but for the end of what it empties.
constexpr auto patience = 10s;

/// Asks the pool, and answers with what `write` makes of what it says.
template <class Answer, class Message>
void ask(const services& with, const reply& to, std::chrono::milliseconds within, Message message,
         std::function<std::string(const Answer&)> write) {
  to->answer_within(within, overdue(step::find_sandbox, "the pool does not answer"));
  const auto asking = [to, write, message](caf::event_based_actor* self, const pool_actor& pool) {
    self->request(pool, caf::infinite, message)
      .then(
        [to, write](const Answer& answer) {
          to->respond({200, write(answer)});
        },
        [to](const caf::error& why) {
          to->respond(error_response(step::find_sandbox, from_caf(why)));
        });
  };
  with.system->spawn(asking, with.pool);
}

/// The figures of a cluster are its nodes' sum.
void add_others(const services& with, pool_stats& to) {
  if (with.cluster == nullptr)
    return;
  const auto others = with.cluster->others();
  to.warm += others.warm;
  to.assigned += others.assigned;
  to.limit += others.limit;
  to.settings.target += others.target;
}

std::string ok(const caf::ok_atom&) {
  return json::write_ok();
}

} // namespace

void add_pool_routes(std::vector<route>& table, const shared_services& with) {
  table.push_back({verb::get,
                   "/v1/pool/stats",
                   access::key,
                   body_use::ignored,
                   0,
                   [with](const matched_request&) {
                     return answered_by([with](const std::string&, const reply& to) {
                       ask<pool_stats>(*with, to, patience, status_atom::value,
                                       [with](pool_stats of) {
                                         add_others(*with, of);
                                         return write_pool_stats(of);
                                       });
                     });
                   },
                   {.id = "getPoolStats",
                    .summary = "How many sandboxes are warm, and how many are in use.",
                    .answers = {{"200", "The figures.", "application/json", "PoolStats"}}}});
  table.push_back({verb::post,
                   "/v1/pool/prime",
                   access::key,
                   body_use::ignored,
                   0,
                   [with](const matched_request&) {
                     return answered_by([with](const std::string&, const reply& to) {
                       ask<caf::ok_atom>(*with, to, patience, prime_pool{}, ok);
                     });
                   },
                   {.id = "primePool",
                    .summary = "Have the pool look after itself. It does so from the start.",
                    .answers = {{"200", "It does.", "application/json", "OkResponse"}}}});
  table.push_back({verb::post,
                   "/v1/pool/shutdown-prewarmed",
                   access::key,
                   body_use::ignored,
                   0,
                   [with](const matched_request&) {
                     return answered_by([with](const std::string&, const reply& to) {
                       ask<caf::ok_atom>(*with, to, limits::destroy_patience + patience,
                                         empty_atom::value, ok);
                     });
                   },
                   {.id = "shutdownPrewarmed",
                    .summary = "End every warm sandbox, and wait for that. The pool fills again.",
                    .answers = {{"200", "They are gone.", "application/json", "OkResponse"}}}});
}

} // namespace insula::http::bridge
