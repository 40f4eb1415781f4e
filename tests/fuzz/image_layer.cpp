// A layer of an image, unpacked. A copy of the same bytes is the second layer, so that it meets
// what is there. Owners are set, so this is for root; anybody else sees refusals only.
#include "storage/images/beneath.hpp"
#include "storage/images/digest.hpp"
#include "storage/images/layer_reader.hpp"
#include "storage/images/tree_writer.hpp"
#include "tests/fuzz/bytes.hpp"

#include <fcntl.h>
#include <memory>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace insula;
using namespace insula::fuzz;
using namespace insula::storage::images;

namespace {

/// A directory with the root of a tree in it, and something beside that nobody may touch.
class scratch {
public:
  scratch() {
    must(::mkdtemp(path_) != nullptr, "there is a directory");
    directory_.reset(::open(path_, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const unique_fd beside{
      ::openat(directory_.get(), "beside", O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
    must(write_all(beside.get(), "mine", 4) && ::mkdirat(directory_.get(), "root", 0755) == 0,
         "it can be used");
  }

  ~scratch() {
    int entries = 0;
    for_each_name(directory_.get(), [&](const std::string&) { return ++entries > 0; });
    struct stat info {};
    must(entries == 2 && ::fstatat(directory_.get(), "beside", &info, AT_SYMLINK_NOFOLLOW) == 0 &&
           info.st_size == 4 && info.st_nlink == 1 && (info.st_mode & 07777) == 0600,
         "nothing is written outside of the tree");
    must(remove_all_at(directory_.get(), "root") && remove_all_at(directory_.get(), "beside"),
         "a tree can be removed");
    ::rmdir(path_);
  }

  unique_fd root() const {
    return unique_fd{::openat(directory_.get(), "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  }

private:
  char path_[40] = "/dev/shm/insula-fuzz.XXXXXX";
  unique_fd directory_;
};

/// False: it was refused.
bool unpack(tree_writer& into, const file_range& blob, const layer_reader::expectation& wanted) {
  import_budget budget{4u << 20, 1'000, 1u << 20, [](std::uint64_t) {}, [] { return false; }};
  layer_reader reader{blob, wanted, budget};
  into.begin_layer();
  for (layer_entry entry;;) {
    const auto more = reader.next(entry);
    if (!more)
      return false;
    if (!*more)
      return static_cast<bool>(reader.finish());
    if (!into.apply(entry, [&] { return reader.data(); }))
      return false;
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = text_of(data, size);
  file_range blob;
  blob.file = std::make_shared<unique_fd>(::memfd_create("layer", MFD_CLOEXEC));
  blob.size = size;
  must(write_all(blob.file->get(), data, size), "there is a file");
  const layer_reader::expectation wanted{digest_of(bytes), digest_of(bytes)};
  const scratch place;
  tree_writer writer{place.root()};
  if (unpack(writer, blob, wanted) && unpack(writer, blob, wanted))
    must(static_cast<bool>(writer.finish()), "a tree that was taken can be finished");
  return 0;
}
