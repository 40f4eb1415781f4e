// What etcd answers, what is found in the place that nodes share (manifests of snapshots, and
// names), and what nodes say to each other of snapshots.
#include "actors/snapshots/questions.hpp"
#include "base/base64.hpp"
#include "storage/etcd/gateway_json.hpp"
#include "storage/snapshots/manifest.hpp"
#include "tests/fuzz/bytes.hpp"

#include <string>

using namespace insula::fuzz;
using namespace insula::storage;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = text_of(data, size);
  static_cast<void>(etcd::read_outcome(text));
  static_cast<void>(etcd::read_grant(text));
  static_cast<void>(etcd::read_renewal(text));
  static_cast<void>(etcd::read_version(text));
  static_cast<void>(etcd::read_news(text));
  static_cast<void>(etcd::read_refusal(text));
  if (const auto bytes = insula::from_base64(text))
    must(insula::from_base64(insula::base64(*bytes)) == bytes, "base64 comes back");
  must(insula::from_base64(insula::base64(text)) == text, "bytes come back");
  if (const auto end = etcd::end_of_prefix(text); end != std::string(1, '\0'))
    must(end > text, "the end of a prefix is behind all that begin with it");

  if (const auto read = snapshots::manifest::read(text)) {
    const auto again = snapshots::manifest::read(read->text());
    must(again && again->taken_ms == read->taken_ms && again->pieces == read->pieces &&
           again->groups == read->groups,
         "a manifest comes back");
    for (const auto& each : read->pieces) {
      const auto named = snapshots::piece_of("space", each.name("space"));
      must(named && named->day == each.day && named->digest == each.digest,
           "a piece is known by its name");
      must(each.name("space").find("..") == std::string::npos, "no name leads out of its place");
    }
  }
  if (const auto read = snapshots::reference::read(text))
    must(read->text() == text, "a reference comes back");
  if (const auto read = insula::actors::snapshots::read_description(text)) {
    const auto again =
      insula::actors::snapshots::read_description(insula::actors::snapshots::text_of(*read));
    must(again && again->id == read->id && again->copy == read->copy &&
           again->labels.size() == read->labels.size() && again->sandboxes == read->sandboxes,
         "a snapshot that is told of comes back");
  }
  if (const auto read = insula::actors::snapshots::read_question(text)) {
    const auto again =
      insula::actors::snapshots::read_question(insula::actors::snapshots::text_of(*read));
    must(again && again->index() == read->index(), "a question comes back");
  }
  static_cast<void>(snapshots::key_of("space", text));
  static_cast<void>(snapshots::piece_of("space", text));
  return 0;
}
