// The JSON documents of an image. The first byte says which.
#include "storage/images/digest.hpp"
#include "storage/images/documents.hpp"
#include "storage/images/image_record.hpp"
#include "tests/fuzz/bytes.hpp"

using namespace insula;
using namespace insula::fuzz;
using namespace insula::storage::images;

namespace {

template <class Document>
void check_refusal(const result<Document>& got) {
  if (!got)
    must(got.reason().code == errc::invalid_request && !got.reason().message.empty(),
         "a refusal says what is wrong with the image");
}

void check_settings(const image_settings& said) {
  for (const auto& each : said.env)
    must(each.find('=') != each.npos && each.find('\0') == each.npos, "a variable is one");
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  byte_source from{data, size};
  const auto which = from.plain<std::uint8_t>() % 5;
  const auto text = from.rest();
  if (which == 0) {
    const auto got = read_index(text);
    check_refusal(got);
    if (got)
      for (const auto& each : got->manifests)
        must(is_digest(each.digest), "a manifest has a digest");
  } else if (which == 1) {
    const auto got = read_manifest(text);
    check_refusal(got);
    if (got)
      for (const auto& each : got->layers)
        must(is_digest(each.digest), "a layer has a digest");
  } else if (which == 2) {
    const auto got = read_config(text);
    check_refusal(got);
    if (got) {
      check_settings(got->settings);
      for (const auto& each : got->diff_ids)
        must(is_digest(each), "a layer's tar has a digest");
    }
  } else if (which == 3) {
    check_refusal(read_docker_images(text));
  } else {
    const auto got = read_image_record(text);
    check_refusal(got);
    if (got) {
      const auto again = read_image_record(to_json(*got));
      must(again && *again == *got, "a record comes back as it was written");
    }
  }
  return 0;
}
