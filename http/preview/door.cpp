#include "http/preview/door.hpp"

#include "http/api/origin.hpp"
#include "http/api/route.hpp"
#include "http/preview/message.hpp"
#include "http/preview/session.hpp"
#include "http/preview/token.hpp"
#include "http/proxy/error_page.hpp"
#include "http/proxy/request_fields.hpp"
#include "http/text/header_text.hpp"
#include "http/text/percent.hpp"
#include "http/transport/connection.hpp"
#include "http/transport/node_fields.hpp"
#include "http/transport/request_semantics.hpp"

#include <algorithm>
#include <chrono>

namespace insula::http::preview {

namespace {

/// `https://a:1` is `a:1`.
std::string_view host_in(std::string_view origin) {
  const auto at = origin.find("://");
  return at == std::string_view::npos ? std::string_view{} : origin.substr(at + 3);
}

} // namespace

door::door(settings is, std::shared_ptr<const services> with,
           std::shared_ptr<const port_links> tokens, key_check key, page_guard pages)
    : is_(std::move(is))
    , with_(std::move(with))
    , tokens_(std::move(tokens))
    , key_(std::move(key))
    , pages_(std::move(pages)) {}

std::vector<std::string> door::patterns() const {
  return {":port-:id.*", "/v1/sandbox/:id/port/:port/*", ":name.*"};
}

const served_port* door::served_at(std::uint16_t port) const {
  const auto at = std::find_if(is_.served.begin(), is_.served.end(),
                               [&](const auto& each) { return each.port == port; });
  return at == is_.served.end() ? nullptr : &*at;
}

std::optional<address> door::named_address(const request_head& head) const {
  auto forwarded = head.field("X-Forwarded-Host");
  if (key_.is_in(forwarded)) // It goes to no other node, which could not follow then.
    forwarded = {};
  for (const bool is_host : {true, false}) {
    const auto host = is_host ? head.field("Host") : take_until(forwarded, ',');
    for (const auto& names : is_.names)
      if (auto found = names->find(host)) {
        address to{std::move(found->sandbox), found->port, {}, std::string{head.path}};
        to.host = host;
        to.named_by = names;
        to.is_forwarded = !is_host;
        return to;
      }
  }
  return std::nullopt;
}

std::optional<address> door::address_of(const request_head& head) const {
  if (!is_.one_sandbox.empty())
    for (const auto& each : is_.served)
      if (each.scheme != nullptr)
        return address_beyond({is_.one_sandbox, each.port, {}, std::string{head.path}});
  if (auto named = named_address(head))
    return named;
  if (auto hosted = address_of_host(head.field("Host"), is_.domain, head.path))
    return hosted;
  auto behind = address_of_path(head.path);
  if (!behind)
    return behind;
  // Routes of this node's own.
  if (behind->prefix.find("/port/") != std::string::npos) {
    const bool is_own = head.method == verb::get && behind->path == "/ready";
    return is_own ? std::nullopt : behind;
  }
  const auto* served = served_at(behind->port);
  if (served == nullptr)
    return behind;
  return served->scheme == nullptr ? std::nullopt : address_beyond(*behind);
}

std::optional<claimed_request> door::find(const request_head& head) const {
  auto to = address_of(head);
  if (!to)
    return std::nullopt;
  claimed_request found;
  found.sandbox = to->id;
  found.pattern = to->named_by ? 2 : to->prefix.empty() ? 0 : 1;
  const auto* served = to->served_by != 0 ? served_at(to->served_by) : nullptr;
  found.scheme = served != nullptr ? served->scheme : is_.scheme;
  found.needs_scheme = served != nullptr;
  found.apis = served != nullptr ? is_.served_apis : is_.apis;
  found.unknown = [port = to->port, names = to->named_by, as_page = wants_page(head)] {
    return names ? names->unknown() : not_running(port, as_page);
  };
  found.admit = [this, &head, to = std::move(*to)](bool knows_key, const std::string& request_id) {
    return admit(head, to, knows_key, request_id);
  };
  return found;
}

admission door::admit(const request_head& head, address to, bool knows_key,
                      const std::string& request_id) const {
  if (to.named_by && to.port == 0)
    return refused(to.named_by->unknown());
  if (!to.path.starts_with('/') && !(to.path == "*" && head.method_name == "OPTIONS"))
    return refused(proxy::error_answer(400, "invalid_request", "the path must begin with a slash",
                                       wants_page(head), false));
  if (!is_.behind_node && !to.named_by)
    if (auto no = objection_to(head, to, knows_key))
      return refused(std::move(*no));
  const auto has_key = [&](std::string_view what) {
    return refused(
      proxy::error_answer(400, "invalid_request",
                          std::string{what} + " has the node's API key in it, and goes no further",
                          wants_page(head), false));
  };
  if (key_.is_in_address(to.path))
    return has_key("the path");
  if (key_.is_in(head.field("Upgrade")))
    return has_key("the field Upgrade");
  request wanted;
  wanted.length = head.content_length.value_or(0);
  wanted.chunked = head.chunked;
  wanted.asks_first = head.asks_first;
  wanted.head_only = head.head_only;
  wanted.old_protocol = head.old_protocol;
  wanted.keep_alive = head.keep_alive;
  wanted.upgrade = wants_upgrade(head);
  wanted.repeatable = is_repeatable(head);
  wanted.wants_page = wants_page(head);
  wanted.key = key_;
  wanted.connection_options = connection_options(head);
  sender from;
  from.key = &key_;
  from.request_id = request_id;
  from.encrypted = is_.encrypted;
  if (is_.behind_node) {
    from.address = head.field(node_fields::client_field);
    from.encrypted = head.field(node_fields::scheme_field) == "https";
  } else if (head.client != nullptr) {
    from.address = head.client->peer();
  }
  if (!to.named_by)
    to.host = head.field("Host");
  wanted.head = write_request(head, to, from);
  to.encrypted = from.encrypted;
  wanted.to = std::move(to);
  admission plan;
  plan.take_over = [with = with_, wanted = std::move(wanted)](std::shared_ptr<connection> taken,
                                                              request_track track) mutable {
    serve(with, std::move(wanted), std::move(taken), std::move(track));
  };
  return plan;
}

/// What is answered instead of letting it in.
std::optional<response> door::objection_to(const request_head& head, const address& to,
                                           bool knows_key) const {
  const bool needed = !is_.is_public && !key_.open() && !knows_key;
  if (auto entered = sign_in(head, to, needed))
    return entered;
  if (!is_.is_public && key_.open())
    if (auto no = objection(head, to))
      return no;
  if (!needed || shows_token(head, to))
    return std::nullopt;
  if (!has_cookie(head, to))
    return proxy::error_answer(401, "unauthorized",
                               "this preview needs the node's API key or a token for it",
                               wants_page(head), false);
  if (comes_from_elsewhere(head, to))
    return proxy::error_answer(403, "invalid_request",
                               "web pages of another sandbox or site are refused", wants_page(head),
                               false);
  return std::nullopt;
}

/// A page may ask its own origin, and other ports of its own sandbox; it can be come to from
/// anywhere.
bool door::comes_from_elsewhere(const request_head& head, const address& to) const {
  const auto origin = head.field("Origin"), site = head.field("Sec-Fetch-Site");
  if (origin.empty())
    return (site == "cross-site" || site == "same-site") &&
           !(head.method == verb::get && head.field("Sec-Fetch-Mode") == "navigate");
  if (!to.prefix.empty())
    return !is_origin_of(origin, head.field("Host"));
  const auto asking = address_of_host(host_in(origin), is_.domain, "/");
  return !asking || asking->id != to.id;
}

/// Without a key.
std::optional<response> door::objection(const request_head& head, const address& to) const {
  const auto refuse = [&](std::string_view why) {
    return proxy::error_answer(403, "invalid_request", std::string{why}, wants_page(head), false);
  };
  if (!to.prefix.empty()) {
    const auto why =
      pages_.objection(head.field("Host"), head.field("Origin"), head.field("Sec-Fetch-Site"));
    return why ? std::optional{refuse(*why)} : std::nullopt;
  }
  if (comes_from_elsewhere(head, to))
    return refuse("without an API key, web pages of another sandbox or site are refused");
  return std::nullopt;
}

/// A browser that comes with a token in the query goes on without, where no script can read it in
/// the address; if it is `needed`, it gets it as a cookie.
std::optional<response> door::sign_in(const request_head& head, const address& to,
                                      bool needed) const {
  const auto token = form_value(head.query, proxy::token_parameter);
  if (token.empty() || head.method != verb::get || wants_upgrade(head) || !wants_page(head))
    return std::nullopt;
  const auto time = token_now();
  const auto ends = check_token(is_.secret, to.id, to.port, token, time);
  if (needed && !ends)
    return std::nullopt;
  const auto query = proxy::without_token(head.query, &key_);
  // A browser takes two slashes for another host.
  const bool odd = to.path.size() > 1 && (to.path[1] == '/' || to.path[1] == '\\');
  auto where = to.prefix + (to.prefix.empty() && odd ? "/." : "") + to.path;
  if (!query.empty())
    where += "?" + query;
  response answer{303,
                  {},
                  {},
                  {{"Location", std::move(where)},
                   {"Cache-Control", "no-store"},
                   {"Referrer-Policy", "no-referrer"}}};
  if (!needed)
    return answer;
  // In a frame of another site's page, only with that page: nobody else can have it sent along.
  auto cookie = std::string{proxy::token_cookie} + "=" + token + "; Path=" + to.prefix +
                "/; HttpOnly; Max-Age=" + std::to_string((*ends - time).count());
  cookie += is_.encrypted ? "; Secure; SameSite=None; Partitioned" : "; SameSite=Lax";
  answer.fields.push_back({"Set-Cookie", std::move(cookie)});
  return answer;
}

bool door::shows_token(const request_head& head, const address& to) const {
  return holds(head.field(proxy::token_field), to) ||
         holds(form_value(head.query, proxy::token_parameter), to);
}

/// One of them: others of that name can have been set by pages of the same domain.
bool door::has_cookie(const request_head& head, const address& to) const {
  bool any = false;
  head.each_field([&](std::string_view name, std::string_view cookies) {
    while (same_letters(name, "Cookie") && !cookies.empty() && !any) {
      auto each = take_until(cookies, ';');
      any = take_until(each, '=') == proxy::token_cookie && holds(each, to);
    }
  });
  return any;
}

} // namespace insula::http::preview
