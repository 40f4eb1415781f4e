#pragma once

#include "storage/blobs/directory_blobs.hpp"
#include "storage/blobs/s3_blobs.hpp"
#include "tests/e2e/s3_server.hpp"
#include "tests/support/temp_dir.hpp"

#include <fcntl.h>
#include <memory>
#include <string>

namespace insula::test {

inline unique_fd open_directory(const std::string& path) {
  unique_fd opened{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!opened)
    throw std::runtime_error("no directory " + path);
  return opened;
}

inline storage::s3_settings settings_for(const s3_server& server) {
  storage::s3_settings settings;
  settings.endpoint = server.endpoint();
  settings.bucket = "data";
  settings.credentials = {s3_server::key, s3_server::secret};
  settings.first_pause = std::chrono::milliseconds{10};
  return settings;
}

struct directory_place {
  temp_dir where;
  std::unique_ptr<storage::blob_store> store =
    std::make_unique<storage::directory_blobs>(open_directory(where.path().string()), "there");
};

struct s3_place {
  s3_server server;
  std::unique_ptr<storage::blob_store> store =
    std::make_unique<storage::s3_blobs>(settings_for(server));
};

} // namespace insula::test
