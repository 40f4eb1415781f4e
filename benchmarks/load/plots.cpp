#include "benchmarks/load/plots.hpp"

#include "benchmarks/load/chart.hpp"
#include "benchmarks/load/figures.hpp"
#include "benchmarks/load/reports.hpp"
#include "benchmarks/load/whole_file.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

namespace insula::load {

namespace {

std::string ms_label(double ms) {
  return ms == 0 ? "0" : shortened(in_time(ms * 1e3));
}

std::string label(double number) {
  return shortened(in_digits(number));
}

/// An axis for what there is in the curves; logarithmic if that spans decades.
axis fitting_axis(const std::string& title, const std::vector<curve>& curves,
                  std::string (*spell)(double)) {
  constexpr double decades = 20;
  double least = std::numeric_limits<double>::max(), most = 0;
  for (const auto& each : curves)
    for (const auto& [x, y] : each.points) {
      least = std::min(least, y);
      most = std::max(most, y);
    }
  return least > 0 && most / least > decades ? logarithmic_axis(title, least, most, spell)
                                             : linear_axis(title, most, spell);
}

chart chart_of(const scenario_result& of, const std::string& what) {
  chart made;
  made.title = of.name + ": " + what;
  made.subtitle = headline(of);
  made.warning = joined(warnings(of));
  return made;
}

// ---- Latency by percentile ----

/// The share p lies at 1/(1-p): each further nine takes as much room as the one before.
constexpr double most_nines = 1e6;
constexpr int samples = 200;

curve percentile_curve(const histogram& lengths, std::uint64_t missing) {
  curve made;
  const auto all = lengths.count() + missing;
  const auto last = std::min(static_cast<double>(all), most_nines);
  for (int i = 0; i <= samples; ++i) {
    const auto x = std::pow(last, static_cast<double>(i) / samples);
    // The last one of all ends the curve, though its own place would be infinitely far.
    const auto share = i == samples ? 1 : 1 - 1 / x;
    const auto us = lengths.percentile_us(100 * share, missing);
    if (!us) {
      if (!made.points.empty())
        made.crosses.push_back(made.points.back());
      break;
    }
    made.points.emplace_back(x, static_cast<double>(*us) / 1e3);
  }
  return made;
}

/// Whether waiting for its turn has cost anything that could be seen.
bool waited(const operation_result& of) {
  return of.service.count() != 0 && of.latency.mean_us() > 1.02 * of.service.mean_us();
}

axis percentile_axis(double most) {
  axis made{"Percentile", true, 1, std::clamp(most, 10.0, most_nines), {}};
  for (const auto& [x, label] : {std::pair{1.0, "0"},
                                 {2.0, "50 %"},
                                 {10.0, "90 %"},
                                 {100.0, "99 %"},
                                 {1e3, "99.9 %"},
                                 {1e4, "99.99 %"},
                                 {1e5, "99.999 %"},
                                 {1e6, "99.9999 %"}})
    if (x <= made.to)
      made.marks.emplace_back(x, label);
  return made;
}

std::string latency_svg(const scenario_result& of, const std::string& title) {
  auto made = chart_of(of, title);
  bool any_waited = false, any_failed = false;
  double most = 0;
  for (std::size_t i = 0; i < of.operations.size(); ++i) {
    const auto& each = of.operations[i];
    auto latency = percentile_curve(each.latency, each.missing());
    if (latency.points.empty())
      continue;
    latency.name = each.name;
    latency.drawn_in = nth_colour(i);
    most = std::max(most, static_cast<double>(each.attempts()));
    any_failed = any_failed || !latency.crosses.empty();
    made.curves.push_back(std::move(latency));
    if (!waited(each))
      continue;
    auto service = percentile_curve(each.service, each.missing());
    service.drawn_in = nth_colour(i);
    service.dashed = true;
    service.crosses.clear();
    made.curves.push_back(std::move(service));
    any_waited = true;
  }
  if (any_waited)
    made.curves.push_back({"from the real start", colour::eighth, true, false, false, {}, {}});
  made.x = percentile_axis(most);
  if (any_failed)
    made.x.title += " (\u00d7: whatever is slower has failed)";
  made.y = fitting_axis("Latency from the intended start", made.curves, ms_label);
  return svg(made);
}

// ---- Throughput over time ----

/// Whole seconds of measuring, and what failed after them.
std::size_t seconds_shown(const scenario_result& of) {
  std::size_t whole = 0, failed = 0;
  for (const auto& each : of.operations)
    for (std::size_t i = 0; i < each.seconds.size(); ++i) {
      if (!(of.seconds > 0) || static_cast<double>(i + 1) <= of.seconds)
        whole = std::max(whole, i + 1);
      if (each.seconds[i].failed + each.seconds[i].dropped != 0)
        failed = std::max(failed, i + 1);
    }
  return std::max(whole, failed);
}

template <class Count>
void add_seconds(std::vector<double>& into, const operation_result& of, Count count) {
  for (std::size_t i = 0; i < std::min(into.size(), of.seconds.size()); ++i)
    into[i] += static_cast<double>(count(of.seconds[i]));
}

/// A point for each second, or for several where there are more than the eye can tell apart.
std::vector<std::pair<double, double>> over_time(const std::vector<double>& by_second) {
  constexpr std::size_t most_points = 300;
  const auto together = (by_second.size() + most_points - 1) / most_points;
  std::vector<std::pair<double, double>> points;
  for (std::size_t i = 0; i < by_second.size(); i += together) {
    const auto end = std::min(i + together, by_second.size());
    double sum = 0;
    for (auto at = i; at < end; ++at)
      sum += by_second[at];
    points.emplace_back(static_cast<double>(i + end) / 2, sum / static_cast<double>(end - i));
  }
  return points;
}

std::string throughput_svg(const scenario_result& of, const std::string& title,
                           std::size_t seconds) {
  auto made = chart_of(of, title);
  std::vector<double> failures(seconds);
  for (std::size_t i = 0; i < of.operations.size(); ++i) {
    const auto& each = of.operations[i];
    if (each.seconds.empty())
      continue;
    std::vector<double> ok(seconds);
    add_seconds(ok, each, [](const second_point& s) { return s.ok; });
    add_seconds(failures, each, [](const second_point& s) { return s.failed + s.dropped; });
    made.curves.push_back(
      {each.name, nth_colour(i), false, of.operations.size() == 1, false, over_time(ok), {}});
  }
  const bool any = std::any_of(failures.begin(), failures.end(), [](double n) { return n > 0; });
  made.curves.push_back(
    {any ? "failed or dropped" : "", colour::bad, false, any, false, over_time(failures), {}});
  double most = 0;
  for (const auto& each : made.curves)
    for (const auto& [x, y] : each.points)
      most = std::max(most, y);
  if (!any)
    made.curves.pop_back();
  made.x = linear_axis("Seconds of measuring", static_cast<double>(seconds), label);
  made.x.to = static_cast<double>(seconds);
  std::erase_if(made.x.marks, [&](const auto& mark) { return mark.first > made.x.to; });
  made.y = linear_axis("Ended per second", most, label);
  return svg(made);
}

// ---- Growth ----

/// What a name says that ends with a number of something: "exec at 50/s", "exec, 100 live",
/// "memory at 1 client".
struct step {
  std::string what;
  double size = 0;
  std::string things; ///< "rate", "live sandboxes", "clients"
};

std::string things_of(const std::string& text) {
  if (text == "/s")
    return "rate";
  const auto word = text.substr(1);
  if (word == "live")
    return "live sandboxes";
  return word.ends_with('s') ? word : word + 's';
}

std::optional<step> step_of(const std::string& name) {
  for (const std::string between : {" at ", ", "}) {
    const auto at = name.rfind(between);
    if (at == name.npos)
      continue;
    const auto* end = name.data() + name.size();
    std::uint32_t size = 0;
    const auto [stop, bad] = std::from_chars(name.data() + at + between.size(), end, size);
    const std::string rest{stop, end};
    const bool of_things = rest.size() > 1 && rest[0] == ' ';
    if (bad == std::errc{} && (of_things || (rest == "/s" && size != 0)))
      return step{name.substr(0, at), static_cast<double>(size), things_of(rest)};
  }
  return std::nullopt;
}

std::string x_title_of(const std::string& things) {
  return things == "rate" ? "Rate, per second" : "Number of " + things;
}

std::string by(const std::string& things) {
  return things == "rate" ? " by rate" : " by number of " + things;
}

/// The curve of this name, made if there is none.
curve& curve_named(std::vector<curve>& all, const std::string& name) {
  const auto found =
    std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
  if (found != all.end())
    return *found;
  all.push_back({name, nth_colour(all.size()), false, false, true, {}, {}});
  return all.back();
}

/// A logarithmic axis has no place for none of them: it is a decade before the fewest. Returns
/// where.
double make_room_for_none(std::vector<curve>& curves) {
  constexpr double decade = 10;
  double fewest = std::numeric_limits<double>::max();
  const auto each_point = [&curves](auto call) {
    for (auto& each : curves)
      for (auto* points : {&each.points, &each.crosses})
        for (auto& [x, y] : *points)
          call(x);
  };
  each_point([&fewest](double x) { fewest = x > 0 ? std::min(fewest, x) : fewest; });
  const auto none = (fewest < std::numeric_limits<double>::max() ? fewest : decade) / decade;
  each_point([none](double& x) { x = x > 0 ? x : none; });
  return none;
}

/// Marks where something was measured.
axis size_axis(const std::string& title, std::vector<curve>& curves) {
  const auto none = make_room_for_none(curves);
  std::set<double> sizes;
  for (const auto& each : curves)
    for (const auto& points : {each.points, each.crosses})
      for (const auto& [x, y] : points)
        sizes.insert(x);
  axis made{title, true, *sizes.begin(), std::max(*sizes.rbegin(), *sizes.begin() * 10), {}};
  for (const double size : sizes)
    made.marks.emplace_back(size, size == none ? "0" : label(size));
  return made;
}

void finish(chart& of, const std::string& x_title, const std::string& y_title,
            std::string (*spell)(double)) {
  for (auto& each : of.curves)
    std::sort(each.points.begin(), each.points.end());
  of.x = size_axis(x_title, of.curves);
  of.y = fitting_axis(y_title, of.curves, spell);
  bool failed = false;
  for (auto& each : of.curves) // What failed has no length: it stands above all that have one.
    for (auto& cross : each.crosses) {
      cross.second = of.y.to;
      failed = true;
    }
  if (failed)
    of.x.title += " (\u00d7: it has failed)";
}

/// One picture for the operations at different numbers of each kind of things, and one for each
/// value.
void draw_growth(const scenario_result& of, const std::string& beginning,
                 std::vector<picture>& into) {
  std::map<std::string, chart> latencies;
  for (const auto& each : of.operations) {
    const auto where = step_of(each.name);
    if (!where || each.attempts() == 0)
      continue;
    auto& made = latencies.try_emplace(where->things, chart_of(of, "")).first->second;
    for (const auto& [percent, name] : {std::pair{50.0, " p50"}, {99.0, " p99"}}) {
      auto& one = curve_named(made.curves, where->what + name);
      if (const auto ms = percentile_ms(each, percent))
        one.points.emplace_back(where->size, *ms);
      else
        one.crosses.emplace_back(where->size, 0);
    }
  }
  for (auto& [things, made] : latencies) {
    made.title = of.name + ": latency" + by(things);
    finish(made, x_title_of(things), "Latency from the intended start", ms_label);
    into.push_back({beginning + "-" + things, made.title, svg(made)});
  }
  std::map<std::pair<std::string, std::string>, std::pair<chart, std::string>> values;
  for (const auto& each : of.values)
    if (const auto where = step_of(each.name); where && std::isfinite(each.value)) {
      auto& [made, unit] =
        values.try_emplace({where->what, where->things}, chart_of(of, ""), each.unit).first->second;
      curve_named(made.curves, where->what).points.emplace_back(where->size, each.value);
    }
  for (auto& [key, of_unit] : values) {
    auto& [made, unit] = of_unit;
    const auto& [what, things] = key;
    made.title = of.name + ": " + what + by(things);
    finish(made, x_title_of(things), unit.empty() ? what : what + ", " + unit, label);
    into.push_back({beginning + "-" + things + "-" + what, made.title, svg(made)});
  }
}

// ---- All of them ----

/// Small letters, digits and single dashes: nothing that means anything in a path or a link.
std::string file_name(const std::string& text, std::set<std::string>& taken) {
  std::string name;
  for (const char c : text)
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
      name += c;
    else if (c >= 'A' && c <= 'Z')
      name += static_cast<char>(c - 'A' + 'a');
    else if (!name.empty() && name.back() != '-')
      name += '-';
  name = name.substr(0, 100);
  auto free = name;
  for (int n = 2; !taken.insert(free).second; ++n)
    free = name + '-' + std::to_string(n);
  return free + ".svg";
}

std::vector<picture> draw(const scenario_result& of) {
  std::vector<picture> made;
  draw_growth(of, of.name, made);
  if (!made.empty()) // Its steps come one after the other: together they say nothing.
    return made;
  const bool tried = std::any_of(of.operations.begin(), of.operations.end(),
                                 [](const auto& each) { return each.latency.count() != 0; });
  if (tried) {
    const std::string title = "latency by percentile";
    made.push_back({of.name + " latency", of.name + ": " + title, latency_svg(of, title)});
  }
  constexpr std::size_t fewest_seconds = 3;
  if (const auto seconds = seconds_shown(of); seconds >= fewest_seconds) {
    const std::string title = "throughput over time";
    made.push_back(
      {of.name + " throughput", of.name + ": " + title, throughput_svg(of, title, seconds)});
  }
  return made;
}

} // namespace

std::vector<std::vector<picture>> draw_plots(const run_result& all) {
  std::set<std::string> taken;
  std::vector<std::vector<picture>> made;
  for (const auto& each : all.scenarios) {
    made.push_back(draw(each));
    for (auto& one : made.back())
      one.file = file_name(one.file, taken);
  }
  return made;
}

result<std::vector<std::string>> write_pictures(const std::string& directory,
                                                const std::vector<std::vector<picture>>& pictures) {
  const std::filesystem::path where{directory};
  std::error_code why;
  std::filesystem::create_directories(where, why);
  if (why)
    return error{errc::io_failed, directory + ": cannot be made: " + why.message()};
  std::vector<std::string> names;
  for (const auto& some : pictures)
    for (const auto& each : some) {
      if (const auto written = write_whole((where / each.file).string(), each.svg); !written)
        return written.reason();
      names.push_back(each.file);
    }
  return names;
}

result<std::vector<std::string>> write_plots(const std::string& directory, const run_result& all) {
  return write_pictures(directory, draw_plots(all));
}

} // namespace insula::load
