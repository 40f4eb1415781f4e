#pragma once

#include "actors/protocol/messages.hpp"

#include <cstdint>
#include <string>
#include <string_view>

/// What the console's page is told of sandboxes, as JSON. Times are Unix times of the node that
/// answers, in milliseconds, and `now_ms` is its own. What is not known is left out.
namespace insula::http::console {

/// {"key":true,"now_ms":0,"sandboxes":[{"id":"…","state":"…",…}]}, and if more pages follow `next`,
/// the place where the next one begins, and `total`. `asks_key`: this node does, so that one can
/// sign out. `node`: its name in its cluster; empty: there is none. A sandbox with a caption has
/// `name`, `group` and `tags`; one with runs has `run`, the latest of them.
std::string write_sandboxes(const activation_page& page, bool asks_key, std::int64_t now_ms,
                            std::string_view node);

/// {"now_ms":0,"runs":[{"number":2,"state":"running","started_ms":0,"ends_ms":0},…]}, the newest
/// first, and if more follow `next`, the place where they begin. A run that is alive has `ends_ms`,
/// when its time is up; one that is over `ended_ms`; one that was stopped `cpu_ms`, `bytes_in` and
/// `bytes_out`. The caption is told as in a list. `totals` are of all runs that are over.
std::string write_runs(const run_list& of, std::int64_t now_ms);

} // namespace insula::http::console
