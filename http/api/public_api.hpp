#pragma once

#include "http/api/route.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

/// What protects a path where there is no key: see page_guard.
enum class page_rule : std::uint8_t {
  guarded, ///< Pages of other origins are refused.
  shown,   ///< The path is a page itself: a link from anywhere may lead there.
  open,    ///< Nothing is checked.
};

/// One API of the node: its routes, and its words for what is answered before a route is met. Any
/// thread; lives as long as the doors that it is served at.
class public_api {
public:
  virtual ~public_api() = default;

  virtual std::vector<route> routes() const = 0;

  /// One word, by which figures tell the requests of one API from another's. Lives as long as the
  /// program.
  virtual std::string_view name() const = 0;

  // ---- Paths, with a route or without

  /// The API says what is wrong with this path.
  virtual bool claims(std::string_view path) const = 0;

  /// The scheme that has to allow every request below a path, before a route is looked for; null:
  /// there is none.
  virtual const access_scheme* gate(std::string_view) const { return nullptr; }

  /// What is wrong with a path as such. It counts for more than the key. `row`: null, if there is
  /// none.
  virtual std::optional<response> objection(const request_head&, const route*) const {
    return std::nullopt;
  }

  virtual page_rule rule(std::string_view) const { return page_rule::guarded; }

  /// 404. `methods`: those that the path takes; empty: there is no such path.
  virtual response no_route(const std::string& methods) const = 0;

  /// Header fields in which clients show the key.
  virtual std::vector<std::string_view> key_fields() const = 0;

  // ---- For the document

  /// JSON: {"tags":[…],"securitySchemes":{…},"schemas":{…},"responses":{…}}, each as OpenAPI has
  /// it.
  virtual std::string_view document_parts() const { return {}; }

  /// What a named segment of its paths stands for; null: what it stands for everywhere.
  virtual const parameter* path_parameter(std::string_view) const { return nullptr; }
};

/// 404 in the node's own words.
response no_route(const std::string& methods);

/// 413 in the node's own words. `bytes` as far as known.
response too_large(std::uint64_t bytes, std::uint64_t limit);

} // namespace insula::http
