#pragma once

#include "http/api/auth.hpp"
#include "http/api/document.hpp"
#include "http/api/port_links.hpp"
#include "http/api/sign_ins.hpp"
#include "http/transport/exchange.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

/// What opens this node: its keys, cookies of browsers that are signed in, and tokens for single
/// ports. Copies share what they check against. Any thread.
class credentials {
public:
  /// `browsers`: null where nobody can sign in. `tokens`: null where none are taken.
  explicit credentials(key_check key, std::shared_ptr<const sign_ins> browsers = nullptr,
                       std::shared_ptr<const port_links> tokens = nullptr)
      : key_(std::move(key))
      , browsers_(std::move(browsers))
      , tokens_(std::move(tokens)) {}

  const key_check& key() const { return key_; }
  /// The request has the key in Authorization (the word Bearer in any letter case if `any_case`),
  /// or the cookie of a browser that is signed in.
  bool shows_key(const request_head& head, bool any_case) const;
  /// The key stands in this field, which must not be empty.
  bool has_key_in(const request_head& head, std::string_view field) const {
    return key_.is_key(head.field(field));
  }
  bool holds_token(std::string_view token, const std::string& id, std::uint16_t port) const {
    return tokens_ && tokens_->holds(token, id, port);
  }
  /// A page of this node's own has sent the request, and browsers can sign in.
  bool comes_from_own_page(const request_head& head) const {
    return browsers_ && browsers_->own_page(head);
  }

private:
  key_check key_;
  std::shared_ptr<const sign_ins> browsers_;
  std::shared_ptr<const port_links> tokens_;
};

/// How the clients of an API show that they may use a route, and what they are told if they do not.
/// Stateless; lives as long as the program. Any thread.
class access_scheme {
public:
  virtual ~access_scheme() = default;

  /// `sandbox`: the id in the path; empty: there is none.
  virtual bool allows(const request_head& head, const std::string& sandbox,
                      const credentials& known) const = 0;

  /// The named key that the request shows, if it does not show more. Null: none.
  virtual shared_named_key named_key_in(const request_head& head, const credentials& known) const;

  virtual response unauthorized(const request_head& head) const;
  /// 403: a named key has been shown that does not open what is asked for. `why`: a sentence.
  virtual response forbidden(std::string_view why) const;

  /// What the client of an allowed request has shown. A token is no key: it is for one port of one
  /// sandbox, and is given away, as a link is.
  virtual caller caller_of(const request_head&, const credentials&) const { return caller::holder; }

  /// A browser gets a page on which the key can be typed.
  virtual bool offers_sign_in() const { return false; }

  /// The word of a query that may have the key; empty: none.
  virtual std::string_view query_parameter() const { return {}; }

  // ---- For the document ----

  /// JSON: what the document has as `security`; empty: as everywhere.
  virtual std::string_view security() const { return {}; }

  /// What every route of the scheme may answer as well. `of_sandbox`: its path names a sandbox.
  virtual std::vector<documented_answer> answers(bool of_sandbox) const;
};

/// The schemes that every API can use.
namespace access {

extern const access_scheme* const everybody;
extern const access_scheme* const key; ///< The key, in Authorization or by a cookie.
extern const access_scheme* const
  key_or_token;                             ///< Also in the query, as `token`; offers to sign in.
extern const access_scheme* const own_page; ///< A page of this node's own, with or without a key.

} // namespace access

} // namespace insula::http
