#pragma once

#include "base/error.hpp"

#include <string>
#include <utility>
#include <vector>

namespace insula::storage::images {

/// Certificates of authorities that sandboxes trust beside those of their image.
struct authorities {
  struct certificate {
    std::string pem;
    std::string hash; ///< Of its subject: OpenSSL looks for it in a file of this name.
  };
  std::vector<certificate> all; ///< None: the image's have to do.

  std::string pem() const; ///< All of them.
};

/// Reads a file with certificates in PEM and nothing else. Errors: invalid_request, naming the file
/// and what is wrong with it; io_failed.
result<authorities> read_authorities(const std::string& file);

/// Where sandboxes have the certificates of `trusted` alone.
inline constexpr const char* authorities_file = "/etc/ssl/certs/insula-extra.pem";

/// Has sandboxes of the image in `place`, a directory with its `root`, trust them: makes a layer
/// `over` beside that, with the image's /etc and the certificates in the places where programs look
/// for them. Does nothing if that is so already. The image itself stays as it is, and so does a
/// layer on which sandboxes may stand: it goes with remove_old_layers(). Needs root.
/// Gives back the file, in a sandbox, with all certificates that programs trust.
/// Errors: io_failed.
result<std::string> trust(const std::string& place, const authorities& trusted);

/// For a server that has just started and finds no sandbox of an earlier one. Of all images.
void remove_old_layers(const std::string& images_directory);

} // namespace insula::storage::images
