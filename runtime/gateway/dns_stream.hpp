#pragma once

#include "base/unique_fd.hpp"

#include <functional>
#include <memory>

namespace insula::runtime::gateway {

class tenant;

/// Questions to the DNS over TCP, one after the other, until there are no more, or nothing comes
/// for a while. `on_over` is called once.
void serve_dns_stream(std::shared_ptr<tenant> whose, unique_fd client,
                      std::function<void()> on_over);

} // namespace insula::runtime::gateway
