#include "http/vercel/views.hpp"

#include "base/hex.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <chrono>

namespace insula::http::vercel {

namespace {

constexpr std::chrono::hours link_lasts{24 * 7};

/// One label of DNS, the same for as long as the sandbox has its name, and not to be guessed.
std::string label_of(std::string_view secret, const std::string& id, std::uint16_t port) {
  constexpr std::size_t mac_bytes = 8;
  const auto text = "\npreview" + id + ':' + std::to_string(port);
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned count = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), bytes.data(), &count);
  return "sb-" + id + '-' + std::to_string(port) + '-' + to_hex({bytes.data(), mac_bytes});
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

bool is_alive(run_state now) {
  return now == run_state::pending || now == run_state::running || now == run_state::stopping;
}

} // namespace insula::http::vercel
