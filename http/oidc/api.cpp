#include "http/oidc/api.hpp"

#include <functional>
#include <string>
#include <string_view>

extern "C" {
extern const char insula_oidc_document_begin[]; ///< All of document.json.
extern const char insula_oidc_document_end[];
}

namespace insula::http::oidc {

namespace {

constexpr std::string_view root = "/oidc";
/// As long as a verifier keeps the keys. publish_ahead is longer.
constexpr std::string_view max_age = "public, max-age=300";

/// Making what it answers with takes no time.
route public_route(const std::string& pattern, std::function<std::string()> text,
                   operation described) {
  described.tag = "OIDC";
  described.own = true;
  return {
    verb::get,
    pattern,
    http::access::everybody,
    body_use::ignored,
    0,
    [text = std::move(text)](const matched_request&) {
      return answered_by([text](const std::string&, const reply& to) {
        to->respond({200, text(), "application/json", {{"Cache-Control", std::string{max_age}}}});
      });
    },
    std::move(described)};
}

class oidc_api final : public public_api {
public:
  explicit oidc_api(std::shared_ptr<const issuer> of)
      : of_(std::move(of)) {}

  std::string_view name() const override { return "oidc"; }

  std::vector<route> routes() const override {
    const auto settings = of_ ? of_->settings() : issuer_settings{};
    const auto place = std::string{root} + '/' + settings.last_word() + "/.well-known/";
    return {
      public_route(place + "jwks", [of = of_] { return of->published_keys(); },
                   {.id = "getOidcKeys",
                    .summary = "The public keys by which tokens about sandboxes are verified.",
                    .answers = {{"200", "Those of all tokens that may be alive.",
                                 "application/json", "OidcKeys"}}}),
      public_route(place + "openid-configuration", [of = of_] { return of->configuration(); },
                   {.id = "getOidcConfiguration",
                    .summary = "What signs the tokens about sandboxes, and how.",
                    .answers = {{"200", "The document of OpenID Connect Discovery.",
                                 "application/json", "OidcConfiguration"}}})};
  }

  bool claims(std::string_view path) const override {
    return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
  }

  /// What is there is public, and verifiers call this server by any name.
  page_rule rule(std::string_view) const override { return page_rule::open; }

  response no_route(const std::string& methods) const override { return http::no_route(methods); }

  std::vector<std::string_view> key_fields() const override { return {}; }

  std::string_view document_parts() const override {
    return {insula_oidc_document_begin, insula_oidc_document_end};
  }

private:
  const std::shared_ptr<const issuer> of_;
};

} // namespace

std::shared_ptr<const public_api> make_api(std::shared_ptr<const issuer> of) {
  return std::make_shared<oidc_api>(std::move(of));
}

} // namespace insula::http::oidc
