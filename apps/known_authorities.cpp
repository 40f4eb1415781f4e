#include "apps/known_authorities.hpp"

#include "base/log.hpp"

#include <array>
#include <fstream>
#include <iterator>

namespace insula {

namespace {

/// Where Debian, Fedora, openSUSE and Alpine have all in one file.
constexpr std::array machine_bundles{"/etc/ssl/certs/ca-certificates.crt",
                                     "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                     "/etc/ssl/cert.pem"};

std::string machines_authorities() {
  for (const char* each : machine_bundles) {
    std::ifstream file{each, std::ios::binary};
    std::string text{std::istreambuf_iterator<char>{file}, {}};
    if (!text.empty())
      return text;
  }
  log::warning("network.no_authorities",
               {{"reason", "this machine has no bundle of certificates"},
                {"consequence", "rules about requests reach no server unless network.ca_file "
                                "names its authority"}});
  return {};
}

} // namespace

result<std::string> known_authorities(const config& values,
                                      const storage::images::authorities& of_sandboxes) {
  auto all = machines_authorities();
  if (!all.empty() && all.back() != '\n')
    all += '\n';
  all += of_sandboxes.pem();
  const auto& file = values.network.ca_file;
  if (file.empty())
    return all;
  const auto more = storage::images::read_authorities(file);
  if (!more)
    return error{more.reason().code, "network.ca_file: " + more.reason().message};
  return all + more->pem();
}

} // namespace insula
