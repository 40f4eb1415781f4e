#pragma once

#include "base/file_tasks.hpp"
#include "http/opensandbox/execd_route.hpp"
#include "http/transport/exchange.hpp"

#include <functional>
#include <string>
#include <vector>

namespace insula::http::opensandbox {

/// One file task (base/file_tasks.hpp), and who waits for it.
struct asked_task {
  execd_target target;
  std::string id; ///< Of the sandbox.
  file_task what{};
  std::vector<std::string> words;
  reply to;
  bool must_exist = false; ///< What is not there is a mistake in the request.
};

using task_done = std::function<void(const asked_task&, const std::string& bytes)>;

/// Has it done, and calls `then` with what its frames have said, on the strand of its client. If it
/// fails, the client is told instead.
void run_task(asked_task task, task_done then);

} // namespace insula::http::opensandbox
