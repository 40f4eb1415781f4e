#include "actors/sandbox/login.hpp"

#include "actors/run_record.hpp"
#include "actors/sandbox/profile.hpp"
#include "actors/sandbox/startup.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace insula::actors::inside_sandbox {

bool login::settle(const then_function& then, const otherwise_function&) {
  if (now_ != state::unknown)
    return now_ == state::settled;
  const auto& is = core_.profile();
  const auto run = last_run(record().entries());
  const bool has_it = startup_.adopting() && !(run && run->state == run_state::pending);
  now_ = is.login.empty() || has_it ? state::settled : state::settling;
  if (now_ == state::settled)
    return true;
  engine_sandbox()->name_user(
    {user_of(core_), is.login, is.home, is.cwd, sandbox_profile{}.cwd,
     startup_.is_first() || startup_.adopting()},
    [this, then, start = core_.start(), post = core_.post()](const result<void>& outcome) {
      post([=, this] {
        if (start != core_.start() || core_.now() != phase::starting || now_ != state::settling)
          return;
        if (outcome) {
          failpoint("sandbox.named");
          now_ = state::settled;
          return then();
        }
        const auto& why = outcome.reason();
        log::error("sandbox.no_login",
                   {{"id", core_.id()}, {"reason", why.message}, {"request", startup_.whose().id}});
        options().figures->not_started(start_failure::files);
        startup_.give_up({why.code == errc::io_failed ? errc::launch_failed : why.code,
                          "its user could not be named: " + why.message});
      });
    });
  return false;
}

} // namespace insula::actors::inside_sandbox
