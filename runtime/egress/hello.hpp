#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace insula::runtime::egress {

/// The most that is looked at for a name: a ClientHello with post-quantum keys has two kilobytes,
/// and the heads of HTTP requests stay below this as well.
inline constexpr std::size_t max_hello = 32 * 1024;

/// What the first bytes of a connection say of whom it is for.
struct hello_name {
  enum class state {
    more, ///< It is not known yet.
    none, ///< It tells no name, or tells it in no way that is known here.
    found,
    too_long, ///< More than max_hello stands before its name, or might.
  };
  state is = state::none;
  std::string name = {}; ///< As plain_name() has it.
};

/// From TLS: the server's name in a ClientHello, which may come in any number of records. Pure.
hello_name read_client_hello(std::string_view so_far);

/// From HTTP/1: the Host of the first request. An absolute target counts for more, as it does for
/// servers. Pure.
hello_name read_http_host(std::string_view so_far);

/// Does this begin as TLS does?
bool is_tls(std::string_view so_far);

} // namespace insula::runtime::egress
