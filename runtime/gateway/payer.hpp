#pragma once

#include "runtime/gateway/fair_places.hpp"
#include "runtime/gateway/turns.hpp"

#include <memory>

namespace insula::runtime::gateway {

/// The tenant that causes some work, and to which the work is charged.
struct payer {
  tenant_number number = 0;
  std::shared_ptr<turns::share> time;
};

} // namespace insula::runtime::gateway
