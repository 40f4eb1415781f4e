#include "http/bridge/snapshot_json.hpp"

#include "base/id.hpp"
#include "base/limits.hpp"
#include "http/json/document.hpp"
#include "http/json/writer.hpp"
#include "http/text/percent.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace insula::http::bridge {

namespace {

using json::value;
using json::writer;
using json::wrong;

/// Of a body that may be missing.
result<void> parse_object(std::string_view text, json::document& into) {
  if (text.empty()) {
    into.SetObject();
    return {};
  }
  if (!json::parse(text, into) || !into.IsObject())
    return wrong("the body is not a JSON object");
  return {};
}

/// Errors: it is there, and no whole number from `least` to `most`.
result<std::uint64_t> read_number(const value& in, const char* name, std::uint64_t usual,
                                  std::uint64_t least, std::uint64_t most) {
  const auto* given = json::find(in, name, {.null_is_absent = true});
  if (given == nullptr)
    return usual;
  if (!given->IsUint64() || given->GetUint64() < least || given->GetUint64() > most)
    return wrong(std::string{name} + " must be a whole number from " + std::to_string(least) +
                 " to " + std::to_string(most));
  return given->GetUint64();
}

result<std::map<std::string, std::string>> read_texts(const value& in, const char* name) {
  std::map<std::string, std::string> all;
  const auto* given = json::find(in, name, {.null_is_absent = true});
  if (given == nullptr)
    return all;
  if (!given->IsObject())
    return wrong(std::string{name} + " must be an object of strings");
  for (const auto& each : given->GetObject()) {
    if (!each.value.IsString())
      return wrong(std::string{name} + " must be an object of strings");
    all[json::string_of(each.name)] = json::string_of(each.value);
  }
  return all;
}

bool is_variable(const std::pair<const std::string, std::string>& each) {
  const auto& [name, content] = each;
  return !name.empty() && name.find('=') == std::string::npos &&
         name.find('\0') == std::string::npos && content.find('\0') == std::string::npos;
}

void put(writer& out, const snapshot_description& is) {
  out.begin_object().member("id", is.id).member("sandbox", is.origin);
  if (!is.parent.empty())
    out.member("parent", is.parent);
  out.member("root", is.root).member("state", name_of(is.state));
  out.member("kind", is.automatic ? "automatic" : "manual");
  if (is.run != 0)
    out.member("run", is.run);
  if (!is.name.empty())
    out.member("name", is.name);
  out.key("labels").begin_object();
  for (const auto& [name, content] : is.labels)
    out.member(name, content);
  out.end_object().member("image", is.image);
  if (const auto& digest = is.image_source.empty() ? is.image_digest : is.image_source;
      !digest.empty())
    out.member("image_digest", digest);
  if (is.image_changed)
    out.member("image_changed", true);
  out.member("bytes", is.bytes).member("created_ms", is.created_ms);
  out.member("last_used_ms", is.last_used_ms);
  if (const auto until = expires_ms(is); until && is.state == snapshot_state::created)
    out.member("expires_ms", *until);
  if (!is.copy.empty())
    out.member("shared", true);
  if (!is.no_copy.empty())
    out.member("not_shared", is.no_copy);
  if (is.sandboxes > 0)
    out.member("sandboxes", is.sandboxes);
  out.end_object();
}

} // namespace

result<std::uint32_t> read_limit(std::string_view query, std::uint32_t usual, std::uint32_t most) {
  const auto text = form_value(query, "limit");
  if (text.empty())
    return usual;
  const auto* const end = text.data() + text.size();
  std::uint32_t limit = 0;
  const auto [at, why] = std::from_chars(text.data(), end, limit);
  if (why != std::errc{} || at != end || limit == 0 || limit > most)
    return error{errc::invalid_request,
                 "limit must be a whole number from 1 to " + std::to_string(most)};
  return limit;
}

result<take_snapshot> read_snapshot_body(std::string_view text) {
  json::document body;
  if (auto good = parse_object(text, body); !good)
    return good.reason();
  take_snapshot wanted;
  if (const auto* name = json::find(body, "name", {.null_is_absent = true})) {
    if (!name->IsString())
      return wrong("name must be a string");
    wanted.name = json::string_of(*name);
  }
  auto labels = read_texts(body, "labels");
  if (!labels)
    return labels.reason();
  wanted.labels = std::move(*labels);
  constexpr std::uint64_t ten_years = 10ull * 365 * 24 * 3600;
  const auto keep = read_number(body, "keep_seconds", 0, 1, ten_years);
  if (!keep)
    return keep.reason();
  wanted.keep_ms = static_cast<std::int64_t>(*keep) * 1000;
  const auto last = read_number(body, "keep_last", 0, 1, 1000);
  if (!last)
    return last.reason();
  wanted.keep_last = static_cast<std::uint32_t>(*last);
  return wanted;
}

