#pragma once

#include "base/error.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// What is done with single requests on their way out of a sandbox: words that the layers share.
/// The broker does it. Values of headers and bodies may be secrets: no log, no answer and no policy
/// has them.
namespace insula {

struct text_match {
  enum class kind : std::uint8_t { exact, prefix, regex };

  kind how = kind::exact;
  std::string text; ///< A regular expression is RE2's, and matches anywhere in the value.

  bool operator==(const text_match&) const = default;
};

/// Of a header or of a part of a query. What is not given matches all.
struct pair_match {
  std::optional<text_match> key, value;

  bool operator==(const pair_match&) const = default;
};

/// All that is given has to hold: the path, one of the methods, and for each entry of a list some
/// pair of the request.
struct request_match {
  /// It is compared with the path as it is decoded. Where a domain has such a match, a path that
  /// two servers could read as two paths is refused.
  std::optional<text_match> path;
  std::vector<std::string> methods; ///< Compared without regard to case. Empty: all.
  std::vector<pair_match> query, headers;

  bool operator==(const request_match&) const = default;
};

using header_list = std::vector<std::pair<std::string, std::string>>;

/// These headers, in place of those of the same names. Names in lower case.
struct transform_action {
  header_list headers;

  bool operator==(const transform_action&) const = default;
};
/// The request goes to another place, which is told whom it was for.
struct forward_action {
  std::string url; ///< "https://HOST[:PORT]/PATH", as normalise_forward_url() gives it.

  bool operator==(const forward_action&) const = default;
};
/// It goes nowhere: this is its answer.
struct respond_action {
  unsigned status = 200; ///< 200 to 599.
  header_list headers;
  std::string body;

  bool operator==(const respond_action&) const = default;
};

/// Of all rules whose domain and match fit a request, the first is applied. Without one it passes
/// as it is.
struct request_rule {
  std::string domain; ///< As normalise_target() gives it; no subnet.
  request_match match;
  std::variant<transform_action, forward_action, respond_action> action;

  bool operator==(const request_rule&) const = default;
};

inline constexpr std::size_t max_request_rules = 256;
/// Of each regular expression, in bytes: all that a sandbox may have take 32 MiB.
inline constexpr int regex_memory = 256 << 10;
inline constexpr std::size_t max_rules_bytes = 256u << 10; ///< Of all of a sandbox, as text.
/// Of all of a sandbox: each expression costs memory and time, and headers have to fit into a head.
inline constexpr std::size_t max_rule_expressions = 128, max_rule_header_bytes = 64u << 10;
/// As text. Reading one takes 50 us for each class of characters that it names: half a second for
/// all that fit.
inline constexpr std::size_t max_expression_bytes = 16u << 10;

/// The URL in its normal form: https, a host in lower case, a port if it is not 443, and a path
/// without a last slash. Errors: invalid_request.
result<std::string> normalise_forward_url(std::string_view url);

/// The parts of a URL in its normal form.
struct forward_place {
  std::string authority; ///< HOST, or HOST:PORT.
  std::string host;
  std::uint16_t port;
  std::string path; ///< Empty, or from its first slash on.
};
forward_place place_of(const forward_action& action);

/// What may be set: a name is a token, and a value has no control characters. Headers that belong
/// to the connection, and `Host`, may not. Errors: invalid_request, which never has the value.
result<void> check_header(std::string_view name, std::string_view value);

/// All but the syntax of regular expressions. Errors: invalid_request.
result<void> check(const std::vector<request_rule>& rules);

/// As bytes, for the broker and for storage, and back. Errors: invalid_request, for a text that
/// to_text() has not written.
std::string to_text(const std::vector<request_rule>& rules);
result<std::vector<request_rule>> rules_from_text(std::string_view text);

/// Rules as they are kept and travel: what may be seen of them apart from what may not, which are
/// the values of headers and the bodies of answers. base/sealed_rules.hpp makes them.
struct sealed_rules {
  std::string shape;  ///< to_text() of the rules without these values.
  std::string sealed; ///< to_text() of the rules, sealed. Empty: there are none.

  bool empty() const { return sealed.empty(); }
  bool operator==(const sealed_rules&) const = default;
};

} // namespace insula
