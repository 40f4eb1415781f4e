#include "http/vercel/views.hpp"

#include "base/clock.hpp"
#include "http/vercel/drives.hpp"
#include "http/vercel/ids.hpp"
#include "http/vercel/port_names.hpp"

#include <algorithm>

namespace insula::http::vercel {

std::optional<sandbox_view> view_of(const std::string& id, const sandbox_description& is,
                                    const std::optional<sandbox_run>& run) {
  auto known = settings_of(is);
  if (!known || !is.exists || (!run && !is.run))
    return std::nullopt;
  sandbox_view view{id,        std::move(*known), is.created_ms, run ? *run : *is.run,
                    is.totals, is.snapshot};
  if (is_alive(view.run.state))
    view.expires_ms = begin_of(view.run) + view.run.timeout_ms;
  return view;
}

bool is_of_another_api(const sandbox_description& is) {
  return is.exists && is.metadata.count(metadata_api) == 0 &&
         is.metadata.count(drive_metadata_api) == 0 && !is.run;
}

std::optional<sandbox_view> view_of_other(const std::string& id, const std::string& project,
                                          const sandbox_description& is) {
  if (!is_of_another_api(is))
    return std::nullopt;
  sandbox_view view{id, {}, is.created_ms, {}, is.totals, is.snapshot};
  view.is.project = project;
  view.is.name = session_id{id, 0}.name();
  view.is.image = is.image;
  view.is.persistent = is.has_kept_disk;
  // No client has to wait longer than for a session of this API.
  const auto latest = system_clock{}.unix_ms() + most_timeout_ms;
  view.is.timeout_ms =
    std::max<std::int64_t>(std::min(is.expires_ms.value_or(latest), latest) - is.created_ms, 0);
  view.is.vcpus = std::max(is.cpu_limit_percent / 100, 1u);
  view.memory_mb = is.memory_limit_bytes >> 20;
  view.cwd = other_directory;
  view.run.state = is.paused ? run_state::stopped : run_state::running;
  view.run.asked_ms = view.run.started_ms = is.created_ms;
  if (is_alive(view.run.state))
    view.expires_ms = is.expires_ms;
  view.run.timeout_ms = view.is.timeout_ms;
  return view;
}

std::vector<route_view> routes_of(const services& with, const sandbox_view& of,
                                  std::string_view host) {
  std::vector<route_view> all;
  for (const auto port : of.is.ports) {
    route_view each{port, label_of(with.secret, of.id, port), {}};
    each.url = "https://" + each.subdomain + ".vercel.run";
    if (with.links)
      each.url = with.links->url_of(each.subdomain, host);
    all.push_back(std::move(each));
  }
  return all;
}

} // namespace insula::http::vercel
