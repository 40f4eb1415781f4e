#include "benchmarks/load/scenario.hpp"

#include <algorithm>
#include <charconv>

namespace insula::load {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t starts_at_once = 8;

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T made{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), made);
  if (failed != std::errc{} || end != text.data() + text.size())
    return std::nullopt;
  return made;
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> all;
  while (!text.empty()) {
    const auto end = std::min(text.find(at), text.size());
    if (end > 0)
      all.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all;
}

bool all_are_counts(std::string_view text, std::uint64_t least) {
  const auto all = split(text, ',');
  return !all.empty() && std::all_of(all.begin(), all.end(), [least](const std::string& each) {
    const auto number = parse_number<std::uint64_t>(each);
    return number && *number >= least;
  });
}

/// What is wrong with it; null if nothing is.
const char* why_wrong(parameter_kind kind, const std::string& text) {
  switch (kind) {
    case parameter_kind::count:
      return parse_number<std::uint64_t>(text).value_or(0) > 0
               ? nullptr
               : "has to be a whole number greater than 0";
    case parameter_kind::count_or_none:
      return parse_number<std::uint64_t>(text) ? nullptr : "has to be a whole number";
    case parameter_kind::number: {
      constexpr double most = 10'000'000;
      const auto value = parse_number<double>(text);
      return value && *value > 0 && *value <= most
               ? nullptr
               : "has to be a number greater than 0 and at most 10000000";
    }
    case parameter_kind::seconds:
      return parse_seconds(text) ? nullptr : "has to be a length of time, as 10s, 500ms or 2m";
    case parameter_kind::counts:
      return all_are_counts(text, 1)
               ? nullptr
               : "has to be whole numbers greater than 0, with commas between them";
    case parameter_kind::counts_or_none:
      return all_are_counts(text, 0) ? nullptr
                                     : "has to be whole numbers, with commas between them";
    case parameter_kind::words: return split(text, ' ').empty() ? "must not be empty" : nullptr;
  }
  return nullptr;
}

} // namespace

std::optional<double> parse_seconds(std::string_view text) {
  double scale = 1;
  for (const auto& [unit, seconds] :
       {std::pair{"ms", 0.001}, std::pair{"s", 1.0}, std::pair{"m", 60.0}, std::pair{"h", 3600.0}})
    if (text.ends_with(unit)) {
      scale = seconds;
      text.remove_suffix(std::string_view{unit}.size());
      break;
    }
  const auto value = parse_number<double>(text);
  constexpr double longest = 7 * 86'400;
  if (!value || !(*value >= 0) || *value * scale > longest)
    return std::nullopt;
  return *value * scale;
}

const scenario* find_scenario(std::string_view name) {
  const auto& all = all_scenarios();
  const auto found =
    std::find_if(all.begin(), all.end(), [name](const auto& each) { return name == each.name; });
  return found == all.end() ? nullptr : &*found;
}

result<settings> settings_of(const scenario& what, bool quick, const settings& set) {
  settings made;
  for (const auto& each : what.parameters) {
    auto& value = made[each.name] = quick ? each.quick : each.value;
    for (const auto& name : {std::string{each.name}, std::string{what.name} + "." + each.name})
      if (const auto found = set.find(name); found != set.end())
        value = found->second;
    if (const auto* wrong = why_wrong(each.kind, value))
      return error{errc::invalid_request, std::string{what.name} + "." + each.name + " " + wrong +
                                            ", not '" + value + "'"};
  }
  return made;
}

std::uint64_t scenario_context::count(const std::string& name) const {
  return *parse_number<std::uint64_t>(set_.at(name));
}

double scenario_context::number(const std::string& name) const {
  return *parse_number<double>(set_.at(name));
}

clock::duration scenario_context::seconds(const std::string& name) const {
  return std::chrono::duration_cast<clock::duration>(
    std::chrono::duration<double>{*parse_seconds(set_.at(name))});
}

std::vector<std::uint64_t> scenario_context::counts(const std::string& name) const {
  std::vector<std::uint64_t> all;
  for (const auto& each : split(set_.at(name), ','))
    all.push_back(*parse_number<std::uint64_t>(each));
  return all;
}

std::vector<std::string> scenario_context::words(const std::string& name) const {
  return split(set_.at(name), ' ');
}

recorder& scenario_context::operation(const std::string& name, bool keeps_samples) {
  const auto place =
    std::find_if(operations.begin(), operations.end(),
                 [&name](const recorder& each) { return each.result().name == name; });
  if (place != operations.end())
    return *place;
  return operations.emplace_back(name, measured_from, with.steering.so_far, keeps_samples);
}

void scenario_context::measure_from(clock::time_point when) {
  measured_from = when;
  with.watch.begin(when);
}

void scenario_context::value(std::string name, double value, std::string unit,
                             bool higher_is_better) {
  found.values.push_back({std::move(name), value, std::move(unit), higher_is_better});
}

task<clock::time_point> scenario_context::start_together() {
  const auto arrival = with.steering.arrive(clock::now(), with.other_processes);
  for (;;) {
    if (const auto begin = with.steering.together_at(arrival)) {
      co_await sleep_until(with.io, *begin);
      co_return *begin;
    }
    if (ending())
      throw scenario_failed(with.steering.why());
    co_await sleep_until(with.io, clock::now() + 2ms);
  }
}

task<std::vector<std::string>> scenario_context::live_sandboxes(std::uint64_t count) {
  std::vector<std::string> ids;
  std::string failed;
  const auto make = [](scenario_context& in, std::uint64_t& left, std::vector<std::string>& made,
                       std::string& why) -> task<> {
    while (left > 0 && why.empty() && !in.ending()) {
      --left;
      const auto got = co_await in.with.api.create();
      if (!got.ok()) {
        why = got.failure;
        co_return;
      }
      command first{{"true"}, {}, in.with.api.patience()};
      const auto ran = co_await in.with.api.exec(got.id, std::move(first));
      if (!ran.ok())
        why = ran.failure;
      else
        made.push_back(got.id);
    }
  };
  auto left = count;
  task_group group{with.io};
  for (std::size_t i = 0; i < starts_at_once; ++i)
    group.start(make(*this, left, ids, failed));
  co_await group.wait();
  if (ending())
    throw scenario_failed(with.steering.why());
  if (!failed.empty())
    throw scenario_failed("a sandbox that it needs could not be made (" +
                          std::to_string(ids.size()) + " of " + std::to_string(count) +
                          " are there): " + failed);
  co_return ids;
}

} // namespace insula::load
