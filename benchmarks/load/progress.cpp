#include "benchmarks/load/progress.hpp"

#include <cstdio>
#include <unistd.h>

namespace insula::load {

namespace {

using namespace std::chrono_literals;

double seconds(clock::duration length) {
  return std::chrono::duration<double>(length).count();
}

} // namespace

progress::progress(bool wanted)
    : wanted_(wanted)
    , terminal_(::isatty(STDERR_FILENO) == 1) {}

void progress::begin(const std::string& scenario) {
  clear();
  scenario_ = scenario;
  began_ = last_at_ = clock::now();
  next_ = began_ + (terminal_ ? 0s : 5s);
  last_ok_ = 0;
}

void progress::clear() {
  if (terminal_ && shown_)
    std::fputs("\r\x1b[K", stderr);
  shown_ = false;
}

void progress::show(const control& now) {
  const auto time = clock::now();
  if (!wanted_ || time < next_)
    return;
  next_ = time + (terminal_ ? 200ms : 5000ms);
  const auto ok = now.so_far.ok.load(), failed = now.so_far.failed.load(),
             dropped = now.so_far.dropped.load(), started = now.so_far.started.load();
  const auto rate = static_cast<double>(ok - last_ok_) / std::max(seconds(time - last_at_), 0.001);
  last_ok_ = ok;
  last_at_ = time;
  const auto until = now.measuring_until.load();
  char left[32] = "";
  if (until > time)
    std::snprintf(left, sizeof left, ", %.0f s left", seconds(until - time));
  std::fprintf(stderr,
               "%s%s: %.0f s%s, %llu well (%.0f/s), %llu failed, %llu dropped, %llu under way%s",
               terminal_ ? "\r\x1b[K" : "insula: ", scenario_.c_str(), seconds(time - began_), left,
               static_cast<unsigned long long>(ok), rate, static_cast<unsigned long long>(failed),
               static_cast<unsigned long long>(dropped),
               static_cast<unsigned long long>(started > ok + failed ? started - ok - failed : 0),
               terminal_ ? "" : "\n");
  std::fflush(stderr);
  shown_ = true;
}

} // namespace insula::load
