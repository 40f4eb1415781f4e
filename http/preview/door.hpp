#pragma once

#include "http/api/claim.hpp"
#include "http/api/page_guard.hpp"
#include "http/preview/address.hpp"
#include "http/sandboxes/services.hpp"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace insula::http::preview {

/// A port of every sandbox that an API serves itself, behind `/sandboxes/<id>/proxy/<port>`.
struct served_port {
  std::uint16_t port = 0;
  /// How the key is shown for what goes on from there to other ports, by `/proxy/<port>`; null:
  /// nothing does.
  const access_scheme* scheme = nullptr;
};

struct settings {
  std::string domain = "localhost"; ///< Below it, each port of each sandbox has a name.
  bool is_public = false;           ///< Whoever knows a name may use it.
  std::string secret;               ///< That tokens are signed with.
  bool encrypted = false;           ///< This node speaks TLS.
  /// Another node has decided that whoever asks may enter, and says who that is.
  bool behind_node = false;
  const access_scheme* scheme = access::key; ///< How the key is shown for a preview.
  /// Whose named keys open previews, by public_api::name(); and what goes on from a served port.
  std::vector<std::string_view> apis = {}, served_apis = {};
  std::vector<served_port> served = {};
  /// Names that APIs give to ports. They come before every other address, in Host or else in
  /// X-Forwarded-Host, which is for clients that cannot say what Host they ask for.
  std::vector<std::shared_ptr<const port_names>> names = {};
  /// Not empty: all that is asked is asked of this sandbox, at the served port that goes on.
  std::string one_sandbox = {};
};

/// Who may enter a preview, and how. By a name, each port of each sandbox is an origin of its own;
/// behind a path, all share this node's.
///
/// With a key: whoever shows it, or the port's token: in the query, once, from where a browser gets
/// it as a cookie; as a cookie; or in a field. Without one: everybody. But neither a cookie nor
/// having no key lets in what pages of another sandbox, or of somewhere else, ask. Any thread.
class door final : public claims {
public:
  door(settings is, std::shared_ptr<const services> with, std::shared_ptr<const port_links> tokens,
       key_check key, page_guard pages);

  std::vector<std::string> patterns() const override;
  std::optional<claimed_request> find(const request_head& head) const override;

private:
  /// By a name of an API's. Its port is 0 if there is no such name.
  std::optional<address> named_address(const request_head& head) const;
  /// What a request names; none: it is for this node itself.
  std::optional<address> address_of(const request_head& head) const;
  /// `knows_key`: it has shown the key in a way that all routes take.
  admission admit(const request_head& head, address to, bool knows_key,
                  const std::string& request_id) const;
  bool holds(std::string_view token, const address& to) const {
    return tokens_->holds(token, to.id, to.port);
  }
  const served_port* served_at(std::uint16_t port) const;
  std::optional<response> objection_to(const request_head& head, const address& to,
                                       bool knows_key) const;
  std::optional<response> objection(const request_head& head, const address& to) const;
  std::optional<response> sign_in(const request_head& head, const address& to, bool needed) const;
  bool shows_token(const request_head& head, const address& to) const;
  bool has_cookie(const request_head& head, const address& to) const;
  bool comes_from_elsewhere(const request_head& head, const address& to) const;

  const settings is_;
  const std::shared_ptr<const services> with_;
  const std::shared_ptr<const port_links> tokens_;
  const key_check key_;
  const page_guard pages_;
};

} // namespace insula::http::preview
