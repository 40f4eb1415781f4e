#pragma once

#include "base/error.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

/// Who may be a node of a cluster, beside those that are.
namespace insula {

/// What a node says of itself in etcd, under nodes/<name>.
struct member_record {
  std::string address;        ///< Of its internal listener.
  std::uint32_t protocol = 0; ///< actors::cluster::link_version; 0: it makes no sense.
  std::string build;          ///< Empty: it does not say.

  std::string text() const;
  /// Before there was a second protocol nobody said which one it was.
  static member_record parse(const std::string& text);
};

/// Errors: invalid_request where one of the others, by their names, speaks another protocol.
result<void> speaks_as(const member_record& self, const std::map<std::string, std::string>& others);

/// A clock that is off by more is told of.
inline constexpr std::chrono::milliseconds clock_tolerance{2'000};
/// By so much it is a mistake of whoever looks after the machine. Leases count on clocks of another
/// kind, but alarms, ends of life and certificates go by this one.
inline constexpr std::chrono::milliseconds clock_limit{10'000};

/// `ahead`: clocks that this machine's is compared with, by what they are. Errors: invalid_request
/// where most of them are another one's.
result<void> clock_agrees(const std::map<std::string, std::chrono::milliseconds>& ahead);

/// What is wrong with that version of etcd, and which one to install, in words for the operator;
/// empty: nothing that is known of. A version that makes no sense has no known faults.
std::string fault_of_etcd(std::string_view version);

/// The endpoints in the order in which node `self` asks them: those of its own machine come first,
/// by `address`, then the others, begun at a place that differs from one of `nodes` to the next, so
/// that a member that hangs is not everybody's first.
std::vector<std::string> endpoints_for(const std::string& self, const std::string& address,
                                       const std::vector<std::string>& nodes,
                                       const std::vector<std::string>& endpoints);

} // namespace insula
