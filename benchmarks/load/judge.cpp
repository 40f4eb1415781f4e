#include "apps/yaml_document.hpp"
#include "benchmarks/load/figures.hpp"
#include "benchmarks/load/reports.hpp"
#include "benchmarks/load/whole_file.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace insula::load {

namespace {

/// Far more than there is to say; a list of aliases can stand for very many.
constexpr std::size_t max_file_bytes = 1u << 20;
constexpr std::size_t max_thresholds = 10'000;

/// What is wrong with the file.
struct wrong {
  std::string message;
};

/// One figure of an operation that can be held against a threshold.
struct figure {
  std::string_view key;
  const char* name;
  bool at_least; ///< Else at most.
  std::optional<double> (*measured)(const scenario_result&, const operation_result&);
  std::string (*spell)(double);
};

std::string in_ms(double ms) {
  return in_time(ms * 1e3);
}

template <int Permille>
std::optional<double> percentile(const scenario_result&, const operation_result& of) {
  return percentile_ms(of, Permille / 10.0);
}

const figure figures[] = {
  {"p50_ms", "p50", false, percentile<500>, in_ms},
  {"p90_ms", "p90", false, percentile<900>, in_ms},
  {"p99_ms", "p99", false, percentile<990>, in_ms},
  {"p999_ms", "p99.9", false, percentile<999>, in_ms},
  {"max_ms", "the slowest", false, percentile<1000>, in_ms},
  {"failed_share", "failed share", false,
   [](const scenario_result&, const operation_result& of) {
     return std::optional{static_cast<double>(of.missing()) / static_cast<double>(of.attempts())};
   },
   in_digits},
  {"rate_min", "successes per second", true,
   [](const scenario_result& in, const operation_result& of) { return rate(in, of); }, in_digits},
  {"mb_per_s_min", "MB/s", true,
   [](const scenario_result&, const operation_result& of) { return mb_per_second(of); }, in_digits},
};

std::string figure_names() {
  std::vector<std::string> all;
  for (const auto& each : figures)
    all.emplace_back(each.key);
  return joined(all, ", ");
}

template <class T>
const T* named(const std::vector<T>& all, const std::string& name) {
  const auto found =
    std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

template <class T>
std::string names_of(const std::vector<T>& all) {
  std::vector<std::string> names;
  for (const auto& each : all)
    names.push_back(each.name);
  return names.empty() ? "none" : joined(names, ", ");
}

/// Goes through a file of thresholds and a result together.
class judging {
public:
  judging(std::string file, const run_result& all)
      : file_(std::move(file))
      , all_(all) {}

  verdict judge(const YAML::Node& document) {
    if (!document.IsMap() || document.size() == 0)
      throw wrong{file_ + ": expected scenarios with their thresholds, got " + spelled(document)};
    made_.passed = true;
    each_key(document, file_, [&](const std::string& name, const YAML::Node& within) {
      judge_scenarios(name, within);
    });
    return std::move(made_);
  }

private:
  std::string at(const YAML::Node& node) const { return yaml_place(file_, node.Mark()); }

  /// `call` with every key of a section and what belongs to it. `what` names the section in errors.
  template <class Call>
  void each_key(const YAML::Node& section, const std::string& what, Call call) {
    if (!section.IsMap())
      throw wrong{at(section) + ": " + what + ": expected a section, got " + spelled(section)};
    std::set<std::string> seen;
    for (const auto& item : section) {
      if (!item.first.IsScalar())
        throw wrong{at(item.first) + ": expected a name, got " + spelled(item.first)};
      const auto& name = item.first.Scalar();
      if (!seen.insert(name).second)
        throw wrong{at(item.first) + ": " + name + ": given twice"};
      if (++taken_ > max_thresholds)
        throw wrong{at(item.first) + ": expected at most " + std::to_string(max_thresholds) +
                    " names"};
      key_ = at(item.first);
      call(name, item.second);
    }
  }

  /// A file is right or wrong whatever has run: it is read to its end in any case.
  void judge_scenarios(const std::string& name, const YAML::Node& within) {
    bool ran = false;
    for (const auto& each : all_.scenarios)
      if (each.name == name) {
        ran = true;
        judge_scenario(each, within);
      }
    if (!ran) {
      scenario_result none;
      none.name = name;
      none.skipped = "it was not run";
      judge_scenario(none, within);
    }
  }

  void judge_scenario(const scenario_result& of, const YAML::Node& within) {
    for (const auto& warning : warnings(of))
      say(false, of.name + ": " + warning);
    // What has not run at all has nothing to compare.
    const bool ran = of.skipped.empty();
    each_key(within, of.name, [&](const std::string& name, const YAML::Node& inner) {
      if (name == "values")
        judge_values(of, inner, ran);
      else
        judge_operation(of, name, inner, ran);
    });
  }

  void judge_operation(const scenario_result& in, const std::string& name, const YAML::Node& within,
                       bool ran) {
    const auto* of = named(in.operations, name);
    const auto what = in.name + ", " + name;
    if (ran && of == nullptr)
      say(false, what + ": there is no such operation; there are: " + names_of(in.operations));
    else if (ran && of->attempts() == 0)
      say(false, what + ": it was never tried");
    each_key(within, name, [&](const std::string& key, const YAML::Node& value) {
      const auto known = std::find_if(std::begin(figures), std::end(figures),
                                      [&](const auto& each) { return each.key == key; });
      if (known == std::end(figures))
        throw wrong{key_ + ": " + key + ": no such threshold; there are " + figure_names()};
      const double limit = number(value, key, 0);
      if (ran && of != nullptr && of->attempts() != 0)
        compare(what + ": " + known->name, known->measured(in, *of), limit, known->at_least,
                known->spell);
    });
  }

  void judge_values(const scenario_result& in, const YAML::Node& within, bool ran) {
    each_key(within, "values", [&](const std::string& name, const YAML::Node& limits) {
      const auto* value = named(in.values, name);
      const auto what = in.name + ", " + name;
      if (ran && value == nullptr)
        say(false, what + ": there is no such value; there are: " + names_of(in.values));
      each_key(limits, name, [&](const std::string& key, const YAML::Node& bound) {
        if (key != "min" && key != "max")
          throw wrong{key_ + ": " + key + ": no such threshold; there are min, max"};
        const double limit = number(bound, key, -std::numeric_limits<double>::max());
        if (!ran || value == nullptr)
          return;
        const auto spell = [&](double figure) {
          return in_unit({value->name, figure, value->unit, value->higher_is_better});
        };
        compare(what + ":", value->value, limit, key == "min", spell);
      });
    });
  }

  double number(const YAML::Node& value, const std::string& key, double least) {
    double number = 0;
    if (value.IsScalar()) {
      const auto& text = value.Scalar();
      const auto* end = text.data() + text.size();
      const auto [stop, bad] = std::from_chars(text.data(), end, number);
      if (bad == std::errc{} && stop == end && std::isfinite(number) && number >= least)
        return number;
    }
    throw wrong{key_ + ": " + key + ": expected a number, got " + spelled(value)};
  }

  template <class Spell>
  void compare(const std::string& what, std::optional<double> measured, double limit, bool at_least,
               Spell spell) {
    const auto wanted = (at_least ? " (at least " : " (at most ") + shortened(spell(limit)) + ")";
    if (!measured)
      return say(false, what + " failed" + wanted);
    // What is no number is neither.
    const bool holds = at_least ? *measured >= limit : *measured <= limit;
    say(holds, what + " " + spell(*measured) + wanted);
  }

  void say(bool good, const std::string& line) {
    made_.passed = made_.passed && good;
    made_.lines.push_back((good ? "met     " : "MISSED  ") + line);
  }

  std::string file_;
  const run_result& all_;
  verdict made_;
  std::size_t taken_ = 0;
  std::string key_; ///< Where the last key stands.
};

} // namespace

result<verdict> judge_text(const std::string& text, const std::string& name,
                           const run_result& all) try {
  const auto document = yaml_document(text, name);
  if (!document)
    return document.reason();
  return judging{name, all}.judge(*document);
} catch (const wrong& what) {
  return error{errc::invalid_request, what.message};
} catch (const YAML::Exception& e) {
  return error{errc::invalid_request, yaml_place(name, e.mark) + ": " + e.msg};
}

result<verdict> judge(const std::string& thresholds_path, const run_result& all) {
  const auto text = read_whole(thresholds_path, max_file_bytes);
  if (!text)
    return text.reason();
  return judge_text(*text, thresholds_path, all);
}

} // namespace insula::load
