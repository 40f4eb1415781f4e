#include "apps/progress_bar.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <unistd.h>

namespace insula {

namespace {

using namespace std::chrono_literals;

constexpr double mib = 1 << 20;

double part_of(std::uint64_t bytes, std::uint64_t total) {
  return total == 0 ? 1 : static_cast<double>(bytes) / static_cast<double>(total);
}

} // namespace

progress_bar::progress_bar()
    : terminal_(::isatty(STDERR_FILENO) == 1)
    , next_(std::chrono::steady_clock::now() + (terminal_ ? 0s : 3s)) {}

progress_bar::~progress_bar() {
  if (terminal_ && shown_)
    std::fputs("\r\x1b[K", stderr);
}

bool progress_bar::is_time() {
  const auto time = std::chrono::steady_clock::now();
  if (time < next_)
    return false;
  next_ = time + (terminal_ ? 100ms : 3000ms);
  return true;
}

void progress_bar::show(double part, const std::string& words) {
  shown_ = true;
  constexpr int width = 30;
  std::string bar(static_cast<std::size_t>(std::clamp(part, 0.0, 1.0) * width), '#');
  bar.resize(width, '.');
  std::fprintf(stderr, "%s%s%3.0f %%  %s%s",
               terminal_ ? "\r\x1b[K" : "insula: ", terminal_ ? ("[" + bar + "] ").c_str() : "",
               part * 100, words.c_str(), terminal_ ? "" : "\n");
  std::fflush(stderr);
}

void progress_bar::show(const storage::images::import_progress& now) {
  if (!is_time())
    return;
  std::array<char, 160> words{};
  std::snprintf(words.data(), words.size(), "%.0f of %.0f MiB, layer %zu of %zu, %llu files",
                static_cast<double>(now.bytes) / mib, static_cast<double>(now.total_bytes) / mib,
                now.layer, now.layers, static_cast<unsigned long long>(now.entries));
  show(part_of(now.bytes, now.total_bytes), words.data());
}

void progress_bar::show(const storage::registry::pull_progress& now) {
  if (!is_time())
    return;
  std::array<char, 160> words{};
  std::snprintf(words.data(), words.size(), "%.0f of %.0f MiB, %zu of %zu layers are here",
                static_cast<double>(now.bytes) / mib, static_cast<double>(now.total_bytes) / mib,
                now.done, now.layers);
  show(part_of(now.bytes, now.total_bytes), words.data());
}

} // namespace insula
