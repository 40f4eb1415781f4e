#include "actors/kept_log.hpp"
#include "actors/protocol/errors.hpp"
#include "actors/sandbox/idempotency_record.hpp"
#include "storage/memory_store.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

#include <caf/all.hpp>

#include <fcntl.h>
#include <future>
#include <unistd.h>

using namespace insula;
using namespace insula::test;

namespace {

/// A log of three pieces, in an actor system with threads.
struct place {
  place() {
    runtime::output_log log{directory.path().string(), 1u << 20};
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
    const unique_fd from{ends[0]}, to{ends[1]};
    for (const char each : {'a', 'b', 'c'}) {
      const std::string text(60'000, each);
      REQUIRE(::write(to.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
      REQUIRE(log.append_from(from.get(), output_stream::out) == static_cast<ssize_t>(text.size()));
    }
    end = log.end();
    std::promise<bool> kept;
    logs.keep("box", "key", std::make_shared<unique_fd>(::fcntl(log.file(), F_DUPFD_CLOEXEC, 0)),
              [&](bool did) { kept.set_value(did); });
    REQUIRE(kept.get_future().get());
  }
  process_actor reader() {
    std::promise<std::shared_ptr<runtime::kept_logs::reader>> opened;
    logs.open("box", "key", end, [&](auto log) { opened.set_value(std::move(log)); });
    process_end how;
    how.exit_code = 3;
    return actors::spawn_kept_log(system, {&logs, opened.get_future().get(), how});
  }
  /// None: it was refused.
  std::optional<output_chunk> read(const process_actor& from, std::uint64_t offset,
                                   std::uint32_t most) {
    std::optional<output_chunk> got;
    caf::scoped_actor self{system};
    read_output question;
    question.offset = offset;
    question.max_bytes = most;
    self->request(from, std::chrono::minutes{1}, question)
      .receive([&](output_chunk& chunk) { got = std::move(chunk); }, [](const caf::error&) {});
    return got;
  }

  temp_dir directory;
  runtime::kept_logs logs{directory.path().string(), {1u << 20, 1u << 20, 100, 0}};
  std::uint64_t end = 0;
  caf::actor_system_config config;
  caf::actor_system system{config};
};

} // namespace

TEST_CASE("a log that is kept is read as that of a command, to its end", "[actors][logs]") {
  place at;
  const auto reader = at.reader();
  std::string text;
  std::uint64_t offset = 0;
  for (int i = 0; i < 10; ++i) {
    const auto chunk = at.read(reader, offset, 1);
    REQUIRE(chunk);
    CHECK(chunk->lost_bytes == 0);
    for (const auto& each : chunk->frames)
      text += each.bytes;
    offset = chunk->next_offset;
    if (chunk->ended) {
      CHECK(chunk->ended->exit_code == 3);
      break;
    }
  }
  CHECK(offset == at.end);
  CHECK(text == std::string(60'000, 'a') + std::string(60'000, 'b') + std::string(60'000, 'c'));
  INFO("again, from anywhere, and behind the end");
  CHECK(at.read(reader, 0, 1u << 20)->next_offset == at.end);
  CHECK(at.read(reader, at.end + 7, 1)->ended);
}

TEST_CASE("the keys of logs are those of remembered commands of runs", "[actors][logs]") {
  using namespace actors::inside_sandbox;
  storage::memory_store store;
  const auto record = [](bool output, std::uint64_t run) {
    idempotency_record made{"digest", 5, "start"};
    made.status = text_of({.known = true, .output = output, .text = "text", .run = run});
    return made.text();
  };
  store.commit({"box",
                2,
                {{"idempotency/exec/a", record(true, 7)},
                 {"idempotency/exec/b", record(false, 7)},
                 {"idempotency/exec/c", record(true, 0)},
                 {"idempotency/exec/d", idempotency_record{"digest", 5, "start"}.text()},
                 {"other", "x"}}},
               [](const result<void>& done) { REQUIRE(done); });
  const auto keys = actors::keys_of_logs(store, "box"),
             none = actors::keys_of_logs(store, "nobody");
  REQUIRE(keys);
  CHECK(*keys == std::set<std::string>{"a"});
  REQUIRE(none);
  CHECK(none->empty());
}
