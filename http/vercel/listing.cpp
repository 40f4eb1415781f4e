#include "http/vercel/listing.hpp"

#include "base/hex.hpp"
#include "http/text/percent.hpp"
#include "http/vercel/access.hpp"
#include "http/vercel/operations.hpp"
#include "http/vercel/session_call.hpp"
#include "http/vercel/views.hpp"

#include <caf/event_based_actor.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <tuple>

namespace insula::http::vercel {

namespace {

enum class sorted_by : std::uint8_t { created, name, status };

struct list_call {
  shared_services with;
  std::string project;
  sorted_by by = sorted_by::created;
  bool descends = true;
  std::string name_prefix;
  std::optional<std::pair<std::string, std::string>> tag;
  std::string status;
  std::optional<std::string> after; ///< A place, as key_of() gives it.
  std::uint32_t limit = default_page;
};

std::string digits_of(std::int64_t ms) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "%016lld", static_cast<long long>(ms));
  return text.data();
}

/// The place of a sandbox in the list. No two have the same.
std::string key_of(const list_call& call, const sandbox_view& of) {
  switch (call.by) {
    case sorted_by::created: return digits_of(of.created_ms) + of.id;
    case sorted_by::name: return of.is.name;
    case sorted_by::status:
      return digits_of(std::max(
               {of.run.asked_ms, of.run.started_ms, of.run.stop_asked_ms, of.run.ended_ms})) +
             of.id;
  }
  return of.id;
}

bool fits(const list_call& call, const sandbox_view& of) {
  if (of.is.project != call.project || !of.is.name.starts_with(call.name_prefix) ||
      (!call.status.empty() && call.status != name_of(of.run.state)))
    return false;
  if (!call.tag)
    return true;
  const auto at = of.is.tags.find(call.tag->first);
  return at != of.is.tags.end() && at->second == call.tag->second;
}

using keyed_views = std::vector<std::pair<std::string, sandbox_view>>;

bool is_before(const list_call& call, const std::string& one, const std::string& other) {
  return call.descends ? one > other : one < other;
}

/// Of all, those that the page can have, in their order, and one more if there is one.
void keep_page(const list_call& call, keyed_views& all) {
  const auto count = std::min<std::size_t>(call.limit + 1, all.size());
  std::partial_sort(
    all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
    [&](const auto& one, const auto& other) { return is_before(call, one.first, other.first); });
  all.resize(count);
}

response page_of(const list_call& call, const keyed_views& all) {
  const auto count = std::min<std::size_t>(call.limit, all.size());
  json::ascii_writer out;
  out.begin_object().key("sandboxes").begin_array();
  for (std::size_t i = 0; i < count; ++i)
    write_sandbox(out, all[i].second);
  out.end_array().key("pagination");
  write_pagination(out, count,
                   count < all.size() ? std::optional{cursor_text(all[count - 1].first)}
                                      : std::nullopt);
  out.end_object();
  return {200, out.str()};
}

struct gathering {
  list_call call;
  reply to;
  keyed_views all;
};

void gather(caf::event_based_actor* self, const std::shared_ptr<gathering>& st,
            const std::string& after) {
  list_sandboxes question;
  question.after = after;
  question.limit = limits::list_page_sandboxes;
  self->request(st->call.with->directory, caf::infinite, question)
    .then(
      [=](const sandbox_page& page) {
        for (const auto& each : page.sandboxes)
          if (auto view = view_of(each.id, each.is); view && fits(st->call, *view))
            if (auto key = key_of(st->call, *view);
                !st->call.after || is_before(st->call, *st->call.after, key))
              st->all.emplace_back(std::move(key), std::move(*view));
        keep_page(st->call, st->all);
        if (!page.next.empty())
          return gather(self, st, page.next);
        st->to->respond(page_of(st->call, st->all));
        self->quit();
      },
      [=](const caf::error& why) {
        st->to->respond(failure(from_caf(why)));
        self->quit();
      });
}

