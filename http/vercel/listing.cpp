#include "http/vercel/listing.hpp"

#include "base/hex.hpp"
#include "http/text/percent.hpp"
#include "http/vercel/access.hpp"
#include "http/vercel/operations.hpp"
#include "http/vercel/session_call.hpp"
#include "http/vercel/views.hpp"

#include <caf/event_based_actor.hpp>

#include <algorithm>

namespace insula::http::vercel {

namespace {

/// A filter looks at so many sandboxes for one page, or a few more. Then the page ends where it has
/// come to, with fewer sandboxes or none, and with a cursor.
constexpr std::size_t most_looked_at = 1'000;

/// So many at a time where a filter leaves some out.
constexpr std::uint32_t filter_step = limits::list_page_sandboxes;

struct list_call {
  shared_services with;
  list_group list; ///< From the cursor on; `limit` is not of the page.
  std::optional<std::pair<std::string, std::string>> tag;
  std::string status;
  std::uint32_t limit = default_page;

  bool filters() const { return tag || !status.empty(); }
};

bool fits(const list_call& call, const sandbox_view& of) {
  if (of.is.project != call.list.group ||
      (!call.status.empty() && call.status != name_of(of.run.state)))
    return false;
  if (!call.tag)
    return true;
  const auto at = of.is.tags.find(call.tag->first);
  return at != of.is.tags.end() && at->second == call.tag->second;
}

/// A page that is being read, by steps.
struct gathering {
  list_call call;
  reply to;
  std::vector<std::pair<sandbox_view, std::string>> found; ///< Each with its place.
  std::size_t looked_at = 0;

  /// One more than the page has says whether there is another page.
  bool is_full() const { return found.size() > call.limit; }
};

/// `next`: where the list goes on behind all that has been looked at.
response page_of(const gathering& st, const std::string& next) {
  const auto count = std::min<std::size_t>(st.call.limit, st.found.size());
  json::ascii_writer out;
  out.begin_object().key("sandboxes").begin_array();
  for (std::size_t i = 0; i < count; ++i)
    write_sandbox(out, st.found[i].first);
  out.end_array().key("pagination");
  const auto& place = st.is_full() ? st.found[count - 1].second : next;
  write_pagination(out, count, place.empty() ? std::nullopt : std::optional{cursor_text(place)});
  out.end_object();
  return {200, out.str()};
}

void gather(caf::event_based_actor* self, const std::shared_ptr<gathering>& st) {
  auto question = st->call.list;
  const auto lacks = static_cast<std::uint32_t>(st->call.limit + 1 - st->found.size());
  question.limit = st->call.filters() ? filter_step : lacks;
  self->request(st->call.with->directory, caf::infinite, question)
    .then(
      [=](const group_page& page) {
        for (const auto& each : page.sandboxes) {
          if (st->is_full())
            break;
          if (auto view = view_of(each.id, each.is); view && fits(st->call, *view))
            st->found.emplace_back(std::move(*view), each.place);
        }
        st->looked_at += question.limit;
        st->call.list.after = page.next;
        if (!st->is_full() && !page.next.empty() && st->looked_at < most_looked_at)
          return gather(self, st);
        st->to->respond(page_of(*st, page.next));
        self->quit();
      },
      [=](const caf::error& why) {
        st->to->respond(failure(from_caf(why)));
        self->quit();
      });
}

std::optional<refusal> read_call(std::string_view query, list_call& into) {
  auto& list = into.list;
  list.group = form_value(query, "project");
  if (list.group.empty())
    return bad_request("project is required");
  page_words page;
  if (auto wrong = read_page(query, page))
    return wrong;
  into.limit = page.limit;
  list.descends = !page.ascends;
  list.after = std::move(page.after);
  const auto by = form_value(query, "sortBy");
  if (by == "name")
    list.by = list_order::name;
  else if (by == "statusUpdatedAt")
    list.by = list_order::state;
  else if (!by.empty() && by != "createdAt")
    return bad_request("sortBy must be createdAt, name or statusUpdatedAt");
  list.name_prefix = form_value(query, "namePrefix");
  if (!list.name_prefix.empty() && list.by != list_order::name)
    return bad_request("namePrefix needs sortBy=name");
  into.status = form_value(query, "status");
  if (const auto tag = form_value(query, "tags"); !tag.empty()) {
    const auto colon = tag.find(':');
    if (colon == std::string::npos)
      return bad_request("tags must be key:value");
    into.tag = {tag.substr(0, colon), tag.substr(colon + 1)};
  }
  return std::nullopt;
}

} // namespace

std::string cursor_text(std::string_view place) {
  return to_hex({reinterpret_cast<const unsigned char*>(place.data()), place.size()});
}

std::optional<std::uint32_t> page_limit(std::string_view query) {
  const auto text = form_value(query, "limit");
  if (text.empty())
    return default_page;
  if (text.size() > 2 || text.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  const auto limit = static_cast<std::uint32_t>(std::stoul(text));
  return limit >= 1 && limit <= longest_page ? std::optional{limit} : std::nullopt;
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

std::optional<refusal> read_page(std::string_view query, page_words& into) {
  const auto limit = page_limit(query);
  if (!limit)
    return bad_request("limit must be from 1 to 50");
  const auto order = form_value(query, "sortOrder");
  if (!order.empty() && order != "asc" && order != "desc")
    return bad_request("sortOrder must be asc or desc");
  if (const auto cursor = form_value(query, "cursor"); !cursor.empty()) {
    auto place = place_of_cursor(cursor);
    if (!place)
      return bad_request("the cursor is not valid");
    into.after = std::move(*place);
  }
  into.limit = *limit;
  into.ascends = order == "asc";
  return std::nullopt;
}

void add_list_route(std::vector<route>& table, const shared_services& with,
                    const std::string& prefix) {
  table.push_back(
    {verb::get, prefix + "/v2/sandboxes", access::bearer, body_use::ignored, 0,
     [with](const matched_request& what) -> admission {
       list_call call{with, {}, {}, {}};
       if (const auto wrong = read_call(what.head().query, call))
         return refused(failure(*wrong));
       if (auto no = access::reach{*with, what}.objection(call.list.group))
         return refused(std::move(*no));
       return answered_by([call = std::move(call)](const std::string&, const reply& to) {
         to->answer_within(look_patience, late_answer());
         call.with->system->spawn([](caf::event_based_actor* self,
                                     const std::shared_ptr<gathering>& st) { gather(self, st); },
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
