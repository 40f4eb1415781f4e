#include "http/vercel/views.hpp"

#include "http/sandboxes/keyed_id.hpp"

#include <chrono>

namespace insula::http::vercel {

namespace {

constexpr std::chrono::hours link_lasts{24 * 7};

/// One label of DNS, the same for as long as the sandbox has its name, and not to be guessed.
std::string label_of(std::string_view secret, const std::string& id, std::uint16_t port) {
  constexpr std::size_t unguessable = 16;
  const auto text = "\nvercel-preview" + id + ':' + std::to_string(port);
  return "sb-" + id + '-' + std::to_string(port) + '-' +
         keyed_id(secret, text).substr(0, unguessable);
}

} // namespace

std::optional<sandbox_view> view_of(const std::string& id, const sandbox_description& is,
                                    const std::optional<sandbox_run>& run) {
  auto known = settings_of(is);
  if (!known || !is.exists || (!run && !is.run))
    return std::nullopt;
  return sandbox_view{id, std::move(*known), is.created_ms, run ? *run : *is.run, is.totals};
}

std::vector<route_view> routes_of(const services& with, const sandbox_view& of,
                                  std::string_view host) {
  std::vector<route_view> all;
  for (const auto port : of.is.ports) {
    route_view each{port, label_of(with.secret, of.id, port), {}};
    each.url = "https://" + each.subdomain + ".vercel.run";
    if (with.links)
      if (const auto link = with.links->link(of.id, port, host, link_lasts);
          link && !link->url.empty())
        each.url = link->url;
    all.push_back(std::move(each));
  }
  return all;
}

} // namespace insula::http::vercel
