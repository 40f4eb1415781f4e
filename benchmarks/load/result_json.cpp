#include "benchmarks/load/reports.hpp"
#include "benchmarks/load/whole_file.hpp"
#include "http/text/utf8.hpp"
#include "storage/images/json.hpp"

#include <cmath>
#include <concepts>
#include <limits>
#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

namespace insula::load {

namespace {

using rapidjson::SizeType;
using rapidjson::Value;

constexpr const char* format = "insula load result 1";

// Ceilings for what is read, far above what a run makes. An hour of seconds has 100 KB; a histogram
// takes up to 172 KB of memory, though the file may say it in 50 bytes.
constexpr std::size_t max_file_bytes = 64u << 20;
constexpr std::size_t max_scenarios = 256;
constexpr std::size_t max_operations = 512; ///< Of all scenarios.
/// What every reader of JSON takes for a whole number; a thousand of them can be added.
constexpr std::uint64_t max_count = 1ull << 53;

// ---- What there is, for writing and for reading ----

template <class T, class Of>
concept same = std::same_as<std::remove_const_t<T>, Of>;

template <class Visit>
void members(same<operation_result> auto& of, Visit visit) {
  visit("name", of.name);
  visit("latency", of.latency);
  visit("service", of.service);
  visit("failures", of.failures);
  visit("late", of.late);
  visit("dropped", of.dropped);
  visit("bytes", of.bytes);
  visit("span_seconds", of.span_seconds);
  visit("seconds", of.seconds);
  visit("samples_ms", of.samples_ms);
}

template <class Visit>
void members(same<named_value> auto& of, Visit visit) {
  visit("name", of.name);
  visit("value", of.value);
  visit("unit", of.unit);
  visit("higher_is_better", of.higher_is_better);
}

template <class Visit>
void members(same<client_result> auto& of, Visit visit) {
  visit("seconds", of.seconds);
  visit("cpu_seconds", of.cpu_seconds);
  visit("busiest_thread_share", of.busiest_thread_share);
  visit("timer_lateness", of.timer_lateness);
  visit("open_files_max", of.open_files_max);
  visit("open_files_limit", of.open_files_limit);
}

template <class Visit>
void members(same<scenario_result> auto& of, Visit visit) {
  visit("name", of.name);
  visit("method", of.method);
  visit("parameters", of.parameters);
  visit("void_reasons", of.void_reasons);
  visit("skipped", of.skipped);
  visit("partial", of.partial);
  visit("notes", of.notes);
  visit("warm_up_seconds", of.warm_up_seconds);
  visit("seconds", of.seconds);
  visit("values", of.values);
  visit("operations", of.operations);
  visit("client", of.client);
}

template <class Visit>
void members(same<run_result> auto& of, Visit visit) {
  visit("target", of.target);
  visit("started_at", of.started_at);
  visit("command", of.command);
  visit("seed", of.seed);
  visit("clients", of.clients);
  visit("client", of.client);
  visit("server", of.server);
  visit("scenarios", of.scenarios);
}

/// A second is a list, since there are many.
template <class Visit>
void columns(same<second_point> auto& of, Visit visit) {
  visit(of.started);
  visit(of.ok);
  visit(of.failed);
  visit(of.dropped);
  visit(of.sum_us);
  visit(of.max_us);
}

// ---- Writing ----

using writer = rapidjson::PrettyWriter<rapidjson::StringBuffer>;

template <class T>
void put(writer& to, const T& of);
template <class T>
void put(writer& to, const std::map<std::string, T>& all);
void put(writer& to, const histogram& lengths);

/// Names and messages may come from a server: what is no UTF-8 is replaced.
void put(writer& to, const std::string& text) {
  const auto clean = http::to_utf8(text);
  to.String(clean.data(), static_cast<SizeType>(clean.size()));
}

void put(writer& to, std::uint64_t number) {
  to.Uint64(number);
}

void put(writer& to, std::uint32_t number) {
  to.Uint(number);
}

void put(writer& to, bool flag) {
  to.Bool(flag);
}

/// JSON has no other name for what is no number.
void put(writer& to, double number) {
  if (std::isfinite(number))
    to.Double(number);
  else
    to.Null();
}

void put(writer& to, const second_point& second) {
  to.StartArray();
  columns(second, [&](auto number) { to.Uint64(number); });
  to.EndArray();
}

void put(writer& to, const std::pair<std::uint64_t, std::uint64_t>& step) {
  to.StartArray();
  to.Uint64(step.first);
  to.Uint64(step.second);
  to.EndArray();
}

template <class T>
void put(writer& to, const std::vector<T>& all) {
  to.StartArray();
  for (const auto& each : all)
    put(to, each);
  to.EndArray();
}

void put_key(writer& to, const std::string& name) {
  const auto clean = http::to_utf8(name);
  to.Key(clean.data(), static_cast<SizeType>(clean.size()));
}

template <class T>
void put(writer& to, const std::map<std::string, T>& all) {
  to.StartObject();
  for (const auto& [name, value] : all) {
    put_key(to, name);
    put(to, value);
  }
  to.EndObject();
}

void put(writer& to, const histogram& lengths) {
  to.StartObject();
  to.Key("min_us");
  to.Uint64(lengths.min_us());
  to.Key("max_us");
  to.Uint64(lengths.max_us());
  to.Key("sum_us");
  to.Double(lengths.sum_us());
  to.Key("steps");
  put(to, lengths.steps());
  to.EndObject();
}

/// Figures for whoever reads the file with other tools. Nothing reads them here.
void put_percentiles(writer& to, const operation_result& of) {
  to.Key("attempts");
  to.Uint64(of.attempts());
  to.Key("failed");
  to.Uint64(of.failed());
  for (const auto& [name, percent] :
       {std::pair{"p50_ms", 50.0}, {"p90_ms", 90.0}, {"p99_ms", 99.0}, {"p999_ms", 99.9}}) {
    to.Key(name);
    const auto us = of.latency.percentile_us(percent, of.missing());
    put(to, us && of.attempts() != 0 ? static_cast<double>(*us) / 1e3
                                     : std::numeric_limits<double>::quiet_NaN());
  }
}

template <class T>
void put(writer& to, const T& of) {
  to.StartObject();
  if constexpr (std::same_as<T, run_result>) {
    to.Key("format");
    to.String(format);
  }
  if constexpr (std::same_as<T, operation_result>)
    put_percentiles(to, of);
  members(of, [&](const char* name, const auto& member) {
    to.Key(name);
    put(to, member);
  });
  to.EndObject();
}

// ---- Reading ----

/// What is wrong with a document, and where in it.
struct wrong {
  std::string message;
};

/// A value and the way to it. The way is spelled when something is wrong.
struct place {
  const Value& value;
  const place* above = nullptr;
  const char* name = nullptr; ///< None: the element with that index.
  std::size_t index = 0;

