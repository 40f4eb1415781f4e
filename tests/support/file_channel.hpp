#pragma once

#include "base/stream_frames.hpp"
#include "runtime/engine.hpp"

#include <string>
#include <vector>

/// The asker's side of base/stream_frames.hpp, the plain and blocking way.
namespace insula::test {

struct file_answer {
  bool heard = false; ///< There was a head. Otherwise the channel was closed without one.
  file_head head{};
  std::string bytes;
  bool whole = false; ///< The content came to its end.
};

file_answer read_file(runtime::sandbox& in, const std::string& path,
                      runtime::sandbox_user user = {});

/// `cut`: hangs up after the content, without its end.
file_answer write_file(runtime::sandbox& in, const std::string& path, const std::string& content,
                       runtime::sandbox_user user = {}, bool cut = false);

/// A task with files. `content`: of a put.
file_answer run_task(runtime::sandbox& in, file_task what, const std::vector<std::string>& words,
                     const std::string& content = {});

} // namespace insula::test
