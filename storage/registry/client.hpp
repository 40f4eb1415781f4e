#pragma once

#include "base/error.hpp"
#include "storage/registry/credentials.hpp"
#include "storage/registry/reference.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace insula::storage::registry {

struct client_options {
  login who;               ///< Empty: nobody in particular.
  std::string helper;      ///< A program that knows who, for the words of a refusal. May be empty.
  bool insecure = false;   ///< Also by HTTP, and with a certificate that cannot be verified.
  std::string authorities; ///< PEM. Empty: those of libcurl's own file.
  std::function<bool()> cancelled; ///< From any thread, several times a second. May be empty.

  std::chrono::seconds connect_patience{10};
  std::chrono::seconds silence_patience{30};  ///< Slower than 1 KiB/s for so long is a break.
  std::chrono::seconds document_patience{60}; ///< For all of a document.
  /// After a break, 429 or 5xx. Each pause is twice the last, unless the registry says how long.
  std::chrono::milliseconds first_pause{500};
  std::chrono::milliseconds longest_pause{60'000};
  unsigned tries = 6; ///< In a row that bring less than 1 MiB.
};

/// The PEM of all authorities that this machine trusts, for a process that will not reach the file:
/// SSL_CERT_FILE, or else libcurl's own. Empty: there is none to read.
std::string machine_authorities();

/// Takes the bytes of a blob, in their order.
class blob_sink {
public:
  virtual ~blob_sink() = default;
  /// How many it has; the next come behind these.
  virtual std::uint64_t size() const = 0;
  virtual std::uint64_t whole_size() const = 0;
  /// Errors end the transfer, for good.
  virtual result<void> add(const char* bytes, std::size_t count) = 0;
  virtual result<void> start_over() = 0;
  /// True: it takes no more, and the transfer ends. Asked several times a second.
  virtual bool unwanted() const = 0;
};

/// Asks one registry for the parts of one image, as the OCI distribution specification 1.1 has it.
/// Finds out how the registry is spoken to and who has to ask: HTTP is for hosts of this machine,
/// and where options say so; a login goes to the registry and to the token service that it names,
/// and to no host that a redirect leads to. What may pass (a break, 429, 5xx) is asked for again.
///
/// Threads: any; each call waits for the network, and can be cancelled within a second.
/// Memory:  a document, or 1 MiB for each call under way.
/// Errors:  unauthorized, not_found, limit_reached (it wants to be asked later), payload_too_large,
///          invalid_request (what it answers makes no sense), io_failed, deadline_exceeded (it was
///          cancelled); each with the registry's name.
class registry_client {
public:
  registry_client(image_reference image, client_options options);
  ~registry_client();
  registry_client(const registry_client&) = delete;
  registry_client& operator=(const registry_client&) = delete;

  struct document {
    std::string text;       ///< At most limits::image_document_bytes.
    std::string media_type; ///< As the answer's header has it. May be empty.
    std::string digest;     ///< Of the text; the one that was asked for, if any.
  };
  /// A manifest or an index, by a tag or a digest. One by a digest has it.
  result<document> manifest(const std::string& which);

  /// Brings what `into` does not have yet, and gives it no byte more than its whole size. Whether
  /// the bytes are the right ones is for `into` to say.
  result<void> blob(const std::string& digest, blob_sink& into);

private:
  class core;
  std::unique_ptr<core> core_;
};

} // namespace insula::storage::registry
