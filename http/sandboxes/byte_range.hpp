#pragma once

#include "http/transport/exchange.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Parts of files, as HTTP asks for them and tells them (RFC 9110, 14).
namespace insula::http {

/// From one byte to another, both counted, from 0 on; as file_task::read has its words. No last: to
/// the end. No first: so many at the end.
struct byte_range {
  std::string first, last;
};

/// What a Range field says. `several`: it is the first of them.
struct asked_range {
  std::optional<byte_range> first; ///< None: it makes no sense.
  bool several = false;
};
asked_range read_range(std::string_view field);

/// Its last byte is before its first one.
bool is_backwards(const byte_range& range);

/// Bytes of a file: those before `to`, from `from` on.
struct file_part {
  std::uint64_t from, to, size;
};

/// `from` is where the sandbox says that the range begins. None: it has no bytes.
std::optional<file_part> part_of(const byte_range& range, std::uint64_t from, std::uint64_t size);

/// Makes it the answer of a part: 206, with what it is of.
void tell_part(stream_head& how, const file_part& part);

/// The field of an answer that has none: 416.
header_field no_part_of(std::uint64_t size);

} // namespace insula::http
