#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace insula::http {

/// Goes along the frames that the server of a WebSocket sends, to know where one may be added:
/// where none is under way. Of what they say it keeps nothing.
class frame_walk {
public:
  void pass(std::string_view bytes);

  /// Between two frames, and no close has come.
  bool may_close() const { return head_ == 0 && left_ == 0 && !closed_; }

private:
  void begin_frame();

  std::array<std::uint8_t, 14> bytes_{}; ///< Of a frame's head
  std::size_t head_ = 0;                 ///< so many have come,
  std::uint64_t left_ = 0;               ///< and of what follows so many have not.
  bool closed_ = false;
};

/// A close that says 1001: whoever was at the other end is going away.
std::string_view going_away_frame();

} // namespace insula::http
