#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <memory>

namespace insula::storage::images {

/// libarchive's reader, freed by whoever holds it.
class read_archive {
public:
  read_archive()
      : archive_(::archive_read_new()) {}

  archive* get() const { return archive_.get(); }

private:
  struct free_it {
    void operator()(archive* each) const { ::archive_read_free(each); }
  };
  std::unique_ptr<archive, free_it> archive_;
};

} // namespace insula::storage::images
