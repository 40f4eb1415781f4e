#pragma once

#include "http/transport/exchange.hpp"

#include <string_view>

namespace insula::http {

/// Whether `origin`, as browsers write it ("https://a:1"), is that of a page which got here by
/// `host`. In any letter case; `null` and the like are nobody's.
bool is_origin_of(std::string_view origin, std::string_view host);

/// Whether a page of this node's own has sent this: the only one for whom a cookie may stand in for
/// the key, since browsers send cookies along with what any page asks. Origin says it. A browser
/// leaves that out of a GET to its own node and has Sec-Fetch-Site instead, or, over plain HTTP to
/// another machine, only Referer; no page can forge either. A WebSocket always has an Origin.
/// `encrypted`: this node speaks TLS, so that a page that came without is none of its own.
bool comes_from_own_page(const request_head& head, bool encrypted);

} // namespace insula::http
