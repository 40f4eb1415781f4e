#pragma once

#include "http/transport/exchange.hpp"

#include <string>

/// What a request's header asks of its connection (RFC 9110).
namespace insula::http {

/// The client asks to speak another protocol on this connection.
bool wants_upgrade(const request_head& head);

/// The client says that trailer fields reach the reader of the answer.
bool takes_trailers(const request_head& head);

/// The method is idempotent and there is no body: the request can be sent again.
bool is_repeatable(const request_head& head);

/// The names in all Connection fields of a request, each followed by a comma.
std::string connection_options(const request_head& head);

/// The client is a browser that shows the answer.
bool wants_page(const request_head& head);

} // namespace insula::http
