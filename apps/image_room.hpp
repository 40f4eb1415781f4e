#pragma once

#include "apps/child_process.hpp"
#include "apps/config.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/unique_fd.hpp"
#include "storage/images/authorities.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace insula {

/// What a server has its image room do.
enum class room_task : std::uint32_t {
  pull = 1, ///< The image of a reference. One answer, after the news of its image.
  remove,   ///< The image of a name. One answer.
  sweep,    ///< Trees that no name leads to, but for those that are named. No answer.
  used,     ///< The image of a name, just now. No answer.
};

struct room_order {
  room_task task{};
  std::uint64_t number = 0; ///< The answer has it.
};

enum class room_news : std::uint32_t {
  image = 1, ///< There is an image, or another one of that name.
  gone,      ///< No image has that name any more.
  progress,  ///< Of a pull.
  done,      ///< The answer. Of a pull: the name of the image.
  failed,    ///< The other answer.
};

struct room_head {
  room_news kind{};
  std::uint32_t code = 0; ///< Of a failure.
  std::uint64_t number = 0;
  std::uint64_t bytes = 0, total_bytes = 0; ///< Of progress.
  std::uint32_t ours = 0;                   ///< Of a name that is gone: the server wanted it.
};

struct room_packet {
  room_head head;
  std::string text;
};

/// `text` of an image: its record as JSON, its tree, where sandboxes have the certificates that
/// their programs trust, and its programs: "node 22.11.0\npython \n". A NUL stands between them.
struct told_image {
  std::string record, tree, bundle;
  std::map<std::string, std::string> programs;
};
std::optional<told_image> read_told_image(std::string_view text);

/// A process that has the rights which a server gives up: to fetch images, to unpack and to remove
/// them. The process sees images that others bring or remove while the server runs, and tells the
/// server of them. The server says no more than a reference or a name, which the process reads
/// anew; the process needs no network, and the one that reads a registry's words has no
/// rights (fetch_image.hpp).
///
/// It is this program, started anew: it has its settings, and nothing of the server's memory, files
/// and environment, but for the log and the variables by which a pull reaches registries. See
/// docs/decisions/0049.
///
/// Owner:   the server. The process ends with the server's end of the way.
/// Threads: any sends, one receives.
class image_room {
public:
  struct settings {
    std::string state_directory;
    storage::images::authorities trusted; ///< By sandboxes of all images.
    images_config policy;                 ///< The process fetches no image that it forbids.
    log::level least = log::level::info;  ///< Of what it writes into the log.
  };

  /// The first word of the process, by which main() knows that it is one: see run_image_room().
  static constexpr const char* program_name = "insula-images";

  /// While this process is root. Errors: launch_failed.
  static result<image_room> prepare(const settings& how);
  /// One that is at the other end of this socket already: for tests.
  static image_room on(unique_fd way);

  int way() const { return way_.get(); }
  /// Does not wait. False: the process has ended, or is too busy to take it.
  bool send(const room_order& order, std::string_view text) const;
  /// Waits. None: the process has ended, and does not stay behind as a zombie.
  std::optional<room_packet> receive() const;

private:
  mutable child_process process_; ///< The receiving thread takes its end.
  unique_fd way_;
};

} // namespace insula
