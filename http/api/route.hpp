#pragma once

#include "http/api/access.hpp"
#include "http/api/document.hpp"
#include "http/api/other_nodes.hpp"
#include "http/transport/exchange.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace insula::http {

/// What happens to a request's body. Ignored: read and thrown away, however large.
enum class body_use : std::uint8_t { ignored, buffered, streamed };

/// What a request's path and query say, by a row's pattern. Values: they outlive the header.
class request_path {
public:
  /// The segment that `:name` stands for, nothing decoded; empty: the pattern has none.
  const std::string& operator[](std::string_view name) const;
  /// That of `:id`: the sandbox.
  const std::string& id() const { return (*this)["id"]; }

  void set(std::string_view name, std::string_view segment) {
    segments_.emplace_back(name, segment);
  }

  std::string tail;  ///< What `*` stands for, nothing decoded.
  std::string query; ///< After the first '?', nothing decoded.

private:
  std::vector<std::pair<std::string, std::string>> segments_; ///< By name.
};

/// A request and the row that it meets, while its header is there. What is needed later is copied.
class matched_request : public request_path {
public:
  matched_request(request_path path, const request_head& head, shared_named_key key = nullptr)
      : request_path(std::move(path))
      , head_(head)
      , key_(std::move(key)) {}
  matched_request(const matched_request&) = delete;
  matched_request& operator=(const matched_request&) = delete;

  const request_head& head() const { return head_; }
  /// The named key with which it was let in, here or by another node. Null: the main key, or none.
  const shared_named_key& key() const { return key_; }
  /// A header field; empty: it is not there.
  std::string field(std::string_view name) const { return std::string{head_.field(name)}; }
  /// The same, which may be there and empty; none: it is not there.
  std::optional<std::string> field_if_any(std::string_view name) const;
  /// By its Accept-Encoding, an answer may be compressed.
  bool takes_gzip() const;

private:
  const request_head& head_;
  const shared_named_key key_;
};

/// One row of the table. Pattern: literal segments, `:name`, and `*` at the end for the rest.
struct route {
  verb method;
  std::string pattern;
  const access_scheme* who;
  body_use body;
  std::uint64_t body_limit; ///< Bytes, inclusive. For an ignored body: 0.
  std::function<admission(const matched_request&)> admit;
  operation document;
  /// What is said of a body beyond the limit, if not what is said everywhere.
  response (*too_large)(std::uint64_t bytes, std::uint64_t limit) = nullptr;

  // ---- Where there are several nodes ----

  /// Which sandbox a request is about whose path names none; empty: one that has no id yet. Null:
  /// it is about none, unless the path has an `:id`.
  std::function<std::string(const matched_request&)> about = nullptr;
  /// What is said where no node has that sandbox. Null: one of them has it from then on.
  std::function<response(const request_path&)> unknown = nullptr;
  /// What a body says of the sandbox that its request makes. Null: nothing.
  std::function<told_by_body(std::string_view body, const request_path& path)> in_body = nullptr;
  bool id_in_body = false; ///< Which sandbox that is; else its image alone.
  /// 411, where a body has to say which node it goes to and has no length; null: as everywhere.
  response (*no_length)() = nullptr;
  /// The node that `:node` stands for answers, and no other.
  bool at_node = false;

  std::string_view api = {}; ///< By public_api::name(); the dispatcher writes it here.

  /// It is about the node, or about all that is there: no named key opens it.
  bool main_key_alone = false;

  /// What is said instead, wherever its sandbox is: before another node hears of the request, and
  /// again there. A stranger to whom it has nothing to say is a visitor: it has shown something
  /// that was checked. Null: nothing.
  std::function<std::optional<response>(const matched_request&)> objection = nullptr;
};

/// Whether an Accept-Encoding field names gzip, and not with a weight of 0.
bool accepts_gzip(std::string_view accept_encoding);

/// A plan that refuses.
admission refused(response answer);

/// A plan that answers once the body is there; its row says what may be in it.
admission answered_by(admission::answer_fn answer);

} // namespace insula::http
