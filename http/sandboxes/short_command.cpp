#include "http/sandboxes/short_command.hpp"

#include "http/sandboxes/ask_sandbox.hpp"

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/send.hpp>

#include <algorithm>

namespace insula::http {

/// What a feed is told to write.
struct fed_piece {
  std::string bytes;
  bool last = false;
  std::function<void(bool taken)> then;
};

} // namespace insula::http

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(insula::http::fed_piece)

namespace insula::http {

namespace {

/// For the command to read what is in the way of a piece; then it is asked again.
constexpr std::chrono::seconds piece_patience{30};

constexpr std::size_t most_kept = 64 * 1024;

/// What is read so far, for as long as the reader lives.
struct reading {
  process_actor process;
  std::function<void(command_feed)> began;
  std::function<void(const result<short_outcome>&)> then;
  short_outcome outcome = {};
  std::uint64_t fed = 0; ///< Of the command's input.
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

/// A slow command is given what is left of the piece, as often as it takes.
void feed(caf::event_based_actor* self, const std::shared_ptr<reading>& st,
          const std::shared_ptr<fed_piece>& what) {
  self
    ->request(st->process, caf::infinite,
              input_piece{st->fed, what->bytes, what->last, piece_patience})
    .then(
      [=](const input_progress& now) {
        what->bytes.erase(0, now.taken - st->fed);
        st->fed = now.taken;
        if (now.state == input_state::slow)
          feed(self, st, what);
        else
          what->then(now.state == input_state::taken);
      },
      [=](const caf::error&) { what->then(false); }); // Its end is told to the other.
}

caf::behavior short_command(caf::event_based_actor* self, const std::shared_ptr<reading>& st) {
  self->monitor(st->process);
  self->set_down_handler([=](const caf::down_msg&) {}); // The question fails with it.
  read_on(self, st, 0);
  if (st->began)
    std::exchange(st->began, nullptr)(command_feed{self});
  return {[=](fed_piece& what) { feed(self, st, std::make_shared<fed_piece>(std::move(what))); }};
}

} // namespace

void command_feed::write(std::string bytes, bool last, std::function<void(bool taken)> then) const {
  caf::anon_send(to_, fed_piece{std::move(bytes), last, std::move(then)});
}

void run_short_command(const services& with, const std::string& id, exec_request wanted,
                       std::function<void(const result<short_outcome>&)> then) {
  run_fed_command(with, id, std::move(wanted), nullptr, std::move(then));
}

void run_fed_command(const services& with, const std::string& id, exec_request wanted,
                     std::function<void(command_feed)> began,
                     std::function<void(const result<short_outcome>&)> then) {
  wanted.input = began != nullptr;
  wanted.awaits_reader = true;
  sandbox_question<exec_request, process_actor> asked{
    with.directory, id, std::move(wanted),
    [system = with.system, began = std::move(began), then](const process_actor& process) {
      system->spawn(short_command, std::make_shared<reading>(reading{process, began, then}));
    },
    [then](question_stage, const error& why) { then(why); }};
  asked.starts_it = false;
  asked.may_repeat = false; // It may have run.
  ask_sandbox(with, std::move(asked));
}

} // namespace insula::http
