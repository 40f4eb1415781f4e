#pragma once

#include "http/api/origin.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

/// Browsers that have shown the key: each has a cookie with a random token, which stands in for the
/// key until limits::sign_in_lasts is over or it is signed out. Of tokens only a digest is kept, so
/// that neither this memory nor the time that looking one up takes tells one. Any thread.
class sign_ins {
public:
  using clock = std::chrono::steady_clock;
  using time_point = clock::time_point;

  /// `encrypted`: the node speaks TLS, so that a page that came without is none of its own.
  explicit sign_ins(bool encrypted)
      : encrypted_(encrypted) {}

  /// Whether a page of this node's own has sent this.
  bool own_page(const request_head& head) const { return comes_from_own_page(head, encrypted_); }
  /// Whether it also has the cookie of a browser that is signed in.
  bool vouch_for(const request_head& head, time_point now) const;

  /// A new token. Of more than limits::sign_ins, the oldest goes.
  std::string open(time_point now);
  bool holds(std::string_view token, time_point now) const;
  void close(std::string_view token);
  /// All of them are signed out: there is another key.
  void close_all();

  /// Another wrong key from this network. After limits::wrong_keys within limits::wrong_keys_within
  /// the answer is how long this network has to wait, and the key is not counted; none: no time. Of
  /// more than limits::wrong_networks, the one that has been quiet for longest is forgotten.
  std::optional<std::chrono::seconds> note_wrong_key(const std::string& network, time_point now);

private:
  void forget_quiet_networks(time_point now);

  const bool encrypted_;
  mutable std::mutex guard_;
  std::map<std::string, time_point> ends_; ///< By the token's digest.
  /// The last wrong keys of each network, oldest first.
  std::map<std::string, std::deque<time_point>> wrong_;
};

/// The name of the cookie, by the port that a browser asks for: cookies do not know of ports, and
/// two nodes of one machine each have their own.
std::string sign_in_cookie_name(std::string_view host);

/// The same for a page that has come encrypted: browsers take a cookie of this name from no other
/// host, so that no page of the same domain can set one.
std::string sign_in_cookie_name_of_host(std::string_view host);

/// The tokens in a Cookie field: the values of all cookies of both names, since pages of the same
/// domain can have set more of the first.
std::vector<std::string_view> sign_in_tokens(std::string_view field, std::string_view host);

} // namespace insula::http
