#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace insula::http {

/// Wrong keys in the log: one line for each network within limits::wrong_keys_within, and
/// limits::wrong_key_lines from all of them together. So no more than twice as many networks are
/// remembered. Any thread.
class wrong_key_log {
public:
  using clock = std::chrono::steady_clock;
  using time_point = clock::time_point;

  /// Whether a line is to be had for another wrong key from this network; so many from all networks
  /// have got none since the last line.
  struct line {
    bool granted = false;
    std::uint64_t left_out = 0;
  };
  line take_line(const std::string& network, time_point now);

  /// Writes the line, if it is to be had. `by`: where the key stood. `route`: what was asked for.
  void note(const std::string& network, std::string_view by, std::string_view route);

private:
  std::mutex guard_;
  std::map<std::string, time_point> last_; ///< Line of each network.
  time_point since_{};
  std::size_t lines_ = 0; ///< Since then.
  std::uint64_t left_out_ = 0;
};

} // namespace insula::http
