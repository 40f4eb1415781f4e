#pragma once

#include "base/error.hpp"
#include "storage/images/documents.hpp"
#include "storage/images/file_set.hpp"

#include <memory>
#include <string>
#include <vector>

namespace insula::storage::images {

struct source_layer {
  file_range blob;
  std::string name;    ///< For errors: the digest, or the member of the archive.
  std::string digest;  ///< Of the blob. Empty: not said.
  std::string diff_id; ///< Of the tar in it.
};

/// An image as somebody has packed it: the parts of it, found and described, the documents verified
/// and the layers not yet read.
struct image_source {
  std::string format; ///< "oci" or "docker".
  std::string digest; ///< Of the manifest; for docker, of the configuration.
  oci_config config;
  std::vector<source_layer> layers; ///< The lowest first.
};

/// Finds the image for this machine in an OCI layout (a directory or a tar) or in what `docker
/// save` wrote. `tag`: which one, where there are several; empty: there must be one. Errors:
/// invalid_request, naming the document and what is wrong; io_failed.
result<image_source> open_image_source(const file_set& files, const std::string& tag);

/// This machine, in the words of images: "amd64", "arm64", … or what uname says.
std::string machine_architecture();

} // namespace insula::storage::images
