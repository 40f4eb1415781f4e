#pragma once

#include "apps/config.hpp"

#include <CLI/App.hpp>

#include <memory>
#include <optional>

namespace insula {

/// `insula oidc`: what is done with the keys that sign tokens about sandboxes, without asking the
/// server.
class oidc_commands {
public:
  explicit oidc_commands(CLI::App& program);
  ~oidc_commands();

  /// The exit status; none: another command was meant.
  std::optional<int> run(const environment& env);

private:
  struct impl;
  std::unique_ptr<impl> impl_;
};

} // namespace insula
