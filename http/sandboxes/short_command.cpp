#include "http/sandboxes/short_command.hpp"

#include "http/sandboxes/ask_sandbox.hpp"

#include <algorithm>

namespace insula::http {

namespace {

constexpr std::size_t most_kept = 64 * 1024;

/// What is read so far, for as long as the reader lives.
struct reading {
  process_actor process;
  std::function<void(const result<short_outcome>&)> then;
  short_outcome outcome;
};

void read_on(caf::event_based_actor* self, const std::shared_ptr<reading>& st,
             std::uint64_t offset) {
  read_output question;
  question.offset = offset;
  question.attached = true;
  self->request(st->process, caf::infinite, question)
    .then(
      [=](const output_chunk& chunk) {
        for (const auto& frame : chunk.frames) {
          auto& kept = frame.stream == output_stream::out ? st->outcome.out : st->outcome.err;
          kept.append(frame.bytes, 0, most_kept - std::min(most_kept, kept.size()));
        }
        if (!chunk.ended)
          return read_on(self, st, chunk.next_offset);
        st->outcome.end = *chunk.ended;
        if (st->outcome.end.lost)
          st->then(sandbox_ended);
        else
          st->then(st->outcome);
        self->quit();
      },
      [=](const caf::error& why) {
        st->then(from_caf(why));
        self->quit();
      });
}

} // namespace

void run_short_command(const services& with, const std::string& id, exec_request wanted,
                       std::function<void(const result<short_outcome>&)> then) {
  sandbox_question<exec_request, process_actor> asked{
    with.directory, id, std::move(wanted),
    [system = with.system, then](const process_actor& process) {
      system->spawn(
        [](caf::event_based_actor* self, const std::shared_ptr<reading>& st) {
          self->monitor(st->process);
          self->set_down_handler([=](const caf::down_msg&) {}); // The question fails with it.
          read_on(self, st, 0);
        },
        std::make_shared<reading>(reading{process, then, {}}));
    },
    [then](question_stage, const error& why) { then(why); }};
  asked.starts_it = false;
  asked.may_repeat = false; // It may have run.
  ask_sandbox(with, std::move(asked));
}

} // namespace insula::http
