#pragma once

#include "http/api/dispatcher.hpp"
#include "http/preview/address.hpp"

#include <memory>
#include <optional>
#include <string>

namespace insula::http::preview {

struct settings {
  std::string domain = "localhost"; ///< Below it, each port of each sandbox has a name.
  bool is_public = false;           ///< Whoever knows a name may use it.
  std::string secret;               ///< That tokens are signed with.
  bool encrypted = false;           ///< This node speaks TLS.
  /// Another node has decided that whoever asks may enter, and says who that is.
  bool behind_node = false;
  std::string execd_of = {}; ///< Not empty: all that is asked is asked of this sandbox's execd.
};

/// Who may enter a preview, and how. By a name, each port of each sandbox is an origin of its own;
/// behind a path, all share this node's.
///
/// With a key: whoever shows it, or the port's token: in the query, once, from where a browser gets
/// it as a cookie; as a cookie; or in a field. Without one: everybody. But neither a cookie nor
/// having no key lets in what pages of another sandbox, or of somewhere else, ask. Any thread.
class door {
public:
  door(settings is, std::shared_ptr<const bridge::services> with, key_check key, page_guard pages);

  /// No key is asked for, though there may be one.
  bool is_public() const { return is_.is_public; }

  /// None: the request is for this node itself.
  std::optional<address> find(const request_head& head) const;

  /// `knows_key`: it has shown the key in a way that all routes take.
  admission admit(const request_head& head, address to, bool knows_key,
                  const std::string& request_id) const;

  /// A token of this node's, for this port of this sandbox, that has not ended.
  bool holds(std::string_view token, const std::string& id, std::uint16_t port) const;

private:
  std::optional<response> objection_to(const request_head& head, const address& to,
                                       bool knows_key) const;
  std::optional<response> objection(const request_head& head, const address& to) const;
  std::optional<response> sign_in(const request_head& head, const address& to, bool needed) const;
  bool shows_token(const request_head& head, const address& to) const;
  bool has_cookie(const request_head& head, const address& to) const;
  bool comes_from_elsewhere(const request_head& head, const address& to) const;

  const settings is_;
  const std::shared_ptr<const bridge::services> with_;
  const key_check key_;
  const page_guard pages_;
};

} // namespace insula::http::preview
