#include "apps/progress_bar.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <unistd.h>

namespace insula {

namespace {

using namespace std::chrono_literals;

constexpr double mib = 1 << 20;

} // namespace

progress_bar::progress_bar()
    : terminal_(::isatty(STDERR_FILENO) == 1)
    , next_(std::chrono::steady_clock::now() + (terminal_ ? 0s : 3s)) {}

progress_bar::~progress_bar() {
  if (terminal_ && shown_)
    std::fputs("\r\x1b[K", stderr);
}

void progress_bar::show(const storage::images::import_progress& now) {
  const auto time = std::chrono::steady_clock::now();
  if (time < next_)
    return;
  next_ = time + (terminal_ ? 100ms : 3000ms);
  shown_ = true;
  const double part = now.total_bytes == 0
                        ? 1
                        : static_cast<double>(now.bytes) / static_cast<double>(now.total_bytes);
  constexpr int width = 30;
  std::string bar(static_cast<std::size_t>(std::clamp(part, 0.0, 1.0) * width), '#');
  bar.resize(width, '.');
  std::fprintf(stderr, "%s%s%3.0f %%  %.0f of %.0f MiB, layer %zu of %zu, %llu files%s",
               terminal_ ? "\r\x1b[K" : "insula: ", terminal_ ? ("[" + bar + "] ").c_str() : "",
               part * 100, static_cast<double>(now.bytes) / mib,
               static_cast<double>(now.total_bytes) / mib, now.layer, now.layers,
               static_cast<unsigned long long>(now.entries), terminal_ ? "" : "\n");
  std::fflush(stderr);
}

} // namespace insula
