#pragma once

#include "actors/sandbox/core.hpp"

namespace insula::actors::inside_sandbox {

class startup;

/// The name of the sandbox's user, where its profile has one. The user gets the name before a
/// request is served; in a sandbox that is adopted it has the name already, unless its first run
/// was about to begin.
class login final : public part {
public:
  login(core& of, startup& starts)
      : part(of)
      , startup_(starts) {}

  void starting() override { now_ = state::unknown; }
  bool settle(const then_function& then, const otherwise_function& failed) override;

private:
  enum class state : std::uint8_t { unknown, settling, settled };

  startup& startup_;
  state now_ = state::unknown; ///< In this start.
};

} // namespace insula::actors::inside_sandbox
