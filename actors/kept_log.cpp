#include "actors/kept_log.hpp"

#include "actors/protocol/errors.hpp"
#include "actors/sandbox/idempotency_record.hpp"
#include "actors/weak_sender.hpp"

#include <caf/all.hpp>

#include <map>
#include <utility>

namespace insula::actors {

namespace {

struct piece_read {
  std::uint64_t question;
  runtime::output_log::piece piece;
};

} // namespace

} // namespace insula::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::actors::piece_read)

namespace insula::actors {

namespace {

using kept_log_impl = process_actor::extend<caf::reacts_to<piece_read>>;

/// More than one reader asks for.
constexpr std::size_t max_questions = 16;

struct kept_log_state {
  static inline const char* name = "kept_log";
  kept_log_options with;
  std::map<std::uint64_t, caf::typed_response_promise<output_chunk>> questions;
  std::uint64_t last_question = 0;

  ~kept_log_state() {
    const auto why = to_caf({errc::node_unreachable, "the node is going down"});
    for (auto& [number, question] : questions)
      question.deliver(why);
  }
};

kept_log_impl::behavior_type kept_log(kept_log_impl::stateful_pointer<kept_log_state> self,
                                      const std::shared_ptr<kept_log_options>& options) {
  self->state.with = std::move(*options);
  return {
    [self](const read_output& asked) -> caf::result<output_chunk> {
      auto& st = self->state;
      if (st.questions.size() >= max_questions)
        return to_caf({errc::limit_reached, "too many questions wait for this log"});
      auto reply = self->make_response_promise<output_chunk>();
      const auto number = ++st.last_question;
      st.questions.emplace(number, reply);
      st.with.in->read(st.with.log, asked.offset, asked.max_bytes,
                       [me = self->address(), number](runtime::output_log::piece piece) {
                         post_to<kept_log_impl>(me, piece_read{number, std::move(piece)});
                       });
      return reply;
    },
    [](detach_atom, std::uint64_t) {},
    [](const input_piece&) {
      return input_progress{0, input_state::over};
    },
    [self](piece_read& said) {
      auto& st = self->state;
      auto open = st.questions.extract(said.question);
      if (open.empty())
        return;
      output_chunk chunk;
      chunk.frames = std::move(said.piece.frames);
      chunk.next_offset = said.piece.next_offset;
      chunk.lost_bytes = said.piece.lost_bytes;
      // Also where a disk does not give back what it had: nothing will come behind it.
      if (chunk.next_offset >= st.with.log->log.end() || chunk.frames.empty())
        chunk.ended = st.with.end;
      open.mapped().deliver(std::move(chunk));
    },
  };
}

} // namespace

process_actor spawn_kept_log(caf::actor_system& system, kept_log_options options) {
  return system.spawn(kept_log, std::make_shared<kept_log_options>(std::move(options)));
}

result<std::set<std::string>> keys_of_logs(storage::store& local, const std::string& sandbox) {
  using namespace inside_sandbox;
  auto found = local.read(sandbox, exec_records);
  if (!found)
    return found.reason();
  std::set<std::string> keys;
  for (const auto& each : *found) {
    const auto known = idempotency_record::read(each.value);
    if (known.status.empty())
      continue;
    const auto state = command_state_of(known);
    if (state.output && state.run != 0)
      keys.insert(each.key.substr(exec_records.size()));
  }
  return keys;
}

} // namespace insula::actors
