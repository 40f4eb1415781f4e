#include "http/console/console.hpp"

#include "actors/protocol/errors.hpp"
#include "base/clock.hpp"
#include "base/limits.hpp"
#include "http/console/page.hpp"
#include "http/json/json.hpp"

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>

namespace insula::http::console {

namespace {

using shared_services = std::shared_ptr<const services>;

admission answered_by(admission::answer_fn answer) {
  admission plan;
  plan.answer = std::move(answer);
  return plan;
}

bool is_encrypted(const call& what) {
  return what.origin.substr(0, 6) == "https:";
}

std::string cookie_name(const call& what) {
  return is_encrypted(what) ? sign_in_cookie_name_of_host(what.host)
                            : sign_in_cookie_name(what.host);
}

/// The cookie is for this node alone: no script reads it, and no other page's request brings it.
header_field cookie(const call& what, const std::string& name, const std::string& value,
                    std::string_view more) {
  auto text = name + "=" + value + "; Path=/; HttpOnly; SameSite=Strict";
  if (is_encrypted(what))
    text += "; Secure";
  return {"Set-Cookie", text.append(more)};
}

response refused(int status, std::string_view why, std::string_view code) {
  return {status, json::write_error(why, code)};
}

response sign_in(const services& with, const call& what, std::string_view typed) {
  if (with.key.open())
    return {204, {}};
  const auto now = sign_ins::clock::now();
  if (with.key.is_key(typed)) { // However many wrong ones have come from there.
    const auto token = with.browsers->open(now);
    if (with.key.is_key(typed)) { // Still: else all have been signed out, perhaps before this one.
      response answer{204, {}};
      answer.fields.push_back(cookie(what, cookie_name(what), token, {}));
      return answer;
    }
    with.browsers->close(token);
  }
  with.wrong_keys->note(what.network, "body", "POST /console/sign-in");
  if (const auto wait = with.browsers->note_wrong_key(what.network, now)) {
    const auto seconds = std::to_string(wait->count());
    auto answer = refused(
      429, "Too many wrong keys have been tried. Try again in " + seconds + " s.", "limit_reached");
    answer.fields.push_back({"Retry-After", seconds});
    return answer;
  }
  return refused(401, "This is not the key.", "unauthorized");
}

response sign_out(const services& with, const call& what) {
  for (const auto token : sign_in_tokens(what.cookies, what.host))
    with.browsers->close(token);
  response answer{204, {}};
  answer.fields.push_back(cookie(what, cookie_name(what), {}, "; Max-Age=0"));
  if (is_encrypted(what)) // As it was called before.
    answer.fields.push_back(cookie(what, sign_in_cookie_name(what.host), {}, "; Max-Age=0"));
  return answer;
}

void list(const services& with, const reply& to) {
  constexpr auto patience = 2 * limits::list_patience;
  to->answer_within(patience, refused(504, "The list was not ready in time.", "deadline_exceeded"));
  const auto ask = [to, asks_key = !with.key.open(), node = with.node](
                     caf::event_based_actor* self, const directory_actor& directory) {
    self->request(directory, caf::infinite, list_atom::value)
      .then(
        [=](const std::vector<sandbox_status>& rows) {
          response answer{200,
                          json::write_sandboxes(rows, asks_key, system_clock{}.unix_ms(), node)};
          answer.fields = {{"Cache-Control", "no-store"}};
          to->respond(std::move(answer));
        },
        [=](const caf::error& why) {
          to->respond(refused(502, from_caf(why).message, "node_unreachable"));
        });
  };
  with.system->spawn(ask, with.directory);
}

} // namespace

std::vector<route> routes(const shared_services& with) {
  const auto list_here = [with](const call&) {
    return answered_by([with](const std::string&, const reply& to) { list(*with, to); });
  };
  route list_at_node{
    verb::get, "/console/nodes/:node/sandboxes", access::key, body_use::ignored, 0, list_here, {}};
  list_at_node.at_node = true;
  return {
    list_at_node,
    {verb::get,
     "/",
     access::everybody,
     body_use::ignored,
     0,
     [](const call& what) {
       return answered_by([gzip = what.takes_gzip](const std::string&, const reply& to) {
         to->respond(page_response(shared_page(), gzip));
       });
     },
     {}},
    {verb::get, "/console/sandboxes", access::key, body_use::ignored, 0, list_here, {}},
    {verb::post,
     "/console/sign-in",
     access::own_page,
     body_use::buffered,
     limits::typed_key_bytes,
     [with](const call& what) {
       return answered_by([with, what](const std::string& typed, const reply& to) {
         to->respond(sign_in(*with, what, typed));
       });
     },
     {}},
    {verb::post,
     "/console/sign-out",
     access::own_page,
     body_use::ignored,
     0,
     [with](const call& what) {
       return answered_by(
         [with, what](const std::string&, const reply& to) { to->respond(sign_out(*with, what)); });
     },
     {}},
  };
}

} // namespace insula::http::console
