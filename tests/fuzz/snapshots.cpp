// What is said of snapshots of disks: the bodies of requests, places in lists, and records.
#include "actors/record_text.hpp"
#include "actors/snapshots/snapshot_record.hpp"
#include "base/id.hpp"
#include "base/limits.hpp"
#include "http/bridge/snapshot_json.hpp"
#include "tests/fuzz/bytes.hpp"

using namespace insula;
using namespace insula::fuzz;
using namespace insula::http;
namespace snapshots = insula::actors::snapshots;

namespace {

template <class T>
bool good(const result<T>& read) {
  must(read || read.reason().code == errc::invalid_request, "a bad text is the client's fault");
  return static_cast<bool>(read);
}

void check_bodies(const std::string& text) {
  if (const auto wanted = bridge::read_snapshot_body(text); good(wanted)) {
    must(wanted->keep_ms >= 0 && wanted->keep_last <= 1000, "what is kept has a ceiling");
    if (!snapshots::malformed(*wanted)) {
      snapshot_description is{"abc", "def"};
      is.name = wanted->name;
      is.labels = wanted->labels;
      is.keep_ms = wanted->keep_ms;
      is.root = "abc";
      actors::record_entries record;
      for (const auto& each : snapshots::changes_of(is))
        record[each.key] = *each.value;
      const auto again = snapshots::describe("abc", actors::from_text(actors::to_text(record)));
      must(again && again->labels == is.labels && again->name == is.name,
           "a record tells what it was told");
      must(!bridge::write_snapshot(*again).empty(), "it can be told");
    }
  }
  if (const auto wanted = bridge::read_fork_body(text); good(wanted)) {
    must(wanted->count >= 1 && wanted->count <= limits::forks_at_once, "siblings have a number");
    must(wanted->ids.empty() || wanted->ids.size() == wanted->count, "each has an id, or none has");
    for (const auto& id : wanted->ids)
      must(sandbox_id::parse(id).has_value(), "an id is one of a sandbox");
    for (const auto& [name, value] : wanted->env)
      must(!name.empty() && name.find('=') == name.npos && value.find('\0') == value.npos,
           "a variable is one");
  }
  if (const auto id = bridge::read_rollback_body(text); good(id))
    must(sandbox_id::parse(*id).has_value(), "a snapshot has an id");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text{text_of(data, size)};
  check_bodies(text);
  const auto range = snapshots::range_of({.origin = "abc", .after = text});
  if (good(range))
    must(range->mark.starts_with(snapshots::lines), "a list is one of snapshots");
  static_cast<void>(snapshots::describe("abc", actors::from_text(text)));
  return 0;
}
