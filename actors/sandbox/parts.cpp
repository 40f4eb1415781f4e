#include "actors/sandbox/parts.hpp"

namespace insula::actors::inside_sandbox {

void all_parts::run(exec_request wanted, const reply<process_actor>& to) {
  waiting_command what{std::move(wanted), nullptr};
  const auto start = [this](waiting_command one, const reply<process_actor>& told) {
    one.wanted.session.empty() ? jobs.run(std::move(one), told) : shells.run(std::move(one), told);
  };
  what.memory = jobs.take_memory(what.wanted);
  if (!what.memory)
    return to.fail({errc::limit_reached, "too much waits to be run"});
  const auto context = what.wanted.context;
  const bool only_if_there = what.wanted.only_if_there;
  const auto shared = std::make_shared<waiting_command>(std::move(what));
  const auto go = [=, this] {
    object.when_running(to, context, [=, this] {
      if (shared->wanted.once.key.empty())
        start(std::move(*shared), to);
      else
        keys.run(std::move(*shared), start, to);
    });
  };
  only_if_there ? object.when_there(context, go, to.otherwise()) : go();
}

} // namespace insula::actors::inside_sandbox
