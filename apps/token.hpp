#pragma once

#include "apps/config.hpp"

#include <CLI/App.hpp>

#include <memory>
#include <optional>

namespace insula {

/// `insula token vercel`: makes tokens with the server's key, without asking the server.
class token_commands {
public:
  explicit token_commands(CLI::App& program);
  ~token_commands();

  /// The exit status; none: another command was meant.
  std::optional<int> run(const environment& env);

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

} // namespace insula