result<fork_body> read_fork_body(std::string_view text) {
  json::document body;
  if (auto good = parse_object(text, body); !good)
    return good.reason();
  fork_body wanted;
  const auto count = read_number(body, "count", 0, 1, limits::forks_at_once);
  if (!count)
    return count.reason();
  if (const auto* ids = json::find(body, "ids", {.null_is_absent = true})) {
    const auto wrong_ids = wrong("ids must be 1 to " + std::to_string(limits::forks_at_once) +
                                 " different ids of sandboxes, which have 1 to 128 characters of "
                                 "a-z and 2-7");
    if (!ids->IsArray() || ids->Empty() || ids->Size() > limits::forks_at_once)
      return wrong_ids;
    std::set<std::string> different;
    for (const auto& each : ids->GetArray()) {
      if (!each.IsString() || !sandbox_id::parse(json::text_of(each)) ||
          !different.insert(json::string_of(each)).second)
        return wrong_ids;
      wanted.ids.push_back(json::string_of(each));
    }
    if (*count != 0 && *count != wanted.ids.size())
      return wrong("count must be how many ids there are, if both are given");
  }
  wanted.count = wanted.ids.empty() ? std::max<std::uint32_t>(static_cast<std::uint32_t>(*count), 1)
                                    : static_cast<std::uint32_t>(wanted.ids.size());
  auto env = read_texts(body, "env");
  if (!env)
    return env.reason();
  if (!std::all_of(env->begin(), env->end(), is_variable))
    return wrong("env must have names without = and no NUL");
  wanted.env = std::move(*env);
  if (const auto* copy = json::find(body, "copy_env", {.null_is_absent = true})) {
    if (!copy->IsBool())
      return wrong("copy_env must be a boolean");
    wanted.copy_env = copy->GetBool();
  }
  return wanted;
}

result<std::string> read_rollback_body(std::string_view text) {
  json::document body;
  if (auto good = parse_object(text, body); !good)
    return good.reason();
  const auto* id = json::find(body, "snapshot");
  if (id == nullptr || !id->IsString() || !sandbox_id::parse(json::text_of(*id)))
    return wrong("snapshot must be the id of a snapshot");
  return json::string_of(*id);
}

std::string write_snapshot(const snapshot_description& is) {
  writer out;
  put(out, is);
  return out.str();
}

std::string write_snapshots(const snapshot_page& page) {
  writer out;
  out.begin_object().key("snapshots").begin_array();
  for (const auto& each : page.snapshots)
    put(out, each);
  out.end_array();
  if (!page.next.empty())
    out.member("cursor", page.next);
  return out.end_object().str();
}

namespace {

constexpr const char* name_of(change_kind what) {
  switch (what) {
    case change_kind::added: return "added";
    case change_kind::changed: return "changed";
    case change_kind::deleted: return "deleted";
  }
  return "?";
}

constexpr const char* name_of(changed_file type) {
  switch (type) {
    case changed_file::file: return "file";
    case changed_file::directory: return "directory";
    case changed_file::symlink: return "symlink";
    case changed_file::other: return "other";
  }
  return "?";
}

} // namespace

std::string write_changes(const snapshot_changes& page, const std::string& cursor) {
  writer out;
  out.begin_object();
  if (!page.older.empty())
    out.member("from", page.older);
  out.key("changes").begin_array();
  for (const auto& each : page.found.changes) {
    out.begin_object().member("path", each.path).member("change", name_of(each.what));
    out.member("type", name_of(each.type));
    if (each.type == changed_file::file)
      out.member("bytes", each.bytes);
    out.end_object();
  }
  out.end_array();
  if (!cursor.empty())
    out.member("cursor", cursor);
  return out.end_object().str();
}

std::string write_siblings(const std::vector<std::string>& ids) {
  writer out;
  out.begin_object().key("sandboxes").begin_array();
  for (const auto& each : ids)
    out.begin_object().member("id", each).end_object();
  return out.end_array().end_object().str();
}

} // namespace insula::http::bridge
