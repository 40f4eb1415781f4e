#include "actors/cluster/frame_guard.hpp"

#include "base/limits.hpp"

#include <algorithm>

namespace insula::actors::cluster {

namespace {

constexpr std::size_t header_bytes = 32;

/// What is no message has a node's id or two in it, and little else.
constexpr std::uint32_t control_bytes = 4096;

enum operation : std::uint8_t {
  server_handshake = 0,
  client_handshake = 1,
  direct_message = 2,
  routed_message = 3,
  monitor_message = 4,
  down_message = 5,
  heartbeat = 6,
};

constexpr std::uint8_t named_receiver = 1;

// Where they are in a header.
constexpr std::size_t flags_at = 3;
constexpr std::size_t source_at = 16;
constexpr std::size_t receiver_at = 24;

} // namespace

std::uint64_t frame_guard::number(std::size_t at) const {
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < 8; ++i)
    all = all << 8 | static_cast<std::uint8_t>(held_[at + i]);
  return all;
}

frame_guard::objection frame_guard::read_handshake(bool expected, int most) {
  if (!expected || handshakes_ == most)
    return "a handshake out of turn";
  if (length_ < rules_.identity_bytes || length_ > control_bytes)
    return "a malformed handshake";
  ++handshakes_;
  wanted_ = header_bytes + length_;
  return {};
}

/// Says in wanted_ how much of the frame it takes to judge it.
frame_guard::objection frame_guard::read_header() {
  length_ = static_cast<std::uint32_t>(number(0));
  if (length_ > limits::link_frame_bytes)
    return "a frame that is too large";
  const auto what = static_cast<std::uint8_t>(held_[0]);
  // The side that dials says its own twice: at once, and when it has heard the other's.
  if (what == server_handshake)
    return read_handshake(rules_.dialled, 1);
  if (what == client_handshake)
    return read_handshake(!rules_.dialled, 2);
  if (handshakes_ == 0)
    return "no handshake";
  verdict_ = verdict::skip;
  switch (what) {
    case direct_message:
      if (length_ == 0)
        return "a message without content";
      if ((static_cast<std::uint8_t>(held_[flags_at]) & named_receiver) == 0 &&
          number(receiver_at) == rules_.actor && number(source_at) != 0 &&
          (source_ == 0 || source_ == number(source_at)) && length_ >= rules_.shape.size())
        wanted_ = header_bytes + rules_.shape.size();
      return {};
    case monitor_message:
      if (length_ == 0)
        return "a frame without content";
      if (number(receiver_at) == rules_.actor && length_ <= control_bytes)
        verdict_ = verdict::pass;
      return {};
    case heartbeat:
      if (length_ != 0)
        return "a malformed heartbeat";
      verdict_ = verdict::pass;
      return {};
    // Others than the two nodes have no part in this; and whose actor has ended is of no interest:
    // the link says when it drops.
    case routed_message:
    case down_message: return {};
    default: return "an unknown frame";
  }
}

/// As much of the frame as was wanted is there.
frame_guard::objection frame_guard::judge() {
  const auto payload = std::string_view{held_}.substr(header_bytes);
  if (held_[0] == server_handshake || held_[0] == client_handshake) {
    const std::string identity{payload.substr(0, rules_.identity_bytes)};
    if (handshakes_ == 1 ? !rules_.claims(identity) : identity != identity_)
      return "a node id of somebody else";
    identity_ = identity;
    verdict_ = verdict::pass;
  } else if (held_[0] == direct_message && !payload.empty() && payload == rules_.shape) {
    source_ = number(source_at);
    verdict_ = verdict::pass;
  }
  return {};
}

std::optional<std::string_view> frame_guard::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    if (left_ > 0) {
      const auto some = bytes.substr(0, std::min<std::uint64_t>(left_, bytes.size()));
      if (verdict_ == verdict::pass)
        out += some;
      left_ -= some.size();
      bytes.remove_prefix(some.size());
      continue;
    }
    const auto some = bytes.substr(0, wanted_ - held_.size());
    held_ += some;
    bytes.remove_prefix(some.size());
    if (held_.size() == header_bytes && wanted_ == header_bytes)
      if (const auto why = read_header())
        return why;
    if (held_.size() < wanted_)
      continue;
    if (const auto why = judge())
      return why;
    if (verdict_ == verdict::pass)
      out += held_;
    left_ = header_bytes + length_ - held_.size();
    held_.clear();
    wanted_ = header_bytes;
  }
  return {};
}

} // namespace insula::actors::cluster
