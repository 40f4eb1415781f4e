// An archive of a client's, up to the entries that go into a sandbox.
#include "http/sandboxes/tar_decoder.hpp"
#include "base/stream_frames.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/tree_check.hpp"

#include <sys/mman.h>
#include <unistd.h>

using namespace insula;
using namespace insula::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr http::unpack_ceilings ceilings{4u << 20, 2'000};
  const int file = ::memfd_create("archive", MFD_CLOEXEC);
  must(file >= 0 && ::write(file, data, size) == static_cast<ssize_t>(size), "there is a file");
  ::lseek(file, 0, SEEK_SET);
  {
    http::tar_decoder decoder{file, ceilings};
    tree_check tree;
    while (!decoder.ended()) {
      const auto part = decoder.next();
      must(part.size() <= 3 * max_frame_bytes, "the parts are small");
      tree.feed(part);
    }
    must(tree.ended(), "there is an end, whatever the archive was");
    must(tree.content_bytes() <= ceilings.plain_bytes && tree.entries() <= ceilings.entries,
         "no archive unpacks to more than the ceilings");
    must(decoder.failure().size() <= max_tree_text, "what went wrong is said in few words");
  }
  ::close(file);
  return 0;
}
