#pragma once

#include "base/error.hpp"
#include "storage/images/file_set.hpp"

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace insula::storage::images {

/// What one image may still cost, over all of its layers, and who is told how far it is.
struct import_budget {
  std::uint64_t bytes;                        ///< Unpacked.
  std::uint64_t entries;                      ///< Files and directories.
  std::uint64_t names;                        ///< Their bytes.
  std::function<void(std::uint64_t)> on_read; ///< So many bytes of a blob have been read more.
  std::function<bool()> cancelled; ///< Asked at every block. True: it ends with an error.
};

enum class entry_kind { file, directory, symlink, hard_link, fifo, device, unknown };

/// One member of a layer, as the tar has it: nothing is checked.
struct layer_entry {
  entry_kind kind = entry_kind::unknown;
  std::string path;
  std::string target; ///< Of a link.
  mode_t mode = 0;    ///< Permissions with setuid, setgid and sticky.
  std::int64_t uid = 0, gid = 0;
  std::uint64_t size = 0;
  timespec modified{};
  std::vector<std::pair<std::string, std::string>> attributes; ///< Extended ones, all of them.
};

/// A piece of a file. Between pieces there may be holes.
struct data_block {
  const void* bytes = nullptr; ///< Good until the next question. None: the end.
  std::size_t count = 0;
  std::uint64_t offset = 0;
};

/// A layer's tar out of its blob, plain or packed with gzip or zstd (one of them, once), with both
/// digests taken on the way.
class layer_reader {
public:
  /// What the blob must turn out to be. `digest` of the blob, empty if nobody has said; `diff_id`
  /// of the tar in it.
  struct expectation {
    std::string digest;
    std::string diff_id;
  };

  layer_reader(file_range blob, expectation wanted, import_budget& budget);
  ~layer_reader();
  layer_reader(const layer_reader&) = delete;
  layer_reader& operator=(const layer_reader&) = delete;

  /// False: there is none any more. Errors: invalid_request, payload_too_large, io_failed.
  result<bool> next(layer_entry& into);

  /// Of the entry that came last, which is a file.
  result<data_block> data();

  /// Reads what is left of tar and blob, and compares the digests: until then nothing of what came
  /// out may be believed.
  result<void> finish();

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

} // namespace insula::storage::images
