#include "http/cluster/gateway.hpp"

#include "base/limits.hpp"
#include "http/json/json.hpp"
#include "http/proxy/error_page.hpp"
#include "http/proxy/request_fields.hpp"
#include "http/text/header_text.hpp"
#include "http/transport/connection.hpp"
#include "http/transport/node_fields.hpp"
#include "http/transport/request_semantics.hpp"

#include <utility>

namespace insula::http::cluster {

namespace {

void append(std::string& to, std::string_view name, std::string_view value) {
  (((to += name) += ": ") += value) += "\r\n";
}

/// `key`: none of it is told.
void append_target(std::string& to, const request_head& head, const key_check* key = nullptr) {
  ((to += head.method_name) += ' ') += head.path;
  if (head.query.data() == nullptr)
    return;
  const auto told =
    key == nullptr ? std::string{head.query} : proxy::without_token(head.query, key);
  if (!told.empty() || head.query.empty())
    (to += '?') += told;
}

/// As it has come. `body_is_here`: nobody is to be asked for it again.
std::string copy_of(const request_head& head, bool body_is_here) {
  std::string text;
  text.reserve(1024);
  append_target(text, head);
  text += head.old_protocol ? " HTTP/1.0\r\n" : " HTTP/1.1\r\n";
  head.each_field([&](std::string_view name, std::string_view value) {
    if (!body_is_here || !same_letters(name, "Expect"))
      append(text, name, value);
  });
  return text += "\r\n";
}

} // namespace

gateway::gateway(std::shared_ptr<forwarder> by, door kind, bool encrypted, std::string name)
    : by_(std::move(by))
    , kind_(kind)
    , encrypted_(encrypted)
    , name_(std::move(name)) {}

std::optional<admission> gateway::admit(const request_head& head, concern about,
                                        const std::string& request_id, const key_check* key) const {
  admission plan;
  const bool shows_page = wants_page(head);
  if (!by_->way().may_serve()) {
    plan.refusal = unreachable("this node is cut off from the others", shows_page);
    return plan;
  }
  std::optional<peer> to;
  bool peek = false;
  if (!about.node.empty()) {
    if (is_behind_node() || about.node == by_->way().self())
      return std::nullopt;
    to = by_->way().node(about.node);
    if (!to) {
      plan.refusal = {404, json::write_error("there is no node " + about.node, "not_found")};
      return plan;
    }
  } else if (about.id.empty()) {
    if (is_behind_node())
      return std::nullopt;
    if (about.id_in_body && head.chunked) {
      plan.refusal =
        about.no_length != nullptr
          ? about.no_length()
          : response{411, json::write_error("the request needs a Content-Length: its body says "
                                            "which node it goes to",
                                            "length_required")};
      return plan;
    }
    peek = has_to_peek(head, about);
    if (!peek)
      to = by_->way().place(about.image);
    if (!peek && !to)
      return std::nullopt;
  } else if (by_->way().is_here(about.id)) {
    return std::nullopt;
  }
  auto wanted = std::make_shared<forwarded>();
  wanted->about = std::move(about);
  wanted->to = std::move(to);
  wanted->at_owner = is_behind_node();
  wanted->peek = peek;
  wanted->came = copy_of(head, peek);
  if (!is_behind_node())
    wanted->head = write_head(head, request_id, key, wanted->about.key);
  wanted->length = head.content_length.value_or(0);
  wanted->chunked = head.chunked;
  wanted->asks_first = head.asks_first;
  wanted->head_only = head.head_only;
  wanted->old_protocol = head.old_protocol;
  wanted->keep_alive = head.keep_alive;
  wanted->upgrade = wants_upgrade(head);
  wanted->repeatable = is_repeatable(head);
  wanted->wants_page = shows_page;
  if (key != nullptr)
    wanted->key = *key;
  wanted->connection_options = connection_options(head);
  plan.take_over = [by = by_, wanted = std::shared_ptr<const forwarded>{std::move(wanted)}](
                     std::shared_ptr<connection> client, request_track track) {
    by->serve(wanted, std::move(client), std::move(track));
  };
  return plan;
}

/// Does the body say where it goes?
bool gateway::has_to_peek(const request_head& head, const concern& about) const {
  const auto length = head.content_length.value_or(0);
  return about.in_body != nullptr && !head.chunked && length > 0 &&
         length <= limits::routed_body_bytes && (about.id_in_body || by_->way().starts_differ());
}

namespace {

/// By these it is decided what a request asks for, and whether it may: the owner has to see what
/// this node has seen, whatever the client calls its connection's own.
bool decides(std::string_view name) {
  return same_letters(name, "Host") || same_letters(name, "Authorization") ||
         same_letters(name, "X-Forwarded-Host");
}

} // namespace

std::string gateway::write_head(const request_head& head, const std::string& request_id,
                                const key_check* key, std::string_view named) const {
  std::string text;
  text.reserve(1024);
  append_target(text, head, key);
  text += " HTTP/1.1\r\n";
  const auto dropped = connection_options(head); // By the client's own wish.
  bool has_host = false;
  head.each_field([&](std::string_view name, std::string_view value) {
    has_host = has_host || same_letters(name, "Host");
    if (is_of_one_connection(name) || is_of_nodes(name) || same_letters(name, "Expect") ||
        same_letters(name, "X-Request-Id") || (names(dropped, name) && !decides(name)))
      return;
    if (key == nullptr)
      return append(text, name, value);
    if (same_letters(name, "Cookie")) {
      if (const auto kept = proxy::cookies_for_server(value, key); !kept.empty())
        append(text, name, kept);
    } else if (same_letters(name, "Host") || !proxy::shows_key(name, value, key)) {
      append(text, name, value);
    }
  });
  if (!has_host)
    append(text, "Host", "localhost");
  append(text, "X-Request-Id", request_id);
  if (head.client != nullptr)
    append(text, node_fields::client_field, head.client->peer());
  append(text, node_fields::scheme_field, encrypted_ ? "https" : "http");
  if (!named.empty())
    append(text, node_fields::key_field, named);
  if (!name_.empty())
    append(text, node_fields::door_field, name_);
  if (head.chunked)
    append(text, "Transfer-Encoding", "chunked");
  else if (head.content_length)
    append(text, "Content-Length", std::to_string(*head.content_length));
  // A node that is not the owner says so before there is a body.
  if (head.chunked || head.content_length.value_or(0) > 0)
    append(text, "Expect", "100-continue");
  // Also of one that is no upgrade: the owner says what is wrong with it. HTTP/1.0 has none, and is
  // not spoken to the owner.
  if (const auto protocol = head.field("Upgrade"); !protocol.empty()) {
    if (!head.old_protocol && names(head.field("Connection"), "upgrade"))
      append(text, "Connection", "Upgrade");
    append(text, "Upgrade", protocol);
  } else if (takes_trailers(head)) {
    append(text, "Connection", "TE");
    append(text, "TE", "trailers");
  }
  return text += "\r\n";
}

} // namespace insula::http::cluster
