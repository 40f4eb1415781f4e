#include "http/vercel/objects_json.hpp"

#include "http/vercel/ids.hpp"

namespace insula::http::vercel {

namespace {

using writer = json::ascii_writer;

/// Unless it is 0.
void time_member(writer& out, std::string_view name, std::int64_t ms) {
  if (ms != 0)
    out.member(name, ms);
}

std::uint64_t memory_mb_of(const sandbox_view& of) {
  return of.memory_mb != 0 ? of.memory_mb : std::uint64_t{of.is.vcpus} * memory_of_vcpu_mb;
}

/// Rules that other APIs have made are not all rules of this one.
void policy_member(writer& out, const sandbox_view& of) {
  if (of.is_other())
    return;
  out.key("networkPolicy");
  write_policy(out, of.is.network);
}

} // namespace

void write_sandbox(writer& out, const sandbox_view& of) {
  const auto& is = of.is;
  const auto changed_ms = std::max(of.created_ms, state_since(of.run));
  out.begin_object();
  out.member("name", is.name).member("persistent", is.persistent);
  out.member("createdAt", of.created_ms);
  out.member("updatedAt", std::max(is.updated_ms, changed_ms));
  out.member("currentSessionId", session_id{of.id, of.run.number}.text());
  out.member("status", name_of(of.run.state)).member("statusUpdatedAt", changed_ms);
  out.member("region", is.region);
  out.member("vcpus", is.vcpus).member("memory", memory_mb_of(of));
  if (!is.runtime.empty())
    out.member("runtime", is.runtime);
  if (!is.image.empty())
    out.member("image", is.image);
  if (!is.network_id.empty())
    out.member("networkId", is.network_id);
  out.member("timeout", is.timeout_ms);
  if (of.expires_ms)
    out.member("expiresAt", *of.expires_ms);
  policy_member(out, of);
  out.member("cwd", of.cwd);
  out.key("tags").begin_object();
  for (const auto& [key, text] : is.tags)
    out.member(key, text);
  out.end_object();
  if (!is.mounts.empty()) {
    out.key("mounts");
    write_mounts(out, is.mounts);
  }
  if (!of.snapshot.empty())
    out.member("currentSnapshotId", id_of_snapshot(of.snapshot));
  if (is.snapshot_expiration_ms)
    out.member("snapshotExpiration", *is.snapshot_expiration_ms);
  if (is.keep_last) {
    out.key("keepLastSnapshots").begin_object().member("count", is.keep_last->count);
    if (is.keep_last->expiration_ms)
      out.member("expiration", *is.keep_last->expiration_ms);
    out.member("deleteEvicted", is.keep_last->delete_evicted).end_object();
  }
  if (of.totals.runs > 0) {
    out.member("totalEgressBytes", of.totals.bytes_out);
    out.member("totalIngressBytes", of.totals.bytes_in);
    out.member("totalActiveCpuDurationMs", of.totals.cpu_ms);
    out.member("totalDurationMs", of.totals.duration_ms);
  }
  out.end_object();
}

void write_session(writer& out, const sandbox_view& of) {
  const auto& run = of.run;
  out.begin_object();
  out.member("id", session_id{of.id, run.number}.text()).member("status", name_of(run.state));
  out.member("memory", memory_mb_of(of)).member("vcpus", of.is.vcpus);
  out.member("timeout", run.timeout_ms).member("region", of.is.region);
  out.member("cwd", of.cwd);
  out.member("requestedAt", run.asked_ms).member("createdAt", run.asked_ms);
  out.member("updatedAt", std::max(run.asked_ms, state_since(run)));
  time_member(out, "startedAt", run.started_ms);
  time_member(out, "requestedStopAt", run.stop_asked_ms);
  if (run.state == run_state::stopped || run.state == run_state::failed)
    time_member(out, "stoppedAt", run.ended_ms);
  if (run.state == run_state::aborted)
    time_member(out, "abortedAt", run.ended_ms);
  if (!is_alive(run.state) && run.ended_ms != 0)
    out.member("duration", run.ended_ms - begin_of(run));
  if (!run.began_with.empty())
    out.member("sourceSnapshotId", id_of_snapshot(run.began_with));
  if (!is_alive(run.state) && !run.snapshot.empty())
    time_member(out, "snapshottedAt", run.ended_ms);
  out.member("runtime", of.is.runtime); // Empty if none was asked for: 2.x of the SDK needs one.
  out.member("interactivePort", interactive_port);
  policy_member(out, of);
  if (!is_alive(run.state)) {
    out.member("activeCpuDurationMs", run.cpu_ms).member("activeCpuUsageMs", run.cpu_ms);
    out.key("networkTransfer").begin_object();
    out.member("ingress", run.bytes_in).member("egress", run.bytes_out).end_object();
  }
  out.member("sourceSandboxName", of.is.name);
  if (!of.is.project.empty())
    out.member("projectId", of.is.project);
  out.end_object();
}

void write_snapshot(writer& out, const snapshot_description& of) {
  out.begin_object();
  out.member("id", id_of_snapshot(of.id));
  out.member("sourceSessionId", session_id{of.origin, of.run}.text());
  out.member("region", default_region).key("regions").begin_array().text(default_region);
  out.end_array().member("status", name_of(of.state));
  out.member("sizeBytes", std::max<std::uint64_t>(of.bytes, 1)); // 0: it is not known.
  out.member("createdAt", of.created_ms).member("updatedAt", of.last_used_ms);
  if (const auto expires = expires_ms(of); expires && of.state == snapshot_state::created)
    out.member("expiresAt", *expires);
  out.member("lastUsedAt", of.last_used_ms);
  out.member("creationMethod", of.automatic ? "automatic" : "manual");
  if (!of.parent.empty())
    out.member("parentId", id_of_snapshot(of.parent));
  out.end_object();
}

void write_routes(writer& out, const std::vector<route_view>& all) {
  out.begin_array();
  for (const auto& each : all) {
    out.begin_object().member("port", each.port).member("subdomain", each.subdomain);
    out.member("url", each.url).end_object();
  }
  out.end_array();
}

void write_pagination(writer& out, std::size_t count, const std::optional<std::string>& next) {
  out.begin_object().member("count", count);
  next ? out.member("next", *next) : out.member("next", nullptr);
  out.end_object();
}

void write_command(writer& out, const command_view& of) {
  out.begin_object().member("id", of.id).member("name", of.name).key("args").begin_array();
  for (const auto& each : of.args)
    out.text(each);
  out.end_array().member("cwd", of.cwd).member("sessionId", of.session);
  of.exit_code ? out.member("exitCode", *of.exit_code) : out.member("exitCode", nullptr);
  out.member("startedAt", of.started_ms);
  if (of.exit_code)
    out.member("durationMs", of.duration_ms);
  out.end_object();
}

std::string text_of(const command_view& of) {
  writer out;
  write_command(out, of);
  return out.str();
}

command_view read_command_view(std::string_view text) {
  command_view is;
  json::document document;
  if (!json::parse(text, document) || !document.IsObject())
    return is;
  for (const auto& [name, to] : {std::pair{"id", &is.id}, std::pair{"name", &is.name},
                                 std::pair{"cwd", &is.cwd}, std::pair{"sessionId", &is.session}})
    if (const auto* value = json::find(document, name); value != nullptr && value->IsString())
      *to = json::string_of(*value);
  if (const auto* args = json::find(document, "args"); args != nullptr && args->IsArray())
    for (const auto& each : args->GetArray())
      if (each.IsString())
        is.args.push_back(json::string_of(each));
  if (const auto* at = json::find(document, "startedAt"); at != nullptr && at->IsInt64())
    is.started_ms = at->GetInt64();
  return is;
}

} // namespace insula::http::vercel
