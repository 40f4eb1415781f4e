#pragma once

#include "storage/etcd/client.hpp"

#include <optional>
#include <string>
#include <string_view>

/// The JSON of etcd's gateway: numbers of 64 bits are texts, bytes are base64, and what is 0 or
/// empty is left out. Nothing here asserts, whatever an answer holds.
namespace insula::storage::etcd {

std::string question(const transaction& what);
std::string grant_question(std::chrono::seconds lives);
std::string lease_question(lease_id which);
std::string watch_question(std::string_view prefix, revision from);

// Errors: io_failed for what is no such answer.
result<outcome> read_outcome(std::string_view text);
result<lease_id> read_grant(std::string_view text);
result<renewal> read_renewal(std::string_view text);

/// Which etcd a member is, as it says of itself; empty: it does not.
std::string read_version(std::string_view text);

struct watch_news {
  std::vector<event> events;
  revision at = 0;
  std::optional<error> ended; ///< etcd will tell no more.
};
/// One line of a watch.
result<watch_news> read_news(std::string_view line);

/// What a refusal says: its gRPC code and words.
struct refusal {
  int code = 2;
  std::string words;
};
refusal read_refusal(std::string_view text);

/// The first key behind all those that begin with `prefix`; of "", all keys.
std::string end_of_prefix(std::string_view prefix);

} // namespace insula::storage::etcd
