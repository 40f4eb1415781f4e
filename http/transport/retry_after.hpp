#pragma once

#include "base/error.hpp"
#include "http/transport/exchange.hpp"

#include <string>
#include <utility>

namespace insula::http {

/// How many seconds later a request that has failed so may do better; 0: nothing is known of that.
constexpr int seconds_to_retry(errc code) {
  switch (code) {
    case errc::stale_epoch: // The sandbox has become another node's, which the next request finds.
    case errc::node_unreachable: return 1;
    case errc::machine_full: return 5; // What fills a machine does not go within a second.
    case errc::image_pending: return 3;
    default: return 0;
  }
}

/// `answer`, to a request that has failed so, with Retry-After if there is something to say.
inline response with_retry_after(response answer, errc code) {
  if (const int seconds = seconds_to_retry(code); seconds > 0)
    answer.fields.push_back({"Retry-After", std::to_string(seconds)});
  return answer;
}
/// The same; what the failure itself says counts.
inline response with_retry_after(response answer, const error& why) {
  if (why.retry_s == 0)
    return with_retry_after(std::move(answer), why.code);
  answer.fields.push_back({"Retry-After", std::to_string(why.retry_s)});
  return answer;
}

} // namespace insula::http
