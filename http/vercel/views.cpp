#include "http/vercel/views.hpp"

#include "http/vercel/port_names.hpp"

namespace insula::http::vercel {

std::optional<sandbox_view> view_of(const std::string& id, const sandbox_description& is,
                                    const std::optional<sandbox_run>& run) {
  auto known = settings_of(is);
  if (!known || !is.exists || (!run && !is.run))
    return std::nullopt;
  return sandbox_view{id,        std::move(*known), is.created_ms, run ? *run : *is.run,
                      is.totals, is.snapshot};
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
