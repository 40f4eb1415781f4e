#include "http/console/sandbox_json.hpp"

#include "http/json/writer.hpp"

#include <optional>

namespace insula::http::console {

namespace {

void write_caption(json::writer& out, const std::optional<sandbox_caption>& is) {
  if (!is)
    return;
  out.member("name", is->name).member("group", is->group).key("tags").begin_object();
  for (const auto& [name, text] : is->tags)
    out.member(name, text);
  out.end_object();
}

void write_use(json::writer& out, std::int64_t cpu_ms, std::uint64_t bytes_in,
               std::uint64_t bytes_out) {
  out.member("cpu_ms", cpu_ms).member("bytes_in", bytes_in).member("bytes_out", bytes_out);
}

void write_run(json::writer& out, const sandbox_run& run) {
  out.begin_object().member("number", run.number).member("state", name_of(run.state));
  if (run.started_ms != 0)
    out.member("started_ms", run.started_ms);
  if (is_alive(run.state))
    out.member("ends_ms", begin_of(run) + run.timeout_ms);
  else if (run.ended_ms != 0)
    out.member("ended_ms", run.ended_ms);
  if (run.state == run_state::stopped)
    write_use(out, run.cpu_ms, run.bytes_in, run.bytes_out);
  out.end_object();
}

void write_row(json::writer& out, const sandbox_status& row) {
  out.begin_object().member("id", row.id).member("state", row.state);
  out.member("current", row.current);
  if (row.created_ms != 0)
    out.member("created_ms", row.created_ms);
  if (row.memory_bytes)
    out.member("memory_bytes", static_cast<std::int64_t>(*row.memory_bytes));
  if (row.cpu_us)
    out.member("cpu_us", static_cast<std::int64_t>(*row.cpu_us));
  if (row.processes)
    out.member("processes", *row.processes);
  out.member("sessions", row.sessions).member("terminals", row.terminals);
  write_caption(out, row.caption);
  if (row.run)
    write_run(out.key("run"), *row.run);
  out.end_object();
}

} // namespace

std::string write_sandboxes(const activation_page& page, bool asks_key, std::int64_t now_ms,
                            std::string_view node) {
  json::writer out;
  out.begin_object().member("key", asks_key).member("now_ms", now_ms);
  if (!node.empty())
    out.member("node", node);
  if (page.next != 0)
    out.member("next", std::to_string(page.next)).member("total", page.total);
  out.key("sandboxes").begin_array();
  for (const auto& row : page.sandboxes)
    write_row(out, row);
  return out.end_array().end_object().str();
}

std::string write_runs(const run_list& of, std::int64_t now_ms) {
  json::writer out;
  out.begin_object().member("now_ms", now_ms);
  write_caption(out, of.sandbox.caption);
  if (const auto& all = of.sandbox.totals; all.runs != 0) {
    out.key("totals").begin_object().member("runs", all.runs);
    out.member("duration_ms", all.duration_ms);
    write_use(out, all.cpu_ms, all.bytes_in, all.bytes_out);
    out.end_object();
  }
  if (of.more)
    out.member("next", std::to_string(of.runs.back().number));
  out.key("runs").begin_array();
  for (const auto& run : of.runs)
    write_run(out, run);
  return out.end_array().end_object().str();
}

} // namespace insula::http::console