std::optional<refusal> read_call(std::string_view query, list_call& into) {
  into.project = form_value(query, "project");
  if (into.project.empty())
    return bad_request("project is required");
  const auto limit = page_limit(query);
  if (!limit)
    return bad_request("limit must be from 1 to 50");
  into.limit = *limit;
  const auto by = form_value(query, "sortBy"), order = form_value(query, "sortOrder");
  if (by == "name")
    into.by = sorted_by::name;
  else if (by == "statusUpdatedAt")
    into.by = sorted_by::status;
  else if (!by.empty() && by != "createdAt")
    return bad_request("sortBy must be createdAt, name or statusUpdatedAt");
  if (!order.empty() && order != "asc" && order != "desc")
    return bad_request("sortOrder must be asc or desc");
  into.descends = order != "asc";
  into.name_prefix = form_value(query, "namePrefix");
  if (!into.name_prefix.empty() && into.by != sorted_by::name)
    return bad_request("namePrefix needs sortBy=name");
  into.status = form_value(query, "status");
  if (const auto tag = form_value(query, "tags"); !tag.empty()) {
    const auto colon = tag.find(':');
    if (colon == std::string::npos)
      return bad_request("tags must be key:value");
    into.tag = {tag.substr(0, colon), tag.substr(colon + 1)};
  }
  if (const auto cursor = form_value(query, "cursor"); !cursor.empty()) {
    into.after = place_of_cursor(cursor);
    if (!into.after)
      return bad_request("the cursor is not valid");
  }
  return std::nullopt;
}

} // namespace

std::optional<std::uint32_t> page_limit(std::string_view query) {
  const auto text = form_value(query, "limit");
  if (text.empty())
    return default_page;
  if (text.size() > 2 || text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const auto limit = static_cast<std::uint32_t>(std::stoul(text));
  return limit >= 1 && limit <= longest_page ? std::optional{limit} : std::nullopt;
}

std::string cursor_text(std::string_view place) {
  return to_hex({reinterpret_cast<const unsigned char*>(place.data()), place.size()});
}

std::optional<std::string> place_of_cursor(std::string_view cursor) {
  constexpr std::string_view digits = "0123456789abcdef";
  if (cursor.empty() || cursor.size() % 2 != 0 || cursor.size() > 1024)
    return std::nullopt;
  std::string place;
  for (std::size_t i = 0; i < cursor.size(); i += 2) {
    const auto high = digits.find(cursor[i]), low = digits.find(cursor[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos)
      return std::nullopt;
    place += static_cast<char>(high * 16 + low);
  }
  return place;
}

void add_list_route(std::vector<route>& table, const shared_services& with,
                    const std::string& prefix) {
  table.push_back(
    {verb::get, prefix + "/v2/sandboxes", access::bearer, body_use::ignored, 0,
     [with](const matched_request& what) -> admission {
       list_call call{with};
       if (const auto wrong = read_call(what.head().query, call))
         return refused(failure(*wrong));
       if (auto no = access::reach{*with, what.head()}.objection(call.project))
         return refused(std::move(*no));
       return answered_by([call = std::move(call)](const std::string&, const reply& to) {
         to->answer_within(look_patience, late_answer());
         call.with->system->spawn(
           [](caf::event_based_actor* self, const std::shared_ptr<gathering>& st) {
             gather(self, st, {});
           },
           std::make_shared<gathering>(gathering{call, to, {}}));
       });
     },
     listed("listVercelSandboxes", "The sandboxes of a project.", "VercelSandboxPage", {},
            {{"project", "query", "The project.", true},
             {"limit", "query", "1 to 50; else 20."},
             {"cursor", "query", "The `next` of the page before."},
             {"sortBy", "query", "createdAt, name or statusUpdatedAt."},
             {"sortOrder", "query", "asc or desc."},
             {"namePrefix", "query", "With sortBy=name: what the names begin with."},
             {"tags", "query", "KEY:VALUE; only sandboxes with this tag."}})});
}

} // namespace insula::http::vercel
