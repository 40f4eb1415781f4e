// What a peer sends on its link, up to what CAF is given of it.
#include "actors/cluster/frame_guard.hpp"
#include "actors/cluster/greeting.hpp"
#include "tests/fuzz/bytes.hpp"

#include <string>

using namespace insula::actors::cluster;
using namespace insula::fuzz;

namespace {

constexpr std::uint64_t here = 7;
const std::string shape = "+what+it+is";
const std::string identity = "node-one";

struct outcome {
  std::string passed;
  std::string objection;
  int claims = 0;
};

/// In pieces of that size; 0: at once.
outcome through(bool dialled, std::string_view bytes, std::size_t piece) {
  outcome is;
  frame_guard guard{{dialled, here, shape, identity.size(), [&](const std::string& claimed) {
                       ++is.claims;
                       return claimed == identity;
                     }}};
  while (!bytes.empty() && is.objection.empty()) {
    const auto part = bytes.substr(0, piece == 0 ? bytes.size() : piece);
    bytes.remove_prefix(part.size());
    if (const auto why = guard.feed(part, is.passed)) {
      must(!why->empty(), "whoever is dropped is told of in words");
      is.objection = *why;
    }
  }
  return is;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  const bool dialled = from.plain<std::uint8_t>() % 2 == 1;
  const std::size_t piece = 1 + from.plain<std::uint8_t>();
  const auto bytes = from.rest();
  const auto whole = through(dialled, bytes, 0);
  const auto parts = through(dialled, bytes, piece);
  must(whole.passed == parts.passed && whole.objection == parts.objection &&
         whole.claims == parts.claims,
       "how it comes makes no difference");
  must(whole.passed.size() <= bytes.size(), "nothing is invented");
  must(whole.passed.empty() || whole.claims == 1, "nothing passes before it is known whose it is");
  if (const auto line = greeting::parse(bytes))
    must(greeting::parse(line->line())->version == line->version, "a greeting says one version");
  return 0;
}
