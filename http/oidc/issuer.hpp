#pragma once

#include "base/clock.hpp"
#include "base/token_signer.hpp"
#include "http/oidc/keys.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

namespace insula::http::oidc {

/// What an issuer is called, and how long its tokens hold.
struct issuer_settings {
  std::string name = "https://oidc.vercel.com/insula"; ///< An https URL; its path has words.
  std::chrono::seconds token_lifetime = std::chrono::minutes{15};

  /// After a key has signed for the last time: its tokens end, and a day more.
  std::chrono::seconds keep() const { return token_lifetime + std::chrono::hours{24}; }
  /// Where verifiers look for the keys.
  std::string keys_url() const { return name + "/.well-known/jwks"; }
  /// The last word of the path.
  std::string last_word() const { return name.substr(name.rfind('/') + 1); }
};

/// Signs tokens about sandboxes, and says by which keys they are verified.
///
/// Threads: any.
class issuer {
public:
  static constexpr std::size_t most_claims = 32;
  static constexpr std::size_t most_claim_bytes = 4096; ///< Names, values and audience together.

  /// `time` outlives this object and what it has given away.
  issuer(issuer_settings settings, key_set keys, const clock& time)
      : settings_(std::move(settings))
      , time_(time)
      , keys_(std::make_shared<const key_set>(std::move(keys))) {}

  /// A token for `audience`, from now on and for token_lifetime: {iss, aud, sub, iat, nbf, exp} and
  /// `claims`, as a JWT by RS256. `claims` has team_id, project_id and sandbox_id, and may have
  /// sandbox_name and others. Takes about a millisecond. Errors: invalid_request, for one of the
  /// three that is missing, a claim that is empty, comes twice or has the name of one of those of
  /// the issuer, and an empty audience; limit_reached; internal. No error has a value of a claim.
  result<std::string> sign(const token_claims& claims, const std::string& audience) const;

  /// The same as a function. `from` lives as long as that.
  static token_signer signer(std::shared_ptr<const issuer> from);

  /// {"keys":[…]}: those by which tokens are verified that may be alive.
  std::string published_keys() const;
  /// The document of OpenID Connect Discovery.
  std::string configuration() const;

  const issuer_settings& settings() const { return settings_; }
  /// A copy of those that sign now.
  key_set keys() const { return *current(); }
  /// Tokens are signed with these from now on.
  void take(key_set keys);

private:
  std::shared_ptr<const key_set> current() const;
  std::int64_t now_s() const { return time_.unix_ms() / 1000; }

  const issuer_settings settings_;
  const clock& time_;
  mutable std::mutex mutex_;
  std::shared_ptr<const key_set> keys_;
};

} // namespace insula::http::oidc