  [[noreturn]] void expected(const std::string& what) const {
    const char* kinds[] = {"null", "false", "true", "an object", "a list", "a text", "a number"};
    const auto got = value.IsNumber() ? "that number" : kinds[value.GetType()];
    throw wrong{path() + ": expected " + what + ", got " + got};
  }

  std::string path() const {
    if (above == nullptr)
      return "the document";
    const auto own = name == nullptr ? "[" + std::to_string(index) + "]" : std::string{name};
    const auto before = above->above == nullptr ? "" : above->path();
    return before.empty() || name == nullptr ? before + own : before + "." + own;
  }
};

template <class T>
void take(const place& at, T& into);
template <class T>
void take(const place& at, std::map<std::string, T>& into);
void take(const place& at, histogram& into);

std::string text_of(const Value& value) {
  return {value.GetString(), value.GetStringLength()};
}

void take(const place& at, std::string& into) {
  if (!at.value.IsString())
    at.expected("a text");
  into = text_of(at.value);
}

void take(const place& at, std::uint64_t& into, std::uint64_t most = max_count) {
  if (!at.value.IsUint64() || at.value.GetUint64() > most)
    at.expected("a whole number up to " + std::to_string(most));
  into = at.value.GetUint64();
}

void take(const place& at, std::uint32_t& into) {
  std::uint64_t number = 0;
  take(at, number, std::numeric_limits<std::uint32_t>::max());
  into = static_cast<std::uint32_t>(number);
}

void take(const place& at, bool& into) {
  if (!at.value.IsBool())
    at.expected("true or false");
  into = at.value.GetBool();
}

void take(const place& at, double& into) {
  if (!at.value.IsNumber() && !at.value.IsNull())
    at.expected("a number");
  into = at.value.IsNull() ? std::numeric_limits<double>::quiet_NaN() : at.value.GetDouble();
}

const Value& list(const place& at) {
  if (!at.value.IsArray())
    at.expected("a list");
  return at.value;
}

const Value& object(const place& at) {
  if (!at.value.IsObject())
    at.expected("an object");
  return at.value;
}

const Value& list(const place& at, SizeType size) {
  if (!at.value.IsArray() || at.value.Size() != size)
    at.expected("a list of " + std::to_string(size) + " numbers");
  return at.value;
}

void take(const place& at, second_point& into) {
  const auto& from = list(at, 6);
  SizeType i = 0;
  columns(into, [&](std::uint64_t& number) {
    take(place{from[i], &at, nullptr, i}, number);
    ++i;
  });
}

void take(const place& at, std::pair<std::uint64_t, std::uint64_t>& into) {
  const auto& from = list(at, 2);
  take(place{from[0], &at, nullptr, 0}, into.first);
  take(place{from[1], &at, nullptr, 1}, into.second);
}

template <class T>
void take(const place& at, std::vector<T>& into) {
  const auto& from = list(at);
  into.resize(from.Size());
  for (SizeType i = 0; i < from.Size(); ++i)
    take(place{from[i], &at, nullptr, i}, into[i]);
}

template <class T>
void take(const place& at, std::map<std::string, T>& into) {
  for (const auto& each : object(at).GetObject()) {
    const auto name = text_of(each.name);
    const place inside{each.value, &at, name.c_str()};
    const auto [made, fresh] = into.try_emplace(name);
    if (!fresh)
      throw wrong{inside.path() + ": given twice"};
    take(inside, made->second);
  }
}

template <class T>
void take_member(const place& at, const char* name, T& into) {
  const auto* value = storage::images::member(object(at), name);
  if (value == nullptr)
    throw wrong{at.path() + ": expected a member \"" + name + "\""};
  take(place{*value, &at, name}, into);
}

void take(const place& at, histogram& into) {
  std::uint64_t min_us = 0, max_us = 0;
  double sum_us = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> steps;
  take_member(at, "min_us", min_us);
  take_member(at, "max_us", max_us);
  take_member(at, "sum_us", sum_us);
  take_member(at, "steps", steps);
  auto made = histogram::from_steps(steps, min_us, max_us, sum_us);
  if (!made || made->count() > max_count)
    at.expected("steps of a histogram, with the shortest, the longest and the sum of these");
  into = std::move(*made);
}

template <class T>
void take(const place& at, T& into) {
  members(into, [&](const char* name, auto& member) {
    if constexpr (std::same_as<T, run_result>)
      if (name == std::string_view{"seed"})
        return; // It may be larger than what is counted.
    take_member(at, name, member);
  });
}

/// Before anything of it is made.
void check_size(const Value& document) {
  const auto* scenarios = storage::images::member(document, "scenarios");
  if (scenarios == nullptr || !scenarios->IsArray())
    return; // Which is noticed when it is taken.
  std::size_t operations = 0;
  for (const auto& each : scenarios->GetArray())
    if (const auto* some = storage::images::member(each, "operations"); some && some->IsArray())
      operations += some->Size();
  if (scenarios->Size() > max_scenarios || operations > max_operations)
    throw wrong{"scenarios: expected at most " + std::to_string(max_scenarios) + " with " +
                std::to_string(max_operations) + " operations"};
}

} // namespace

std::string to_json(const run_result& all) {
  rapidjson::StringBuffer buffer;
  writer to{buffer};
  to.SetIndent(' ', 1);
  to.SetFormatOptions(rapidjson::kFormatSingleLineArray);
  put(to, all);
  return std::string{buffer.GetString(), buffer.GetSize()} + '\n';
}

result<void> write_json(const std::string& path, const run_result& all) {
  return write_whole(path, to_json(all));
}

result<run_result> parse_json(const std::string& text, const std::string& name) try {
  const auto document = storage::images::parse_json(text);
  if (!document)
    return error{errc::invalid_request, name + ": " + document.reason().message};
  if (storage::images::text_of(*document, "format") != format)
    return error{errc::invalid_request,
                 name + ": expected a run's result with \"format\": \"" + format + "\""};
  check_size(*document);
  run_result all;
  const place top{*document};
  take(top, all);
  const auto* seed = storage::images::member(*document, "seed");
  if (seed == nullptr || !seed->IsUint64())
    throw wrong{"seed: expected a whole number"};
  all.seed = seed->GetUint64();
  return all;
} catch (const wrong& what) {
  return error{errc::invalid_request, name + ": " + what.message};
}

result<run_result> read_json(const std::string& path) {
  const auto text = read_whole(path, max_file_bytes);
  if (!text)
    return text.reason();
  return parse_json(*text, path);
}

} // namespace insula::load
