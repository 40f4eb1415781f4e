// An image as a file: an OCI archive, or what `docker save` writes, up to where its layers lie.
#include "storage/images/file_set.hpp"
#include "storage/images/image_source.hpp"
#include "tests/fuzz/bytes.hpp"

#include <array>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

using namespace insula::fuzz;
using namespace insula::storage::images;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int file = ::memfd_create("image", MFD_CLOEXEC);
  must(file >= 0 && ::write(file, data, size) == static_cast<ssize_t>(size), "there is a file");
  constexpr std::uint64_t ceiling = 4u << 20;
  const auto files = open_file_set("/proc/self/fd/" + std::to_string(file), "/tmp", ceiling);
  if (files) {
    const auto image = open_image_source(**files, "");
    if (image) {
      for (const auto& layer : image->layers) {
        std::array<char, 512> bytes{};
        const auto got = read_at(layer.blob, 0, bytes.data(), bytes.size());
        must(got <= static_cast<std::ptrdiff_t>(bytes.size()),
             "no more is read than there is room");
      }
      must(image->config.diff_ids.size() == image->layers.size(), "every layer is described");
    } else {
      must(!image.reason().message.empty(), "a refusal says why");
    }
  }
  ::close(file);
  return 0;
}
