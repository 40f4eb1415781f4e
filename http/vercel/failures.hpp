#pragma once

#include "base/error.hpp"
#include "http/transport/exchange.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

/// How this API's clients are told that something has failed: a status, a code and a sentence.
namespace insula::http::vercel {

struct refusal {
  int status = 400;
  std::string_view code = "bad_request"; ///< A literal.
  std::string message;
};

inline refusal bad_request(std::string message) {
  return {400, "bad_request", std::move(message)};
}

response failure(const refusal& why);
/// Of a request that has passed all that is checked of its words. Clients repeat what is answered
/// with 5xx, so that is kept for what was not done.
response failure(const error& why);

/// Of a body that has more bytes than `limit`.
/// In a cluster the body says which node the request goes to.
response no_length();

response too_large(std::uint64_t bytes, std::uint64_t limit);
refusal refusal_of(const error& why);

} // namespace insula::http::vercel
