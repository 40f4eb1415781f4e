// What a request line and its fields are taken apart into: routes, ids, paths, keys, names. Lines:
// method, path, query, Host, Origin, Authorization, Accept-Encoding, Session-Id, Range.
#include "base/byte_budget.hpp"
#include "base/id.hpp"
#include "http/api/dispatcher.hpp"
#include "http/bridge/api.hpp"
#include "http/bridge/archives.hpp"
#include "http/bridge/workspace_path.hpp"
#include "http/preview/address.hpp"
#include "http/preview/message.hpp"
#include "http/proxy/request_fields.hpp"
#include "http/sandboxes/byte_range.hpp"
#include "http/sandboxes/session_id.hpp"
#include "http/text/header_text.hpp"
#include "http/text/percent.hpp"
#include "tests/fuzz/bytes.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::http;

namespace {

class played_head final : public request_head {
public:
  explicit played_head(byte_source from) {
    const auto first = from.until('\n');
    method =
      first.empty() ? verb::get : static_cast<verb>(static_cast<unsigned char>(first[0]) % 5);
    path = from.until('\n');
    query = from.until('\n');
    for (const auto* name :
         {"Host", "Origin", "Authorization", "Accept-Encoding", "Session-Id", "Range"})
      fields_[name] = from.until('\n');
  }
  std::string_view field(std::string_view name) const override {
    const auto at = fields_.find(name);
    return at == fields_.end() ? std::string_view{} : at->second;
  }
  void
  each_field(const std::function<void(std::string_view, std::string_view)>& tell) const override {
    for (const auto& [name, value] : fields_)
      tell(name, value);
  }

private:
  std::map<std::string_view, std::string_view> fields_;
};

/// A range is numbers, and what is told of a file is in it.
void check_range(std::string_view field) {
  const auto asked = read_range(field);
  if (!asked.first)
    return;
  const auto& [first, last] = *asked.first;
  must(!first.empty() || !last.empty(), "a range has a beginning or an end");
  for (const auto& each : {first, last})
    must(each.size() <= 18 && each.find_first_not_of("0123456789") == std::string::npos,
         "what a sandbox is told are numbers that it can have");
  for (const std::uint64_t size : {0ull, 1ull, 10ull, ~0ull})
    for (const std::uint64_t from : {0ull, 5ull, 10ull, ~0ull})
      if (const auto part = part_of(*asked.first, from, size))
        must(part->from == from && part->from < part->to && part->to <= size && part->size == size,
             "a part is in its file");
}

void check_paths(std::string_view text) {
  const auto decoded = percent_decode(text);
  must(decoded.size() <= text.size(), "decoding makes nothing longer");
  for (const auto& path : {decoded, bridge::decode_file_path(text), std::string{text}}) {
    const auto resolved = bridge::resolve_in_workspace(path);
    if (!resolved)
      continue;
    must(*resolved == "/workspace" || resolved->rfind("/workspace/", 0) == 0,
         "a path that resolves is below the workspace");
    const auto framed = *resolved + "/";
    for (const auto* part : {"/../", "/./", "//"})
      must(framed.find(part) == std::string::npos, "a resolved path has no odd segments");
    must(bridge::resolve_in_workspace(*resolved) == resolved, "resolving again changes nothing");
  }
}

void check_previews(std::string_view host, std::string_view path, std::string_view query) {
  if (const auto named = preview::address_of_host(host, "localhost", "/"); named) {
    const auto again = preview::label_of(named->id, named->port);
    must(again.empty() || same_letters(again + ".localhost", host.substr(0, host.find(':'))),
         "a name is that of its port and sandbox");
  }
  if (const auto behind = preview::address_of_path(path))
    must(behind->prefix + behind->path == path ||
           behind->prefix + behind->path == std::string{path} + "/",
         "a path is its prefix and the rest");
  const auto kept = proxy::without_token(query);
  must(kept.size() <= query.size() && proxy::without_token(kept) == kept,
       "a token is taken out at once");
}

std::shared_ptr<const public_api> the_bridge() {
  services with; // Nothing is asked of them before a body has come.
  with.spooled = std::make_shared<byte_budget>(1 << 20);
  with.decompressors = std::make_shared<byte_budget>(1);
  return bridge::make_api(std::make_shared<const services>(std::move(with)),
                          [] { return std::string{"{}"}; });
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto api = the_bridge();
  static const route_table table{api->routes()};
  static const dispatcher open{
    {.known = credentials{key_check{""}}, .pages = page_guard{{"insula.example"}}, .apis = {api}}};
  static const key_check key{"s3cret"};
  const played_head head{byte_source{data, size}};

  if (const auto found = table.find(head)) {
    must(table.rows()[found->row].method == head.method, "a route is found by its method");
    check_paths(found->path.tail);
    must(found->path.id().find('/') == std::string::npos, "an id is one segment");
  }
  check_paths(head.path);
  if (const auto id = sandbox_id::parse(head.path))
    must(id->str() == head.path && id->str().size() <= sandbox_id::max_length, "an id is its text");
  if (const auto excludes = bridge::read_excludes(head.query))
    for (const auto& pattern : *excludes)
      must(pattern.rfind("./", 0) == 0 && pattern.find('\0') == std::string::npos,
           "a pattern is one that can be passed on");
  check_previews(head.field("Host"), head.path, head.query);
  check_range(head.field("Range"));
  is_session_id(head.field("Session-Id"));
  accepts_gzip(head.field("Accept-Encoding"));

  const auto credentials = head.field("Authorization");
  if (key.allows_header(credentials, true))
    must(credentials.size() == 13 && credentials.substr(7) == "s3cret", "only the key opens");
  if (key.allows_query(head.query))
    must(head.query.find("token=") != std::string_view::npos, "only a token opens");

  const auto plan = open.admit(head);
  must(plan.refusal || plan.answer || plan.sink, "every request is answered in some way");
  if (!plan.refusal && head.path != "/health") {
    const auto host = head.field("Host");
    const auto origin = head.field("Origin");
    must(origin.empty() || (!host.empty() && origin.size() >= host.size() + 3),
         "a page is let in only from the host it asks");
  }
  return 0;
}
