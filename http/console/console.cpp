#include "http/console/console.hpp"

#include "actors/protocol/errors.hpp"
#include "base/clock.hpp"
#include "base/id.hpp"
#include "base/limits.hpp"
#include "http/console/page.hpp"
#include "http/console/sandbox_json.hpp"
#include "http/json/json.hpp"
#include "http/sandboxes/ask_sandbox.hpp"
#include "http/text/header_text.hpp"
#include "http/text/percent.hpp"
#include "http/transport/connection.hpp"

#include <caf/actor_system.hpp>
#include <caf/event_based_actor.hpp>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <optional>

namespace insula::http::console {

namespace {

using shared_services = std::shared_ptr<const services>;

constexpr std::uint32_t runs_on_page = 20;
constexpr std::chrono::seconds runs_patience{10};

/// What the header says of the page that asks.
struct asking_page {
  explicit asking_page(const matched_request& what);

  std::string host, origin;
  std::string cookies; ///< Of all Cookie fields.
  std::string network; ///< That the client is in.
};

asking_page::asking_page(const matched_request& what)
    : host(what.field("Host"))
    , origin(what.field("Origin")) {
  what.head().each_field([&](std::string_view name, std::string_view value) {
    if (same_letters(name, "Cookie"))
      (cookies += cookies.empty() ? "" : "; ") += value;
  });
  if (const auto* client = what.head().client)
    network = network_of(client->peer());
}

bool is_encrypted(const asking_page& what) {
  return what.origin.starts_with("https:");
}

std::string cookie_name(const asking_page& what) {
  return is_encrypted(what) ? sign_in_cookie_name_of_host(what.host)
                            : sign_in_cookie_name(what.host);
}

/// The cookie is for this node alone: no script reads it, and no other page's request brings it.
header_field cookie(const asking_page& what, const std::string& name, const std::string& value,
                    std::string_view more) {
  auto text = name + "=" + value + "; Path=/; HttpOnly; SameSite=Strict";
  if (is_encrypted(what))
    text += "; Secure";
  return {"Set-Cookie", text.append(more)};
}

response refused(int status, std::string_view why, std::string_view code) {
  return {status, json::write_error(why, code)};
}

response sign_in(const services& with, const asking_page& what, std::string_view typed) {
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

response sign_out(const services& with, const asking_page& what) {
  for (const auto token : sign_in_tokens(what.cookies, what.host))
    with.browsers->close(token);
  response answer{204, {}};
  answer.fields.push_back(cookie(what, cookie_name(what), {}, "; Max-Age=0"));
  if (is_encrypted(what)) // As it was called before.
    answer.fields.push_back(cookie(what, sign_in_cookie_name(what.host), {}, "; Max-Age=0"));
  return answer;
}

/// None: it is no cursor of a list.
std::optional<std::uint64_t> read_place(const std::string& text) {
  std::uint64_t place = 0;
  const auto end = text.data() + text.size();
  const auto [stop, why] = std::from_chars(text.data(), end, place);
  return text.empty() || (why == std::errc{} && stop == end) ? std::optional{place} : std::nullopt;
}

response bad_cursor() {
  return refused(400, "`after` is not a cursor of this list", "invalid_request");
}

response unreachable(const error& why) {
  return refused(502, why.message, "node_unreachable");
}

/// It tells how things are at this moment.
response told_now(std::string body) {
  response answer{200, std::move(body)};
  answer.fields = {{"Cache-Control", "no-store"}};
  return answer;
}

void list(const services& with, const std::string& query, const reply& to) {
  const auto after = read_place(form_value(query, "after"));
  if (!after)
    return to->respond(bad_cursor());
  constexpr auto patience = 2 * limits::list_patience;
  to->answer_within(patience, refused(504, "The list was not ready in time.", "deadline_exceeded"));
  const list_activations wanted{*after, limits::list_page_sandboxes};
  const auto ask = [to, wanted, asks_key = !with.key.open(), node = with.node](
                     caf::event_based_actor* self, const directory_actor& directory) {
    self->request(directory, caf::infinite, wanted)
      .then(
        [=](const activation_page& page) {
          to->respond(told_now(write_sandboxes(page, asks_key, system_clock{}.unix_ms(), node)));
        },
        [=](const caf::error& why) { to->respond(unreachable(from_caf(why))); });
  };
  with.common->system->spawn(ask, with.common->directory);
}

response no_such_sandbox() {
  return refused(404, "There is no such sandbox.", "not_found");
}

void list_runs(const services& with, const std::string& id, const std::string& query,
               const reply& to) {
  const auto after = read_place(form_value(query, "after"));
  if (!after)
    return to->respond(bad_cursor());
  find_runs wanted;
  wanted.before = *after;
  wanted.limit = runs_on_page;
  question{*with.common, id, std::move(wanted), to}
    .within(runs_patience, refused(504, "The sandbox did not answer in time.", "deadline_exceeded"))
    .starts(false)
    .or_else([](question_stage, const error& why) {
      return why.code == errc::not_found ? no_such_sandbox() : unreachable(why);
    })
    .then<run_list>([to](const run_list& all) {
      to->respond(told_now(write_runs(all, system_clock{}.unix_ms())));
    });
}

route runs_route(const shared_services& with) {
  route made{verb::get,
             "/console/sandboxes/:id/runs",
             access::key,
             body_use::ignored,
             0,
             [with](const matched_request& what) -> admission {
               if (!sandbox_id::parse(what.id()))
                 return http::refused(no_such_sandbox());
               return answered_by(
                 [with, id = what.id(), query = std::string{what.query}](
                   const std::string&, const reply& to) { list_runs(*with, id, query, to); });
             },
             {}};
  made.main_key_alone = true;
  made.unknown = [](const request_path&) { return no_such_sandbox(); };
  return made;
}

std::vector<route> routes_of(const shared_services& with) {
  const auto list_here = [with](const matched_request& what) {
    return answered_by([with, query = std::string{what.query}](
                         const std::string&, const reply& to) { list(*with, query, to); });
  };
  route list_at_node{
    verb::get, "/console/nodes/:node/sandboxes", access::key, body_use::ignored, 0, list_here, {}};
  list_at_node.at_node = true;
  list_at_node.main_key_alone = true;
  route list_of_this{verb::get, "/console/sandboxes", access::key, body_use::ignored, 0, list_here,
                     {}};
  list_of_this.main_key_alone = true;
  return {
    list_at_node,
    list_of_this,
    runs_route(with),
    {verb::get,
     "/",
     access::everybody,
     body_use::ignored,
     0,
     [](const matched_request& what) {
       return answered_by([gzip = what.takes_gzip()](const std::string&, const reply& to) {
         to->respond(page_response(shared_page(), gzip));
       });
     },
     {}},
    {verb::post,
     "/console/sign-in",
     access::own_page,
     body_use::buffered,
     limits::typed_key_bytes,
     [with](const matched_request& what) {
       return answered_by(
         [with, page = asking_page{what}](const std::string& typed, const reply& to) {
           to->respond(sign_in(*with, page, typed));
         });
     },
     {}},
    {verb::post,
     "/console/sign-out",
     access::own_page,
     body_use::ignored,
     0,
     [with](const matched_request& what) {
       return answered_by([with, page = asking_page{what}](const std::string&, const reply& to) {
         to->respond(sign_out(*with, page));
       });
     },
     {}},
  };
}

class console_api final : public public_api {
public:
  explicit console_api(shared_services with)
      : with_(std::move(with)) {}

  std::vector<route> routes() const override { return routes_of(with_); }
  std::string_view name() const override { return "console"; }
  bool claims(std::string_view) const override { return false; }
  response no_route(const std::string& methods) const override { return http::no_route(methods); }
  std::vector<std::string_view> key_fields() const override { return {}; }

private:
  const shared_services with_;
};

} // namespace

std::shared_ptr<const public_api> make_api(shared_services with) {
  return std::make_shared<console_api>(std::move(with));
}

response page(bool takes_gzip) {
  return page_response(shared_page(), takes_gzip);
}

} // namespace insula::http::console
