// What is said about images in registries. The first byte says which reader.
#include "storage/registry/allow.hpp"
#include "storage/registry/challenge.hpp"
#include "storage/registry/credentials.hpp"
#include "storage/registry/pull.hpp"
#include "storage/registry/reference.hpp"
#include "tests/fuzz/bytes.hpp"

#include <string>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::storage::registry;

namespace {

void check_refusal(const error& why) {
  must(why.code == errc::invalid_request && !why.message.empty(), "a refusal says what is wrong");
}

/// The same by its words alone: each star tries every end. Only for what is short.
bool slowly_matches(std::string_view pattern, std::string_view text) {
  if (pattern.empty())
    return text.empty();
  if (pattern.front() != '*')
    return !text.empty() && text.front() == pattern.front() &&
           slowly_matches(pattern.substr(1), text.substr(1));
  const bool any = pattern.starts_with("**");
  for (std::size_t i = 0;; ++i) {
    if (slowly_matches(pattern.substr(any ? 2 : 1), text.substr(i)))
      return true;
    if (i == text.size() || (!any && text[i] == '/'))
      return false;
  }
}

void check_reference(std::string_view text) {
  const auto got = parse_reference(text);
  if (!got)
    return check_refusal(got.reason());
  const auto again = parse_reference(got->str());
  must(again && *again == *got, "a reference comes back as it was written");
  must(got->name().size() <= 255 && (!got->tag.empty() || !got->digest.empty()),
       "a reference is complete");
  must(got->repository.find("..") == std::string::npos, "no name leads up");
  for (const char each : got->str())
    must(each > ' ' && each <= '~' && each != '?' && each != '#' && each != '%',
         "a reference stands in a URL as it is");
}

void check_pattern_of(byte_source& from) {
  const std::string pattern{from.until('\n')};
  const auto image = parse_reference(from.rest());
  if (!image)
    return;
  const auto whole =
    image->name() + (image->digest.empty() ? ":" + image->tag : "@" + image->digest);
  must(allows({"**"}, *image) && allows({image->name()}, *image) && allows({whole}, *image),
       "each image fits what says it in full");
  const auto last = pattern.substr(pattern.rfind('/') + 1);
  const bool says_which = pattern.ends_with("**") || last.find_first_of(":@") != last.npos;
  if (check_pattern(pattern) && pattern.size() <= 12)
    must(allows({pattern}, *image) == slowly_matches(pattern, says_which ? whole : image->name()),
         "a pattern fits what its words say");
  else if (!check_pattern(pattern))
    must(!allows({pattern}, *image), "a wrong pattern fits nothing");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  switch (from.plain<std::uint8_t>() % 5) {
    case 0: check_reference(from.rest()); break;
    case 1: check_pattern_of(from); break;
    case 2:
      for (const auto& each : read_challenges(from.rest())) {
        must(!each.scheme.empty() && each.parameters.size() <= 16, "a challenge has a scheme");
        for (const auto& [name, value] : each.parameters)
          for (const char c : value)
            must(static_cast<unsigned char>(c) >= ' ', "no value is a line of its own");
      }
      break;
    case 3: {
      const auto image = parse_reference("registry.example:5000/a/b/c");
      const auto got = credentials::read(from.rest());
      if (!got) {
        check_refusal(got.reason());
        break;
      }
      const auto found = got->find(*image);
      must(found.who.user.find(':') == std::string::npos, "a name has no colon");
      must(found.who.empty() || found.helper.empty(), "a login needs no helper");
      break;
    }
    default:
      if (const auto got = parse_platform(from.rest()))
        must(*parse_platform(got->str()) == *got, "a platform comes back as it was written");
  }
  return 0;
}
