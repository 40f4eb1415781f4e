#include "base/log.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <optional>
#include <unistd.h>

namespace insula::log {

namespace {

std::atomic<level> threshold{level::info};
thread_local std::optional<level> threshold_of_thread;

std::string_view name_of(level at) {
  switch (at) {
    case level::debug: return "debug";
    case level::info: return "info";
    case level::warning: return "warning";
    case level::error: return "error";
  }
  return "?";
}

/// A value with blanks or control characters is quoted, so that one event stays one line.
void append_value(std::string& line, std::string_view value) {
  const bool plain = !value.empty() && value.find_first_of(" \"=\\") == std::string_view::npos;
  if (!plain)
    line += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\')
      line += '\\';
    line += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
  }
  if (!plain)
    line += '"';
}

std::string timestamp() {
  using namespace std::chrono;
  const auto ms =
    duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::time_t seconds = ms / 1000;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 40> text{};
  const auto n = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text.data() + n, text.size() - n, ".%03dZ", static_cast<int>(ms % 1000));
  return text.data();
}

} // namespace

void set_level(level least) {
  threshold = least;
}

level_of_thread::level_of_thread(level least) {
  threshold_of_thread = least;
}

level_of_thread::~level_of_thread() {
  threshold_of_thread.reset();
}

bool enabled(level at) {
  return at >= threshold_of_thread.value_or(threshold.load(std::memory_order_relaxed));
}

void write(level at, std::string_view event, std::initializer_list<field> fields) {
  if (!enabled(at))
    return;
  std::string line = timestamp();
  line += ' ';
  line += name_of(at);
  line += ' ';
  line += event;
  for (const auto& [name, value] : fields) {
    line += ' ';
    line += name;
    line += '=';
    append_value(line, value);
  }
  line += '\n';
  // One write() per line: lines of several threads and processes do not mix. A full disk must not
  // stop the server.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

} // namespace insula::log
