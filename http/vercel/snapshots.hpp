#pragma once

#include "base/error.hpp"
#include "http/vercel/api.hpp"

#include <functional>
#include <string>

namespace insula::http::vercel {

/// All snapshots of that sandbox, but for those on which another one stands. `then` is called once,
/// on a CAF worker.
void delete_snapshots_of(const shared_services& with, const std::string& sandbox,
                         const request_context& context,
                         std::function<void(const result<void>&)> then);

} // namespace insula::http::vercel
