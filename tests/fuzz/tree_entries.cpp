// A tree that comes out of a sandbox (base/tree_frames.hpp), up to the archive that a client gets.
#include "base/log.hpp"
#include "http/bridge/archives.hpp"
#include "http/sandboxes/tar_decoder.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/played_exchange.hpp"
#include "tests/fuzz/tree_check.hpp"

#include <sys/mman.h>
#include <unistd.h>

using namespace insula;
using namespace insula::fuzz;

namespace {

/// What was handed out as a whole archive is one.
void check_archive(const std::string& bytes) {
  must(bytes.size() % 512 == 0 && bytes.size() >= 1024, "an archive is whole blocks");
  must(bytes.find_first_not_of('\0', bytes.size() - 1024) == bytes.npos,
       "an archive ends with two empty blocks");
  const int file = ::memfd_create("archive", MFD_CLOEXEC);
  must(file >= 0 && ::write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
       "there is a file");
  ::lseek(file, 0, SEEK_SET);
  {
    http::tar_decoder decoder{file, {1u << 30, 1u << 20}};
    tree_check tree;
    while (!decoder.ended())
      tree.feed(decoder.next());
    must(tree.ended(), "what was packed can be unpacked");
  }
  ::close(file);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  log::set_level(log::level::error);
  using http::bridge::archive_wish;
  for (const auto wish : {archive_wish::nothing, archive_wish::warning, archive_wish::hydrating}) {
    const auto got = play([&](http::reply to) {
      http::bridge::start_persist(channel_with(text_of(data, size)), wish, std::move(to));
    });
    must(got.answered, "every request is answered");
    if (got.finished)
      check_archive(got.streamed);
  }
  return 0;
}
