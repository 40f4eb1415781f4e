#pragma once

#include "http/api/dispatcher.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace insula::test {

/// An API of a few rows, which answers in the node's own words. `checks`: whose checks of paths it
/// has; null: none.
class plain_api final : public http::public_api {
public:
  explicit plain_api(std::vector<http::route> rows,
                     std::shared_ptr<const http::public_api> checks = nullptr)
      : rows_(std::move(rows))
      , checks_(std::move(checks)) {}

  std::vector<http::route> routes() const override { return rows_; }
  std::string_view name() const override { return "plain"; }
  bool claims(std::string_view) const override { return true; }
  http::response no_route(const std::string& methods) const override {
    return http::no_route(methods);
  }
  const http::access_scheme* gate(std::string_view path) const override {
    return checks_ ? checks_->gate(path) : nullptr;
  }
  std::optional<http::response> objection(const http::request_head& head,
                                          const http::route* row) const override {
    return checks_ ? checks_->objection(head, row) : std::nullopt;
  }
  std::vector<std::string_view> key_fields() const override { return {"Authorization"}; }

private:
  const std::vector<http::route> rows_;
  const std::shared_ptr<const http::public_api> checks_;
};

/// What a door with these rows has.
inline http::dispatcher::options served(std::vector<http::route> rows, http::credentials known,
                                        std::shared_ptr<const http::public_api> checks = nullptr) {
  http::dispatcher::options is{.known = std::move(known)};
  is.apis.push_back(std::make_shared<const plain_api>(std::move(rows), std::move(checks)));
  return is;
}

} // namespace insula::test
