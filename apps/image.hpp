#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace insula {

/// `insula image pull|import|ls|show|rm`: the images that sandboxes start from.
///
/// Exit status: 0 when it is done, 1 when it could not be done, 2 for a command line that makes no
/// sense.
class image_commands {
public:
  /// Adds them to the program's commands.
  explicit image_commands(CLI::App& program);
  ~image_commands();
  image_commands(const image_commands&) = delete;
  image_commands& operator=(const image_commands&) = delete;

  /// After the command line was parsed. None: it is about something else.
  std::optional<int> run();

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

} // namespace insula
