#pragma once

#include "http/api/route.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace insula::http {

/// Rows in their order: of those that fit, the first counts. A row is found segment by segment, by
/// comparing raw text, whatever the number of rows. Any thread.
class route_table {
public:
  explicit route_table(std::vector<route> rows);

  const std::vector<route>& rows() const { return rows_; }

  struct found {
    std::size_t row; ///< Its number.
    request_path path;
  };
  /// The row for a request; none if there is no such route.
  std::optional<found> find(const request_head& head) const;

  /// There is a row for this method and path.
  bool has(verb method, std::string_view path) const;

  /// "GET, HEAD, PUT": what a path takes; empty: there is no such path.
  std::string methods_of(std::string_view path) const;

private:
  /// The rows whose patterns have the same beginning.
  struct node {
    std::map<std::string, std::unique_ptr<node>, std::less<>> literal;
    std::map<std::string, std::unique_ptr<node>> named; ///< By the name behind the colon.
    std::vector<std::size_t> ends;                      ///< Rows whose patterns end here,
    std::vector<std::size_t> rest;                      ///< or go on with `*`.
  };
  struct search;

  std::vector<route> rows_;
  node top_;
};

} // namespace insula::http
