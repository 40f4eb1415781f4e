#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace insula::actors::cluster {

/// Stands between what a peer sends and CAF, which believes all that it reads: a header of 32 bytes
/// has it take 4 GiB, any actor whose number is known can be killed. What passes is a handshake at
/// the beginning, messages of one shape from one actor there to one here, and what keeps the
/// connection alive.
///
/// Source: libcaf_io 0.17.6, caf/io/basp/header.hpp for the header, instance.cpp for the payloads.
/// Threads: one at a time.
class frame_guard {
public:
  struct rules {
    bool dialled = false;    ///< By this node: the peer's handshake is then the accepting side's.
    std::uint64_t actor = 0; ///< The only one here that is spoken to.
    std::string shape;       ///< With what the payload of a message begins: the types in it.
    std::size_t identity_bytes = 0; ///< Of a node's id, with which a handshake begins.
    /// May the peer be the node of this id?
    std::function<bool(const std::string& identity)> claims;
  };

  explicit frame_guard(rules by)
      : rules_(std::move(by)) {}

  /// Appends to `out` what may pass. Returned: why the peer is to be dropped, if it is.
  std::optional<std::string_view> feed(std::string_view bytes, std::string& out);

private:
  enum class verdict { pass, skip };
  using objection = std::optional<std::string_view>;

  std::uint64_t number(std::size_t at) const;
  objection read_header();
  objection read_handshake(bool expected, int most);
  objection judge();

  rules rules_;
  std::string held_;        ///< Of the frame at hand, until it is judged.
  std::size_t wanted_ = 32; ///< So much of it has to be here for that.
  std::uint32_t length_ = 0;
  std::uint64_t left_ = 0; ///< Of the frame that has been judged.
  verdict verdict_ = verdict::skip;
  int handshakes_ = 0;
  std::string identity_;
  std::uint64_t source_ = 0; ///< The peer's actor; 0: it has not said anything yet.
};

} // namespace insula::actors::cluster
