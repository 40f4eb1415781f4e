#include "http/opensandbox/execd_json.hpp"
#include "http/opensandbox/execd_route.hpp"
#include "http/sandboxes/ask_sandbox.hpp"

#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>

#include <algorithm>
#include <chrono>
#include <thread>
#include <unistd.h>

namespace insula::http::opensandbox {

namespace {

using namespace std::chrono_literals;
using look_atom = caf::atom_constant<caf::atom("look")>;
using taken_atom = caf::atom_constant<caf::atom("taken")>;
using gone_atom = caf::atom_constant<caf::atom("gone")>;

constexpr auto sample = 200ms; ///< Over which one answer measures.
constexpr auto pause = 2s;     ///< Between two of those who watch.
constexpr auto patience = 30s;
constexpr double mib = 1 << 20;

struct metrics_state {
  static inline const char* name = "execd_metrics";
  execd_target target;
  std::string id;
  reply to;
  bool watches = false;
  sandbox_actor box;
  std::optional<sandbox_status> before;
  std::chrono::steady_clock::time_point when;
  std::shared_ptr<answer_stream> stream;
  bool writing = false;
};
using self_pointer = caf::stateful_actor<metrics_state>*;

sandbox_metrics between(const sandbox_status& a, const sandbox_status& b,
                        std::chrono::duration<double, std::micro> time) {
  sandbox_metrics found;
  const auto here = std::max(std::thread::hardware_concurrency(), 1u);
  found.cpu_count = b.cpu_limit_percent > 0 ? std::min<double>(b.cpu_limit_percent / 100.0, here)
                                            : static_cast<double>(here);
  const auto used = a.cpu_us && b.cpu_us && *b.cpu_us > *a.cpu_us ? *b.cpu_us - *a.cpu_us : 0;
  if (time.count() > 0)
    found.cpu_used_pct =
      std::clamp(100.0 * static_cast<double>(used) / time.count() / found.cpu_count, 0.0, 100.0);
  const double memory_here =
    static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  found.memory_total_mib =
    (b.memory_limit_bytes > 0 ? static_cast<double>(b.memory_limit_bytes) : memory_here) / mib;
  found.memory_used_mib = static_cast<double>(b.memory_bytes.value_or(0)) / mib;
  found.now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                   std::chrono::system_clock::now().time_since_epoch())
                   .count();
  return found;
}

void tell(self_pointer self, const sandbox_metrics& found) {
  auto& st = self->state;
  auto json = write_metrics(found);
  if (!st.watches) {
    st.to->respond({200, std::move(json), "application/json; charset=utf-8"});
    return self->quit();
  }
  st.writing = true;
  st.stream->write(std::move(json) + "\n", [me = caf::actor_cast<caf::actor>(self)](bool taken) {
    if (taken)
      caf::anon_send(me, taken_atom::value);
    else
      caf::anon_send(me, gone_atom::value);
  });
}

void look(self_pointer self) {
  self->request(self->state.box, caf::infinite, status_atom::value)
    .then(
      [self](const sandbox_status& now) {
        auto& st = self->state;
        const auto time = std::chrono::steady_clock::now();
        const bool first = !st.before;
        if (!first && !st.writing)
          tell(self, between(*st.before, now, time - st.when));
        st.before = now;
        st.when = time;
        if (first || st.watches)
          self->delayed_send(self, first ? std::chrono::milliseconds{sample} : pause,
                             look_atom::value);
      },
      [self](const caf::error& why) {
        self->state.to->respond(execd_failure(from_caf(why)));
        self->quit();
      });
}

/// It is there.
void begin(self_pointer self) {
  auto& st = self->state;
  if (st.watches) {
    st.stream = st.to->stream({"text/event-stream", {{"Cache-Control", "no-cache"}}, true});
    if (!st.stream)
      return self->quit();
    st.stream->on_gone(
      [me = caf::actor_cast<caf::actor>(self)] { caf::anon_send(me, gone_atom::value); });
  }
  look(self);
}

void found(self_pointer self, const sandbox_actor& box) {
  auto& st = self->state;
  st.box = box;
  self->monitor(box);
  if (st.target.makes_sandbox())
    return begin(self);
  redefine_sandbox nothing;
  nothing.context = st.to->context();
  self->request(box, caf::infinite, nothing)
    .then(
      [self](const sandbox_description& is) {
        if (is.exists)
          return begin(self);
        self->state.to->respond(execd_failure(404, "DOCKER::SANDBOX_NOT_FOUND",
                                              "Sandbox " + self->state.id + " not found."));
        self->quit();
      },
      [self](const caf::error& why) {
        self->state.to->respond(execd_failure(from_caf(why)));
        self->quit();
      });
}

caf::behavior metrics(self_pointer self, execd_target target, const std::string& id,
                      const reply& to, bool watches) {
  auto& st = self->state;
  st.target = std::move(target);
  st.id = id;
  st.to = to;
  st.watches = watches;
  self->set_down_handler([self](const caf::down_msg&) {
    self->state.to->respond(execd_failure(sandbox_ended)); // If nothing has been said.
    self->quit();
  });
  const auto then = [self](const sandbox_actor& box) { found(self, box); };
  const auto otherwise = [self](const caf::error& why) {
    self->state.to->respond(execd_failure(from_caf(why)));
    self->quit();
  };
  const auto& directory = st.target.with->directory;
  if (st.target.makes_sandbox())
    self->request(directory, caf::infinite, find_atom::value, id, to->context())
      .then(then, otherwise);
  else
    self->request(directory, caf::infinite, reach_atom::value, id, to->context())
      .then(then, otherwise);
  return {
    [self](look_atom) { look(self); },
    [self](taken_atom) { self->state.writing = false; },
    [self](gone_atom) { self->quit(); },
  };
}

execd_answer answer(bool watches) {
  return [watches](const execd_target& target, const execd_call& what, const std::string&,
                   const reply& to) {
    to->answer_within(patience, no_answer_in_time());
    target.with->system->spawn(metrics, target, target.id(what), to, watches);
  };
}

} // namespace

void add_metrics_routes(std::vector<route>& table, const execd_target& target,
                        const std::string& prefix) {
  const auto none = body_use::ignored;
  constexpr std::string_view tag = "OpenSandbox: metrics";
  table.push_back(execd_route(
    verb::get, prefix + "/metrics", target, none, answer(false),
    {.id = "getExecdMetrics",
     .summary = "Processor and memory that the sandbox uses now.",
     .answers = {{"200", "As measured for a moment.", "application/json", "ExecdMetrics"}},
     .tag = tag}));
  table.push_back(execd_route(
    verb::get, prefix + "/metrics/watch", target, none, answer(true),
    {.id = "watchExecdMetrics",
     .summary = "The same every two seconds, until the client goes.",
     .answers = {{"200", "A line of JSON each time, of type ExecdMetrics.", "text/event-stream"}},
     .tag = tag}));
}

} // namespace insula::http::opensandbox
