#include "storage/images/member_headers.hpp"

#include "base/limits.hpp"

namespace insula::storage::images {

int member_headers::next(archive_entry** into) {
  // What nobody has read of the last member's content is no header.
  if (begun_)
    if (const int skipped = ::archive_read_data_skip(tar_); skipped < ARCHIVE_WARN)
      return skipped;
  in_header_ = true;
  bytes_ = 0;
  const int got = ::archive_read_next_header(tar_, into);
  in_header_ = false;
  begun_ = got == ARCHIVE_OK || got == ARCHIVE_WARN;
  if (begun_) {
    const char* name = ::archive_entry_pathname(*into);
    last_ = name != nullptr ? name : "";
  }
  return got;
}

bool member_headers::may_read() const {
  return !in_header_ || bytes_ < limits::image_header_bytes;
}

error member_headers::too_long() const {
  return {errc::payload_too_large,
          (last_.empty() ? "its first member" : "the member after " + last_) +
            " has a header of more than " + std::to_string(limits::image_header_bytes) + " bytes"};
}

} // namespace insula::storage::images
