#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

/// Stands where no key does: a browser on this machine, or on its network, can reach the port, and
/// every page that it shows could run programs here. A page of another origin is told by its
/// Origin; one whose own name has been made to lead here (DNS rebinding), by the Host it asks for.
/// Any thread.
class page_guard {
public:
  /// `allowed_hosts`: further names that lead here, without port, in any letter case.
  explicit page_guard(std::vector<std::string> allowed_hosts);

  /// What is wrong with a request of these header fields; none: nothing. A request without Host is
  /// no browser's. `site`: Sec-Fetch-Site, which browsers send also where they send no Origin, as
  /// with a picture's address.
  std::optional<std::string_view> objection(std::string_view host, std::string_view origin,
                                            std::string_view site) const;

private:
  bool leads_here(std::string_view host) const;

  std::vector<std::string> names_; ///< In lower case.
};

} // namespace insula::http
