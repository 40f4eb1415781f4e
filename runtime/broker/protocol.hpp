#pragma once

#include <cstddef>
#include <cstdint>

/// What a broker is told, and says. By the spawner, its parent, and by the gateway: one struct per
/// packet of a SOCK_SEQPACKET socket, with a text behind it and descriptors beside it. By a server:
/// frames in a stream, each with a text behind its head. All three are trusted; what comes over a
/// client's connection, and what servers answer, is not.
namespace insula::runtime::broker {

/// Where the broker finds the spawner's socket.
inline constexpr int spawner_fd = 3;

// ---- From the spawner

enum class order : std::uint32_t {
  gateway = 1, ///< One descriptor: the way to a gateway, in place of the one before. Clients stay.
  serve,       ///< One descriptor: the way to a server, in place of the one before. Rules stay.
};

struct spawner_packet {
  order what;
};

// ---- From and to the gateway

enum class word : std::uint32_t {
  client = 1, ///< To the broker, with a descriptor: a connection that wants the name in the text,
              ///< at `port`. Nothing of it is read yet. `id` is the gateway's.
  dialled,    ///< To the broker: what became of `id`, with a descriptor if `error` is 0; else the
              ///< text says why not.
  dial,       ///< To the gateway: a connection to the host in the text, at `port`. `id` is the
              ///< broker's.
  over,       ///< To the gateway: client `id` has ended, with so many bytes from it and to it.
  cut,        ///< To the broker: client `id` is to end at once.
  refused,    ///< To the gateway: a request for the host in the text, at `port`, was not let
              ///< through.
  changed,    ///< To the broker: an address that it is connected to is denied now. All connections
              ///< to servers end within a second.
};

struct gateway_packet {
  word what;
  std::uint32_t port = 0;
  std::uint64_t id = 0;
  std::int32_t error = 0;
  std::uint32_t unused = 0;
  std::uint64_t from_client = 0, to_client = 0;
};

inline constexpr std::size_t max_text = 1024; ///< Behind a packet, in bytes.

// ---- From and to a server

/// A frame's text is at most this: rules, certificates and keys.
inline constexpr std::size_t max_frame = 4u << 20;

enum class question : std::uint32_t {
  use = 1, ///< To the broker: packed texts, which are the certificate and the key of the sandbox's
           ///< authority, the certificates of authorities that are trusted, the rules as
           ///< insula::to_text() writes them, and the sandbox's name in the log. Answered when they
           ///< hold.
  figures, ///< To the broker. The answer has packed numbers: for each rule requests, bytes in,
           ///< bytes out, and the last status; then the bytes from and to clients that are there.
  token,   ///< To the server: a token for the audience in the text. The answer has it, or an error.
};

/// An answer has the `id` of its question and is_answer. `error`: an errc, or 0; the text says why.
struct frame {
  std::uint32_t bytes; ///< Of the text behind it.
  question what;
  std::uint64_t id;
  std::int32_t error;
  std::uint32_t is_answer;
};

} // namespace insula::runtime::broker
