#include "benchmarks/load/figures.hpp"
#include "benchmarks/load/reports.hpp"

#include <algorithm>

namespace insula::load {

namespace {

/// Sums of so many stay within what a counter holds: one of a file is at most 2^53.
constexpr std::size_t max_clients = 1024;

error differs(std::size_t client, const std::string& what) {
  return {errc::invalid_request,
          "client " + std::to_string(client + 1) + " is not of the same run as client 1: " + what};
}

std::string described(const scenario_result& of) {
  const auto given = parameters_text(of);
  return of.name + (given.empty() ? "" : " (" + given + ")");
}

void keep(std::vector<std::string>& into, const std::string& text) {
  if (!text.empty() && std::find(into.begin(), into.end(), text) == into.end())
    into.push_back(text);
}

void keep(std::string& into, const std::string& text) {
  if (into.empty())
    into = text;
  else if (!text.empty() && into.find(text) == into.npos)
    into += "; " + text;
}

void keep(std::map<std::string, std::string>& into,
          const std::map<std::string, std::string>& from) {
  for (const auto& [name, value] : from)
    keep(into[name], value);
}

void add(second_point& into, const second_point& from) {
  into.started += from.started;
  into.ok += from.ok;
  into.failed += from.failed;
  into.dropped += from.dropped;
  into.sum_us += from.sum_us;
  into.max_us = std::max(into.max_us, from.max_us);
}

void add(operation_result& into, const operation_result& from) {
  into.latency.add(from.latency);
  into.service.add(from.service);
  for (const auto& [kind, times] : from.failures)
    into.failures[kind] += times;
  into.late += from.late;
  into.dropped += from.dropped;
  into.bytes += from.bytes;
  into.seconds.resize(std::max(into.seconds.size(), from.seconds.size()));
  for (std::size_t i = 0; i < from.seconds.size(); ++i)
    add(into.seconds[i], from.seconds[i]);
  into.span_seconds = std::max(into.span_seconds, from.span_seconds); // They ran at the same time.
  into.samples_ms.insert(into.samples_ms.end(), from.samples_ms.begin(), from.samples_ms.end());
}

void add(named_value& into, const named_value& from) {
  if (into.unit.empty() || into.unit.ends_with("/s"))
    into.value += from.value;
  else
    into.value =
      into.higher_is_better ? std::min(into.value, from.value) : std::max(into.value, from.value);
}

void add(client_result& into, const client_result& from) {
  into.seconds = std::max(into.seconds, from.seconds);
  into.cpu_seconds += from.cpu_seconds;
  into.busiest_thread_share = std::max(into.busiest_thread_share, from.busiest_thread_share);
  into.timer_lateness.add(from.timer_lateness);
  into.open_files_max = std::max(into.open_files_max, from.open_files_max);
  into.open_files_limit = std::min(into.open_files_limit, from.open_files_limit);
}

/// Each of `from` to the one of the same name, or behind all of them.
template <class T>
void add_by_name(std::vector<T>& into, const std::vector<T>& from) {
  for (const auto& each : from) {
    const auto same = std::find_if(into.begin(), into.end(),
                                   [&](const auto& mine) { return mine.name == each.name; });
    if (same == into.end())
      into.push_back(each);
    else
      add(*same, each);
  }
}

void add(scenario_result& into, const scenario_result& from) {
  // What one of them has not done, while another one has, is a part that is missing.
  if (into.skipped.empty() != from.skipped.empty()) {
    keep(into.partial, "a client has skipped it: " + into.skipped + from.skipped);
    into.skipped.clear();
  }
  keep(into.method, from.method);
  into.warm_up_seconds = std::max(into.warm_up_seconds, from.warm_up_seconds);
  into.seconds = std::max(into.seconds, from.seconds);
  add_by_name(into.operations, from.operations);
  add_by_name(into.values, from.values);
  if (into.client.seconds > 0 && from.client.seconds > 0)
    add(into.client, from.client);
  else if (from.client.seconds > 0)
    into.client = from.client;
  for (const auto& why : from.void_reasons)
    keep(into.void_reasons, why);
  keep(into.partial, from.partial);
  for (const auto& note : from.notes)
    keep(into.notes, note);
}

/// Of one more client. `from` is the client's number.
result<void> add(run_result& into, run_result& more, std::size_t from) {
  if (more.target != into.target)
    return differs(from, "its target is " + more.target + ", not " + into.target);
  for (auto& mine : into.scenarios) {
    const auto same =
      std::find_if(more.scenarios.begin(), more.scenarios.end(), [&](const auto& each) {
        return each.name == mine.name && each.parameters == mine.parameters;
      });
    if (same == more.scenarios.end())
      return differs(from, "it has no scenario " + described(mine));
    const bool both_ran = mine.skipped.empty() && same->skipped.empty();
    if (both_ran && same->method != mine.method)
      return differs(from, "its method of " + described(mine) + " is \"" + same->method +
                             "\", not \"" + mine.method + "\"");
    add(mine, *same);
    more.scenarios.erase(same);
  }
  if (!more.scenarios.empty())
    return differs(from, "it has a scenario more, " + described(more.scenarios.front()));
  into.started_at = std::min(into.started_at, more.started_at);
  into.clients += more.clients;
  keep(into.client, more.client);
  keep(into.server, more.server);
  return {};
}

} // namespace

result<run_result> merge(std::vector<run_result> clients) {
  if (clients.empty() || clients.size() > max_clients)
    return error{errc::invalid_request, "expected the results of 1 to " +
                                          std::to_string(max_clients) + " clients, got " +
                                          std::to_string(clients.size())};
  auto all = std::move(clients.front());
  for (std::size_t i = 1; i < clients.size(); ++i)
    if (const auto added = add(all, clients[i], i); !added)
      return added.reason();
  return all;
}

} // namespace insula::load
