#pragma once

#include "base/http_words.hpp"

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

/// Does sending it twice do what sending it once does?
bool is_idempotent(std::string_view method);

/// Why two servers could read it as two paths, as a sentence: it has dot segments, empty segments,
/// separators or control characters, encoded or not. Empty: they cannot.
std::string why_unclear(std::string_view path);
/// All that is encoded with '%' in its plain form.
std::string decoded_path(std::string_view path);

struct response_head {
  unsigned status = 0;
  fields rest;
  std::optional<std::uint64_t> body_bytes = 0;
  std::string upgrade = {}; ///< Of a 101.
};

} // namespace insula::runtime::broker
