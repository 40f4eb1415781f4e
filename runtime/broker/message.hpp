#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// HTTP messages as they pass through the broker, in whatever version they come and go.
namespace insula::runtime::broker {

struct field {
  std::string name; ///< In lower case.
  std::string value;

  bool operator==(const field&) const = default;
};
using fields = std::vector<field>;

/// The value of the first of that name. Null: there is none.
const std::string* find(const fields& in, std::string_view name);
void remove_field(fields& in, std::string_view name);
/// In place of all of that name.
void set(fields& in, std::string_view name, std::string value);

/// In lower case.
std::string lower_case(std::string_view text);

struct request_head {
  std::string method;
  std::string authority; ///< As the client has said it: HOST, or HOST:PORT.
  std::string target;    ///< Path and query, at least "/"; or "*" of OPTIONS.
  fields rest;           ///< Without what says how it is carried, and without `host`.
  /// In bytes; 0: it has no body. None: its end is told.
  std::optional<std::uint64_t> body_bytes = 0;
  std::string upgrade = {};      ///< "websocket", for a connection that becomes one.
  bool expects_continue = false; ///< Its body comes after a 100.
  bool takes_trailers = false;   ///< "TE: trailers".

  std::string_view path() const;
  std::string_view query() const; ///< Without '?'.
};

struct response_head {
  unsigned status = 0;
  fields rest;
  std::optional<std::uint64_t> body_bytes = 0;
  std::string upgrade = {}; ///< Of a 101.
};

} // namespace insula::runtime::broker
